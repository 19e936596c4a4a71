//! What a plan is made of besides its machines: the graph of its tasks, the critic's findings, its limits.
//!
//! It judges plain values; who proposed them and where they are kept it does not know.

mod critique;
mod graph;
mod limit;
mod name;

pub use critique::{Category, Finding, Severity, Verdict, passes, verdict};
pub use graph::{Node, TASKS_MAX, check};
pub use limit::{Limits, Spent, Used};
pub use name::{Named, meant};

use serde::{Deserialize, Serialize};

/// How many rounds of work and review a plan gets when nobody says otherwise.
pub const ITERATIONS_DEFAULT: u32 = 10;
/// How often a task is tried when nobody says otherwise.
pub const ATTEMPTS_DEFAULT: u32 = 3;

/// Which of the tasks that can run goes first; age decides between equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Critical,
    High,
    #[default]
    Medium,
    Low,
}

impl Priority {
    pub const ALL: [Priority; 4] = [Priority::Critical, Priority::High, Priority::Medium, Priority::Low];
    pub const TOKENS: [&'static str; 4] = ["critical", "high", "medium", "low"];

    pub const fn token(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::High => "high",
            Priority::Medium => "medium",
            Priority::Low => "low",
        }
    }

    /// A word that is no priority counts as the middle one.
    pub fn of(token: &str) -> Priority {
        Priority::ALL.into_iter().find(|p| p.token() == token).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_critical_goes_first() {
        assert_eq!(Priority::ALL.map(Priority::token), Priority::TOKENS);
        let mut all = ["low", "critical", "medium", "high", "no such word"].map(Priority::of);
        all.sort();
        use Priority::*;
        assert_eq!(all, [Critical, High, Medium, Medium, Low]);
    }
}
