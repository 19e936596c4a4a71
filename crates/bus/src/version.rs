//! The version gate: servers before 2.10 accept settings they don't know and ignore them, so that
//! a wrong server looks like a working one until work is lost.
//!
//! Must not know: connections. It sees the text the server sent.

use crate::error::BusError;

const OLDEST: [u64; 3] = [2, 10, 0];
/// First version without the known ways to lose acknowledged messages.
const RECOMMENDED: [u64; 3] = [2, 12, 7];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Works, but a later one is safer.
    Dated,
}

pub(crate) fn check(version: &str) -> Result<Verdict, BusError> {
    match parse(version) {
        Some(found) if found >= RECOMMENDED => Ok(Verdict::Good),
        Some(found) if found >= OLDEST => Ok(Verdict::Dated),
        _ => Err(BusError::ServerTooOld { found: version.to_owned() }),
    }
}

/// Reads `2.10.27`, `v2.12.7-RC.1` and the like; a build suffix doesn't count.
fn parse(version: &str) -> Option<[u64; 3]> {
    let numbers = version.trim().trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let found = [parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?];
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_below_2_10_is_refused_and_told_what_to_install() {
        for old in ["2.9.10", "2.9.99-beta", "1.4.1", "0.0.0", "", "unknown", "2", "2.x.1", "2.10.1.1"] {
            let error = check(old).unwrap_err();
            assert!(error.to_string().contains("install 2.12.7 or later"), "{error}");
            assert!(!error.retryable());
        }
    }

    #[test]
    fn a_server_from_2_10_is_accepted() {
        for dated in ["2.10.0", "2.10.27", "v2.11.4", "2.12.6", "2.10"] {
            assert_eq!(check(dated).unwrap(), Verdict::Dated, "{dated}");
        }
        for good in ["2.12.7", "2.15.1", "3.0.0-RC.1", "v2.12.7+build"] {
            assert_eq!(check(good).unwrap(), Verdict::Good, "{good}");
        }
    }
}
