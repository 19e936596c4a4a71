//! A keyed hash over what goes along with a hint. Whoever can write to the bus and nothing else must
//! not be able to say what a message or a result was; hints without a valid one only cause a look.

use hmac::{Hmac, KeyInit, Mac};
use instar_bus::message::{WorkTool, WorkTurn};
use prost::Message;
use sha2::Sha256;

/// The installation's key. Every process of it reads the same from the database.
#[derive(Clone)]
pub(crate) struct SealKey([u8; 32]);

impl SealKey {
    pub(crate) fn new(key: [u8; 32]) -> SealKey {
        SealKey(key)
    }

    fn mac(&self, label: &str, message: &impl Message) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(label.as_bytes());
        mac.update(&message.encode_to_vec());
        Some(mac)
    }

    /// Only news need it.
    pub(crate) fn turn(&self, mut hint: WorkTurn) -> WorkTurn {
        if hint.news.is_some() {
            hint.mac = self.mac("turn", &hint).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default();
        }
        hint
    }

    pub(crate) fn call(&self, mut hint: WorkTool) -> WorkTool {
        if hint.call.is_some() {
            hint.mac = self.mac("call", &hint).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default();
        }
        hint
    }

    pub(crate) fn is_turn(&self, hint: &WorkTurn) -> bool {
        let bare = WorkTurn { mac: Vec::new(), ..hint.clone() };
        self.mac("turn", &bare).is_some_and(|mac| mac.verify_slice(&hint.mac).is_ok())
    }

    pub(crate) fn is_call(&self, hint: &WorkTool) -> bool {
        let bare = WorkTool { mac: Vec::new(), ..hint.clone() };
        self.mac("call", &bare).is_some_and(|mac| mac.verify_slice(&hint.mac).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_bus::message::{Queued, work_turn::News};

    #[test]
    fn news_count_only_as_they_were_sent_and_under_the_same_key() {
        let (ours, theirs) = (SealKey::new([1; 32]), SealKey::new([2; 32]));
        let queued = |content: &str| {
            Some(News::Queued(Queued { agent_version: 3, message_id: "msg".into(), content: content.into() }))
        };
        let sent = ours.turn(WorkTurn { turn_id: "trn".into(), news: queued("hello"), ..Default::default() });
        assert!(ours.is_turn(&sent) && !theirs.is_turn(&sent));
        assert!(!ours.is_turn(&WorkTurn { news: queued("other words"), ..sent.clone() }));
        assert!(!ours.is_turn(&WorkTurn { turn_id: "another".into(), ..sent.clone() }));
        assert!(!ours.is_turn(&WorkTurn { mac: Vec::new(), ..sent }));
    }
}
