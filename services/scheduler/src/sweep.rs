//! What could go on and does not: a hint was lost, a queue was wiped, a worker hangs.

use crate::repeat::Why;
use crate::{BATCH, Desk, go_on, next};
use anyhow::Result;
use chrono::Duration;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::machine::turn as turn_machine;
use instar_runtime::telemetry::name::metric;
use instar_runtime::{Act, ActError, Done, Ready, flow};
use instar_store::entity::turn;
use instar_store::{After, Answer, clock};
use std::time::Duration as Time;
use uuid::Uuid;

/// Work that was ready for this long was not told of, or not heard.
const UNHEARD: i64 = 2;
/// A streaming turn is ended by its worker; one that is this late has a worker that hangs.
const HANGS: Time = Time::from_secs(30);
/// For how many hours the answer to a command is repeated.
const KEYS_KEPT: i64 = 48;
/// Runes that wait this long to be published are published from here.
const TRAILS: i64 = 5;

pub(crate) async fn idle(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::seconds(UNHEARD);
    let mut page = Some(After::default());
    while let Some(after) = page {
        let idle = store.idle_turns(before, after, BATCH).await?;
        for due in idle.iter().filter(|due| desk.repeats.due(Why::Idle, due.turn.id, due.turn.version)) {
            desk.tell_turn("sweep", "swept", &due.turn, None);
        }
        page = next(&idle, |due| After::turn(&due.turn));
    }
    let mut from = Uuid::nil();
    loop {
        let calls = store.idle_calls(before, from, BATCH).await?;
        for call in calls.iter().filter(|call| desk.repeats.due(Why::Idle, call.id, call.epoch)) {
            desk.tell_call("sweep", "swept", call);
        }
        match calls.last() {
            Some(last) if calls.len() as u64 == BATCH => from = last.id,
            _ => break,
        }
    }
    for agent in store.waited_for_agents(before, BATCH).await? {
        go_on(agent, take_waiting(&desk, agent).await)?;
    }
    Ok(())
}

/// Messages that no turn has taken up get one.
pub(crate) async fn take_waiting(desk: &Desk, agent: AgentId) -> Result<()> {
    let store = desk.hub.store();
    let Some(row) = store.agent(agent).await? else { return Ok(()) };
    let waiting = store.waiting(agent).await?;
    if waiting.is_empty() || row.lifecycle != "idle" || row.drive != "running" {
        return Ok(());
    }
    let agents = &desk.config.agents;
    let (most, ceiling) = (agents.letter_turns_max, flow::Ceiling::usual(agents));
    // Who has written is looked up only where it makes a difference.
    let enough = flow::letter_waits(&row, most, ceiling, clock::now()).is_some();
    let asked = !enough || store.any_from_people(&waiting).await?;
    let (commit, turn) = flow::take_up(&row, &waiting, asked, most, ceiling, desk.actor.clone())?;
    if let (Answer::Moved(_), Some(turn)) = (desk.hub.commit(commit).await?, turn) {
        let session = SessionId::from(row.session_id);
        let ready = Ready { session, agent, turn, epoch: row.epoch, reason: "queued", news: None };
        desk.hub.wake_turn(ready, row.owner, None);
    }
    Ok(())
}

pub(crate) async fn overdue(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let mut page = Some(After::default());
    while let Some(after) = page {
        let late = store.overdue_turns(HANGS, after, BATCH).await?;
        for turn in &late {
            go_on(TurnId::from(turn.id), end_late(&desk, turn).await)?;
        }
        page = next(&late, After::turn);
    }
    let silence = i64::try_from(desk.config.scheduler.watchdog_ms).unwrap_or(i64::MAX / 2);
    let before = store.now().await? - Duration::milliseconds(silence);
    let mut page = Some(After::default());
    while let Some(after) = page {
        let quiet = store.quiet_turns(before, after, BATCH).await?;
        for due in &quiet {
            go_on(TurnId::from(due.turn.id), end(&desk, &due.turn, "watchdog_timeout", "stuck").await)?;
        }
        page = next(&quiet, |due| After::turn(&due.turn));
    }
    Ok(())
}

/// One past its deadline.
async fn end_late(desk: &Desk, turn: &turn::Model) -> Result<()> {
    if turn.status == "tool_executing" && !is_late(desk, turn).await? {
        return Ok(());
    }
    end(desk, turn, turn_machine::Event::TurnDeadline.token(), "timeout").await
}

/// Ends a turn that nobody else will end.
pub(crate) async fn end(desk: &Desk, turn: &turn::Model, event: &str, why: &str) -> Result<()> {
    let (session, id) = (SessionId::from(turn.session_id), TurnId::from(turn.id));
    let mut act = Act::new(session, id, &turn_machine::TABLE, event, desk.actor.clone()).reason(why);
    act.traceparent = turn.traceparent.clone();
    match act.carry_out(&desk.hub).await {
        Ok(Done::Moved { runes }) => desk.hub.follow(&runes),
        Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_) | ActError::Contended) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Whether a parked turn is past its deadline when what people and other agents took over its calls is not counted.
async fn is_late(desk: &Desk, turn: &turn::Model) -> Result<bool> {
    let calls = desk.hub.store().calls_of(TurnId::from(turn.id)).await?;
    let asked = calls.iter().filter(|call| call.iteration == turn.iterations && flow::has_waited(call));
    // The row of a call that runs was last written when it was decided, or when it began.
    let waited = asked.map(|call| call.updated_at - call.created_at).max().unwrap_or_default();
    let now = desk.hub.store().now().await?;
    Ok(turn.deadline_at.is_some_and(|deadline| deadline + waited < now))
}

pub(crate) async fn publish(desk: Desk) -> Result<()> {
    let before = desk.hub.store().now().await? - Duration::seconds(TRAILS);
    let repeated = desk.hub.republish(before, BATCH).await?;
    if repeated > 0 {
        metrics::counter!(metric::REPUBLISHED).increment(repeated as u64);
        tracing::info!(repeated, "published what trailed");
    }
    Ok(())
}

/// Accounts that nobody may keep any longer, and calls that wait for one.
pub(crate) async fn accounts(desk: Desk) -> Result<()> {
    Ok(desk.hub.return_accounts().await?)
}

/// Forgets processes that are long gone.
pub(crate) async fn house(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::minutes(10);
    store.forget_workers(before).await?;
    Ok(())
}

/// Forgets answers that nobody asks for again.
pub(crate) async fn answers(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let before = store.now().await? - Duration::hours(KEYS_KEPT);
    store.forget_answers(before).await?;
    Ok(())
}
