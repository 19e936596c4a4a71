//! The four steps of a turn: what each writes, and who hears of it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Message,
    Call,
    Result,
    End,
}

impl Kind {
    /// Who goes on from here.
    pub(crate) fn receiver(self) -> &'static str {
        match self {
            Kind::Message | Kind::Result => "worker",
            Kind::Call => "runner",
            Kind::End => "api",
        }
    }

    fn runes(self) -> &'static [&'static str] {
        match self {
            Kind::Message => &["message.received", "turn.queued"],
            Kind::Call => &["turn.started", "turn.tool_calls_received", "tool.call"],
            Kind::Result => &["tool.result"],
            Kind::End => &["turn.tools_finished", "turn.assistant", "turn.completed"],
        }
    }
}

/// A step to commit; committed, the message that tells of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) agent: usize,
    pub(crate) turn: Uuid,
    pub(crate) call: Uuid,
    /// Of the agent's row: before the commit in a step, after it in a message.
    pub(crate) version: i64,
    /// What was sent, the call's arguments, its result, what was said.
    pub(crate) text: String,
    /// What the row of history gets beside `text`.
    #[serde(skip)]
    pub(crate) past: String,
}

impl Step {
    pub(crate) fn runes(&self) -> i32 {
        self.kind.runes().len() as i32
    }

    /// All runes of the commit as one value with one hash.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(512);
        body.push(1);
        for id in [agent_id(self.agent), self.turn, self.call] {
            body.extend_from_slice(id.as_bytes());
        }
        body.extend_from_slice(b"wrk_01890000000");
        for (n, kind) in self.kind.runes().iter().enumerate() {
            let payload = match n {
                0 => format!("{{\"content\":{:?}}}", self.text),
                _ => format!(
                    "{{\"kind\":\"{kind}\",\"attempt\":1,\"cause\":\"user\",\"model\":\"mock\",\"worker\":\"wrk_{}\"}}",
                    self.turn
                ),
            };
            body.push(kind.len() as u8);
            body.push(n as u8);
            body.extend_from_slice(&(payload.len() as u16).to_le_bytes());
            body.extend_from_slice(payload.as_bytes());
        }
        let hash = Sha256::digest(&body);
        body.extend_from_slice(&hash);
        body
    }

    /// The live turn as the agent's row holds it; nothing when it is over.
    pub(crate) fn state(&self) -> Vec<u8> {
        let mut state = vec![self.kind as u8];
        if self.kind != Kind::End {
            state.extend_from_slice(self.turn.as_bytes());
            state.extend_from_slice(self.call.as_bytes());
            state.extend_from_slice(&self.version.to_le_bytes());
            state.extend_from_slice(self.text.as_bytes());
        }
        state
    }
}

/// Ids by number, so that no process has to be told them.
pub(crate) fn agent_id(agent: usize) -> Uuid {
    Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0000 + agent as u128 * 7919)
}

pub(crate) fn session_id(agent: usize) -> Uuid {
    Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 + agent as u128 * 7919)
}
