//! Lists: newest first, a page at a time, behind an opaque cursor.

use crate::call::Call;
use crate::problem::Problem;
use serde_json::{Value, json};
use uuid::Uuid;

const LIMIT: u64 = 50;
pub(crate) const LIMIT_MAX: u64 = 200;

pub(crate) struct Page {
    pub(crate) limit: u64,
    /// The last row of the page before.
    pub(crate) before: Option<Uuid>,
}

pub(crate) fn limit(call: &Call) -> Result<u64, Problem> {
    let Some(text) = call.asked("limit") else { return Ok(LIMIT) };
    let good = text.parse::<u64>().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
    good.ok_or_else(|| Problem::field("limit", format!("must be a number from 1 to {LIMIT_MAX}")))
}

impl Page {
    pub(crate) fn of(call: &Call) -> Result<Page, Problem> {
        let read = |text: &str| {
            let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let id = plain.then(|| Uuid::try_parse(text).ok()).flatten();
            id.ok_or_else(|| Problem::field("cursor", "is not one that a list has given"))
        };
        Ok(Page { limit: limit(call)?, before: call.asked("cursor").map(read).transpose()? })
    }

    /// What to ask the database for: one more, which says whether there is a next page.
    pub(crate) fn rows(&self) -> u64 {
        self.limit + 1
    }

    pub(crate) fn answer<T>(&self, mut rows: Vec<T>, id: impl Fn(&T) -> Uuid, show: impl FnMut(T) -> Value) -> Value {
        let more = rows.len() as u64 > self.limit;
        rows.truncate(self.limit as usize);
        let next = rows.last().filter(|_| more).map(|row| id(row).simple().to_string());
        let data: Vec<Value> = rows.into_iter().map(show).collect();
        json!({"data": data, "next_cursor": next})
    }
}
