//! What was asked of turns that run: for whoever has them in hand, and for whoever ends them in his stead.

use crate::commit::PAYLOAD_BYTES_MAX;
use crate::connect::Store;
use crate::entity::{message, rune, turn};
use crate::error::StoreError;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::rune::payload::{TurnAssistantDelta, TurnRecovered};
use sea_orm::sea_query::{Condition, Expr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect, Statement,
};
use std::collections::HashMap;
use uuid::Uuid;

/// Turns that are asked about at once: a statement has only so many parameters.
const TURNS_MAX: usize = 10_000;
/// Pieces of one answer that are read at once.
const PIECES_AT_ONCE: u64 = 500;
/// What is put together again of one answer, as long as it is in the log: it becomes part of one rune. Of more, the end.
const SAID_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 16 * 15;
const PIECE: &str = "turn.assistant_delta";
const RECOVERED: &str = "turn.recovered";
/// Kinds of which the newest says whether a piece is of the answer that is being given; before the last two nothing was
/// said.
const CHAPTERS: [&str; 6] =
    [PIECE, RECOVERED, "turn.tool_calls_received", "turn.tools_finished", "turn.started", "turn.queued"];
/// Runes of the session that are looked at first, from the newest back. There is no index over those of a turn: nobody
/// must go through a long log for one that has hardly begun.
const WINDOW: i64 = 2_000;

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
            let mut unread: HashMap<Uuid, Pieces> = some.iter().map(|turn| (turn.uuid(), Pieces::default())).collect();
            let (mut before, mut window) = (self.newest_seq(session).await?.saturating_add(1), WINDOW);
            let mut from = before.saturating_sub(window);
            while !unread.is_empty() && before > 0 {
                let limit = PIECES_AT_ONCE.saturating_mul(unread.len() as u64);
                let page = rune::Entity::find()
                    .filter(rune::Column::SessionId.eq(session.uuid()))
                    .filter(rune::Column::TurnId.is_in(unread.keys().copied()))
                    .filter(rune::Column::Kind.is_in(CHAPTERS))
                    .filter(rune::Column::Seq.lt(before))
                    .filter(rune::Column::Seq.gte(from))
                    .order_by_desc(rune::Column::Seq)
                    .limit(limit)
                    .all(&self.db)
                    .await?;
                for rune in &page {
                    let Some(id) = rune.turn_id else { continue };
                    let goes_on = match unread.get_mut(&id) {
                        Some(pieces) => pieces.add(&rune.kind, &rune.payload)?,
                        None => continue,
                    };
                    if !goes_on {
                        said.extend(unread.remove(&id).map(|pieces| (TurnId::from(id), pieces.joined())));
                    }
                }
                match page.last() {
                    Some(last) if page.len() as u64 >= limit => before = last.seq,
                    _ => {
                        window = window.saturating_mul(4);
                        (before, from) = (from, from.saturating_sub(window));
                    }
                }
            }
            said.extend(unread.into_iter().map(|(id, pieces)| (TurnId::from(id), pieces.joined())));
        }
        said.retain(|_, text| !text.is_empty());
        Ok(said)
    }

    /// What the model of an agent has said last.
    pub async fn newest_answer(&self, agent: AgentId) -> Result<Option<message::Model>, StoreError> {
        let said = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid()));
        let said = said.filter(message::Column::Role.eq("assistant"));
        Ok(said.order_by_desc(message::Column::Id).limit(1).one(&self.db).await?)
    }

    async fn newest_seq(&self, session: SessionId) -> Result<i64, StoreError> {
        let runes = rune::Entity::find().filter(rune::Column::SessionId.eq(session.uuid()));
        let newest = runes.select_only().column(rune::Column::Seq).order_by_desc(rune::Column::Seq).limit(1);
        Ok(newest.into_tuple::<i64>().one(&self.db).await?.unwrap_or(0))
    }
}

/// Pieces of an answer, newest first. Each says at which byte it begins: what is made again begins anew.
#[derive(Default)]
struct Pieces {
    pieces: Vec<TurnAssistantDelta>,
    bytes: usize,
}

