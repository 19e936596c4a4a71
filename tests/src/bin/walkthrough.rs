//! One durable tool turn on the embedded store, by a process that is killed after every commit.
//!
//! The parent starts a child that carries a turn one transition further per commit and has itself
//! killed (for real: SIGKILL) right after the n-th one; the next child finds the row where the
//! last one left it and goes on. At the end the parent checks the runelog against every invariant
//! and replays it against the rows.

use anyhow::{Context, Result, bail, ensure};
use instar_core::fold;
use instar_core::id::{AgentId, CallId, SessionId, TurnId};
use instar_core::invariant::{self, Scope};
use instar_core::machine::{self, By};
use instar_core::rune::Draft;
use instar_core::rune::payload::*;
use instar_store::entity::{agent, tool_call, turn};
use instar_store::{Change, Commit, Options, Store};
use instar_tests::cast::{self, fresh, land, mv, system};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;
use std::process::Command;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("child") => child(&arguments[2], arguments[3].parse()?).await,
        _ => parent().await,
    }
}

async fn parent() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("instar.db").display());
    Store::migrate(&url).await?;
    let store = Store::open(Options::new(&url)).await?;
    let session = cast::session(&store).await?;
    let agent = cast::agent(&store, session).await?;
    let turn = cast::turn(&store, session, agent).await?;
    println!("session {session}: one turn queued; a worker now carries it, killed after every commit\n");

    let mut kills = 0;
    loop {
        let status = Command::new(std::env::current_exe()?)
            .args(["child", &url, &turn.to_string()])
            .env(instar_crashpoint::VARIABLE, "store.commit.after")
            .status()?;
        let row = turn::Entity::find_by_id(turn.uuid()).one(store.db()).await?.context("turn")?;
        if status.success() {
            break;
        }
        kills += 1;
        println!("  killed after commit {kills}: the turn is {}", row.status);
        ensure!(kills < 20, "the turn does not get anywhere");
    }

    let runes = store.runes(session, 0, 1_000).await?;
    println!("\nrunelog");
    for rune in &runes {
        let moves: Vec<String> = rune.moves.iter().map(|m| format!("{} {}", m.row, m.to)).collect();
        println!("  {:>3}  {:<26} {}", rune.seq, rune.kind, moves.join(", "));
    }
    let seal = store.seal(session).await?.map_err(|seq| anyhow::anyhow!("the log has a hole at {seq}"))?;
    let violations = invariant::check(&runes, Scope { seals: vec![seal], ..Scope::default() });
    let (states, illegal) = fold::fold(runes.iter());
    let rows = store.states(session).await?;
    let differences = states.diff(rows.iter().map(|(machine, entity, state)| (*machine, *entity, state.as_str())));
    println!("\nkilled {kills} times; {} runes, sealed as {}", runes.len(), &seal.hash.to_hex()[..16]);
    println!(
        "verify: {} violations; replay: {} differences from the rows",
        violations.len() + illegal.len(),
        differences.len()
    );
    ensure!(violations.is_empty() && illegal.is_empty() && differences.is_empty(), "{violations:?} {differences:?}");
    Ok(())
}

/// Carries the turn on from wherever its row says it is.
async fn child(url: &str, turn_id: TurnId) -> Result<()> {
    let store = Store::open(Options::new(url)).await?;
    loop {
        let row = turn::Entity::find_by_id(turn_id.uuid()).one(store.db()).await?.context("no such turn")?;
        let (session, agent) = (SessionId::from(row.session_id), AgentId::from(row.agent_id));
        let commit = match (row.status.as_str(), row.open_calls) {
            ("queued", _) => cast::claim(session, agent, turn_id, row.epoch)?,
            ("streaming", _) if row.iterations == 0 => ask_for_a_tool(session, agent, turn_id)?,
            ("tool_executing", 0) => go_on(session, turn_id)?,
            ("tool_executing", _) => {
                let open = tool_call::Entity::find().filter(tool_call::Column::TurnId.eq(turn_id.uuid()));
                let call = open.one(store.db()).await?.context("no call")?;
                record_the_result(session, turn_id, CallId::from(call.id))?
            }
            ("streaming", _) => complete(session, agent, turn_id)?,
            ("completed", _) => return Ok(()),
            (other, _) => bail!("the turn is {other}"),
        };
        land(&store, commit).await?;
    }
}

