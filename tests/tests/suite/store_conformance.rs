//! Every cell of all eleven machines through the real transition writer, on both backends.

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use instar_core::id::{
    AgentId, AssetId, CallId, Entity, HopId, Kind, MissionId, PlanId, SessionId, StepId, TaskId, TurnId,
};
use instar_core::machine::{self, Answer as Cell, By, Emit, Move, Table as Machine};
use instar_core::rune::sample::sample;
use instar_core::rune::{Draft, KINDS};
use instar_store::entity::{agent, asset, hop, mission, plan, session, task, tool_call, tool_step, turn};
use instar_store::{Answer, Change, Commit, Landed, Options, Store, Table};
use instar_tests::cast::{self, fresh, mv, system};
use instar_tests::on_both;
use instar_tests::stage::Stage;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, EntityTrait, IntoActiveModel};
use serde_json::value::RawValue;
use uuid::Uuid;

/// A row of a machine's entity in some state, and where it lives.
struct Subject {
    session: SessionId,
    entity: Entity,
    table: &'static Table,
}

fn table_of(machine: &Machine) -> Result<&'static Table> {
    Ok(match machine.name {
        "session" => &session::TABLE,
        "agent_lifecycle" | "agent_drive" => &agent::TABLE,
        "turn" => &turn::TABLE,
        "tool_call" => &tool_call::TABLE,
        "mission" => &mission::TABLE,
        "hop" => &hop::TABLE,
        "tool_step" => &tool_step::TABLE,
        "asset" => &asset::TABLE,
        "plan" => &plan::TABLE,
        "task" => &task::TABLE,
        other => bail!("{other} has no table"),
    })
}

