//! One open stream: replays from its cursor, then goes along with the log.

use super::channel::ends;
use super::feed::Subscription;
use super::frame::{self, HEARTBEAT, HELLO, Piece};
use super::talk::SoFar;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::resource::rune::may_read;
use crate::state::Api;
use bytes::Bytes;
use instar_archive::ArchiveError;
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_runtime::LogError;
use instar_store::entity::turn;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::{Instant, Interval};

const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Runes read at once.
const PAGE: u64 = 200;
/// Turns whose end is remembered, so that a late delta does not follow it.
const ENDED_MAX: usize = 64;

pub(super) struct Reader {
    api: Arc<Api>,
    session: SessionId,
    caller: Caller,
    /// When the key was last looked at.
    judged_at: Instant,
    /// The last rune that was read.
    cursor: i64,
    /// Every rune that was there when it joined has gone out.
    joined: bool,
    out: String,
    bell: watch::Receiver<i64>,
    pieces: broadcast::Receiver<Arc<Piece>>,
    /// The last piece of a turn that is known to this reader.
    told: HashMap<String, u64>,
    ended: VecDeque<String>,
    heartbeat: Interval,
    hold: Subscription,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    pub(super) fn new(
        api: Arc<Api>,
        session: SessionId,
        caller: Caller,
        after: i64,
        head: i64,
        permit: OwnedSemaphorePermit,
    ) -> Reader {
        let hold = api.feed.follow(session);
        hold.channel.ring(head);
        let start = Instant::now() + HEARTBEAT_EVERY;
        Reader {
            session,
            caller,
            judged_at: Instant::now(),
            cursor: after,
            joined: false,
            out: String::from(HELLO),
            bell: hold.channel.bell(),
            pieces: hold.channel.wire(),
            told: HashMap::new(),
            ended: VecDeque::new(),
            heartbeat: tokio::time::interval_at(start, HEARTBEAT_EVERY),
            hold,
            api,
            _permit: permit,
        }
    }

    /// The next frames; `None` ends the stream, and the client comes back with its cursor.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.api.context.drain.is_draining() {
                return None;
            }
            if self.judged_at.elapsed() >= HEARTBEAT_EVERY && !self.may_stay().await {
                return None;
            }
            if !self.out.is_empty() {
                return Some(Bytes::from(std::mem::take(&mut self.out)));
            }
            let behind = *self.bell.borrow_and_update() > self.cursor;
            let done = if behind || !self.joined { self.catch_up().await } else { self.wait().await };
            if let Err(why) = done {
                tracing::debug!(session = %self.session, why, "a stream is ended");
                return None;
            }
        }
    }

    /// A key that was revoked or has run out reads no further. While nobody can say, the stream goes on.
    async fn may_stay(&mut self) -> bool {
        self.judged_at = Instant::now();
        match self.api.keys.stands(self.api.store(), &self.caller).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::debug!(session = %self.session, key = self.caller.key_id(), "the key of a stream is no longer good");
                return false;
            }
            Err(error) => tracing::debug!(%error, "the key of a stream could not be looked up"),
        }
        true
    }

    async fn catch_up(&mut self) -> Result<(), &'static str> {
        let runes = match self.api.hub().runes(self.session, self.cursor, PAGE).await {
            Ok(runes) => runes,
            // Some are lost: the reader is told, and gets those that are not.
            Err(LogError::Archive(ArchiveError::Damaged { last, .. })) if last > self.cursor => {
                self.out += &frame::gap(self.cursor, last + 1, *self.bell.borrow());
                self.cursor = last;
                return Ok(());
            }
            Err(_) => return Err("the log cannot be read"),
        };
        if let Some(first) = runes.first().filter(|first| first.seq > self.cursor + 1) {
            self.out += &frame::gap(self.cursor, first.seq, *self.bell.borrow());
        }
        for rune in &runes {
            self.cursor = rune.seq;
            if let (true, Some(turn)) = (ends(&rune.kind), rune.turn_id) {
                let turn = turn.to_string();
                self.told.remove(&turn);
                self.ended.push_back(turn);
                if self.ended.len() > ENDED_MAX {
                    self.ended.pop_front();
                }
            }
            if may_read(self.caller.role, rune) {
                self.out += &frame::rune(rune).map_err(|_| "a rune cannot be shown")?;
            }
        }
        if !self.joined && (runes.len() as u64) < PAGE {
            self.joined = true;
            self.join().await.map_err(|_| "database")?;
        }
        Ok(())
    }

    /// What the turns that are under way have said so far, each in one delta.
    async fn join(&mut self) -> Result<(), Problem> {
        let live = turn::Entity::find()
            .filter(turn::Column::SessionId.eq(self.session.uuid()))
            .filter(turn::Column::EndedAt.is_null())
            .filter(turn::Column::Status.eq("streaming"))
            .all(self.api.db())
            .await?;
        for row in live {
            let turn = TurnId::from(row.id).to_string();
            let mut so_far = self.api.feed.so_far(&turn);
            if so_far.is_none() {
                so_far = self.checkpointed(&row).await?;
                // It does not say up to which piece: better one lost than one twice.
                self.pieces = self.hold.channel.wire();
            }
            if let Some(SoFar { agent, text, index }) = so_far {
                self.out += &frame::delta(&turn, &agent, index, &text, "text");
                self.told.insert(turn, index);
            }
        }
        Ok(())
    }

    /// What the log has kept of the answer that is being given.
    async fn checkpointed(&self, row: &turn::Model) -> Result<Option<SoFar>, Problem> {
        let turn = TurnId::from(row.id);
        let text = self.api.store().said_so_far(self.session, &[turn]).await?.remove(&turn);
        let agent = AgentId::from(row.agent_id).to_string();
        Ok(text.map(|text| SoFar { agent, text, index: 0 }))
    }

    async fn wait(&mut self) -> Result<(), &'static str> {
        let drain = &self.api.context.drain;
        tokio::select! {
            () = drain.draining() => Err("draining"),
            rung = self.bell.changed() => rung.map_err(|_| "the feed is gone"),
            piece = self.pieces.recv() => match piece {
                Ok(piece) => {
                    self.say(&piece);
                    Ok(())
                }
                // Further behind than may wait for it: it comes back and is told what was said so far.
                Err(_) => Err("the reader is too slow"),
            },
            _ = self.heartbeat.tick() => {
                self.out += HEARTBEAT;
                Ok(())
            }
        }
    }

    fn say(&mut self, piece: &Piece) {
        let text = matches!(piece.source, frame::Source::Agent(_));
        // Index 0 is a new beginning: the answer is being given again.
        let known = text && piece.index > 0 && self.told.get(&piece.turn).is_some_and(|told| piece.index <= *told);
        if known || self.ended.contains(&piece.turn) {
            return;
        }
        if text {
            self.told.insert(piece.turn.clone(), piece.index);
        }
        self.out += &piece.frame();
    }
}
