//! A command that ends turns in the middle of an answer: what was said so far goes into its commit.
//!
//! Only the worker that hears the provider knows all of that. It is asked to write it down, and to hear nothing more
//! until the command has landed; one that does not answer is not waited for long, and what the log has is taken.

use crate::act::Plan;
use crate::flow::{self, Spoken};
use crate::hub::Hub;
use chrono::{DateTime, Utc};
use instar_bus::message::control::Action;
use instar_core::id::{AgentId, Entity, SessionId, TurnId, WorkerId};
use instar_core::machine::Phase;
use instar_store::entity::{message, turn};
use instar_store::{Change, Commit, StoreError};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a worker is waited for.
const KEPT_WITHIN: Duration = Duration::from_millis(150);
const LOOK_EVERY: Duration = Duration::from_millis(8);

/// What turns have said that a command ends.
pub(crate) type Cut = HashMap<TurnId, String>;

impl Plan {
    /// Turns that it ends in the middle of an answer.
    pub(crate) fn cuts(&self) -> Vec<&turn::Model> {
        let cuts = self.planned.iter().filter(|p| {
            let (mv, ends) = (&p.mv, Some(Phase::Terminal));
            mv.machine() == "turn" && mv.from() == Some("streaming") && mv.table().phase(mv.to()) == ends
        });
        cuts.filter_map(|p| self.after.turn(p.entity.id)).collect()
    }

    /// The columns of a turn that it cuts off, and the message that the next context shows.
    pub(crate) fn keep_said(&self, commit: &mut Commit, change: Change, entity: Entity, at: DateTime<Utc>) -> Change {
        let Some(text) = self.said(entity) else { return change };
        let Some(turn) = self.after.turn(entity.id) else { return change };
        let spoken = Spoken { text: text.to_owned(), ..Spoken::default() };
        if let Some(row) = flow::said_row(turn, turn.iterations + 1, &spoken) {
            commit.insert(&message::TABLE, message::Model { created_at: at, ..row });
        }
        let interrupted = self.planned.iter().any(|p| p.entity == entity && p.mv.to() == "interrupted");
        if interrupted { change.set(turn::Column::Output, text.to_owned()) } else { change }
    }

    /// The same for the rune of its end.
    pub(crate) fn tell_said(&self, entity: Entity, kind: &str, fields: &mut Map<String, Value>) {
        if let Some(text) = self.said(entity).filter(|_| matches!(kind, "turn.interrupted" | "turn.error")) {
            fields.insert("partial_output".into(), json!(text));
        }
    }

    fn said(&self, entity: Entity) -> Option<&str> {
        self.cut.get(&TurnId::from(entity.id)).map(String::as_str)
    }
}

impl Hub {
    /// Has the workers of these turns write down what was said so far, if they do so at once.
    pub(crate) async fn have_kept(&self, plan: &Plan) -> Result<(), StoreError> {
        let owned = |turn: &&&turn::Model| {
            let owner = plan.after.agents.get(&turn.agent_id).and_then(|agent| agent.owner);
            owner.is_some_and(|owner| self.live().has(WorkerId::from(owner)))
        };
        let turns = plan.cuts();
        let turns: Vec<&turn::Model> = turns.iter().filter(owned).copied().collect();
        if turns.is_empty() || !self.bus().watch().is_up() {
            return Ok(());
        }
        for turn in &turns {
            let (session, agent) = (SessionId::from(turn.session_id), AgentId::from(turn.agent_id));
            self.tell_agent(session, agent, Some(TurnId::from(turn.id)), Action::Keep, "keep");
        }
        let ids: Vec<TurnId> = turns.iter().map(|turn| TurnId::from(turn.id)).collect();
        let until = Instant::now() + KEPT_WITHIN;
        while Instant::now() < until {
            sleep(LOOK_EVERY).await;
            let now = self.store().turn_versions(&ids).await?;
            if turns.iter().all(|turn| now.get(&TurnId::from(turn.id)).is_none_or(|now| *now != turn.version)) {
                break;
            }
        }
        Ok(())
    }

    /// What the log has of the answers that a command cuts off.
    pub(crate) async fn said_before(&self, plan: &Plan) -> Result<Cut, StoreError> {
        let cuts = plan.cuts();
        let Some(first) = cuts.first() else { return Ok(Cut::new()) };
        let ids: Vec<TurnId> = cuts.iter().map(|turn| TurnId::from(turn.id)).collect();
        let mut cut = self.store().said_so_far(SessionId::from(first.session_id), &ids).await?;
        // An answer in which the provider paused is a message already.
        for turn in cuts.iter().filter(|turn| turn.iterations > 0) {
            let id = TurnId::from(turn.id);
            let Some(said) = cut.get(&id) else { continue };
            let newest = self.store().newest_answer(AgentId::from(turn.agent_id)).await?;
            if newest.is_some_and(|newest| is_paused(turn, &newest, said)) {
                cut.remove(&id);
            }
        }
        Ok(cut)
    }
}

fn is_paused(turn: &turn::Model, answer: &message::Model, said: &str) -> bool {
    let own = answer.turn_id == Some(turn.id) && answer.content == said;
    own && answer.data.as_ref().is_some_and(|data| data["iteration"] == turn.iterations)
}
