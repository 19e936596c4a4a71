//! Reading the runelog, and keeping track of how far it was published and sealed.

use crate::clock;
use crate::connect::Store;
use crate::entity::{rune, seal, session};
use crate::error::StoreError;
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, CommandId, Entity, Kind, RuneId, SessionId, TurnId};
use instar_core::machine::By;
use instar_core::rune::{Actor, Hash, Moved, Rune, Seal, Visibility, chain};
use sea_orm::sea_query::Expr;
use sea_orm::{ActiveValue::Set, ColumnTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Statement};
use uuid::Uuid;

/// Runes in one page at the most.
pub const PAGE_MAX: u64 = 1_000;

impl Store {
    /// Runes after a number, in order, `limit` at the most.
    pub async fn runes(&self, session: SessionId, after: i64, limit: u64) -> Result<Vec<Rune>, StoreError> {
        let rows = rune::Entity::find()
            .filter(rune::Column::SessionId.eq(session.uuid()))
            .filter(rune::Column::Seq.gt(after))
            .order_by_asc(rune::Column::Seq)
            .limit(Ord::min(limit, PAGE_MAX))
            .all(&self.db)
            .await?;
        rows.into_iter().map(read).collect()
    }

    /// The newest runes of some kinds about an agent, newest first. There is no index for it: it is for a person
    /// who asks about the past.
    pub async fn runes_of(
        &self,
        session: SessionId,
        agent: AgentId,
        kinds: &[&str],
        limit: u64,
    ) -> Result<Vec<Rune>, StoreError> {
        let rows = rune::Entity::find()
            .filter(rune::Column::SessionId.eq(session.uuid()))
            .filter(rune::Column::AgentId.eq(agent.uuid()))
            .filter(rune::Column::Kind.is_in(kinds.iter().copied()))
            .order_by_desc(rune::Column::Seq)
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(read).collect()
    }

    /// The runes of a commit, if it landed: the answer to an ambiguous one.
    pub async fn read_back(&self, session: SessionId, command: CommandId) -> Result<Vec<Rune>, StoreError> {
        let rows = rune::Entity::find()
            .filter(rune::Column::SessionId.eq(session.uuid()))
            .filter(rune::Column::CommandId.eq(command.uuid()))
            .order_by_asc(rune::Column::Seq)
            .all(&self.db)
            .await?;
        rows.into_iter().map(read).collect()
    }

    /// Notes that runes were published: `(session, after, up_to)`, one per session. A mark counts
    /// only if everything before it is published too, so that a gap is never jumped; the sessions
    /// whose mark counted come back. Losing one costs a repeat that consumers drop by id, so it
    /// waits neither for the disk nor for a session that is being written.
    pub async fn mark_published(&self, marks: &[(SessionId, i64, i64)]) -> Result<Vec<SessionId>, StoreError> {
        let mut counted = Vec::new();
        if marks.is_empty() {
            return Ok(counted);
        }
        if self.is_postgres() {
            let ids: Vec<Uuid> = marks.iter().map(|m| m.0.uuid()).collect();
            let after: Vec<i64> = marks.iter().map(|m| m.1).collect();
            let up_to: Vec<i64> = marks.iter().map(|m| m.2).collect();
            let sql = "WITH off AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)), \
                       free AS MATERIALIZED (SELECT s.id, m.up_to \
                       FROM unnest($1::uuid[], $2::int8[], $3::int8[]) AS m(id, after, up_to) JOIN sessions s ON s.id = m.id \
                       WHERE s.published_seq >= m.after AND s.published_seq < m.up_to AND m.up_to <= s.head_seq FOR UPDATE OF s SKIP LOCKED) \
                       UPDATE sessions s SET published_seq = free.up_to FROM free, off WHERE s.id = free.id RETURNING s.id";
            let values = [ids.into(), after.into(), up_to.into()];
            let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
            for row in sea_orm::ConnectionTrait::query_all_raw(&self.db, statement).await? {
                counted.push(SessionId::from(row.try_get_by_index::<Uuid>(0)?));
            }
            return Ok(counted);
        }
        for (session, after, up_to) in marks {
            let done = session::Entity::update_many()
                .col_expr(session::Column::PublishedSeq, Expr::value(*up_to))
                .filter(session::Column::Id.eq(session.uuid()))
                .filter(session::Column::PublishedSeq.gte(*after))
                .filter(session::Column::PublishedSeq.lt(*up_to))
                .filter(session::Column::HeadSeq.gte(*up_to))
                .exec(&self.db)
                .await?;
            counted.extend((done.rows_affected > 0).then_some(*session));
        }
        Ok(counted)
    }

    /// Sessions whose oldest unpublished rune is older than `before`, after `from` in the order of
    /// ids: what the slow path repeats, page by page. Read by state, never by "newer than the last
    /// one seen", and by that rune's age, so that a busy session hides nothing. It looks at every
    /// session: an index would make every commit dearer, and this is done seldom.
    pub async fn trailing(
        &self,
        before: DateTime<Utc>,
        from: Option<SessionId>,
        limit: u64,
    ) -> Result<Vec<(SessionId, i64, i64)>, StoreError> {
        let sql = "SELECT s.id, s.published_seq, s.head_seq FROM sessions s \
                   JOIN runes r ON r.session_id = s.id AND r.seq = s.published_seq + 1 \
                   WHERE s.published_seq < s.head_seq AND r.at_us < $1 AND s.id > $2 ORDER BY s.id LIMIT $3";
        let from = from.map_or(Uuid::nil(), |id| id.uuid());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: [sea_orm::Value; 3] = [before.timestamp_micros().into(), from.into(), limit.into()];
        let backend = sea_orm::ConnectionTrait::get_database_backend(&self.db);
        let statement = Statement::from_sql_and_values(backend, sql, values);
        let rows = sea_orm::ConnectionTrait::query_all_raw(&self.db, statement).await?;
        let read = |r: &sea_orm::QueryResult| {
            let id = SessionId::from(r.try_get_by_index::<Uuid>(0)?);
            Ok((id, r.try_get_by_index(1)?, r.try_get_by_index(2)?))
        };
        rows.iter().map(read).collect()
    }

