//! What this process hears on the bus: the ends of turns and what agents say, of all sessions, and every
//! rune of those that somebody follows.
//!
//! What agents say is heard before anybody follows: who joins in mid-turn is told what was said before.

use super::channel::{Channel, ends};
use super::frame::{Piece, Source};
use super::talk::{SoFar, Talks};
use instar_bus::message::{Live, Rune, live};
use instar_bus::{BusError, Heard as Word, Listener};
use instar_core::id::{SessionId, TurnId};
use instar_runtime::drain::Drain;
use instar_runtime::{Hub, Looking};
use instar_store::entity::{session, turn};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use uuid::Uuid;

/// How late a rune is at the most when the bus has lost its hint.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Waits for ends that are kept before the forgotten ones are cleared away.
const ENDS_MAX: usize = 10_000;
/// Sessions asked for in one query.
const POLL_MAX: usize = 500;
/// Heard of all sessions, followed or not.
const HEARD: [&str; 5] =
    ["turn.completed", "turn.interrupted", "turn.error", "turn.tool_calls_received", "turn.recovered"];

pub(crate) struct Feed {
    hub: Hub,
    channels: Mutex<HashMap<SessionId, Arc<Channel>>>,
    talks: Mutex<Talks>,
    /// Who waits for the end of a turn.
    ends: Mutex<HashMap<String, Weak<Notify>>>,
    /// The bus may have lost something: look now.
    doubt: Notify,
}

/// A reader's hold on its session's channel.
pub(super) struct Subscription {
    feed: Arc<Feed>,
    session: SessionId,
    pub(super) channel: Arc<Channel>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.feed.channels();
        if self.channel.leave() {
            channels.remove(&self.session);
        }
    }
}

/// See [`Feed::end_of`].
pub(crate) struct End(Arc<Notify>);

/// An end that is heard also before it is awaited.
pub(crate) struct Heard(Pin<Box<OwnedNotified>>);

impl End {
    pub(crate) fn heard_from_now(self) -> Heard {
        let mut told = Box::pin(self.0.notified_owned());
        told.as_mut().enable();
        Heard(told)
    }
}

impl Heard {
    /// Returns once; safe to cancel before that.
    pub(crate) async fn ended(&mut self) {
        self.0.as_mut().await;
    }
}

struct Ears {
    transitions: Listener<Rune>,
    live: Listener<Live>,
}

impl Feed {
    pub(crate) fn new(hub: Hub) -> Arc<Feed> {
        Arc::new(Feed {
            hub,
            channels: Mutex::default(),
            talks: Mutex::default(),
            ends: Mutex::default(),
            doubt: Notify::new(),
        })
    }

    pub(crate) fn start(self: &Arc<Feed>, drain: &Drain) {
        let (feed, until) = (self.clone(), drain.clone());
        drain.spawn(async move {
            tokio::select! {
                () = feed.listen() => {}
                () = until.draining() => {}
            }
        });
        let (feed, until) = (self.clone(), drain.clone());
        drain.spawn(async move {
            tokio::select! {
                () = feed.poll() => {}
                () = until.draining() => {}
            }
        });
    }

