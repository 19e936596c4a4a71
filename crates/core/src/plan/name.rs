//! What tasks are called. An id belongs to the iteration that added the task: each may number its tasks from t1 again.

/// A task by its id and the iteration that added it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    pub key: &'a str,
    pub iteration: i64,
}

impl<'a> Named<'a> {
    /// The name that means no task of another iteration.
    pub fn full(self) -> String {
        format!("{}/{}", self.iteration, self.key)
    }

    /// The shortest name that means it among `all`: its id alone, unless a later iteration has the same.
    pub fn among(self, all: impl IntoIterator<Item = Named<'a>>) -> String {
        let later = |other: Named<'_>| other.key == self.key && other.iteration > self.iteration;
        if all.into_iter().any(later) { self.full() } else { self.key.to_owned() }
    }
}

/// Where the task stands in `all` that a name means. An id alone means the latest task that has it.
pub fn meant(name: &str, all: &[Named<'_>]) -> Option<usize> {
    let latest = all.iter().enumerate().filter(|(_, task)| task.key == name).max_by_key(|(_, task)| task.iteration);
    latest.map(|(at, _)| at).or_else(|| fully(name, all))
}

/// The same for names that say the iteration.
pub(super) fn fully(name: &str, all: &[Named<'_>]) -> Option<usize> {
    all.iter().position(|task| task.full() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_alone_means_the_latest_task_that_has_it() {
        let task = |key, iteration| Named { key, iteration };
        let all = [task("t1", 1), task("t2", 1), task("t1", 2), task("2/t9", 3)];
        assert_eq!(["t1", "1/t1", "2/t1", "t2", "2/t9"].map(|name| meant(name, &all)), [2, 0, 2, 1, 3].map(Some));
        assert_eq!(["t3", "2/t2", "1/", ""].map(|name| meant(name, &all)), [None; 4]);
        assert_eq!(all.map(|one| one.among(all)), ["1/t1", "t2", "t1", "2/t9"]);
    }
}
