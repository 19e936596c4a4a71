//! A fingerprint of a context: enough to see later whether what was worked out anew is what was sent.

use super::Composed;
use super::message::Said;
use sha2::{Digest as _, Sha256};
use std::io::Write;

/// The first six bytes of a SHA-256, as hexadecimal digits.
pub type Digest = String;

/// Of everything that the model reads: instructions, words, calls and results, in order.
pub fn digest(composed: &Composed<'_>) -> Digest {
    let mut hash = Hash(Sha256::new());
    hash.text(composed.system.as_deref().unwrap_or_default());
    for message in &composed.messages {
        match &message.said {
            Said::User { text } => hash.tag(b'u').text(text),
            Said::Tool(outcome) => hash
                .tag(if outcome.is_error { b'e' } else { b't' })
                .bytes(outcome.call_id.bytes())
                .text(&outcome.content),
            Said::Assistant(assistant) => {
                hash.tag(b'a').text(&assistant.text);
                for call in &assistant.calls {
                    hash.tag(b'c').bytes(call.id.bytes()).text(&call.name).json(&call.arguments);
                }
                for block in &assistant.blocks {
                    hash.tag(b'b').json(block);
                }
                &mut hash
            }
        };
    }
    hash.finish()
}

/// Of anything that is the same if its parts are.
pub fn digest_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Digest {
    let mut hash = Hash(Sha256::new());
    for part in parts {
        hash.text(part);
    }
    hash.finish()
}

impl Hash {
    fn finish(self) -> Digest {
        let digest = self.0.finalize();
        digest.iter().take(6).flat_map(|byte| [byte >> 4, byte & 15]).map(hex).collect()
    }
}

fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

struct Hash(Sha256);

impl Hash {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.bytes(&[tag])
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    /// With its length, so that two texts cannot be taken for one.
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes())
    }

    fn json(&mut self, value: &serde_json::Value) -> &mut Self {
        // A value with text keys only can always be written.
        let _ = serde_json::to_writer(&mut *self, value);
        self.tag(0)
    }
}

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
