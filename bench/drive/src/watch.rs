//! Viewers of sessions: read event streams and say how late each word came.

use crate::talk::now_us;
use crate::wire::{Line, find, request};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::task::JoinSet;

const STAMP: usize = 16;

/// Microseconds that words were late, while somebody counts.
type Late = Rc<RefCell<Option<Vec<u64>>>>;

#[derive(Default)]
pub struct Viewers {
    late: Late,
    readers: JoinSet<Result<()>>,
}

impl Viewers {
    /// Follows a session from now on.
    pub async fn add(&mut self, address: &str, session: &str, headers: &str) -> Result<()> {
        let mut line = Line::connect(address).await?;
        let path = format!("/v1/sessions/{session}/events");
        line.send(&request("GET", &path, &format!("{headers}accept: text/event-stream\r\n"), "")).await?;
        line.head().await?.context("no answer to a viewer")?;
        let late = self.late.clone();
        self.readers.spawn_local(async move {
            let mut unread = Vec::new();
            while line.chunk(&mut unread).await? {
                while let Some(end) = find(&unread, b"\n\n") {
                    let event: Vec<u8> = unread.drain(..end + 2).collect();
                    // The log repeats what was said when it is over.
                    if find(&event, b"event: delta").is_some() {
                        note(&event, &late);
                    }
                }
            }
            Ok(())
        });
        Ok(())
    }

    pub fn begin(&self) {
        *self.late.borrow_mut() = Some(Vec::new());
    }

    /// In order of size.
    pub fn end(&self) -> Vec<u64> {
        let mut late = self.late.borrow_mut().take().unwrap_or_default();
        late.sort_unstable();
        late
    }
}

fn note(event: &[u8], late: &Late) {
    let (mut late, now) = (late.borrow_mut(), now_us());
    let Some(late) = late.as_mut() else { return };
    let mut rest = event;
    while let Some(at) = rest.iter().position(|byte| *byte == b'@') {
        rest = &rest[at + 1..];
        let stamp = rest.get(..STAMP).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|s| s.parse().ok());
        late.extend(stamp.map(|left: u64| now.saturating_sub(left)));
    }
}
