//! Ids: UUIDv7 inside, type-prefixed text outside (`ses_` and 32 hex digits).
//!
//! This crate never makes an id out of nothing: that needs a clock and randomness, which live
//! with the caller.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// A text that is not an id of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a {what} id: expected {prefix}_ followed by 32 lower-case hexadecimal digits")]
pub struct InvalidId {
    pub what: &'static str,
    pub prefix: &'static str,
}

fn parse(what: &'static str, prefix: &'static str, text: &str) -> Result<Uuid, InvalidId> {
    let bad = InvalidId { what, prefix };
    let hex = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).ok_or(bad.clone())?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !plain {
        return Err(bad);
    }
    Uuid::try_parse(hex).map_err(|_| bad)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $what:literal $prefix:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;
            pub const fn uuid(self) -> Uuid {
                self.0
            }
            pub fn bytes(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                $name(id)
            }
        }
        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse($what, $prefix, text).map($name)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

ids! {
    SessionId "session"   "ses";
    AgentId   "agent"     "agt";
    TurnId    "turn"      "trn";
    MessageId "message"   "msg";
    CallId    "tool call" "call";
    MissionId "mission"   "mis";
    HopId     "hop"       "hop";
    StepId    "tool step" "stp";
    AssetId   "asset"     "ast";
    PlanId    "plan"      "pln";
    TaskId    "task"      "tsk";
    RuneId    "rune"      "run";
    WorkerId  "worker"    "wrk";
    TimerId   "timer"     "tmr";
    BroadcastId "broadcast" "brd";
    AccountId "account"   "acc";
    /// Names a commit, so that an ambiguous one can be read back.
    CommandId "command"   "cmd";
}

/// What a rune or a move is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Session,
    Agent,
    Turn,
    ToolCall,
    Mission,
    Hop,
    ToolStep,
    Asset,
    Plan,
    Task,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Session,
        Kind::Agent,
        Kind::Turn,
        Kind::ToolCall,
        Kind::Mission,
        Kind::Hop,
        Kind::ToolStep,
        Kind::Asset,
        Kind::Plan,
        Kind::Task,
    ];

    pub const fn prefix(self) -> &'static str {
        match self {
            Kind::Session => SessionId::PREFIX,
            Kind::Agent => AgentId::PREFIX,
            Kind::Turn => TurnId::PREFIX,
            Kind::ToolCall => CallId::PREFIX,
            Kind::Mission => MissionId::PREFIX,
            Kind::Hop => HopId::PREFIX,
            Kind::ToolStep => StepId::PREFIX,
            Kind::Asset => AssetId::PREFIX,
            Kind::Plan => PlanId::PREFIX,
            Kind::Task => TaskId::PREFIX,
        }
    }

    /// The entity that a machine belongs to; an agent has two machines.
    pub fn of_machine(machine: &str) -> Option<Kind> {
        Some(match machine {
            "session" => Kind::Session,
            "agent_lifecycle" | "agent_drive" => Kind::Agent,
            "turn" => Kind::Turn,
            "tool_call" => Kind::ToolCall,
            "mission" => Kind::Mission,
            "hop" => Kind::Hop,
            "tool_step" => Kind::ToolStep,
            "asset" => Kind::Asset,
            "plan" => Kind::Plan,
            "task" => Kind::Task,
            _ => return None,
        })
    }
}

/// An entity by kind and id; its text form is the id's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entity {
    pub kind: Kind,
    pub id: Uuid,
}

impl Entity {
    pub const fn new(kind: Kind, id: Uuid) -> Entity {
        Entity { kind, id }
    }
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}", self.kind.prefix(), self.id.simple())
    }
}

impl std::fmt::Debug for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Entity {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Entity, InvalidId> {
        let bad = InvalidId { what: "entity", prefix: "ses, agt, trn, call, mis, hop, stp, ast, pln or tsk" };
        let (prefix, _) = text.split_once('_').ok_or(bad.clone())?;
        let kind = Kind::ALL.into_iter().find(|k| k.prefix() == prefix).ok_or(bad)?;
        Ok(Entity { kind, id: parse("entity", kind.prefix(), text)? })
    }
}

macro_rules! entities {
    ($($id:ident $kind:ident),+ $(,)?) => {$(
        impl From<$id> for Entity {
            fn from(id: $id) -> Entity {
                Entity { kind: Kind::$kind, id: id.uuid() }
            }
        }
    )+};
}
entities! {
    SessionId Session, AgentId Agent, TurnId Turn, CallId ToolCall, MissionId Mission,
    HopId Hop, StepId ToolStep, AssetId Asset, PlanId Plan, TaskId Task,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_prints() {
        let id = SessionId::from(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_002a));
        assert_eq!(id.to_string(), "ses_0190000000007000800000000000002a");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(Entity::from(id).to_string().parse(), Ok(Entity::from(id)));
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_the_pattern() {
        let hostile =
            ["", "ses_", "agt_0190000000007000800000000000002a", "ses_*", "ses_0190000000007000800000000000002A"];
        for text in hostile {
            let refused = text.parse::<SessionId>().expect_err(text);
            assert!(refused.to_string().contains("ses_ followed by 32"), "{refused}");
        }
        assert!("ses_0190000000007000800000000000002a\u{0}".parse::<SessionId>().is_err());
        assert!(format!("ses_{}", "a".repeat(10_000)).parse::<SessionId>().is_err());
    }
}