/// Puts a row into a state behind the writer's back: the cell under test is what follows.
async fn place(store: &Store, machine: &'static Machine, state: &str) -> Result<Subject> {
    let session = cast::session(store).await?;
    let kind = Kind::of_machine(machine.name).context("an entity")?;
    let entity = match kind {
        Kind::Session => Entity::from(session),
        kind => Entity::new(kind, Uuid::now_v7()),
    };
    let id = entity.id;
    let db = store.db();
    match machine.name {
        "session" => {
            let row = session::Entity::find_by_id(id).one(db).await?.context("session")?;
            let row = session::ActiveModel { status: Set(state.into()), ..row.into_active_model() };
            row.update(db).await?;
        }
        "agent_lifecycle" => {
            let row = cast::agent_row(AgentId::from(id), session, state, "running");
            agent::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "agent_drive" => {
            let row = cast::agent_row(AgentId::from(id), session, "idle", state);
            agent::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "turn" => {
            let row = cast::turn_row(TurnId::from(id), session, fresh(), state);
            turn::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "tool_call" => {
            let row = cast::call_row(CallId::from(id), session, fresh(), fresh(), state);
            tool_call::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "mission" => {
            let row = cast::mission_row(MissionId::from(id), session, state);
            mission::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "hop" => {
            let row = cast::hop_row(HopId::from(id), session, fresh(), 1, state);
            hop::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "tool_step" => {
            let row = cast::step_row(StepId::from(id), &cast::hop_row(fresh(), session, fresh(), 1, ""), 1, state);
            tool_step::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "asset" => {
            let row = cast::asset_row(AssetId::from(id), session, fresh(), "output", state);
            asset::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "plan" => {
            let row = cast::plan_row(PlanId::from(id), session, state);
            plan::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        "task" => {
            let row = cast::task_row(TaskId::from(id), session, fresh(), state);
            task::Entity::insert(row.into_active_model()).exec_without_returning(db).await?;
        }
        other => bail!("{other} has no table"),
    }
    Ok(Subject { session, entity, table: table_of(machine)? })
}

/// The runes that a move's row names, with sample payloads.
fn tell(commit: &mut Commit, entity: Entity, mv: &Move) -> Result<()> {
    let kinds: Vec<&str> = match mv.emit() {
        Emit::Runes(kinds) => kinds.to_vec(),
        Emit::Via(kind) => vec![kind],
        Emit::Silent => vec!["system.error"],
    };
    for kind in kinds {
        let payload = RawValue::from_string(sample(kind).context(kind)?.to_owned())?;
        commit.rune(Draft::raw(kind, entity, payload)?);
    }
    Ok(())
}

fn transition(subject: &Subject, mv: Move, version: Option<i64>) -> Result<Commit> {
    let mut commit = Commit::new(subject.session, system());
    let mut change = Change::entity(subject.table, subject.entity).moving(mv).epoch(0);
    if let Some(version) = version {
        change = change.version(version);
    }
    commit.change(change);
    tell(&mut commit, subject.entity, &mv)?;
    Ok(commit)
}

async fn state(store: &Store, machine: &Machine, id: Uuid) -> Result<String> {
    let db = store.db();
    Ok(match machine.name {
        "session" => session::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "agent_lifecycle" => agent::Entity::find_by_id(id).one(db).await?.context("row")?.lifecycle,
        "agent_drive" => agent::Entity::find_by_id(id).one(db).await?.context("row")?.drive,
        "turn" => turn::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "tool_call" => tool_call::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "mission" => mission::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "hop" => hop::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "tool_step" => tool_step::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "asset" => asset::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "plan" => plan::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        "task" => task::Entity::find_by_id(id).one(db).await?.context("row")?.status,
        other => bail!("{other} has no table"),
    })
}

/// The birth of an entity by this move, in a session of its own.
async fn bear(store: &Store, machine: &'static Machine, birth: Move) -> Result<(Landed, Entity)> {
    let kind = Kind::of_machine(machine.name).context("an entity")?;
    let session = if kind == Kind::Session { fresh() } else { cast::session(store).await? };
    let entity = if kind == Kind::Session { session.into() } else { Entity::new(kind, Uuid::now_v7()) };
    let mut commit = Commit::new(session, system());
    let to = birth.to();
    match kind {
        Kind::Session => drop(commit.bear(&session::TABLE, entity, &[birth], cast::session_row(session, to))),
        Kind::Agent => {
            // An agent has two machines and is born in both.
            let other = match machine.name {
                "agent_lifecycle" => mv(&machine::agent_drive::TABLE, None, "create", By::User)?,
                _ => mv(&machine::agent_lifecycle::TABLE, None, "spawn", By::User)?,
            };
            let row = match machine.name {
                "agent_lifecycle" => cast::agent_row(AgentId::from(entity.id), session, to, other.to()),
                _ => cast::agent_row(AgentId::from(entity.id), session, other.to(), to),
            };
            commit.bear(&agent::TABLE, entity, &[birth, other], row);
            tell(&mut commit, entity, &other)?;
        }
        Kind::Turn => {
            let row = cast::turn_row(TurnId::from(entity.id), session, fresh(), to);
            commit.bear(&turn::TABLE, entity, &[birth], row);
        }
        Kind::ToolCall => {
            let row = cast::call_row(CallId::from(entity.id), session, fresh(), fresh(), to);
            commit.bear(&tool_call::TABLE, entity, &[birth], row);
        }
        Kind::Mission => {
            let row = cast::mission_row(MissionId::from(entity.id), session, to);
            commit.bear(&mission::TABLE, entity, &[birth], row);
        }
        Kind::Hop => {
            let row = cast::hop_row(HopId::from(entity.id), session, fresh(), 1, to);
            commit.bear(&hop::TABLE, entity, &[birth], row);
        }
        Kind::ToolStep => {
            let row = cast::step_row(StepId::from(entity.id), &cast::hop_row(fresh(), session, fresh(), 1, ""), 1, to);
            commit.bear(&tool_step::TABLE, entity, &[birth], row);
        }
        Kind::Asset => {
            let row = cast::asset_row(AssetId::from(entity.id), session, fresh(), "output", to);
            commit.bear(&asset::TABLE, entity, &[birth], row);
        }
        Kind::Plan => {
            let row = cast::plan_row(PlanId::from(entity.id), session, to);
            commit.bear(&plan::TABLE, entity, &[birth], row);
        }
        Kind::Task => {
            let row = cast::task_row(TaskId::from(entity.id), session, fresh(), to);
            commit.bear(&task::TABLE, entity, &[birth], row);
        }
    }
    tell(&mut commit, entity, &birth)?;
    Ok((cast::land(store, commit).await?, entity))
}

/// One cell: what the table says must be what the store does.
async fn cell(store: &Store, machine: &'static Machine, from: Option<&'static str>, event: usize) -> Result<usize> {
    let info = &machine.events[event];
    let by = info.by[0];
    match machine::apply(machine, from, info.token, by) {
        Cell::Moves(mv) => {
            let (landed, entity) = match from {
                None => bear(store, machine, mv).await?,
                Some(from) => {
                    let subject = place(store, machine, from).await?;
                    (cast::land(store, transition(&subject, mv, None)?).await?, subject.entity)
                }
            };
            ensure!(state(store, machine, entity.id).await? == mv.to(), "{} {from:?} {}", machine.name, info.token);
            let told: Vec<_> = landed.runes.iter().flat_map(|r| &r.moves).filter(|m| m.row == mv.row()).collect();
            ensure!(told.len() == 1 && told[0].entity == entity && told[0].to == mv.to(), "{} is told once", mv.row());
            let stored = store.read_back(landed.runes[0].session_id, landed.runes[0].command_id).await?;
            ensure!(stored.len() == landed.runes.len() && stored.iter().all(|r| r.is_intact()), "{}", mv.row());
            Ok(1)
        }
        // Without a move there is nothing that the writer would take: the cell cannot be written.
        Cell::Ignored { .. } => Ok(0),
        Cell::Refused(refusal) => {
            ensure!(!refusal.allowed.contains(&info.token), "{refusal}");
            Ok(0)
        }
    }
}

fn cells() -> Vec<(&'static Machine, Option<&'static str>, usize)> {
    let mut cells = Vec::new();
    for machine in machine::ALL {
        let states = std::iter::once(None).chain(machine.states.iter().map(|s| Some(s.token)));
        for from in states {
            cells.extend((0..machine.events.len()).map(|event| (machine, from, event)));
        }
    }
    cells
}

async fn every_cell_goes_through_the_writer_as_its_table_says(stage: Stage) -> Result<()> {
    let store = &stage.store;
    // One at a time, then many at once: the writer has a path for each.
    for together in [1, 48] {
        let runs = futures::stream::iter(cells()).map(|(machine, from, event)| cell(store, machine, from, event));
        let moved: Vec<Result<usize>> = runs.buffer_unordered(together).collect().await;
        let moved = moved.into_iter().sum::<Result<usize>>()?;
        let expected: usize = machine::ALL.iter().flat_map(|m| m.rows).map(|r| r.from.len().max(1)).sum();
        assert_eq!(moved, expected, "moving cells at {together} together");
    }
    Ok(())
}

/// Two writers with connections of their own; on SQLite they share the one writer there is.
async fn rivals(stage: &Stage) -> Result<[Store; 2]> {
    let first = stage.store.clone();
    let second = match first.is_postgres() {
        true => Store::open(Options::new(&stage.url)).await?,
        false => first.clone(),
    };
    Ok([first, second])
}

async fn race(stores: &[Store; 2], machine: &'static Machine, from: &'static str, event: usize) -> Result<usize> {
    let info = &machine.events[event];
    let Cell::Moves(mv) = machine::apply(machine, Some(from), info.token, info.by[0]) else { return Ok(0) };
    let subject = place(&stores[0], machine, from).await?;
    let before = stores[0].runes(subject.session, 0, 100).await?.len() as i64;
    // A move that keeps the state is told apart by the version that both have read.
    let version = (!mv.changes_state()).then_some(0);
    let commits = [transition(&subject, mv, version)?, transition(&subject, mv, version)?];
    let [one, two] = commits;
    let (one, two) = tokio::join!(stores[0].commit(one), stores[1].commit(two));
    match (one?, two?) {
        (Answer::Moved(_), Answer::Found(found)) | (Answer::Found(found), Answer::Moved(_)) => {
            ensure!(found.len() == 1 && found[0].id == subject.entity.id && found[0].version == 1, "{found:?}");
            let slot = subject.table.machines.iter().position(|(m, _)| *m == machine.name).context("slot")?;
            ensure!(found[0].states[slot] == mv.to(), "the loser is told the new state: {found:?}");
            let told = stores[0].runes(subject.session, before, 100).await?;
            ensure!(told.iter().map(|r| r.moves.len()).sum::<usize>() == 1, "{} is told once", mv.row());
            Ok(1)
        }
        other => bail!("{} {from} {}: not exactly one winner: {other:?}", machine.name, info.token),
    }
}

async fn two_writers_race_for_every_moving_cell_and_exactly_one_wins(stage: Stage) -> Result<()> {
    let stores = &rivals(&stage).await?;
    let cells = cells().into_iter().filter_map(|(machine, from, event)| from.map(|from| (machine, from, event)));
    let races = futures::stream::iter(cells).map(|(machine, from, event)| race(stores, machine, from, event));
    let races: Vec<Result<usize>> = races.buffer_unordered(24).collect().await;
    let raced = races.into_iter().sum::<Result<usize>>()?;
    let expected: usize = machine::ALL.iter().flat_map(|m| m.rows).map(|r| r.from.len()).sum();
    assert_eq!(raced, expected);
    Ok(())
}

#[test]
fn every_kind_has_a_sample_that_its_type_takes() {
    for kind in KINDS {
        let text = sample(kind.token).unwrap_or_else(|| panic!("no sample for {}", kind.token));
        (kind.check)(text).unwrap_or_else(|e| panic!("{}: {e}", kind.token));
    }
}

on_both! {
    every_cell_goes_through_the_writer_as_its_table_says;
    two_writers_race_for_every_moving_cell_and_exactly_one_wins;
}
