//! Subjects: every name on the bus is built, checked and read back here.
//!
//! A subject carries its message type, so that a tool call can't be published to a turn lane.
//! Must not know: streams, consumers, connections.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use instar_proto::v1::{Control, DeadLetter, Live, Published, Rune, WorkTool, WorkTurn};

use crate::error::SubjectError;
use crate::pattern;

/// Version of the wire contract: the second token of every subject.
const VERSION: &str = "v1";
const TOKEN_BYTES_MAX: usize = 64;
/// First tokens that are not rune kinds.
const RESERVED: [&str; 7] = ["work", "owner", "control", "delta", "dead", "published", "sync"];

/// A subject of a stream, for messages of type `T` that are stored and acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject<T> {
    text: String,
    carries: PhantomData<fn() -> T>,
}

/// A subject outside the streams, for messages of type `T` that may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic<T> {
    text: String,
    carries: PhantomData<fn() -> T>,
}

impl<T> Subject<T> {
    fn new(text: String) -> Self {
        Self { text, carries: PhantomData }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T> Topic<T> {
    fn new(text: String) -> Self {
        Self { text, carries: PhantomData }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// What a subject text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    Transition { kind: &'a str, session: &'a str },
    WorkTurn { lane: &'a str },
    WorkTool { class: &'a str },
    OwnerTurn { worker: &'a str },
    Control { agent: &'a str },
    Delta { session: &'a str },
    Dead { source: &'a str },
    Published,
}

/// All subjects below one prefix. Two namespaces on one server never meet.
#[derive(Debug, Clone)]
pub struct Namespace {
    prefix: Arc<str>,
    root: Arc<str>,
    kinds: Arc<BTreeSet<&'static str>>,
}

impl Namespace {
    pub const DEFAULT_PREFIX: &'static str = "instar";

    /// `kinds` are the tokens of all rune kinds this version can publish.
    pub fn new(prefix: &str, kinds: impl IntoIterator<Item = &'static str>) -> Result<Self, SubjectError> {
        let prefix = token("prefix", prefix)?;
        let kinds: BTreeSet<_> = kinds.into_iter().map(kind).collect::<Result<_, _>>()?;
        Ok(Self { prefix: prefix.into(), root: format!("{prefix}.{VERSION}").into(), kinds: Arc::new(kinds) })
    }

    /// Everything of this namespace begins with this and a dot, for example `instar.v1`.
    pub fn root(&self) -> &str {
        &self.root
    }

    pub fn transition(&self, kind: &str, session: &str) -> Result<Subject<Rune>, SubjectError> {
        let kind = self.known(kind)?;
        let session = token("session", session)?;
        Ok(Subject::new(format!("{}.{kind}.{session}", self.root)))
    }

    pub fn work_turn(&self, lane: &str) -> Result<Subject<WorkTurn>, SubjectError> {
        Ok(Subject::new(format!("{}.work.turn.{}", self.root, token("lane", lane)?)))
    }

    pub fn work_tool(&self, class: &str) -> Result<Subject<WorkTool>, SubjectError> {
        Ok(Subject::new(format!("{}.work.tool.{}", self.root, token("class", class)?)))
    }

    pub fn owner_turn(&self, worker: &str) -> Result<Subject<WorkTurn>, SubjectError> {
        Ok(Subject::new(format!("{}.owner.{}.turn", self.root, token("worker", worker)?)))
    }

    pub fn dead(&self, source: &str) -> Result<Subject<DeadLetter>, SubjectError> {
        Ok(Subject::new(format!("{}.dead.{}", self.root, token("source", source)?)))
    }

    pub fn control(&self, agent: &str) -> Result<Topic<Control>, SubjectError> {
        Ok(Topic::new(format!("{}.control.{}", self.root, token("agent", agent)?)))
    }

    pub fn delta(&self, session: &str) -> Result<Topic<Live>, SubjectError> {
        Ok(Topic::new(format!("{}.delta.{}", self.root, token("session", session)?)))
    }

    /// What processes have published, for those who note it.
    pub fn published(&self) -> Topic<Published> {
        Topic::new(format!("{}.published", self.root))
    }

    /// Controls for whichever agent, for one listener per process.
    pub fn controls(&self) -> Topic<Control> {
        Topic::new(format!("{}.control.*", self.root))
    }

    /// Live messages of whichever session.
    pub fn deltas(&self) -> Topic<Live> {
        Topic::new(format!("{}.delta.*", self.root))
    }

    /// The pattern of every declared kind, over all sessions.
    pub fn transitions(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| format!("{}.{kind}.*", self.root)).collect()
    }

    /// The pattern of one kind, over all sessions.
    pub(crate) fn transition_pattern(&self, kind: &str) -> Result<String, SubjectError> {
        Ok(format!("{}.{}.*", self.root, self.known(kind)?))
    }

    /// Patterns that together take in every kind of one session.
    pub(crate) fn session_patterns(&self, session: &str) -> Result<Vec<String>, SubjectError> {
        let session = token("session", session)?;
        let depths: BTreeSet<usize> = self.kinds.iter().map(|kind| kind.split('.').count()).collect();
        Ok(depths.into_iter().map(|depth| format!("{}{}.{session}", self.root, ".*".repeat(depth))).collect())
    }

    /// What `subject` names, if it lies in this namespace.
    pub fn parse<'a>(&self, subject: &'a str) -> Result<Parsed<'a>, SubjectError> {
        let foreign = || SubjectError::Foreign { subject: subject.into(), root: self.root.to_string() };
        let rest = subject.strip_prefix(&*self.root).and_then(|rest| rest.strip_prefix('.')).ok_or_else(foreign)?;
        let tokens: Vec<&str> = rest.split('.').collect();
        let parsed = match tokens[..] {
            ["work", "turn", lane] => Parsed::WorkTurn { lane: token("lane", lane)? },
            ["work", "tool", class] => Parsed::WorkTool { class: token("class", class)? },
            ["owner", worker, "turn"] => Parsed::OwnerTurn { worker: token("worker", worker)? },
            ["control", agent] => Parsed::Control { agent: token("agent", agent)? },
            ["delta", session] => Parsed::Delta { session: token("session", session)? },
            ["published"] => Parsed::Published,
            ["dead", source] => Parsed::Dead { source: token("source", source)? },
            _ => {
                let (text, session) = rest.rsplit_once('.').ok_or_else(foreign)?;
                Parsed::Transition { kind: kind(text)?, session: token("session", session)? }
            }
        };
        Ok(parsed)
    }

    /// The name of a stream of this namespace.
    pub(crate) fn stream(&self, role: &str) -> String {
        format!("{}-{VERSION}-{role}", self.prefix)
    }

    pub(crate) fn owns(&self, pattern: &str) -> bool {
        pattern::covers(&format!("{}.>", self.root), pattern)
    }

    fn known(&self, text: &str) -> Result<&'static str, SubjectError> {
        self.kinds.get(text).copied().ok_or_else(|| SubjectError::UnknownKind { kind: text.to_owned() })
    }
}

/// The subjects of all state transitions below `prefix`, one pattern per rune kind.
pub fn transition_subjects(
    prefix: &str,
    kinds: impl Iterator<Item = &'static str>,
) -> Result<Vec<String>, SubjectError> {
    Ok(Namespace::new(prefix, kinds)?.transitions())
}

/// Ids come from callers and models: a dot or a wildcard in one of them would address others.
pub(crate) fn token<'a>(what: &'static str, text: &'a str) -> Result<&'a str, SubjectError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text)
    } else {
        Err(SubjectError::Token { what, token: text.chars().take(TOKEN_BYTES_MAX).collect() })
    }
}

fn kind(text: &str) -> Result<&str, SubjectError> {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let first = text.split('.').next().unwrap_or_default();
    if text.len() <= TOKEN_BYTES_MAX && text.split('.').all(part) && !RESERVED.contains(&first) {
        Ok(text)
    } else {
        Err(SubjectError::Kind { kind: text.chars().take(TOKEN_BYTES_MAX).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Namespace {
        Namespace::new("instar", ["turn.completed", "tool.call", "tool.call.late"]).unwrap()
    }

    #[test]
    fn every_subject_reads_back_as_what_it_was_built_from() {
        let space = space();
        let cases = [
            (
                space.transition("turn.completed", "ses_1").unwrap().text,
                "instar.v1.turn.completed.ses_1",
                Parsed::Transition { kind: "turn.completed", session: "ses_1" },
            ),
            (
                space.transition("tool.call.late", "ses_1").unwrap().text,
                "instar.v1.tool.call.late.ses_1",
                Parsed::Transition { kind: "tool.call.late", session: "ses_1" },
            ),
            (
                space.work_turn("default").unwrap().text,
                "instar.v1.work.turn.default",
                Parsed::WorkTurn { lane: "default" },
            ),
            (space.work_tool("shell").unwrap().text, "instar.v1.work.tool.shell", Parsed::WorkTool { class: "shell" }),
            (space.owner_turn("w-1").unwrap().text, "instar.v1.owner.w-1.turn", Parsed::OwnerTurn { worker: "w-1" }),
            (space.control("agt_1").unwrap().text, "instar.v1.control.agt_1", Parsed::Control { agent: "agt_1" }),
            (space.delta("ses_1").unwrap().text, "instar.v1.delta.ses_1", Parsed::Delta { session: "ses_1" }),
            (space.dead("work").unwrap().text, "instar.v1.dead.work", Parsed::Dead { source: "work" }),
        ];
        for (text, expected, parsed) in &cases {
            assert_eq!(text, expected);
            assert_eq!(space.parse(text), Ok(*parsed));
        }
    }

    #[test]
    fn a_token_that_would_address_others_is_refused_with_the_allowed_pattern() {
        let space = space();
        let long = "x".repeat(65);
        for forged in ["", "*", ">", "a.b", "a b", "a\tb", "a\nb", "a\0b", "ü", "a*", "$JS", &long] {
            let error = space.work_turn(forged).unwrap_err();
            assert!(error.to_string().contains("A-Z a-z 0-9 _ -"), "{error}");
            assert!(space.work_tool(forged).is_err());
            assert!(space.owner_turn(forged).is_err());
            assert!(space.control(forged).is_err());
            assert!(space.delta(forged).is_err());
            assert!(space.transition("turn.completed", forged).is_err());
            assert!(Namespace::new(forged, []).is_err());
        }
    }

    #[test]
    fn a_kind_can_be_neither_reserved_nor_a_pattern_nor_undeclared() {
        for forged in ["", ".", "turn.", "turn..x", "turn.*", "turn.>", "Turn.x", "work.turn", "dead"] {
            let kind: &'static str = forged;
            assert!(Namespace::new("instar", [kind]).is_err(), "{kind}");
        }
        assert_eq!(
            space().transition("turn.invented", "ses_1"),
            Err(SubjectError::UnknownKind { kind: "turn.invented".into() })
        );
    }

    #[test]
    fn another_namespace_is_foreign() {
        assert!(matches!(space().parse("instar.v2.delta.x"), Err(SubjectError::Foreign { .. })));
        assert!(matches!(space().parse("instar.v1x.delta.x"), Err(SubjectError::Foreign { .. })));
        assert!(!space().owns("other.v1.>"));
        assert!(space().owns("instar.v1.work.>"));
    }

    #[test]
    fn one_pattern_per_kind() {
        let subjects = transition_subjects("p", ["b.c", "a"].into_iter()).unwrap();
        assert_eq!(subjects, ["p.v1.a.*", "p.v1.b.c.*"]);
    }

    #[test]
    fn every_kind_of_the_domain_has_a_subject_that_reads_back() {
        let tokens = || instar_core::rune::KINDS.iter().map(|kind| kind.token);
        let space = Namespace::new("instar", tokens()).unwrap();
        for kind in tokens() {
            let subject = space.transition(kind, "ses_1").unwrap();
            let parsed = Parsed::Transition { kind, session: "ses_1" };
            assert_eq!(space.parse(subject.as_str()), Ok(parsed));
        }
    }
}
