//! Calls and steps to go on with, and calls that are over for others, found in the database while the bus is down.

use crate::runner::Runner;
use anyhow::Result;
use chrono::{DateTime, Utc};
use instar_bus::message::WorkTool;
use instar_core::id::{CallId, SessionId, StepId, TurnId};
use instar_runtime::{CLASS, Looking, Tried};
use instar_store::clock;
use instar_store::entity::tool_call;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use uuid::Uuid;

/// Hints that may have been found and not yet taken up.
pub(crate) const FOUND_MAX: usize = 64;
/// Rows of one look.
const LOOK_MAX: u64 = 256;
/// What is rarer than a call is looked for in turns, so often.
const ASIDE_EVERY: Duration = Duration::from_millis(250);
const ASIDES: usize = 4;

struct Rows {
    runner: Arc<Runner>,
    found: Sender<WorkTool>,
    looking: Looking,
    tried: Tried,
    from: Uuid,
    aside: usize,
    aside_due: Instant,
}

/// Hands on what there is room for, until nobody takes it any more.
pub(crate) async fn look(runner: Arc<Runner>, found: Sender<WorkTool>) {
    let looking = runner.hub.looking();
    let (tried, from, aside, aside_due) = (Tried::default(), Uuid::nil(), 0, Instant::now());
    let mut rows = Rows { runner, found, looking, tried, from, aside, aside_due };
    loop {
        rows.looking.due().await;
        if rows.found.is_closed() {
            return;
        }
        if rows.found.capacity() < rows.found.max_capacity() {
            // What was found before is not taken up yet.
            rows.looking.looked(true);
            continue;
        }
        let handed = rows.look().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "what there is to do could not be looked for");
            0
        });
        rows.looking.looked(handed > 0);
    }
}

impl Rows {
    /// How many were handed on.
    async fn look(&mut self) -> Result<usize> {
        self.looking.ask(1).await;
        let calls = self.runner.hub.store().idle_calls(ever(), self.from, LOOK_MAX).await?;
        self.from = calls.last().filter(|_| calls.len() as u64 == LOOK_MAX).map_or_else(Uuid::nil, |last| last.id);
        let mut handed = 0;
        // Of those that go one after the other only the first may be due.
        let mut alone = HashSet::new();
        for call in &calls {
            let first = call.turn_id.is_none_or(|turn| self.runner.parallel(&call.name) || alone.insert(turn));
            handed += usize::from(first && self.hand_on_call(call));
        }
        if self.aside_due > Instant::now() {
            return Ok(handed);
        }
        self.aside_due = Instant::now() + ASIDE_EVERY;
        self.aside = (self.aside + 1) % ASIDES;
        Ok(handed + self.look_aside().await?)
    }

    async fn look_aside(&mut self) -> Result<usize> {
        let (hub, mut handed) = (self.runner.hub.clone(), 0);
        match self.aside {
            0 => {
                let flights = self.runner.flights.calls();
                if flights.is_empty() {
                    return Ok(0);
                }
                self.looking.ask(1).await;
                for call in hub.store().ended_calls(&flights).await? {
                    self.runner.flights.tell(call);
                }
            }
            // These ask for the time as well.
            1 => {
                self.looking.ask(2).await;
                for step in hub.store().idle_steps(ever(), LOOK_MAX).await? {
                    let (session, id) = (SessionId::from(step.session_id), StepId::from(step.id));
                    let hint = WorkTool { step_id: id.to_string(), ..hint(session) };
                    handed += usize::from(self.tried.is_due(step.id, step.version) && self.hand_on(hint));
                }
            }
            2 => {
                self.looking.ask(2).await;
                for call in hub.store().due_waits(ever(), LOOK_MAX).await? {
                    handed += usize::from(self.hand_on_call(&call));
                }
            }
            _ => {
                self.looking.ask(2).await;
                for call in hub.account_waits().await? {
                    handed += usize::from(self.hand_on_call(&call));
                }
            }
        }
        Ok(handed)
    }

    fn hand_on_call(&mut self, call: &tool_call::Model) -> bool {
        let id = CallId::from(call.id);
        if self.runner.flights.has(id) || !self.tried.is_due(call.id, call.version) {
            return false;
        }
        let turn = call.turn_id.map(|turn| TurnId::from(turn).to_string());
        let session = SessionId::from(call.session_id);
        // Others may have found it as well: its start is recorded before it is made.
        self.hand_on(WorkTool {
            turn_id: turn.unwrap_or_default(),
            call_id: id.to_string(),
            again: true,
            ..hint(session)
        })
    }

    fn hand_on(&self, hint: WorkTool) -> bool {
        self.found.try_send(hint).is_ok()
    }
}

fn hint(session: SessionId) -> WorkTool {
    WorkTool { session_id: session.to_string(), class: CLASS.to_owned(), ..WorkTool::default() }
}

/// Nothing that could go on is too fresh to be looked at.
fn ever() -> DateTime<Utc> {
    clock::now() + chrono::Duration::days(365)
}
