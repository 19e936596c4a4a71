//! One tool turn by the commits of the hot path, on both backends.

use anyhow::{Context, Result, bail, ensure};
use chrono::Duration;
use instar_core::fold;
use instar_core::id::{AgentId, MessageId, SessionId, TurnId, WorkerId};
use instar_core::invariant::{self, Scope};
use instar_core::rune::Actor;
use instar_core::rune::payload::{ResultStatus, Usage};
use instar_runtime::flow::{self, Asked, Ending, FlowError, Outcome, Spoken, Verdict};
use instar_store::entity::{agent, message, session, tool_call, turn};
use instar_store::{Answer, Store};
use instar_tests::cast::{self, fresh, land, person};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;

struct Rows<'a> {
    store: &'a Store,
    session: SessionId,
    agent: AgentId,
}

impl Rows<'_> {
    async fn session(&self) -> Result<session::Model> {
        session::Entity::find_by_id(self.session.uuid()).one(self.store.db()).await?.context("session")
    }
    async fn agent(&self) -> Result<agent::Model> {
        agent::Entity::find_by_id(self.agent.uuid()).one(self.store.db()).await?.context("agent")
    }
    async fn turn(&self, id: TurnId) -> Result<turn::Model> {
        turn::Entity::find_by_id(id.uuid()).one(self.store.db()).await?.context("turn")
    }
    async fn calls(&self, turn: TurnId) -> Result<Vec<tool_call::Model>> {
        let calls = tool_call::Entity::find().filter(tool_call::Column::TurnId.eq(turn.uuid()));
        Ok(calls.order_by_asc(tool_call::Column::Position).all(self.store.db()).await?)
    }
    async fn waiting(&self) -> Result<Vec<MessageId>> {
        let waiting = message::Entity::find()
            .filter(message::Column::AgentId.eq(self.agent.uuid()))
            .filter(message::Column::TurnId.is_null())
            .order_by_asc(message::Column::Id);
        Ok(waiting.all(self.store.db()).await?.into_iter().map(|m| MessageId::from(m.id)).collect())
    }
    async fn send(&self, busy: bool, content: &str) -> Result<Option<TurnId>> {
        let sent = flow::message(&self.session().await?, &self.agent().await?, busy, content, person(), None)?;
        land(self.store, sent.commit).await?;
        Ok(sent.turn)
    }
}

fn asked(name: &str) -> Asked {
    Asked {
        id: fresh(),
        provider_call_id: Some("call_1".into()),
        name: name.into(),
        arguments: json!({"text": "hi"}),
        digest: "d".into(),
        effect: "read_only",
        verdict: Verdict::Free,
    }
}

fn deadline() -> Duration {
    Duration::minutes(5)
}

fn done() -> Outcome {
    Outcome { status: ResultStatus::Success, output: json!("hi"), error: None, duration_ms: 1, truncated: false }
}

fn spoken(text: &str) -> Spoken {
    let usage = Usage { input_tokens: 10, output_tokens: 5 };
    Spoken { text: text.into(), usage, ..Spoken::default() }
}

async fn a_tool_turn_takes_six_commits_and_queues_the_next_one_for_what_waits(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    let agent = cast::agent(store, session).await?;
    let rows = Rows { store, session, agent };
    let (worker, runner) = (fresh::<WorkerId>(), Actor::system("tool-runner"));
    let before = store.writer_stats().commits.load(std::sync::atomic::Ordering::Relaxed);

    let id = rows.send(false, "echo hi").await?.context("a turn")?;
    land(store, flow::claim(&rows.agent().await?, &rows.turn(id).await?, &[], None, worker, deadline(), Vec::new())?)
        .await?;
    land(store, flow::calls(&rows.turn(id).await?, worker, &spoken(""), vec![asked("echo"), asked("now")])?).await?;
    let calls = rows.calls(id).await?;
    let mut left = Vec::new();
    for call in &calls {
        let landed = land(store, flow::result(call, runner.clone(), &done())?).await?;
        left.push(landed.counter(id.uuid()).context("a counter")?);
    }
    assert_eq!(left, [1, 0], "whoever brings it to zero wakes the worker");
    // A second result for a call that has one does not land.
    let Answer::Found(found) = store.commit(flow::result(&calls[0], runner, &done())?).await? else { bail!("twice") };
    assert_eq!(found[0].states, ["completed_result"]);

    rows.send(true, "and then?").await?;
    land(store, flow::resume(&rows.turn(id).await?, None, worker, Duration::zero(), Vec::new())?).await?;
    let (agent_row, waiting) = (rows.agent().await?, rows.waiting().await?);
    let (commit, next) = flow::complete(
        Ending {
            turn: &rows.turn(id).await?,
            agent: &agent_row,
            worker,
            waiting: &waiting,
            pause: chrono::Duration::seconds(2),
            calls_max: 10,
            letters_max: 0,
            day: flow::Day::default(),
        },
        &spoken("It said hi."),
    )?;
    land(store, commit).await?;
    let commits = store.writer_stats().commits.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert_eq!(commits, 9, "message, claim, calls, a result each, the refused one, a message, resume, end");

    let row = rows.turn(id).await?;
    assert_eq!((row.status.as_str(), row.output.as_deref(), row.iterations), ("completed", Some("It said hi."), 2));
    assert_eq!(row.usage, json!({"input_tokens": 20, "output_tokens": 10, "tool_calls": 2}));
    let used = json!({"input_tokens": 20, "output_tokens": 10, "tool_calls": 2, "turns": 1});
    assert_eq!(rows.agent().await?.usage, used);
    assert_eq!(rows.agent().await?.lifecycle, "idle");
    let next = rows.turn(next.context("the next turn")?).await?;
    assert_eq!(next.status, "queued");
    assert!(rows.waiting().await?.is_empty(), "the message was taken up");

    let runes = store.runes(session, 0, 1_000).await?;
    let violations = invariant::check(&runes, Scope::default());
    ensure!(violations.is_empty(), "{violations:?}");
    let (states, illegal) = fold::fold(runes.iter());
    let live = store.states(session).await?;
    let differences = states.diff(live.iter().map(|(m, e, s)| (*m, *e, s.as_str())));
    ensure!(illegal.is_empty() && differences.is_empty(), "{illegal:?} {differences:?}");
    Ok(())
}

