//! What the schema itself refuses, and what it keeps for repeats.

use anyhow::{Context, Result, ensure};
use instar_core::doc::check_constraint;
use instar_core::id::{MissionId, SessionId};
use instar_core::machine::{self, Table as Machine};
use instar_core::rune::Draft;
use instar_core::rune::payload::SystemError;
use instar_store::entity::{
    agent, asset, hop, idempotency_key, mission, plan, session, task, tool_call, tool_step, turn,
};
use instar_store::{Commit, Options, Repeat, Store, StoreError};
use instar_tests::cast::{self, fresh, system};
use instar_tests::on_both;
use instar_tests::stage::{self, Stage};
use sea_orm::{ConnectionTrait, DbBackend, EntityTrait, IntoActiveModel, Statement};
use serde_json::json;

const STATUSES: [(&str, &str, &Machine); 11] = [
    ("sessions", "status", &machine::session::TABLE),
    ("agents", "lifecycle", &machine::agent_lifecycle::TABLE),
    ("agents", "drive", &machine::agent_drive::TABLE),
    ("turns", "status", &machine::turn::TABLE),
    ("tool_calls", "status", &machine::tool_call::TABLE),
    ("missions", "status", &machine::mission::TABLE),
    ("hops", "status", &machine::hop::TABLE),
    ("tool_steps", "status", &machine::tool_step::TABLE),
    ("assets", "status", &machine::asset::TABLE),
    ("plans", "status", &machine::plan::TABLE),
    ("tasks", "status", &machine::task::TABLE),
];

/// The constraints of a table as the database tells them.
async fn constraints(store: &Store, table: &str) -> Result<String> {
    let (backend, sql) = match store.is_postgres() {
        true => (
            DbBackend::Postgres,
            format!(
                "SELECT string_agg(pg_get_constraintdef(oid), ' ') FROM pg_constraint WHERE conrelid = '{table}'::regclass"
            ),
        ),
        false => (DbBackend::Sqlite, format!("SELECT sql FROM sqlite_master WHERE name = '{table}'")),
    };
    let row = store.db().query_one_raw(Statement::from_string(backend, sql)).await?.context("no such table")?;
    Ok(row.try_get_by_index(0)?)
}

async fn the_database_knows_exactly_the_states_of_the_machines(stage: Stage) -> Result<()> {
    for (table, column, machine) in STATUSES {
        let told = constraints(&stage.store, table).await?;
        if !stage.store.is_postgres() {
            ensure!(told.contains(&check_constraint(machine, column)), "{table}.{column}: {told}");
        }
        // PostgreSQL writes the same list in its own words.
        let listed = |token: &str| told.contains(&format!("'{token}'"));
        ensure!(machine.states.iter().all(|s| listed(s.token)), "{table}.{column}: {told}");
    }
    Ok(())
}

async fn a_state_that_no_machine_knows_cannot_be_stored_by_anybody(stage: Stage) -> Result<()> {
    let db = stage.store.db();
    let (s, a, t, m): (SessionId, _, _, MissionId) = (fresh(), fresh(), fresh(), fresh());
    let refused = [
        session::Entity::insert(cast::session_row(s, "lost").into_active_model()).exec_without_returning(db).await,
        agent::Entity::insert(cast::agent_row(a, s, "lost", "idle").into_active_model())
            .exec_without_returning(db)
            .await,
        agent::Entity::insert(cast::agent_row(a, s, "idle", "lost").into_active_model())
            .exec_without_returning(db)
            .await,
        turn::Entity::insert(cast::turn_row(t, s, a, "lost").into_active_model()).exec_without_returning(db).await,
        tool_call::Entity::insert(cast::call_row(fresh(), s, a, t, "lost").into_active_model())
            .exec_without_returning(db)
            .await,
        mission::Entity::insert(cast::mission_row(m, s, "lost").into_active_model()).exec_without_returning(db).await,
        hop::Entity::insert(cast::hop_row(fresh(), s, m, 1, "lost").into_active_model())
            .exec_without_returning(db)
            .await,
        tool_step::Entity::insert(
            cast::step_row(fresh(), &cast::hop_row(fresh(), s, m, 1, ""), 1, "lost").into_active_model(),
        )
        .exec_without_returning(db)
        .await,
        asset::Entity::insert(cast::asset_row(fresh(), s, m, "output", "lost").into_active_model())
            .exec_without_returning(db)
            .await,
        plan::Entity::insert(cast::plan_row(fresh(), s, "lost").into_active_model()).exec_without_returning(db).await,
        task::Entity::insert(cast::task_row(fresh(), s, fresh(), "lost").into_active_model())
            .exec_without_returning(db)
            .await,
    ];
    for (n, answer) in refused.iter().enumerate() {
        assert!(answer.is_err(), "{:?} took it", STATUSES[n]);
    }
    Ok(())
}

