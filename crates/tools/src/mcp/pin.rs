//! Which of a server's definitions count: those that are accepted, word for word.
//!
//! A server can change what it says at any time, and what it says goes to models and decides what people
//! approve. So a definition that differs from the accepted one is neither offered nor run until a person
//! has accepted it. Pure: whoever calls keeps what was accepted.

use super::config::{Pin, ServerConfig};
use super::definition::Offered;

/// How a tool stands with the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As it was accepted.
    Available,
    /// Another definition than the accepted one.
    Changed,
    /// Came after the first list of its server, and was never accepted.
    New,
    /// Cannot be had, accepted or not.
    Refused,
    /// The server no longer lists it.
    Gone,
}

impl Standing {
    pub const ALL: [Standing; 5] =
        [Standing::Available, Standing::Changed, Standing::New, Standing::Refused, Standing::Gone];

    pub const fn token(self) -> &'static str {
        match self {
            Standing::Available => "available",
            Standing::Changed => "changed",
            Standing::New => "new",
            Standing::Refused => "refused",
            Standing::Gone => "gone",
        }
    }

    pub fn parse(token: &str) -> Option<Standing> {
        Standing::ALL.into_iter().find(|standing| standing.token() == token)
    }
}

/// What is known of a tool when its server is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known<'a> {
    /// The server has been heard before.
    pub server: bool,
    /// The hash that was accepted, if any was.
    pub accepted: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub standing: Standing,
    pub reason: Option<String>,
}

impl Pinned {
    fn new(standing: Standing, reason: impl Into<String>) -> Pinned {
        Pinned { standing, reason: Some(reason.into()) }
    }
}

pub fn pin(config: &ServerConfig, known: Known<'_>, offered: &Offered) -> Pinned {
    let available = Pinned { standing: Standing::Available, reason: None };
    if let Some(why) = &offered.refused {
        return Pinned::new(Standing::Refused, why);
    }
    let (short, name) = (offered.hash.get(..12).unwrap_or_default(), &offered.spec.name);
    match (config.pin, known.accepted) {
        (Pin::None, _) => available,
        (Pin::Given, _) => match config.pins.get(offered.remote()) {
            Some(given) if *given == offered.hash => available,
            Some(_) => Pinned::new(Standing::Changed, format!("its definition is {short}…, which pins does not have")),
            None => Pinned::new(Standing::New, format!("pins does not have it; its definition is {}", offered.hash)),
        },
        (Pin::First, Some(accepted)) if accepted == offered.hash => available,
        (Pin::First, Some(_)) => {
            let words = "its definition changed since it was accepted; look at it, then accept it with";
            Pinned::new(Standing::Changed, format!("{words} `instar tool accept {name}`"))
        }
        (Pin::First, None) if !known.server => available,
        (Pin::First, None) => {
            let words = "its server did not have it when its tools were accepted; accept it with";
            Pinned::new(Standing::New, format!("{words} `instar tool accept {name}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Kind, Remote, Spec};
    use serde_json::json;

    fn offer(hash: &str) -> Offered {
        let remote = Remote { server: "s".into(), tool: "t".into(), hash: hash.into() };
        Offered { spec: Spec { mcp: Some(remote), ..Spec::new("s.t", Kind::Mcp) }, hash: hash.into(), refused: None }
    }

    fn config(more: serde_json::Value) -> ServerConfig {
        let mut entry = json!({"name": "s", "transport": "stdio", "command": ["x"]});
        if let (Some(entry), serde_json::Value::Object(more)) = (entry.as_object_mut(), more) {
            entry.extend(more);
        }
        super::super::config::read(&[entry]).unwrap().remove(0)
    }

    #[test]
    fn only_what_was_accepted_is_available() {
        use Standing::*;
        let given = json!({"pin": "given", "pins": {"t": "aa"}});
        let cases = [
            (json!({}), false, None, "aa", Available),
            (json!({}), true, None, "aa", New),
            (json!({}), true, Some("aa"), "aa", Available),
            (json!({}), true, Some("aa"), "bb", Changed),
            (json!({"pin": "none"}), true, Some("aa"), "bb", Available),
            (given.clone(), false, None, "aa", Available),
            (given.clone(), true, Some("bb"), "bb", Changed),
            (json!({"pin": "given", "pins": {"u": "aa"}}), false, None, "aa", New),
        ];
        for (more, server, accepted, hash, expected) in cases {
            let pinned = pin(&config(more.clone()), Known { server, accepted }, &offer(hash));
            assert_eq!(pinned.standing, expected, "{more} {accepted:?} {hash}");
            assert_eq!(pinned.reason.is_none(), expected == Available);
        }
        let bad = Offered { refused: Some("too large".into()), ..offer("aa") };
        assert_eq!(pin(&config(json!({"pin": "none"})), Known::default(), &bad).standing, Refused);
        for standing in Standing::ALL {
            assert_eq!(Standing::parse(standing.token()), Some(standing));
        }
    }
}
