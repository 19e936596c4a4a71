//! The one transition whose rune does not go to its session's own log, which has ended: closed to archived.
//! Its rune is the catalogue's, a log per namespace in the table `archives`.

use crate::clock;
use crate::connect::Store;
use crate::entity::{archive, rune, seal, session};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{CommandId, Entity, RuneId, SessionId};
use instar_core::machine::{By, Move};
use instar_core::rune::{Actor, Draft, Hash, Moved, Rune, Seal, info};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DatabaseTransaction, DbBackend, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect, Statement, Value,
};
use uuid::Uuid;

const KIND: &str = "session.archived";

/// A session on its way to the catalogue.
#[derive(Debug)]
pub struct Moving {
    pub session: session::Model,
    pub mv: Move,
    pub draft: Draft,
    pub actor: Actor,
    pub traceparent: Option<String>,
    pub manifest: serde_json::Value,
}

impl Moving {
    /// The row of the catalogue, without its number.
    fn row(&self, imported: bool) -> archive::Model {
        let (session, entity) = (SessionId::from(self.session.id), Entity::from(SessionId::from(self.session.id)));
        let at = clock::now();
        let (id, command) = (RuneId::from(Uuid::now_v7()), CommandId::from(Uuid::now_v7()));
        let draft = Draft { moves: vec![Moved::new(entity, &self.mv)], ..self.draft.clone() };
        let trace = self.traceparent.as_deref();
        let hash = draft.hash(id, session, &self.actor, 0, trace, at.timestamp_micros(), command);
        archive::Model {
            id: self.session.id,
            namespace: self.session.namespace.clone(),
            seq: 0,
            rune_id: id.uuid(),
            actor_type: self.actor.by.token().to_owned(),
            actor_id: self.actor.id.clone(),
            payload: draft.payload.get().to_owned(),
            moves: draft.encoded_moves(),
            traceparent: self.traceparent.clone(),
            at_us: at.timestamp_micros(),
            hash: hash.0.to_vec(),
            command_id: command.uuid(),
            manifest: self.manifest.clone(),
            imported: i64::from(imported),
            pruned_at: imported.then_some(at),
        }
    }
}

impl Store {
    /// Moves a session to the catalogue: its state, the rune and the manifest of its segments at once.
    /// `None`: it was not in the state and version that the move begins with.
    pub async fn archive(&self, moving: Moving) -> Result<Option<Rune>, StoreError> {
        let postgres = self.is_postgres();
        self.transaction(move |transaction| {
            Box::pin(async move {
                let mut row = moving.row(false);
                let changed = session::Entity::update_many()
                    .col_expr(session::Column::Status, Expr::value(moving.mv.to()))
                    .col_expr(session::Column::Version, Expr::value(moving.session.version + 1))
                    .col_expr(session::Column::UpdatedAt, Expr::value(clock::now()))
                    .filter(session::Column::Id.eq(moving.session.id))
                    .filter(session::Column::Status.eq(moving.mv.from().unwrap_or_default()))
                    .filter(session::Column::Version.eq(moving.session.version))
                    .exec(transaction)
                    .await?;
                if changed.rows_affected == 0 {
                    return Ok(None);
                }
                enter(transaction, postgres, &mut row).await?;
                read(row).map(Some)
            })
        })
        .await
    }

    /// Brings in a session that ended elsewhere. A session of that id that is there already is refused.
    pub async fn import(&self, moving: Moving, seals: Vec<Seal>) -> Result<Rune, StoreError> {
        let postgres = self.is_postgres();
        self.transaction(move |transaction| {
            Box::pin(async move {
                let mut row = moving.row(true);
                let session = moving.session;
                let id = SessionId::from(session.id);
                if session::Entity::find_by_id(session.id).one(transaction).await?.is_some() {
                    return Err(StoreError::Duplicate(format!("session {id}")));
                }
                session::Entity::insert(session.into_active_model()).exec_without_returning(transaction).await?;
                for seal in seals {
                    let (session_id, hash) = (Set(id.uuid()), Set(seal.hash.0.to_vec()));
                    let row = seal::ActiveModel { session_id, seq: Set(seal.seq), hash, at_us: Set(row.at_us) };
                    seal::Entity::insert(row).exec_without_returning(transaction).await?;
                }
                enter(transaction, postgres, &mut row).await?;
                read(row)
            })
        })
        .await
    }

    pub async fn archive_of(&self, session: SessionId) -> Result<Option<archive::Model>, StoreError> {
        Ok(archive::Entity::find_by_id(session.uuid()).one(&self.db).await?)
    }