    /// Extends the sealed chain of a session up to its newest rune. Says up to where it is sealed,
    /// or at which number the log has a hole or a rune that was changed.
    pub async fn seal(&self, session: SessionId) -> Result<Result<Seal, i64>, StoreError> {
        let mut sealed = self.last_seal(session).await?;
        loop {
            let runes = self.runes(session, sealed.seq, PAGE_MAX).await?;
            if runes.is_empty() {
                // Also when somebody else wrote the last seal and died before it was noted.
                self.note_seal(session, sealed).await?;
                return Ok(Ok(sealed));
            }
            // A rune that is no longer what was written must not be sealed as if it were.
            if let Some(damaged) = runes.iter().find(|r| !r.is_intact()) {
                return Ok(Err(damaged.seq));
            }
            sealed = match chain(sealed, runes.iter().map(|r| (r.seq, r.hash))) {
                Ok(next) => next,
                Err(missing) => return Ok(Err(missing)),
            };
            let row = seal::ActiveModel {
                session_id: Set(session.uuid()),
                seq: Set(sealed.seq),
                hash: Set(sealed.hash.0.to_vec()),
                at_us: Set(clock::now().timestamp_micros()),
            };
            // Two sealers that meet come to the same hash; the second has nothing to add.
            let keep = sea_orm::sea_query::OnConflict::columns([seal::Column::SessionId, seal::Column::Seq])
                .do_nothing()
                .to_owned();
            seal::Entity::insert(row).on_conflict(keep).exec_without_returning(&self.db).await?;
        }
    }

    /// Notes in the session how far it is sealed. A log that has ended has its last hash with it.
    async fn note_seal(&self, session: SessionId, seal: Seal) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET sealed_seq = $2, final_hash = CASE WHEN status IN ('closed', 'archived') \
                   AND head_seq = $2 THEN $3 ELSE final_hash END WHERE id = $1 AND (sealed_seq < $2 \
                   OR (final_hash IS NULL AND sealed_seq = $2 AND head_seq = $2 AND status IN ('closed', 'archived')))";
        let values: [sea_orm::Value; 3] = [session.uuid().into(), seal.seq.into(), seal.hash.0.to_vec().into()];
        let statement = Statement::from_sql_and_values(self.backend(), sql, values);
        sea_orm::ConnectionTrait::execute_raw(&self.db, statement).await?;
        Ok(())
    }

    pub async fn last_seal(&self, session: SessionId) -> Result<Seal, StoreError> {
        let row = seal::Entity::find()
            .filter(seal::Column::SessionId.eq(session.uuid()))
            .order_by_desc(seal::Column::Seq)
            .one(&self.db)
            .await?;
        row.map_or(Ok(Seal::EMPTY), read_seal)
    }

    /// The seals of a session after a number, oldest first, `limit` at the most: what `verify` compares the
    /// log with.
    pub async fn seals(&self, session: SessionId, after: i64, limit: u64) -> Result<Vec<Seal>, StoreError> {
        let rows = seal::Entity::find()
            .filter(seal::Column::SessionId.eq(session.uuid()))
            .filter(seal::Column::Seq.gt(after))
            .order_by_asc(seal::Column::Seq)
            .limit(Ord::min(limit, PAGE_MAX))
            .all(&self.db)
            .await?;
        rows.into_iter().map(read_seal).collect()
    }
}

fn corrupt(what: &str, row: &rune::Model) -> StoreError {
    StoreError::Unusable(format!("rune {} of session {} has no valid {what}", row.seq, SessionId::from(row.session_id)))
}

fn read_seal(row: seal::Model) -> Result<Seal, StoreError> {
    let hash = Hash::from_slice(&row.hash);
    let hash = hash.ok_or_else(|| StoreError::Unusable(format!("the seal at {} is not a hash", row.seq)))?;
    Ok(Seal { seq: row.seq, hash })
}

fn read(row: rune::Model) -> Result<Rune, StoreError> {
    let kind = Kind::ALL.into_iter().find(|k| k.prefix() == row.entity_kind).ok_or_else(|| corrupt("entity", &row))?;
    let entity = Entity::new(kind, row.entity_id);
    let by = By::parse(&row.actor_type).ok_or_else(|| corrupt("actor", &row))?;
    let visibility = Visibility::parse(&row.visibility).ok_or_else(|| corrupt("visibility", &row))?;
    let moves = Moved::decode_all(&row.moves, entity).ok_or_else(|| corrupt("moves", &row))?;
    let hash = Hash::from_slice(&row.hash).ok_or_else(|| corrupt("hash", &row))?;
    let payload =
        serde_json::value::RawValue::from_string(row.payload.clone()).map_err(|_| corrupt("payload", &row))?;
    Ok(Rune {
        id: RuneId::from(row.id),
        session_id: SessionId::from(row.session_id),
        seq: row.seq,
        kind: row.kind,
        entity,
        agent_id: row.agent_id.map(AgentId::from),
        turn_id: row.turn_id.map(TurnId::from),
        actor: Actor::new(by, row.actor_id),
        visibility,
        payload,
        moves,
        epoch: row.epoch,
        traceparent: row.traceparent,
        at_us: row.at_us,
        hash,
        command_id: CommandId::from(row.command_id),
    })
}
