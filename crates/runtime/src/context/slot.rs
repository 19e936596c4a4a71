//! What the slots of an agent's instructions stand for.

use chrono::{DateTime, Utc};
use instar_core::context::{NO_BROADCAST, slots_in};
use instar_core::id::{AgentId, BroadcastId, SessionId};
use instar_store::entity::agent;
use instar_store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const NO_ACCOUNT: &str = "(no account)";

/// What has to be read before a context can be composed; mostly nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub any: bool,
    pub broadcast: bool,
    pub account: bool,
    pub session: bool,
}

impl Needs {
    pub fn of(template: Option<&str>) -> Needs {
        let mut needs = Needs::default();
        for slot in template.into_iter().flat_map(slots_in) {
            match slot {
                "LATEST_BROADCAST" => needs.broadcast = true,
                "ACCOUNT" => needs.account = true,
                "SESSION_NAME" => needs.session = true,
                "AGENT_NAME" | "AGENT_ROLE" | "DATE" => {}
                _ => continue,
            }
            needs.any = true;
        }
        needs
    }
}

/// What a composition takes from outside the agent's conversation, at its moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The newest broadcast that has not expired: the row, and what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast_id: Option<BroadcastId>,
    #[serde(skip)]
    pub broadcast: Option<String>,
}

impl Facts {
    /// What the slots of an agent's instructions stand for now. Nothing is read where there is no need.
    pub async fn read(store: &Store, agent: &agent::Model, now: DateTime<Utc>) -> Result<Facts, StoreError> {
        let (needs, session) = (Needs::of(super::template(agent)), SessionId::from(agent.session_id));
        let mut facts = Facts::default();
        if needs.any {
            facts.date = Some(now.format("%Y-%m-%d").to_string());
        }
        if needs.account {
            let held = store.account_of(AgentId::from(agent.id)).await?;
            facts.account = held.map(|account| account.username.unwrap_or(account.name));
        }
        if needs.session {
            facts.session_name = store.session(session).await?.and_then(|session| session.name);
        }
        if needs.broadcast
            && let Some(latest) = store.latest_broadcast(session, now).await?
        {
            facts.broadcast_id = Some(BroadcastId::from(latest.id));
            facts.broadcast = Some(latest.content);
        }
        Ok(facts)
    }

    /// With what the broadcast says that is named in it.
    pub async fn told(mut self, store: &Store) -> Result<Facts, StoreError> {
        if let Some(id) = self.broadcast_id {
            self.broadcast = store.broadcast(id).await?.map(|row| row.content);
        }
        Ok(self)
    }

    /// Whether slots stand for the same, going by what is kept of them.
    pub(super) fn same(&self, other: &Facts) -> bool {
        let kept = |facts: &Facts| Facts { broadcast: None, ..facts.clone() };
        kept(self) == kept(other)
    }

    pub(super) fn slots<'a>(&'a self, agent: &'a agent::Model) -> Vec<(&'a str, Cow<'a, str>)> {
        if self.date.is_none() {
            return Vec::new();
        }
        let or = |value: &'a Option<String>, absent: &'static str| Cow::Borrowed(value.as_deref().unwrap_or(absent));
        vec![
            ("AGENT_NAME", Cow::Borrowed(agent.name.as_str())),
            ("AGENT_ROLE", Cow::Borrowed(agent.role.as_str())),
            ("SESSION_NAME", or(&self.session_name, "")),
            ("DATE", or(&self.date, "")),
            ("LATEST_BROADCAST", or(&self.broadcast, NO_BROADCAST)),
            ("ACCOUNT", or(&self.account, NO_ACCOUNT)),
        ]
    }
}
