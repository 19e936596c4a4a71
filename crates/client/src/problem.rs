//! A refusal in the server's words: `application/problem+json`, RFC 9457.

use crate::Rest;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub title: String,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of a machine's refusal: which machine, where it is, what it was asked, what it would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Problem {
    /// From the body of an answer, whatever it is: a proxy in between writes no problem documents.
    pub(crate) fn read(status: u16, body: &[u8]) -> Problem {
        let read: Problem = serde_json::from_slice(body).unwrap_or_default();
        let said = !read.title.is_empty() || read.detail.is_some();
        let mut problem = if said { read } else { Problem { detail: excerpt(body), ..Problem::default() } };
        problem.status = status;
        problem
    }
}

fn excerpt(body: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
    (!text.is_empty()).then_some(text)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.title.as_str(), self.detail.as_deref()) {
            ("", None) => write!(f, "the server answered {}", self.status)?,
            ("", Some(detail)) => write!(f, "the server answered {}: {detail}", self.status)?,
            (title, None) => f.write_str(title)?,
            (title, Some(detail)) => write!(f, "{title}: {detail}")?,
        }
        if let Some(allowed) = &self.allowed {
            let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            write!(f, " (allowed now: {allowed})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_what_is_allowed() {
        let body = br#"{"type":"about:blank","title":"refused","status":409,"detail":"it is closed",
            "machine":"session","from":"closed","event":"pause_requested","allowed":["archive_requested"],"more":1}"#;
        let problem = Problem::read(409, body);
        assert_eq!(problem.to_string(), "refused: it is closed (allowed now: archive_requested)");
        assert_eq!(problem.from.as_deref(), Some("closed"));
        assert_eq!(problem.rest["more"], 1);
    }

    #[test]
    fn what_a_proxy_says_is_shown_too() {
        assert_eq!(Problem::read(502, b"<h1>bad</h1>").to_string(), "the server answered 502: <h1>bad</h1>");
        assert_eq!(Problem::read(500, b"").to_string(), "the server answered 500");
    }
}
