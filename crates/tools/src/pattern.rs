//! Names of tools as an agent lists them: `charge`, `clock.*`, `*`.

use crate::native::Native;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Exact(String),
    /// Everything below a name: `clock.*` has `clock.now` but neither `clock` nor `clocks.now`.
    Below(String),
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a tool's name; a * may only stand alone or after a dot at the end, as in clock.*")]
pub struct NotAPattern(pub String);

impl Pattern {
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Exact(exact) => exact == name,
            Pattern::Below(above) => {
                name.strip_prefix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
            }
            Pattern::Any => true,
        }
    }

    /// Whether it has everything that the other one has. A native tool only where it is named.
    fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::Exact(own), Pattern::Exact(name)) => own == name,
            (_, Pattern::Exact(name)) => self.matches(name) && Native::named(name).is_none(),
            (Pattern::Any, _) => true,
            (Pattern::Below(own), Pattern::Below(above)) => own == above || self.matches(above),
            _ => false,
        }
    }
}

/// Those of `wanted` that `held` does not give: what an agent may pass on is what it has.
pub fn beyond(wanted: &[String], held: &[String]) -> Vec<String> {
    let held: Vec<Pattern> = held.iter().filter_map(|name| name.parse().ok()).collect();
    let given = |name: &String| {
        let wanted: Result<Pattern, _> = name.parse();
        wanted.is_ok_and(|wanted| held.iter().any(|own| own.covers(&wanted)))
    };
    wanted.iter().filter(|name| !given(name)).cloned().collect()
}

impl FromStr for Pattern {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, NotAPattern> {
        let plain = |name: &str| !name.is_empty() && !name.contains('*');
        match text.strip_suffix(".*") {
            _ if text == "*" => Ok(Pattern::Any),
            Some(above) if plain(above) => Ok(Pattern::Below(above.to_owned())),
            None if plain(text) => Ok(Pattern::Exact(text.to_owned())),
            _ => Err(NotAPattern(text.to_owned())),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(name) => f.write_str(name),
            Pattern::Below(above) => write!(f, "{above}.*"),
            Pattern::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_whole_parts_only() {
        let cases = [
            ("charge", "charge", true),
            ("charge", "charges", false),
            ("clock.*", "clock.now", true),
            ("clock.*", "clock.zone.list", true),
            ("clock.*", "clock", false),
            ("clock.*", "clock.", false),
            ("clock.*", "clocks.now", false),
            ("*", "anything.at.all", true),
        ];
        for (pattern, name, expected) in cases {
            let parsed: Pattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
            assert_eq!(parsed.to_string(), pattern);
        }
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let cases: [(&[&str], &[&str], &[&str]); 6] = [
            (&["charge"], &["charge"], &[]),
            (&["charge", "clock.now"], &["clock.*"], &["charge"]),
            (&["clock.zone.*", "clock.*", "*"], &["clock.*"], &["*"]),
            (&["clock.*"], &["clock.now", "clock.zone.*"], &["clock.*"]),
            (&["charge", "clock.*", "*", "spawn_agent"], &["*"], &["spawn_agent"]),
            (&["a*b"], &["*"], &["a*b"]),
        ];
        for (wanted, held, expected) in cases {
            assert_eq!(beyond(&names(wanted), &names(held)), names(expected), "{wanted:?} of {held:?}");
        }
        for text in ["", "cl*", "*.now", "a.*.b", "**", ".*", "a*.*"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
