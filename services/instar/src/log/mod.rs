//! A runelog to judge: of a session, read over the API, or of a file of JSON lines.

mod convert;

use crate::failure::{FAILED, Failure, NOT_FOUND};
use instar_client::{Client, Rune as Served, Seal as ServedSeal, Session};
use instar_core::rune::{Hash, Rune, Seal};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A line of an exported log that is no rune.
#[derive(Serialize, Deserialize)]
pub(crate) struct SealLine {
    pub(crate) seal: ServedSeal,
}

pub(crate) struct Log {
    pub(crate) runes: Vec<Rune>,
    /// What the chain over the runes must come to, and where.
    pub(crate) seals: Vec<Seal>,
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
        Ok((Log::of_file(name)?, None))
    }

    /// `-` is standard input.
    pub(crate) fn of_file(name: &str) -> Result<Log, Failure> {
        let text = match name {
            "-" => std::io::read_to_string(std::io::stdin())?,
            file => std::fs::read_to_string(file).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    Failure::new(NOT_FOUND, format!("there is no file {file}, and it is no session id (ses_…)"))
                }
                _ => Failure::new(FAILED, format!("{file}: {error}")),
            })?,
        };
        let (runes, seals) = parse(&text)?;
        Ok(Log { runes, seals, session: None })
    }

    pub(crate) async fn of_session(client: &Client, id: &str) -> Result<Log, Failure> {
        // Before the runes: what is written meanwhile must not look as if it were missing.
        let session = client.session(id).await?;
        let mut seals = client.seals(id).await?;
        seals.extend(session.final_hash.clone().map(|hash| ServedSeal { seq: session.head_seq, hash }));
        let seals = seals.iter().map(seal).collect::<Result<_, _>>();
        let seals = seals.map_err(|why| Failure::new(FAILED, why))?;
        let served = client.every_rune(id, 0).await?;
        let runes = served.into_iter().map(convert::rune).collect::<Result<_, _>>();
        let runes = runes.map_err(|why| Failure::new(FAILED, why))?;
        Ok(Log { runes, seals, session: Some(session) })
    }

    /// Nothing can follow any more, as the session or its last rune says.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.session {
            Some(session) => matches!(session.status.as_str(), "closed" | "archived"),
            None => self.runes.iter().rev().take(2).any(|rune| rune.kind == "session.closed"),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.runes.first().map_or("no session".to_owned(), |rune| rune.session_id.to_string())
    }
}

fn parse(text: &str) -> Result<(Vec<Rune>, Vec<Seal>), Failure> {
    let (mut runes, mut seals) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| Failure::new(FAILED, format!("line {}: {why}", index + 1));
        if let Ok(line) = serde_json::from_str::<SealLine>(line) {
            seals.push(seal(&line.seal).map_err(wrong)?);
            continue;
        }
        let served: Served = serde_json::from_str(line).map_err(|error| wrong(format!("not a rune: {error}")))?;
        runes.push(convert::rune(served).map_err(wrong)?);
    }
    Ok((runes, seals))
}

fn seal(served: &ServedSeal) -> Result<Seal, String> {
    let hash =
        Hash::from_hex(&served.hash).ok_or_else(|| format!("the seal at {} has a hash that is none", served.seq))?;
    Ok(Seal { seq: served.seq, hash })
}
