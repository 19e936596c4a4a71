//! What was asked of turns that run: for whoever has them in hand, and for whoever ends them in his stead.

use crate::connect::Store;
use crate::entity::{rune, turn};
use crate::error::StoreError;
use instar_core::id::{SessionId, TurnId};
use instar_core::rune::payload::TurnAssistantDelta;
use sea_orm::sea_query::{Condition, Expr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect, Statement,
};
use std::collections::HashMap;
use uuid::Uuid;

/// Turns that are asked about at once: a statement has only so many parameters.
const TURNS_MAX: usize = 10_000;
/// Pieces of one answer that are put together again.
const PIECES_MAX: u64 = 500;
const PIECE: &str = "turn.assistant_delta";
/// Kinds of which the newest says whether a piece is of the answer that is being given.
const CHAPTERS: [&str; 4] = [PIECE, "turn.tool_calls_received", "turn.tools_finished", "turn.recovered"];

impl Store {
    /// Those of these turns that have ended, or are asked to end.
    pub async fn called_away(&self, turns: &[TurnId]) -> Result<Vec<TurnId>, StoreError> {
        let mut found = Vec::new();
        for some in turns.chunks(TURNS_MAX) {
            let called = Condition::any()
                .add(turn::Column::EndedAt.is_not_null())
                .add(Expr::cust("control->>'action' IN ('interrupt', 'steer')"));
            let ids = turn::Entity::find()
                .select_only()
                .column(turn::Column::Id)
                .filter(turn::Column::Id.is_in(some.iter().map(|turn| turn.uuid())))
                .filter(called)
                .into_tuple::<Uuid>()
                .all(&self.db)
                .await?;
            found.extend(ids.into_iter().map(TurnId::from));
        }
        Ok(found)
    }

    /// How often these turns were written.
    pub async fn turn_versions(&self, turns: &[TurnId]) -> Result<HashMap<TurnId, i64>, StoreError> {
        let mut versions = HashMap::new();
        for some in turns.chunks(TURNS_MAX) {
            let rows = turn::Entity::find()
                .select_only()
                .columns([turn::Column::Id, turn::Column::Version])
                .filter(turn::Column::Id.is_in(some.iter().map(|turn| turn.uuid())))
                .into_tuple::<(Uuid, i64)>()
                .all(&self.db)
                .await?;
            versions.extend(rows.into_iter().map(|(id, version)| (TurnId::from(id), version)));
        }
        Ok(versions)
    }

    /// Turns that were asked to end and have not, oldest first. One that waits for its tools is not asked by a steer.
    pub async fn unheeded_turns(&self, limit: u64) -> Result<Vec<turn::Model>, StoreError> {
        let sql = "SELECT t.* FROM turns t WHERE t.ended_at IS NULL AND ( \
                   (t.status = 'streaming' AND t.control->>'action' IN ('interrupt', 'steer')) \
                   OR (t.status = 'tool_executing' AND t.control->>'action' = 'interrupt')) ORDER BY t.id LIMIT $1";
        let values: [sea_orm::Value; 1] = [i64::try_from(limit).unwrap_or(i64::MAX).into()];
        let rows = self.db.query_all_raw(Statement::from_sql_and_values(self.backend(), sql, values)).await?;
        rows.iter().map(|row| Ok(turn::Model::from_query_result(row, "")?)).collect()
    }

    /// What the log has kept of the answers that turns of a session are giving; nothing of those without a word.
    pub async fn said_so_far(
        &self,
        session: SessionId,
        turns: &[TurnId],
    ) -> Result<HashMap<TurnId, String>, StoreError> {
        let mut said = HashMap::new();
        for some in turns.chunks(TURNS_MAX) {
            let newest = rune::Entity::find()
                .filter(rune::Column::SessionId.eq(session.uuid()))
                .filter(rune::Column::TurnId.is_in(some.iter().map(|turn| turn.uuid())))
                .filter(rune::Column::Kind.is_in(CHAPTERS))
                .order_by_desc(rune::Column::Seq)
                .limit(PIECES_MAX.saturating_mul(some.len() as u64))
                .all(&self.db)
                .await?;
            for turn in some {
                let own = newest.iter().filter(|rune| rune.turn_id == Some(turn.uuid()));
                let pieces = own.take_while(|rune| rune.kind == PIECE).map(|rune| rune.payload.as_str());
                let text = joined(pieces.collect())?;
                said.extend((!text.is_empty()).then_some((*turn, text)));
            }
        }
        Ok(said)
    }
}

/// Pieces of an answer, newest first, as one. Each says at which byte it begins: what is made again begins anew.
fn joined(pieces: Vec<&str>) -> Result<String, StoreError> {
    let mut text = String::new();
    for piece in pieces.into_iter().rev() {
        let piece: TurnAssistantDelta =
            serde_json::from_str(piece).map_err(|error| StoreError::Unusable(error.to_string()))?;
        let at = usize::try_from(piece.index).unwrap_or(0);
        if !text.is_char_boundary(at) {
            return Ok(String::new());
        }
        text.truncate(at);
        text += &piece.content;
    }
    Ok(text)
}
