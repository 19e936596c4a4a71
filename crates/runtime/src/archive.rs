//! Logs of sessions that have ended: moved to cold storage, read from there, brought in from elsewhere.
//!
//! The order makes a crash harmless at every point: segments are written and read back, then one
//! transaction makes the session archived and says where they are, and only then its runes are removed,
//! some at a time. Whatever was not done is done again, with the same outcome.

use crate::hub::Hub;
use crate::wire;
use instar_archive::{Archive, ArchiveError, Manifest, Segment};
use instar_core::id::SessionId;
use instar_core::invariant::{self, Scope};
use instar_core::machine::{Answer, By, Move, Refusal, apply, session as machine};
use instar_core::rune::payload::{SessionArchived, SessionCreated};
use instar_core::rune::{Actor, Draft, Rune, Seal};
use instar_store::entity::session;
use instar_store::{Moving, PAGE_MAX, StoreError};
use serde_json::json;

/// The kind of the timer that makes good a request whose process died.
pub const ARCHIVE_TIMER: &str = "archive";
/// How often it looks again when the session changed under it.
const LOOKS_MAX: usize = 3;
/// Runes removed at once, and how often in one look.
const PRUNED: u64 = 1_000;
const PRUNES_MAX: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("no archive is configured here: set archive.url to a folder or s3://bucket/prefix, for api and scheduler")]
    Unset,
    #[error("there is no session {0}")]
    Absent(SessionId),
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error("the log has a hole or a changed rune at {0}: it is kept as it is, look at it with `instar verify`")]
    Broken(i64),
    #[error("the session keeps changing; try again")]
    Contended,
    #[error("this log cannot be taken: {0}")]
    Unfit(String),
    #[error("a rune could not be told: {0}")]
    Untold(#[from] serde_json::Error),
}

fn moved(status: &str, by: By) -> Result<Move, LogError> {
    match apply(&machine::TABLE, Some(status), "archive_requested", by) {
        Answer::Moves(mv) => Ok(mv),
        Answer::Ignored { .. } => Err(LogError::Contended),
        Answer::Refused(no) => Err(LogError::Refused(no)),
    }
}

impl Hub {
    fn archives(&self) -> Result<&Archive, LogError> {
        self.archive().ok_or(LogError::Unset)
    }

    /// Runes after a number, in order, wherever they are kept.
    pub async fn runes(&self, session: SessionId, after: i64, limit: u64) -> Result<Vec<Rune>, LogError> {
        let here = self.store().runes(session, after, limit).await?;
        // The oldest are removed first: what begins where it should is whole.
        if here.first().is_some_and(|first| first.seq == after + 1) {
            return Ok(here);
        }
        let Some(row) = self.store().archive_of(session).await? else { return Ok(here) };
        let manifest: Manifest = serde_json::from_value(row.manifest)?;
        Ok(self.archives()?.page(&manifest, after, limit.min(PAGE_MAX) as usize).await?)
    }

    /// Whether a session in this state may be archived, and there is somewhere to put it.
    pub fn may_archive(&self, row: &session::Model, by: By) -> Result<(), LogError> {
        moved(&row.status, by)?;
        self.archives().map(drop)
    }

    /// Moves the log of a closed session to cold storage. The runes stay in the database until
    /// [`Hub::prune`] removes them.
    pub async fn archive_session(
        &self,
        id: SessionId,
        actor: Actor,
        traceparent: Option<String>,
    ) -> Result<Rune, LogError> {
        for _ in 0..LOOKS_MAX {
            let row = self.store().session(id).await?.ok_or(LogError::Absent(id))?;
            let mv = moved(&row.status, actor.by)?;
            let sealed = self.store().seal(id).await?.map_err(LogError::Broken)?;
            instar_crashpoint::crash_point!("archive.write.before");
            let manifest = self.write(id, sealed).await?;
            instar_crashpoint::crash_point!("archive.write.after");
            let moving = moving(row, mv, actor.clone(), traceparent.clone(), &manifest)?;
            instar_crashpoint::crash_point!("archive.commit.before");
            if let Some(rune) = self.store().archive(moving).await? {
                instar_crashpoint::crash_point!("archive.commit.after");
                self.tell_catalogue(&rune).await;
                return Ok(rune);
            }
        }
        Err(LogError::Contended)
    }

    /// Segments of everything up to a seal, which they must come to.
    async fn write(&self, id: SessionId, sealed: Seal) -> Result<Manifest, LogError> {
        let mut writing = self.archives()?.begin(id);
        loop {
            let page = self.store().runes(id, writing.chain().seq, PAGE_MAX).await?;
            if page.is_empty() {
                break;
            }
            writing.push(&page).await?.map_err(LogError::Broken)?;
        }
        if writing.chain() != sealed {
            return Err(LogError::Broken(sealed.seq));
        }
        Ok(writing.finish().await?)
    }

