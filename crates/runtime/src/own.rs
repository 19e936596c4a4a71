//! Turns that a command ends and that agents have caused: they count as any other of the day.

use crate::act::Plan;
use crate::flow::{self, Day};
use crate::hub::Hub;
use chrono::{DateTime, Utc};
use instar_core::budget::Price;
use instar_core::cascade::Planned;
use instar_core::id::{AgentId, TurnId};
use instar_core::machine::Phase;
use instar_store::entity::{agent, turn};
use instar_store::{Change, StoreError};
use serde_json::json;
use std::collections::{HashMap, HashSet};

const ENDS: Option<Phase> = Some(Phase::Terminal);

/// Turns that only agents have caused, and what their models cost.
pub(crate) type Own = HashMap<TurnId, Option<Price>>;

impl Plan {
    /// Turns that it ends.
    pub(crate) fn ended(&self) -> impl Iterator<Item = (&Planned, &turn::Model)> {
        let ends = |p: &&Planned| {
            let mv = &p.mv;
            mv.machine() == "turn" && mv.changes_state() && mv.table().phase(mv.to()) == ENDS
        };
        self.planned.iter().filter(ends).filter_map(|p| Some((p, self.after.turn(p.entity.id)?)))
    }

    /// The agent's row with one of its turns counted, if that is one that agents have caused.
    pub(crate) fn count_own(
        &self,
        turn: &turn::Model,
        agent: &agent::Model,
        change: Change,
        at: DateTime<Utc>,
    ) -> Change {
        let Some(price) = self.own.get(&TurnId::from(turn.id)) else { return change };
        let day = Day { counts: true, price: *price, ..Day::default() };
        change.set(agent::Column::Today, json!(day.after(agent, &turn.usage, at)))
    }
}

impl Hub {
    /// What the log and the messages have of the turns that a command ends.
    pub(crate) async fn filled(&self, mut plan: Plan) -> Result<Plan, StoreError> {
        plan.cut = self.said_before(&plan).await?;
        plan.own = self.own(&plan).await?;
        Ok(plan)
    }

    async fn own(&self, plan: &Plan) -> Result<Own, StoreError> {
        let over = |p: &&Planned| p.mv.machine() == "agent_lifecycle" && p.mv.table().phase(p.mv.to()) == ENDS;
        let over: HashSet<_> = plan.planned.iter().filter(over).map(|p| p.entity.id).collect();
        let mut own = Own::new();
        for (p, turn) in plan.ended() {
            let Some(agent) = plan.after.agents.get(&turn.agent_id) else { continue };
            // One that has not begun has cost nothing, and one whose agent ends with it is its last.
            if p.mv.from() == Some("queued") || over.contains(&turn.agent_id) {
                continue;
            }
            let (id, store) = (TurnId::from(turn.id), self.store());
            let counts = match turn.cause.as_str() {
                flow::NUDGE => true,
                flow::AGENT_CAUSE | "user" => store.is_of_agents_alone(AgentId::from(agent.id), id).await?,
                _ => false,
            };
            if counts {
                own.insert(id, self.price(&agent.model));
            }
        }
        Ok(own)
    }
}
