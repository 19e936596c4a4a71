//! A critic's findings, and what they mean for the plan.

use super::Priority;
use crate::decide::Tries;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Warning,
    Suggestion,
    Info,
}

impl Severity {
    pub const TOKENS: [&'static str; 4] = ["error", "warning", "suggestion", "info"];

    /// The priority of the task that puts it right; none: it is left as it is.
    pub const fn follow_up(self) -> Option<Priority> {
        match self {
            Severity::Error => Some(Priority::High),
            Severity::Warning => Some(Priority::Medium),
            Severity::Suggestion | Severity::Info => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Correctness,
    Security,
    Performance,
    Style,
    Completeness,
}

impl Category {
    pub const TOKENS: [&'static str; 5] = ["correctness", "security", "performance", "style", "completeness"];
}

/// What a critic found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    pub category: Category,
    pub title: String,
    #[serde(default)]
    pub description: String,
    /// The task it is about, by the name that the plan gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_fix: Option<String>,
}

/// No finding is an error.
pub fn passes(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// What a critique means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoalMet,
    /// Tasks are tried again or added.
    Retry,
    Replan,
    /// There are errors, and no iteration is left to put them right.
    Exhausted,
}

pub fn verdict(findings: &[Finding], replan: bool, iterations: Tries) -> Verdict {
    match (passes(findings), iterations.left()) {
        (true, _) if !replan => Verdict::GoalMet,
        (_, false) => Verdict::Exhausted,
        (_, true) if replan => Verdict::Replan,
        (_, true) => Verdict::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        let text = format!(r#"{{"severity":{},"category":"style","title":"t"}}"#, serde_json::json!(severity));
        serde_json::from_str(&text).expect("a finding")
    }

    #[test]
    fn only_an_error_stands_between_a_plan_and_its_goal() {
        let (first, last) = (Tries { made: 1, max: 2 }, Tries { made: 2, max: 2 });
        let (error, warning) = ([finding(Severity::Error)], [finding(Severity::Warning)]);
        let cases = [
            (&[] as &[Finding], false, first, Verdict::GoalMet),
            (&warning, false, last, Verdict::GoalMet),
            (&error, false, first, Verdict::Retry),
            (&error, true, first, Verdict::Replan),
            (&[], true, first, Verdict::Replan),
            (&error, false, last, Verdict::Exhausted),
            (&error, true, last, Verdict::Exhausted),
        ];
        for (findings, replan, iterations, expected) in cases {
            assert_eq!(verdict(findings, replan, iterations), expected, "{findings:?} {replan} {iterations:?}");
        }
    }

    #[test]
    fn errors_become_high_and_warnings_medium_tasks() {
        let all = Severity::TOKENS.map(|token| serde_json::from_str::<Severity>(&format!("{token:?}")).expect("one"));
        assert_eq!(all.map(Severity::follow_up), [Some(Priority::High), Some(Priority::Medium), None, None]);
    }
}
