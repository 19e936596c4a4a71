//! An agent as a message finds it, with its session and the turn that runs: one query for all that are
//! asked for at the same moment.

use crate::connect::Store;
use crate::entity::{agent, session, turn};
use crate::error::StoreError;
use crate::pool::Pool;
use crate::scene::columns;
use instar_core::id::{AgentId, TurnId};
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, QueryFilter, Statement, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

/// A turn that has not ended is among the newest of its agent; looking no further keeps the cost of a message
/// from growing with the history.
const NEWEST_TURNS: usize = 8;

#[derive(Clone, Debug)]
pub struct Addressee {
    pub session: session::Model,
    pub agent: agent::Model,
    /// It has a turn that is queued or runs.
    pub busy: bool,
    /// The one that runs.
    pub live: Option<turn::Model>,
}

fn selected() -> String {
    let session = columns::<session::Entity>("s", "s_");
    let (agent, turn) = (columns::<agent::Entity>("a", "a_"), columns::<turn::Entity>("t", "t_"));
    format!("SELECT {session}, {agent}, {turn}")
}

/// The newest turns are found by a range of the index by agent and id: asked for by agent and sorted by id, they
/// would now and then be looked for through everybody's newest turns.
static POSTGRES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}, CASE WHEN b.busy THEN 1 ELSE 0 END AS busy FROM agents a JOIN sessions s ON s.id = a.session_id \
         CROSS JOIN LATERAL (SELECT bool_or(n.ended_at IS NULL) AS busy, \
         (array_agg(n.id) FILTER (WHERE n.ended_at IS NULL AND n.status <> 'queued'))[1] AS live FROM \
         (SELECT id, status, ended_at FROM turns \
         WHERE (agent_id, id) >= (a.id, '00000000-0000-0000-0000-000000000000'::uuid) \
         AND (agent_id, id) <= (a.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) \
         ORDER BY agent_id DESC, id DESC LIMIT {NEWEST_TURNS}) n) b \
         LEFT JOIN turns t ON t.id = b.live WHERE a.id = ANY($1)",
        selected()
    )
});

static SQLITE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}, EXISTS (SELECT 1 FROM (SELECT ended_at FROM turns WHERE agent_id = a.id \
         ORDER BY id DESC LIMIT {NEWEST_TURNS}) n WHERE n.ended_at IS NULL) AS busy \
         FROM agents a JOIN sessions s ON s.id = a.session_id \
         LEFT JOIN turns t ON t.id = (SELECT id FROM (SELECT id, status, ended_at FROM turns WHERE agent_id = a.id \
         ORDER BY id DESC LIMIT {NEWEST_TURNS}) n WHERE n.ended_at IS NULL AND n.status <> 'queued' LIMIT 1) \
         WHERE a.id IN ",
        selected()
    )
});

pub(crate) async fn find(db: &Pool, ids: Vec<Uuid>) -> Result<HashMap<Uuid, Addressee>, StoreError> {
    let backend = db.get_database_backend();
    let (sql, values): (String, Vec<Value>) = match backend {
        DbBackend::Postgres => (POSTGRES.clone(), vec![ids.into()]),
        _ => {
            // Few lengths, so that there are few statements: the last one fills up.
            let places = ids.len().next_power_of_two();
            let last = ids.last().copied().unwrap_or_default();
            let filled = ids.into_iter().chain(std::iter::repeat(last)).take(places);
            (format!("{}({})", *SQLITE, vec!["?"; places].join(", ")), filled.map(Value::from).collect())
        }
    };
    let rows = db.query_all_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
    let read = |row: &sea_orm::QueryResult| {
        // Mostly there is none, and asking every column whether it is there would cost more than the others.
        let live = row.try_get::<Option<Uuid>>("", "t_id")?;
        let found = Addressee {
            session: session::Model::from_query_result(row, "s_")?,
            agent: agent::Model::from_query_result(row, "a_")?,
            live: live.map(|_| turn::Model::from_query_result(row, "t_")).transpose()?,
            busy: row.try_get::<i32>("", "busy")? != 0,
        };
        Ok((found.agent.id, found))
    };
    rows.iter().map(read).collect()
}

pub(crate) async fn turns(db: &Pool, ids: Vec<Uuid>) -> Result<HashMap<Uuid, turn::Model>, StoreError> {
    let rows = match db.get_database_backend() {
        DbBackend::Postgres => {
            let sql = "SELECT * FROM turns WHERE id = ANY($1)";
            let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, [ids.into()]);
            turn::Entity::find().from_raw_sql(statement).all(db).await?
        }
        _ => turn::Entity::find().filter(turn::Column::Id.is_in(ids)).all(db).await?,
    };
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

impl Store {
    /// `None`: there is no such agent.
    pub async fn addressee(&self, agent: AgentId) -> Result<Option<Addressee>, StoreError> {
        self.addressees.get(agent.uuid()).await
    }

    /// As [`Store::turn`], for many who ask at once.
    pub async fn turn_among_others(&self, turn: TurnId) -> Result<Option<turn::Model>, StoreError> {
        self.turns.get(turn.uuid()).await
    }
}