    /// The catalogue of a namespace after a number, in order.
    pub async fn catalogue(&self, namespace: &str, after: i64, limit: u64) -> Result<Vec<Rune>, StoreError> {
        let rows = archive::Entity::find()
            .filter(archive::Column::Namespace.eq(namespace))
            .filter(archive::Column::Seq.gt(after))
            .order_by_asc(archive::Column::Seq)
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(read).collect()
    }

    /// Sessions that were closed before `before`, oldest first. It looks at every session: an index would make
    /// every commit dearer, and this is done seldom.
    pub async fn closed_before(&self, before: DateTime<Utc>, limit: u64) -> Result<Vec<session::Model>, StoreError> {
        let closed = session::Entity::find().filter(session::Column::Status.eq("closed"));
        let old = closed.filter(session::Column::UpdatedAt.lt(before)).order_by_asc(session::Column::UpdatedAt);
        Ok(old.limit(limit).all(&self.db).await?)
    }

    /// Archives whose runes are still in the database as well, and all of whose runes were published.
    pub async fn unpruned(&self, limit: u64) -> Result<Vec<(archive::Model, Rune)>, StoreError> {
        let rows = archive::Entity::find()
            .filter(Expr::cust("pruned_at IS NULL"))
            .filter(Expr::cust(
                "EXISTS (SELECT 1 FROM sessions s WHERE s.id = archives.id AND s.published_seq >= s.head_seq)",
            ))
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(|row| Ok((row.clone(), read(row)?))).collect()
    }

    /// Removes the oldest runes of an archived session, `limit` at the most; the manifest says where they are
    /// now. Says how many there were.
    pub async fn prune(&self, session: SessionId, limit: u64) -> Result<u64, StoreError> {
        let oldest = rune::Entity::find()
            .select_only()
            .column(rune::Column::Seq)
            .filter(rune::Column::SessionId.eq(session.uuid()))
            .order_by_asc(rune::Column::Seq)
            .limit(limit)
            .into_tuple::<i64>()
            .all(&self.db)
            .await?;
        let Some(last) = oldest.last() else { return Ok(0) };
        let gone = rune::Entity::delete_many()
            .filter(rune::Column::SessionId.eq(session.uuid()))
            .filter(rune::Column::Seq.lte(*last))
            .filter(Expr::cust("EXISTS (SELECT 1 FROM archives a WHERE a.id = runes.session_id)"))
            .exec(&self.db)
            .await?;
        Ok(gone.rows_affected)
    }

    /// No rune of it is left in the database.
    pub async fn note_pruned(&self, session: SessionId) -> Result<(), StoreError> {
        let done =
            archive::ActiveModel { id: Set(session.uuid()), pruned_at: Set(Some(clock::now())), ..Default::default() };
        archive::Entity::update(done).exec(&self.db).await?;
        Ok(())
    }
}

/// Gives the row its number and writes it.
async fn enter(transaction: &DatabaseTransaction, postgres: bool, row: &mut archive::Model) -> Result<(), StoreError> {
    if postgres {
        // One at a time per namespace, so that no number is given twice and none is left out.
        let lock = "SELECT pg_advisory_xact_lock(7023109, hashtext($1))";
        let values: [Value; 1] = [row.namespace.clone().into()];
        transaction.query_one_raw(Statement::from_sql_and_values(DbBackend::Postgres, lock, values)).await?;
    }
    let newest = archive::Entity::find()
        .filter(archive::Column::Namespace.eq(&row.namespace))
        .order_by_desc(archive::Column::Seq)
        .one(transaction)
        .await?;
    row.seq = newest.map_or(1, |newest| newest.seq + 1);
    archive::Entity::insert(row.clone().into_active_model()).exec_without_returning(transaction).await?;
    Ok(())
}

fn read(row: archive::Model) -> Result<Rune, StoreError> {
    let session = SessionId::from(row.id);
    let corrupt = || StoreError::Unusable(format!("the catalogue's entry of session {session} cannot be read"));
    let entity = Entity::from(session);
    Ok(Rune {
        id: RuneId::from(row.rune_id),
        session_id: session,
        seq: row.seq,
        kind: KIND.to_owned(),
        entity,
        agent_id: None,
        turn_id: None,
        actor: Actor::new(By::parse(&row.actor_type).ok_or_else(corrupt)?, row.actor_id),
        visibility: info(KIND).ok_or_else(corrupt)?.visibility,
        payload: serde_json::value::RawValue::from_string(row.payload).map_err(|_| corrupt())?,
        moves: Moved::decode_all(&row.moves, entity).ok_or_else(corrupt)?,
        epoch: 0,
        traceparent: row.traceparent,
        at_us: row.at_us,
        hash: Hash::from_slice(&row.hash).ok_or_else(corrupt)?,
        command_id: CommandId::from(row.command_id),
    })
}
