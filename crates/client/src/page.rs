//! Lists come in pages.

use crate::client::Client;
use crate::error::ClientError;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest `limit` that the server takes.
pub const PAGE_MAX: u32 = 200;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    pub data: Vec<T>,
    #[serde(default = "none")]
    pub next_cursor: Option<String>,
}

fn none() -> Option<String> {
    None
}

/// Which part of a list: `Query::new().with("session", id).limit(10)`.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(&'static str, String)>,
}

impl Query {
    pub fn new() -> Query {
        Query::default()
    }

    /// Sets a filter; a later value takes an earlier one's place.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Query {
        self.pairs.retain(|(known, _)| *known != name);
        self.pairs.push((name, value.to_string()));
        self
    }

    pub fn maybe(self, name: &'static str, value: Option<impl ToString>) -> Query {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// 1 to [`PAGE_MAX`]; the server's default is 50.
    pub fn limit(self, limit: u32) -> Query {
        self.with("limit", limit)
    }

    pub fn cursor(self, cursor: impl Into<String>) -> Query {
        self.with("cursor", cursor.into())
    }

    pub(crate) fn write(&self, url: &mut Url) {
        if !self.pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.pairs);
        }
    }
}

impl Client {
    /// Every page of a list, `max` entries at the most.
    pub async fn every<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Query,
        max: usize,
    ) -> Result<Vec<T>, ClientError> {
        let mut query = query.limit(PAGE_MAX.min(u32::try_from(max.max(1)).unwrap_or(PAGE_MAX)));
        let (mut all, mut last) = (Vec::new(), None);
        loop {
            let page: Page<T> = self.get(path, &query).await?;
            all.extend(page.data);
            match page.next_cursor {
                Some(cursor) if all.len() < max => {
                    if last.as_ref() == Some(&cursor) {
                        return Err(ClientError::Protocol("the server's list does not come to an end".into()));
                    }
                    query = query.cursor(&cursor);
                    last = Some(cursor);
                }
                _ => {
                    all.truncate(max);
                    return Ok(all);
                }
            }
        }
    }
}
