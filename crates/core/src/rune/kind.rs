//! The registry of rune kinds: wire token, default visibility, typed payload.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who may read a rune.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Every subscriber of the session.
    Public,
    /// Operators and the services.
    Internal,
    /// Only the agent it comes from.
    Secret,
}

impl Visibility {
    pub const fn token(self) -> &'static str {
        match self {
            Visibility::Public => "public",
            Visibility::Internal => "internal",
            Visibility::Secret => "secret",
        }
    }

    pub fn parse(token: &str) -> Option<Visibility> {
        [Visibility::Public, Visibility::Internal, Visibility::Secret].into_iter().find(|v| v.token() == token)
    }
}

/// The typed content of one kind of rune.
pub trait Payload: Serialize + DeserializeOwned {
    const KIND: &'static str;
}

#[derive(Debug)]
pub struct KindInfo {
    /// `family.verb`, which is also the bus subject below the prefix.
    pub token: &'static str,
    pub visibility: Visibility,
    /// Not named by any row of a machine: recorded beside the machines.
    pub standalone: bool,
    /// Payload fields, for the docs.
    pub fields: &'static [&'static str],
    /// Whether a text is a payload of this kind; the error says what is wrong.
    pub check: fn(&str) -> Result<(), serde_json::Error>,
}

/// Every rune kind there is.
pub static KINDS: &[KindInfo] = super::payload::LIST;

pub fn info(token: &str) -> Option<&'static KindInfo> {
    KINDS.iter().find(|k| k.token == token)
}

/// The canonical token for one that older logs and clients use.
pub fn canonical(token: &str) -> &str {
    match token {
        "agent.spawned" => "agent.spawning",
        "task.assigned" => "plan.task_assigned",
        "task.started" => "plan.task_started",
        "task.completed" => "plan.task_completed",
        "task.updated" => "plan.task_updated",
        other => other,
    }
}
