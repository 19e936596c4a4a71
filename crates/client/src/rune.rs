//! A rune as it is served: everything that its hash covers, and the payload as the very text that
//! was hashed.

use crate::client::Client;
use crate::error::ClientError;
use crate::page::{PAGE_MAX, Page, Query};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rune {
    pub id: String,
    pub session_id: String,
    pub seq: i64,
    pub kind: String,
    #[serde(default)]
    pub machine: String,
    pub entity_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    pub actor: Actor,
    pub visibility: String,
    pub payload: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// To the microsecond.
    pub at: DateTime<Utc>,
    /// Hexadecimal.
    pub hash: String,
    // Absent from a server that serves less than it hashes: such a log can be read, not verified.
    #[serde(default, deserialize_with = "moves", skip_serializing_if = "Option::is_none")]
    pub moves: Option<Vec<Move>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
}

/// A transition that the rune stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The row of the machine's table, such as `T1`.
    pub row: String,
    /// Absent: the rune's own entity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_id: Option<String>,
    /// Absent for a birth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub to: String,
}

/// As a list, or as the compact text of the store: `T1:queued>streaming,L4:idle>running_turn@agt_…`.
fn moves<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Move>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Served {
        List(Vec<Move>),
        Text(String),
    }
    match Option::<Served>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Served::List(list)) => Ok(Some(list)),
        Some(Served::Text(text)) => {
            let parts = text.split(',').filter(|part| !part.is_empty());
            let list: Option<Vec<Move>> = parts.map(Move::parse).collect();
            list.map(Some).ok_or_else(|| serde::de::Error::custom("moves are not of the form T1:queued>streaming"))
        }
    }
}

impl Move {
    fn parse(text: &str) -> Option<Move> {
        let (row, rest) = text.split_once(':')?;
        let (from, rest) = rest.split_once('>')?;
        let (to, entity_id) = rest.split_once('@').map_or((rest, None), |(to, id)| (to, Some(id.to_owned())));
        let from = (!from.is_empty()).then(|| from.to_owned());
        Some(Move { row: row.to_owned(), entity_id, from, to: to.to_owned() })
    }
}

/// The chain over a log up to a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    pub seq: i64,
    /// Hexadecimal.
    pub hash: String,
}

impl Rune {
    /// One field of the payload, if it is text.
    pub fn text(&self, field: &str) -> Option<String> {
        let payload: serde_json::Value = serde_json::from_str(self.payload.get()).ok()?;
        payload.get(field)?.as_str().map(str::to_owned)
    }

    pub fn payload(&self) -> serde_json::Value {
        serde_json::from_str(self.payload.get()).unwrap_or_default()
    }
}

impl Client {
    /// Runes after a number, in order, one page.
    pub async fn runes(&self, session: &str, after: i64, limit: u32) -> Result<Page<Rune>, ClientError> {
        let query = Query::new().with("after", after).limit(limit);
        self.get(&["v1", "sessions", session, "runes"], &query).await
    }

    /// The runes after a number as far as one page goes, and where the next one begins, unless this
    /// was the last.
    pub async fn rune_page(&self, session: &str, after: i64) -> Result<(Vec<Rune>, Option<i64>), ClientError> {
        let Page { data, next_cursor } = self.runes(session, after, PAGE_MAX).await?;
        // The cursor also goes past runes that this key may not see: a page without any is no end.
        let cursor = next_cursor.and_then(|cursor| cursor.parse().ok());
        let next = data.last().map(|rune| rune.seq).max(cursor);
        match next {
            Some(next) if next <= after => {
                Err(ClientError::Protocol(format!("the server served rune {next} after {after}")))
            }
            next => Ok((data, next)),
        }
    }

    /// Every seal of a session, oldest first.
    pub async fn seals(&self, session: &str) -> Result<Vec<Seal>, ClientError> {
        self.every(&["v1", "sessions", session, "seals"], Query::new(), usize::MAX).await
    }

    /// Every rune after a number.
    pub async fn every_rune(&self, session: &str, after: i64) -> Result<Vec<Rune>, ClientError> {
        let (mut all, mut next) = (Vec::new(), Some(after));
        while let Some(after) = next {
            let page;
            (page, next) = self.rune_page(session, after).await?;
            all.extend(page);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_read_from_a_list_and_from_the_compact_text() {
        #[derive(Deserialize)]
        struct Only {
            #[serde(default, deserialize_with = "moves")]
            moves: Option<Vec<Move>>,
        }
        let read = |text: &str| serde_json::from_str::<Only>(text).map(|only| only.moves);
        let list = read(
            r#"{"moves":[{"row":"T26","to":"queued"},{"row":"L4","entity_id":"agt_1","from":"idle","to":"running_turn"}]}"#,
        );
        assert_eq!(list.unwrap(), read(r#"{"moves":"T26:>queued,L4:idle>running_turn@agt_1"}"#).unwrap());
        assert_eq!(read(r#"{"moves":""}"#).unwrap(), Some(vec![]));
        assert_eq!(read("{}").unwrap(), None);
        assert!(read(r#"{"moves":"nonsense"}"#).is_err());
    }
}
