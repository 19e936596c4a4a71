//! A runelog to judge: of a session, read over the API, or of a file of JSON lines.

mod convert;

use crate::failure::{FAILED, Failure, NOT_FOUND};
use instar_client::{Client, Rune as Served, Session};
use instar_core::rune::{Hash, Rune, Seal};
use std::path::Path;

pub(crate) struct Log {
    pub(crate) runes: Vec<Rune>,
    /// None for a file: nothing but the runes is known then.
    pub(crate) session: Option<Session>,
}

impl Log {
    /// `name` is a session's id unless there is a file of that name; `-` is standard input.
    pub(crate) async fn read(
        name: &str,
        client: impl FnOnce() -> Result<Client, Failure>,
    ) -> Result<(Log, Option<Client>), Failure> {
        if name.starts_with("ses_") && !Path::new(name).exists() {
            let client = client()?;
            let log = Log::of_session(&client, name).await?;
            return Ok((log, Some(client)));
        }
        let text = match name {
            "-" => std::io::read_to_string(std::io::stdin())?,
            file => std::fs::read_to_string(file).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    Failure::new(NOT_FOUND, format!("there is no file {file}, and it is no session id (ses_…)"))
                }
                _ => Failure::new(FAILED, format!("{file}: {error}")),
            })?,
        };
        Ok((Log { runes: parse(&text)?, session: None }, None))
    }

    pub(crate) async fn of_session(client: &Client, id: &str) -> Result<Log, Failure> {
        // Before the runes: what is written meanwhile must not look as if it were missing.
        let session = client.session(id).await?;
        let served = client.every_rune(id, 0).await?;
        let runes = served.into_iter().map(convert::rune).collect::<Result<_, _>>();
        let runes = runes.map_err(|why| Failure::new(FAILED, why))?;
        Ok(Log { runes, session: Some(session) })
    }

    /// Nothing can follow any more, as the session or its last rune says.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.session {
            Some(session) => matches!(session.status.as_str(), "closed" | "archived"),
            None => self.runes.iter().rev().take(2).any(|rune| rune.kind == "session.closed"),
        }
    }

    /// The seals that the server shows with the session, if it does.
    pub(crate) fn seals(&self) -> Vec<Seal> {
        let shown = self.session.as_ref().and_then(|session| session.rest.get("seals")?.as_array());
        shown
            .into_iter()
            .flatten()
            .filter_map(|seal| Some(Seal { seq: seal.get("seq")?.as_i64()?, hash: hash(seal.get("hash")?.as_str()?)? }))
            .collect()
    }

    pub(crate) fn name(&self) -> String {
        self.runes.first().map_or("no session".to_owned(), |rune| rune.session_id.to_string())
    }
}

fn parse(text: &str) -> Result<Vec<Rune>, Failure> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let wrong = |why: String| Failure::new(FAILED, format!("line {}: {why}", index + 1));
            let served: Served = serde_json::from_str(line).map_err(|error| wrong(format!("not a rune: {error}")))?;
            convert::rune(served).map_err(wrong)
        })
        .collect()
}

pub(crate) fn hash(hex: &str) -> Option<Hash> {
    let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digits).collect();
    Hash::from_slice(&bytes?)
}