    /// Its number is the catalogue's, and would mislead who follows the session.
    async fn tell_catalogue(&self, rune: &Rune) {
        let told = Rune { seq: 0, ..rune.clone() };
        if let Err(error) = self.bus().publish_rune(&wire::rune(&told)).await {
            tracing::debug!(session = %rune.session_id, %error, "not published; it is told when its runes go");
        }
    }

    /// Removes runes that are in cold storage from the database. Says how many.
    pub async fn prune(&self, sessions_max: u64) -> Result<u64, LogError> {
        let mut gone = 0;
        for (row, rune) in self.store().unpruned(sessions_max).await? {
            let (id, manifest) = (SessionId::from(row.id), serde_json::from_value(row.manifest)?);
            self.tell_catalogue(&rune).await;
            self.archives()?.tidy(&manifest).await?;
            for _ in 0..PRUNES_MAX {
                instar_crashpoint::crash_point!("archive.prune.before");
                let some = self.store().prune(id, PRUNED).await?;
                instar_crashpoint::crash_point!("archive.prune.after");
                gone += some;
                if some == 0 {
                    self.store().note_pruned(id).await?;
                    break;
                }
            }
        }
        Ok(gone)
    }

    /// Brings in the log of a session that ended elsewhere, or here before it was lost: checked as a whole,
    /// then an archive like any other.
    pub async fn import(&self, segment: &[u8], namespace: &str, actor: Actor) -> Result<session::Model, LogError> {
        let (id, runes, mut seals) = Segment::read(segment)?;
        let archive = self.archives()?;
        if self.store().session(id).await?.is_some() {
            return Err(StoreError::Duplicate(format!("session {id}")).into());
        }
        let row = check(id, &runes, seals.clone(), namespace)?;
        let mut writing = archive.begin(id);
        writing.push(&runes).await?.map_err(LogError::Broken)?;
        let last = writing.chain();
        let manifest = writing.finish().await?;
        seals.push(last);
        seals.sort_by_key(|seal| seal.seq);
        seals.dedup();
        let row = session::Model { final_hash: Some(last.hash.0.to_vec()), ..row };
        let mv = moved("closed", actor.by)?;
        self.store().import(moving(row.clone(), mv, actor, None, &manifest)?, seals).await?;
        Ok(row)
    }
}

fn moving(
    session: session::Model,
    mv: Move,
    actor: Actor,
    traceparent: Option<String>,
    manifest: &Manifest,
) -> Result<Moving, LogError> {
    let told = SessionArchived {
        location: Some(manifest.session.clone()),
        head_seq: manifest.head_seq,
        final_hash: Some(manifest.final_hash.clone()),
    };
    let draft = Draft::new(SessionId::from(session.id), &told)?;
    Ok(Moving { session, mv, draft, actor, traceparent, manifest: json!(manifest) })
}

/// The row of a session that a log tells of from its making to its close, and that keeps every invariant.
fn check(id: SessionId, runes: &[Rune], seals: Vec<Seal>, namespace: &str) -> Result<session::Model, LogError> {
    let unfit = |why: String| LogError::Unfit(why);
    let (Some(first), Some(last)) = (runes.first(), runes.last()) else { return Err(unfit("it is empty".into())) };
    if first.kind != "session.created" || last.kind != "session.closed" {
        let why = "it must go from session.created to session.closed: close the session before you export it";
        return Err(unfit(why.into()));
    }
    let scope = Scope { start: Seal::EMPTY, seals, head: Some(last.seq), complete: true };
    if let Some(violation) = invariant::check(runes, scope).first() {
        return Err(unfit(format!("{violation}")));
    }
    let told: SessionCreated = serde_json::from_str(first.payload.get())?;
    let time = |us: i64| chrono::DateTime::from_timestamp_micros(us).unwrap_or_default();
    Ok(session::Model {
        id: id.uuid(),
        namespace: namespace.to_owned(),
        name: told.name,
        status: "archived".into(),
        epoch: 0,
        version: 0,
        head_seq: last.seq,
        published_seq: last.seq,
        sealed_seq: last.seq,
        root_agent_id: told.root_agent_id.map(|id| id.uuid()),
        config: if told.config.is_null() { json!({}) } else { told.config },
        budget: json!({}),
        final_hash: None,
        holds: None,
        reset_at: None,
        created_at: time(first.at_us),
        updated_at: time(last.at_us),
    })
}
