//! Which calls of an answer may start: neighbours that are safe side by side run together, the
//! others one after another, in the order in which the model asked for them.

use instar_store::entity::tool_call;

/// A call as far as its turn to run depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    pub name: &'a str,
    /// It has no result yet.
    pub open: bool,
    /// It may run as far as policy goes, and nobody has begun it.
    pub ready: bool,
}

impl<'a> From<&'a tool_call::Model> for Slot<'a> {
    fn from(call: &'a tool_call::Model) -> Slot<'a> {
        let ready = call.status == "executing" && call.owner.is_none();
        Slot { name: &call.name, open: call.ended_at.is_none(), ready }
    }
}

/// Places of the calls that may start now: ready, and not behind one that must go first. In the
/// order in which they were asked for; `parallel` says whether a tool may run beside others.
pub fn startable<'a>(calls: impl IntoIterator<Item = Slot<'a>>, parallel: impl Fn(&str) -> bool) -> Vec<usize> {
    let (mut open, mut alone) = (false, false);
    let mut startable = Vec::new();
    for (at, call) in calls.into_iter().enumerate().filter(|(_, call)| call.open) {
        let beside = parallel(call.name);
        let free = if beside { !alone } else { !open };
        if free && call.ready {
            startable.push(at);
        }
        open = true;
        alone |= !beside;
    }
    startable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_only_read_run_together_and_others_in_order() {
        // `r` reads, `w` writes, capital letters have their result, `a` waits for approval (and writes).
        let cases = [
            ("rr", vec![0, 1]),
            ("rrw", vec![0, 1]),
            ("rw", vec![0]),
            ("wr", vec![0]),
            ("Wr", vec![1]),
            ("RRwr", vec![2]),
            ("ar", vec![]),
            ("ra", vec![0]),
            ("Rar", vec![]),
        ];
        for (text, expected) in cases {
            let names: Vec<String> = text.chars().map(|c| c.to_ascii_lowercase().to_string()).collect();
            let slot = |(name, c): (&'static str, char)| Slot { name, open: c.is_lowercase(), ready: c != 'a' };
            let of = |c: char| if c.eq_ignore_ascii_case(&'r') { "r" } else { "w" };
            let slots: Vec<Slot<'_>> = text.chars().map(|c| slot((of(c), c))).collect();
            assert_eq!(startable(slots, |name| name == "r"), expected, "{names:?}");
        }
    }
}