    pub(super) fn follow(self: &Arc<Feed>, session: SessionId) -> Subscription {
        let new = || {
            let channel = Arc::new(Channel::new());
            let ear = tokio::spawn(follow(self.clone(), session, Arc::downgrade(&channel)));
            channel.hear_by(ear.abort_handle());
            channel
        };
        let mut channels = self.channels();
        let channel = channels.entry(session).or_insert_with(new).clone();
        channel.join();
        drop(channels);
        Subscription { feed: self.clone(), session, channel }
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Channel>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channel(&self, session: &str) -> Option<Arc<Channel>> {
        let session = session.parse().ok()?;
        self.channels().get(&session).cloned()
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<String, Weak<Notify>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a turn, as far as the bus says so: a hint to look.
    pub(crate) fn end_of(&self, turn: TurnId) -> End {
        let turn = turn.to_string();
        let mut ends = self.ends();
        if let Some(waits) = ends.get(&turn).and_then(Weak::upgrade) {
            return End(waits);
        }
        if ends.len() >= ENDS_MAX {
            ends.retain(|_, waits| waits.strong_count() > 0);
        }
        let waits = Arc::new(Notify::new());
        ends.insert(turn, Arc::downgrade(&waits));
        End(waits)
    }

    pub(super) fn so_far(&self, turn: &str) -> Option<SoFar> {
        self.talks().so_far(turn)
    }

    fn talks(&self) -> MutexGuard<'_, Talks> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listen(&self) {
        let mut ears = loop {
            match self.ears().await {
                Ok(ears) => break ears,
                Err(error) => tracing::debug!(%error, "the bus is not heard; the logs are polled"),
            }
            tokio::time::sleep(POLL_EVERY).await;
        };
        // What happened before the ears were there did not ring.
        self.doubt.notify_one();
        loop {
            tokio::select! {
                heard = ears.transitions.next() => self.transition(heard),
                heard = ears.live.next() => self.live(heard),
            }
        }
    }

    async fn ears(&self) -> Result<Ears, BusError> {
        let bus = self.hub.bus();
        Ok(Ears { transitions: bus.listen_transitions(&HEARD).await?, live: bus.listen(&bus.space().deltas()).await? })
    }

    fn transition(&self, heard: Word<Rune>) {
        let Word::Message(rune) = heard else { return self.doubt.notify_one() };
        match rune.kind.as_str() {
            "turn.tool_calls_received" => self.talks().turn_page(&rune.turn_id),
            "turn.recovered" => self.talks().end(&rune.turn_id),
            kind if ends(kind) => self.end(&rune.turn_id),
            _ => {}
        }
        if let Some(channel) = self.channel(&rune.session_id) {
            channel.ring(i64::try_from(rune.seq).unwrap_or(i64::MAX));
        }
    }

    fn live(&self, heard: Word<Live>) {
        // A lost delta is lost; what was said is in the log when the turn is over.
        let Word::Message(Live { event: Some(event) }) = heard else { return };
        let (session, piece) = match event {
            live::Event::Delta(d) => {
                let source = Source::Agent(d.agent_id);
                (d.session_id, Piece { turn: d.turn_id, index: d.index, text: d.text, kind: d.kind, source })
            }
            live::Event::Progress(p) => {
                let source = Source::Tool { call: p.call_id, stream: p.stream, done_permille: p.done_permille };
                (p.session_id, Piece { turn: p.turn_id, index: p.index, text: p.text, kind: String::new(), source })
            }
        };
        // First: who joins in between gets the piece twice and tells by its number, never not at all.
        self.talks().hear(&piece);
        if let Some(channel) = self.channel(&session) {
            channel.hear(piece);
        }
    }

    /// Asks the database how far the followed logs are: the bus is only a hint.
    async fn poll(&self) {
        let mut looking = self.hub.looking();
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_EVERY) => {}
                () = self.doubt.notified() => {}
                () = looking.due() => {}
            }
            let (heads, ends) = (self.poll_heads(&mut looking).await, self.poll_ends(&mut looking).await);
            let looked = heads.and_then(|heads| ends.map(|ends| heads || ends));
            let found = looked.unwrap_or_else(|error| {
                tracing::debug!(%error, "how far the logs are could not be read");
                false
            });
            looking.looked(found);
        }
    }

    /// Whether one of the followed logs went on.
    async fn poll_heads(&self, looking: &mut Looking) -> Result<bool, DbErr> {
        let followed: Vec<Uuid> = self.channels().keys().map(|id| id.uuid()).collect();
        let mut news = false;
        for ids in followed.chunks(POLL_MAX) {
            looking.ask(1).await;
            let heads = session::Entity::find()
                .select_only()
                .column(session::Column::Id)
                .column(session::Column::HeadSeq)
                .filter(session::Column::Id.is_in(ids.iter().copied()))
                .into_tuple::<(Uuid, i64)>()
                .all(self.hub.store().db())
                .await?;
            let channels = self.channels();
            for (id, head) in heads {
                if let Some(channel) = channels.get(&SessionId::from(id)) {
                    news |= channel.ring(head);
                }
            }
        }
        Ok(news)
    }

    /// The same of turns whose end somebody waits for.
    async fn poll_ends(&self, looking: &mut Looking) -> Result<bool, DbErr> {
        let awaited: Vec<Uuid> = {
            let ends = self.ends();
            let awaited = ends.iter().filter(|(_, waits)| waits.strong_count() > 0);
            awaited.filter_map(|(turn, _)| Some(turn.parse::<TurnId>().ok()?.uuid())).collect()
        };
        let mut news = false;
        for ids in awaited.chunks(POLL_MAX) {
            looking.ask(1).await;
            let ended = turn::Entity::find()
                .select_only()
                .column(turn::Column::Id)
                .filter(turn::Column::Id.is_in(ids.iter().copied()))
                .filter(turn::Column::EndedAt.is_not_null())
                .into_tuple::<Uuid>()
                .all(self.hub.store().db())
                .await?;
            for id in ended {
                news = true;
                self.end(&TurnId::from(id).to_string());
            }
        }
        Ok(news)
    }

    fn end(&self, turn: &str) {
        self.talks().end(turn);
        if let Some(waits) = self.ends().remove(turn).and_then(|waits| waits.upgrade()) {
            waits.notify_waiters();
        }
    }
}

/// Rings a channel for every rune of its session, until the channel is gone.
async fn follow(feed: Arc<Feed>, session: SessionId, channel: Weak<Channel>) {
    let mut runes = loop {
        // Until then nothing comes that way, and the log is looked at.
        feed.hub.bus().watch().up().await;
        match feed.hub.bus().listen_session(&session.to_string()).await {
            Ok(runes) => break runes,
            Err(error) => tracing::debug!(%session, %error, "the session is not heard; its log is polled"),
        }
        tokio::time::sleep(POLL_EVERY).await;
    };
    // What happened before it was heard did not ring.
    feed.doubt.notify_one();
    loop {
        let heard = runes.next().await;
        let Some(channel) = channel.upgrade() else { return };
        match heard {
            Word::Message(rune) => drop(channel.ring(i64::try_from(rune.seq).unwrap_or(i64::MAX))),
            Word::Gap(_) => feed.doubt.notify_one(),
        }
    }
}