fn ask_for_a_tool(session: SessionId, agent: AgentId, turn_id: TurnId) -> Result<Commit> {
    let call: CallId = fresh();
    let mut commit = Commit::new(session, system()).under_epoch(1);
    let asked = mv(&machine::turn::TABLE, Some("streaming"), "tool_calls_received", By::System)?;
    let change = Change::entity(&turn::TABLE, turn_id).moving(asked).epoch(1);
    commit.change(change.set(turn::Column::Iterations, 1i64).adding(1));
    let told = TurnToolCallsReceived { call_ids: vec![call], content: None, reasoning: None };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent).turn(turn_id));
    let born = mv(&machine::tool_call::TABLE, None, "call", By::System)?;
    commit.bear(&tool_call::TABLE, call, &[born], cast::call_row(call, session, agent, turn_id, "pending_call"));
    let told = ToolCall {
        tool_name: "echo".into(),
        arguments: json!({"text": "hi"}),
        provenance: None,
        digest: None,
        step_id: None,
        provider_call_id: None,
    };
    commit.rune(Draft::new(call, &told)?.agent(agent).turn(turn_id));
    Ok(commit)
}

/// A read-only tool: its start needs no commit of its own.
fn record_the_result(session: SessionId, turn_id: TurnId, call: CallId) -> Result<Commit> {
    let mut commit = Commit::new(session, system());
    let table = &machine::tool_call::TABLE;
    let free = mv(table, Some("pending_call"), "no_approval_needed", By::System)?;
    let done = mv(table, Some("executing"), "success", By::System)?;
    commit.change(Change::entity(&tool_call::TABLE, call).moving(free).moving(done));
    commit.change(Change::entity(&turn::TABLE, turn_id).adding(-1));
    let told = ToolResult {
        status: ResultStatus::Success,
        output: json!("hi"),
        error: None,
        phase: None,
        duration_ms: 0,
        attempt: 1,
        truncated: false,
    };
    commit.rune(Draft::new(call, &told)?.turn(turn_id));
    Ok(commit)
}

fn go_on(session: SessionId, turn_id: TurnId) -> Result<Commit> {
    let mut commit = Commit::new(session, system()).under_epoch(1);
    let on = mv(&machine::turn::TABLE, Some("tool_executing"), "tools_finished", By::System)?;
    commit.change(Change::entity(&turn::TABLE, turn_id).moving(on).epoch(1));
    commit.rune(Draft::new(turn_id, &TurnToolsFinished { results: vec![] })?.turn(turn_id));
    Ok(commit)
}

fn complete(session: SessionId, agent: AgentId, turn_id: TurnId) -> Result<Commit> {
    let mut commit = Commit::new(session, system()).under_epoch(1);
    let done = mv(&machine::turn::TABLE, Some("streaming"), "response_done", By::System)?;
    let idle = mv(&machine::agent_lifecycle::TABLE, Some("running_turn"), "turn_completed", By::System)?;
    commit.change(Change::entity(&turn::TABLE, turn_id).moving(done).epoch(1));
    let told = TurnAssistantFinal { content: "The tool said hi.".into(), reasoning: None };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent).turn(turn_id));
    commit.change(Change::entity(&agent::TABLE, agent).moving(idle).epoch(1));
    let usage = Usage { input_tokens: 12, output_tokens: 5 };
    let told = TurnCompleted { usage, final_output: None, finish_reason: Some("stop".into()), iterations: 2 };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent).turn(turn_id));
    Ok(commit)
}