impl Pieces {
    /// One more of the turn's runes, from the newest back; whether those before it matter as well.
    fn add(&mut self, kind: &str, payload: &str) -> Result<bool, StoreError> {
        let unusable = |error: serde_json::Error| StoreError::Unusable(error.to_string());
        let piece: TurnAssistantDelta = match kind {
            PIECE => serde_json::from_str(payload).map_err(unusable)?,
            // Until the call that is made again says something, what the lost one had said stands.
            RECOVERED => {
                let told: TurnRecovered = serde_json::from_str(payload).map_err(unusable)?;
                TurnAssistantDelta { content: told.partial_output.unwrap_or_default(), index: 0 }
            }
            _ => return Ok(false),
        };
        if self.bytes.saturating_add(payload.len()) > SAID_BYTES_MAX && !self.pieces.is_empty() {
            return Ok(false);
        }
        self.bytes += payload.len();
        let goes_on = piece.index > 0;
        // What was made again takes nothing of what was said before.
        if kind == PIECE || self.pieces.is_empty() {
            self.pieces.push(piece);
        }
        Ok(goes_on)
    }

    /// As one. Where a piece does not go on from what there is, it is the beginning of what is known.
    fn joined(self) -> String {
        let (mut text, mut begins) = (String::new(), None);
        for piece in self.pieces.into_iter().rev() {
            let at =
                piece.index.checked_sub(*begins.get_or_insert(piece.index)).and_then(|at| usize::try_from(at).ok());
            match at.filter(|at| text.is_char_boundary(*at)) {
                Some(at) => text.truncate(at),
                None => {
                    text.clear();
                    begins = Some(piece.index);
                }
            }
            text += &piece.content;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(newest_first: &[(&str, i64, &str)]) -> String {
        let mut pieces = Pieces::default();
        for (kind, index, text) in newest_first {
            let payload = match *kind {
                RECOVERED => serde_json::json!({"attempt": 2, "epoch": 2, "partial_output": text}),
                _ => serde_json::json!({"content": text, "index": index}),
            };
            if !pieces.add(kind, &payload.to_string()).unwrap() {
                break;
            }
        }
        pieces.joined()
    }

    #[test]
    fn pieces_become_the_answer_that_is_being_given() {
        assert_eq!(joined(&[]), "");
        assert_eq!(joined(&[(PIECE, 3, "de"), (PIECE, 0, "abc")]), "abcde");
        assert_eq!(joined(&[(PIECE, 0, "again"), (PIECE, 3, "de"), (PIECE, 0, "abc")]), "again");
        assert_eq!(joined(&[(PIECE, 2, "x"), (PIECE, 0, "again"), (PIECE, 0, "abc")]), "agx");
        assert_eq!(joined(&[("turn.tools_finished", 0, ""), (PIECE, 0, "before the tools")]), "");
        assert_eq!(joined(&[(RECOVERED, 0, "what was lost"), (PIECE, 0, "what was lost")]), "what was lost");
        assert_eq!(joined(&[(PIECE, 0, "anew"), (RECOVERED, 0, "what was lost")]), "anew");
    }

    #[test]
    fn what_is_missing_takes_nothing_else_along() {
        assert_eq!(joined(&[(PIECE, 9, "fg"), (PIECE, 7, "de")]), "defg", "its beginning");
        assert_eq!(joined(&[(PIECE, 9, "fg"), (PIECE, 0, "abc")]), "fg", "its middle");
        assert_eq!(joined(&[(PIECE, 2, "c"), (PIECE, 7, "de")]), "c", "it goes back before what is known");
        let long = "x".repeat(SAID_BYTES_MAX / 2);
        let (rest, all) = (long.len() as i64, [long.as_str(), "abc"]);
        assert_eq!(joined(&[(PIECE, 2 * rest, all[1]), (PIECE, rest, all[0]), (PIECE, 0, all[0])]), long + "abc");
    }
}
