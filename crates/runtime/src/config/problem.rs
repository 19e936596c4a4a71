//! What is wrong with a configuration: every problem at once, one line each.

/// One thing to put right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{at}: {message}")]
pub struct Problem {
    /// The key as the file spells it, such as `worker.concurrency` or `models[1].base_url`.
    pub at: String,
    /// What is wrong and what to do. Never the value of a key that may hold a password.
    pub message: String,
}

/// The configuration cannot be used; nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct Invalid {
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

#[derive(Debug, Default)]
pub(super) struct Found(Vec<Problem>);

impl Found {
    pub(super) fn say(&mut self, at: impl Into<String>, message: impl Into<String>) {
        // Texts of parsers span lines; a problem is one.
        let message = message.into().split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.push(Problem { at: at.into(), message });
    }

    pub(super) fn range<T: PartialOrd + std::fmt::Display>(&mut self, at: &str, value: T, low: T, high: T) {
        if value < low || value > high {
            self.say(at, format!("is {value}; give {low} to {high}"));
        }
    }

    /// Adds what `later` found, except at keys already known to be wrong: they stand at their
    /// defaults there, and what follows from that only confuses.
    pub(super) fn followed_by(mut self, later: Vec<Problem>) -> Vec<Problem> {
        let known = |at: &str| self.0.iter().any(|p| p.at == at || at.starts_with(&format!("{}.", p.at)));
        let later: Vec<_> = later.into_iter().filter(|problem| !known(&problem.at)).collect();
        self.0.extend(later);
        self.into_sorted()
    }

    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}