async fn a_mission_has_one_hop_at_a_time_and_gives_a_number_once(stage: Stage) -> Result<()> {
    let db = stage.store.db();
    let (s, m): (SessionId, MissionId) = (fresh(), fresh());
    let put = async |sequence: i64, status: &str| {
        let row = cast::hop_row(fresh(), s, m, sequence, status);
        hop::Entity::insert(row.into_active_model()).exec_without_returning(db).await
    };
    put(1, "CANCELLED").await?;
    put(2, "FAILED").await?;
    ensure!(put(2, "COMPLETED").await.is_err(), "the number was given before");
    ensure!(put(3, "HOP_PLAN_STARTED").await.is_err(), "a failed hop is the current one");
    put(3, "COMPLETED").await?;
    Ok(())
}

fn command(session: SessionId, key: &str, body: &[u8]) -> Result<Commit> {
    let mut commit = Commit::new(session, system());
    let row = idempotency_key::Model {
        id: uuid::Uuid::now_v7(),
        session_id: session.uuid(),
        namespace: "test".into(),
        key: key.into(),
        body_hash: body.to_vec(),
        status: 202,
        answer: json!({"message_id": key}),
        version: 0,
        created_at: commit.at(),
    };
    commit.insert(&idempotency_key::TABLE, row);
    let told = SystemError { error_type: "test".into(), message: key.into(), context: json!(null) };
    commit.rune(Draft::new(session, &told)?);
    Ok(commit)
}

async fn a_repeated_command_lands_once_and_finds_its_first_answer(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let session = cast::session(store).await?;
    let head = store.runes(session, 0, 100).await?.len();
    assert_eq!(store.repeat("test", "k", b"body").await?, Repeat::New);
    let repeats =
        (0..8).map(|_| async { store.commit(command(session, "k", b"body")?).await.map_err(anyhow::Error::from) });
    let answers = futures::future::join_all(repeats).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    let duplicate = |e: &anyhow::Error| matches!(e.downcast_ref(), Some(StoreError::Duplicate(_)));
    assert!(answers.iter().filter_map(|a| a.as_ref().err()).all(duplicate), "{answers:?}");
    assert_eq!(store.runes(session, 0, 100).await?.len(), head + 1);

    let answer = json!({"message_id": "k"});
    assert_eq!(store.repeat("test", "k", b"body").await?, Repeat::Same { status: 202, answer });
    assert_eq!(store.repeat("test", "k", b"another body").await?, Repeat::Other);
    assert_eq!(store.repeat("another namespace", "k", b"body").await?, Repeat::New);
    Ok(())
}

/// Both ways: what this version brings and was never applied, and what was applied and this version does not know.
async fn a_schema_of_another_version_is_refused_with_what_to_do(stage: Stage) -> Result<()> {
    let store = &stage.store;
    store.fits().await?;
    let says = |words: &'static str| async move {
        let refused = store.fits().await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(refused.contains(words), "{words:?} is not in {refused:?}");
        anyhow::Ok(())
    };
    let newest = "(SELECT max(version) FROM seaql_migrations)";
    let known = format!("UPDATE seaql_migrations SET version = 'm29991231_000001_fly' WHERE version = {newest}");
    store.db().execute_unprepared(&known).await?;
    says("a newer version has migrated it (m29991231_000001_fly)").await?;
    store.db().execute_unprepared("DELETE FROM seaql_migrations WHERE version = 'm29991231_000001_fly'").await?;
    says("`instar migrate`").await?;
    store.db().execute_unprepared("DELETE FROM seaql_migrations").await?;
    says("it lacks m20261116_000001_create_sessions to ").await?;
    store.db().execute_unprepared("DROP TABLE seaql_migrations").await?;
    says("`instar migrate`").await
}

/// What says that it is in recovery takes no writes: here a function that goes before the server's own.
#[tokio::test]
async fn a_replica_is_refused_when_it_is_opened() -> Result<()> {
    let stage = stage::postgres().await?;
    let db = stage.store.db();
    let name = Statement::from_string(DbBackend::Postgres, "SELECT current_database()::text");
    let name: String = db.query_one_raw(name).await?.context("a name")?.try_get_by_index(0)?;
    db.execute_unprepared("CREATE SCHEMA standby").await?;
    let says = "CREATE FUNCTION standby.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'";
    db.execute_unprepared(says).await?;
    let first = format!("ALTER DATABASE \"{name}\" SET search_path = standby, pg_catalog, public");
    db.execute_unprepared(&first).await?;
    let refused = Store::open(Options::new(&stage.url)).await.err().context("it was opened")?.to_string();
    ensure!(refused.contains("point it at the primary"), "{refused}");
    Ok(())
}

on_both! {
    a_schema_of_another_version_is_refused_with_what_to_do;
    the_database_knows_exactly_the_states_of_the_machines;
    a_state_that_no_machine_knows_cannot_be_stored_by_anybody;
    a_mission_has_one_hop_at_a_time_and_gives_a_number_once;
    a_repeated_command_lands_once_and_finds_its_first_answer;
}
