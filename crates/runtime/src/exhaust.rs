//! A limit is used up: what becomes of whom it limits.
//!
//! Whoever finds it out says so, and the first one has done it. Nothing is lost if nobody does: no call is let in
//! any more, and the next one that asks finds it out again.

use crate::act::{Act, ActError, Done};
use crate::flow;
use crate::hub::Hub;
use crate::telemetry::name::metric;
use instar_core::budget::{Kind, shown};
use instar_core::cascade::Fact;
use instar_core::decide::{self, AgentEvent, OnBudget};
use instar_core::id::{AgentId, Entity, SessionId, TurnId};
use instar_core::machine::{agent_drive, agent_lifecycle, session as session_machine, turn as turn_machine};
use instar_core::rune::Actor;
use instar_store::StoreError;
use instar_store::entity::{agent, budget, turn};
use serde_json::{Value, json};

/// The word for it, in reasons.
pub const BUDGET: &str = "budget";
/// The event of each machine.
pub const BUDGET_EXHAUSTED: &str = "budget_exhausted";

/// Which limit it is, for people.
pub fn budget_info(row: &budget::Model) -> Value {
    let kind = Kind::parse(&row.kind).unwrap_or(Kind::Tokens);
    let scope: Entity = match row.scope.as_str() {
        "session" => SessionId::from(row.scope_id).into(),
        _ => AgentId::from(row.scope_id).into(),
    };
    json!({
        "scope": row.scope, "id": scope.to_string(), "limit": kind.field(),
        "max": shown(kind, row.cap), "used": shown(kind, row.used), "reserved": shown(kind, row.reserved),
    })
}

impl Hub {
    /// Carries out that a limit is used up. `turn`: one that found it out and cannot go on, if it has begun and
    /// not ended.
    pub async fn exhaust(
        &self,
        spent: &budget::Model,
        turn: Option<&turn::Model>,
        actor: &Actor,
    ) -> Result<(), ActError> {
        let session = SessionId::from(spent.session_id);
        let own = turn.is_some_and(|turn| spent.scope == "agent" && turn.agent_id == spent.scope_id);
        if let Some(turn) = turn.filter(|_| !own) {
            let act = Act::new(session, TurnId::from(turn.id), &turn_machine::TABLE, BUDGET_EXHAUSTED, actor.clone());
            self.carry(act.reason(BUDGET).while_limit(spent)).await?;
        }
        if spent.scope == "session" {
            let row = self.store().session(session).await?;
            // Many may find it out at once: those who come later need not look at the whole session.
            if !row.is_some_and(|row| ["active", "paused"].contains(&row.status.as_str())) {
                return Ok(());
            }
            let act = Act::new(session, session, &session_machine::TABLE, BUDGET_EXHAUSTED, actor.clone());
            let told = json!({"reason": BUDGET, "budget_info": budget_info(spent)});
            let moved = self.carry(act.reason(BUDGET).telling("session.suspended", told).while_limit(spent)).await?;
            count(spent, moved);
            return Ok(());
        }
        let Some(row) = self.store().agent(AgentId::from(spent.scope_id)).await? else { return Ok(()) };
        // One that hears its provider stops to, and finds it out when it knows what that cost; only of time it would
        // not.
        if !own
            && spent.kind != Kind::WallTime.token()
            && let Some(streaming) = self.streams(&row).await?
        {
            if streaming.control.as_ref().is_some_and(|asked| asked["cause"] == BUDGET_EXHAUSTED) {
                return Ok(());
            }
            let (turn, machine) = (TurnId::from(streaming.id), &turn_machine::TABLE);
            let act = Act::new(session, turn, machine, "request_control", actor.clone()).because(BUDGET_EXHAUSTED);
            self.carry(act.reason(BUDGET).while_limit(spent)).await?;
            return Ok(());
        }
        self.exhaust_agent(spent, &row, actor).await
    }

    async fn streams(&self, agent: &agent::Model) -> Result<Option<turn::Model>, StoreError> {
        if agent.lifecycle != "running_turn" {
            return Ok(None);
        }
        let found = self.store().addressee(AgentId::from(agent.id)).await?;
        Ok(found.and_then(|found| found.live).filter(|turn| turn.status == "streaming"))
    }

    async fn exhaust_agent(&self, spent: &budget::Model, row: &agent::Model, actor: &Actor) -> Result<(), ActError> {
        let states = (agent_lifecycle::State::parse(&row.lifecycle), agent_drive::State::parse(&row.drive));
        let (Some(lifecycle), Some(drive)) = states else { return Ok(()) };
        let on_budget = flow::on_budget(row);
        let (machine, event) = match decide::budget_exhausted(lifecycle, drive, on_budget) {
            Some(AgentEvent::Lifecycle(event)) => (&agent_lifecycle::TABLE, event.token()),
            Some(AgentEvent::Drive(event)) => (&agent_drive::TABLE, event.token()),
            None => return Ok(()),
        };
        let (session, id) = (SessionId::from(row.session_id), AgentId::from(row.id));
        let fact = match on_budget {
            OnBudget::Terminate => Fact::BudgetTerminates,
            OnBudget::Stop => Fact::BudgetStops,
        };
        let told = json!({"kind": spent.kind, "used": spent.used, "limit": spent.cap});
        let act = Act::new(session, id, machine, event, actor.clone()).reason(BUDGET).given(fact);
        let moved = self.carry(act.telling("agent.budget_exhausted", told).while_limit(spent)).await?;
        count(spent, moved);
        Ok(())
    }

    /// False if somebody else was first.
    async fn carry(&self, act: Act<'_>) -> Result<bool, ActError> {
        match act.carry_out(self).await {
            Ok(Done::Moved { runes }) => {
                self.follow(&runes);
                return Ok(true);
            }
            Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_)) => {}
            // Whoever asks next finds it out again.
            Err(ActError::Contended) => tracing::debug!("too busy to carry out that a budget is spent"),
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}

fn count(spent: &budget::Model, moved: bool) {
    if moved {
        let (scope, kind) = (spent.scope.clone(), spent.kind.clone());
        metrics::counter!(metric::BUDGET_EXHAUSTED, "scope" => scope, "kind" => kind).increment(1);
    }
}
