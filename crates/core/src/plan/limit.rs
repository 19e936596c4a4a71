//! What a plan may cost, and whether it has cost that.

use serde::{Deserialize, Serialize};

/// Limits of a plan; what is not there is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub max_tokens: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub max_wall_time_ms: Option<u64>,
}

/// What its turns have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub tokens: u64,
    pub tool_calls: u64,
    pub wall_time_ms: u64,
}

/// The first limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub kind: &'static str,
    pub used: u64,
    pub limit: u64,
}

impl Limits {
    pub fn spent(&self, used: &Used) -> Option<Spent> {
        [
            ("tokens", used.tokens, self.max_tokens),
            ("tool_calls", used.tool_calls, self.max_tool_calls),
            ("wall_time_ms", used.wall_time_ms, self.max_wall_time_ms),
        ]
        .into_iter()
        .find_map(|(kind, used, limit)| limit.filter(|limit| used >= *limit).map(|limit| Spent { kind, used, limit }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_spent_when_it_is_reached() {
        let limits = Limits { max_tokens: Some(10), max_wall_time_ms: Some(5), ..Limits::default() };
        let used = |tokens, wall_time_ms| Used { tokens, tool_calls: 1_000, wall_time_ms };
        assert_eq!(limits.spent(&used(9, 4)), None);
        assert_eq!(limits.spent(&used(10, 9)), Some(Spent { kind: "tokens", used: 10, limit: 10 }));
        assert_eq!(limits.spent(&used(0, 5)).map(|spent| spent.kind), Some("wall_time_ms"));
        assert_eq!(Limits::default().spent(&used(u64::MAX, u64::MAX)), None);
    }
}