async fn what_was_overtaken_does_not_land(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    let agent = cast::agent(store, session).await?;
    let rows = Rows { store, session, agent };
    let (one, two) = (fresh::<WorkerId>(), fresh::<WorkerId>());
    let id = rows.send(false, "hello").await?.context("a turn")?;

    // Two workers claim: one wins, and the other's writes name an epoch that is not theirs.
    let (agent_row, turn_row) = (rows.agent().await?, rows.turn(id).await?);
    land(store, flow::claim(&agent_row, &turn_row, &[], None, one, deadline(), Vec::new())?).await?;
    let lost = store.commit(flow::claim(&agent_row, &turn_row, &[], None, two, deadline(), Vec::new())?).await?;
    assert!(matches!(lost, Answer::Found(_)), "{lost:?}");
    let zombie = turn::Model { epoch: 0, ..rows.turn(id).await? };
    let lost = store.commit(flow::calls(&zombie, two, &spoken(""), vec![asked("echo")])?).await?;
    assert!(matches!(lost, Answer::Found(_)), "{lost:?}");

    // A message that comes while the turn ends is not forgotten: the end looks again.
    let (agent_row, turn_row) = (rows.agent().await?, rows.turn(id).await?);
    rows.send(true, "wait").await?;
    let (commit, next) = flow::complete(
        Ending {
            turn: &turn_row,
            agent: &agent_row,
            worker: one,
            waiting: &[],
            pause: chrono::Duration::seconds(2),
            calls_max: 10,
            letters_max: 0,
            day: flow::Day::default(),
        },
        &spoken("bye"),
    )?;
    assert!(next.is_none());
    assert!(matches!(store.commit(commit).await?, Answer::Found(_)));
    let (commit, next) = flow::complete(
        Ending {
            turn: &turn_row,
            agent: &rows.agent().await?,
            worker: one,
            waiting: &rows.waiting().await?,
            pause: chrono::Duration::seconds(2),
            calls_max: 10,
            letters_max: 0,
            day: flow::Day::default(),
        },
        &spoken("bye"),
    )?;
    land(store, commit).await?;
    assert!(next.is_some());

    // With a call still open a turn is not resumed.
    let id = next.context("next")?;
    land(store, flow::claim(&rows.agent().await?, &rows.turn(id).await?, &[], None, one, deadline(), Vec::new())?)
        .await?;
    land(store, flow::calls(&rows.turn(id).await?, one, &spoken(""), vec![asked("echo")])?).await?;
    ensure!(matches!(
        flow::resume(&rows.turn(id).await?, None, one, Duration::zero(), Vec::new()),
        Err(FlowError::Open(1))
    ));

    // An agent or session that takes no input says what to do.
    let stopped = agent::Model { drive: "stopped".into(), ..rows.agent().await? };
    let refused =
        flow::message(&rows.session().await?, &stopped, false, "hi", person(), None).err().context("refused")?;
    ensure!(matches!(refused, FlowError::Refused(_)) && refused.to_string().contains("relaunch"), "{refused}");
    let suspended = session::Model { status: "suspended".into(), ..rows.session().await? };
    let refused =
        flow::message(&suspended, &rows.agent().await?, false, "hi", person(), None).err().context("refused")?;
    ensure!(
        refused.to_string().contains("replenish") && refused.to_string().contains("budget_replenished"),
        "{refused}"
    );
    Ok(())
}

on_both! {
    a_tool_turn_takes_six_commits_and_queues_the_next_one_for_what_waits;
    what_was_overtaken_does_not_land;
}
