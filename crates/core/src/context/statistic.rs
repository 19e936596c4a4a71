//! How large a context is, counted at three points of its making.

use super::message::{Message, Said, Source};
use serde::{Serialize, Serializer, ser::SerializeMap};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// When everything was put together.
    pub composed: Stage,
    /// Without superseded snapshots, and without calls and results that miss each other.
    pub compacted: Stage,
    /// As sent.
    pub sent: Stage,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stage {
    pub messages: u64,
    pub content_bytes: u64,
    pub reasoning_bytes: u64,
    pub tool_calls: u64,
    pub roles: Roles,
    pub sources: Sources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Roles {
    pub system: u64,
    pub user: u64,
    pub assistant: u64,
    pub tool: u64,
}

/// Messages per source, those that occur.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources([u64; Source::ALL.len()]);

impl Sources {
    pub fn get(&self, source: Source) -> u64 {
        Source::ALL.iter().zip(self.0).find(|(at, _)| **at == source).map_or(0, |(_, count)| count)
    }
}

impl Serialize for Sources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (source, count) in Source::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0) {
            map.serialize_entry(source.token(), &count)?;
        }
        map.end()
    }
}

impl Stage {
    pub(super) fn of(system: Option<&str>, messages: &[Message<'_>]) -> Stage {
        let mut stage = Stage::default();
        if let Some(system) = system {
            stage.messages += 1;
            stage.roles.system += 1;
            stage.content_bytes += system.len() as u64;
        }
        for message in messages {
            stage.messages += 1;
            stage.content_bytes += message.content_bytes() as u64;
            stage.reasoning_bytes += message.reasoning_bytes() as u64;
            stage.tool_calls += message.calls().len() as u64;
            stage.sources.0[message.source as usize] += 1;
            *match message.said {
                Said::User { .. } => &mut stage.roles.user,
                Said::Assistant(_) => &mut stage.roles.assistant,
                Said::Tool(_) => &mut stage.roles.tool,
            } += 1;
        }
        stage
    }
}
