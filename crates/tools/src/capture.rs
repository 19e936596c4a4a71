//! Keeps head and tail of an output of any size in bounded memory, and the digest of all of it.

use crate::canonical::hex;
use crate::outcome::Output;
use instar_core::secret::Redactor;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::Arc;

/// Room for the words between head and tail.
const GAP_BYTES: usize = 64;

pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    bytes_max: usize,
    bytes: u64,
    hash: Sha256,
    whole: bool,
    redactor: Arc<Redactor>,
}

pub(crate) struct Captured {
    pub output: Output,
    pub truncated: bool,
    pub bytes: u64,
    pub digest: Option<String>,
}

impl Capture {
    pub(crate) fn new(bytes_max: usize, redactor: Arc<Redactor>) -> Self {
        // The tail is where errors and totals are; the head says what it is about.
        let tail_max = bytes_max.saturating_sub(GAP_BYTES) / 4;
        let head_max = bytes_max.saturating_sub(GAP_BYTES) - tail_max;
        let (head, tail, hash) = (Vec::new(), VecDeque::new(), Sha256::new());
        Self { head, tail, head_max, tail_max, bytes_max, bytes: 0, hash, whole: true, redactor }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.hash.update(chunk);
        // More than is kept, so that no secret is cut before it is looked for.
        let most = self.bytes_max + self.redactor.reach();
        let room = most.saturating_sub(self.head.len());
        let (first, rest) = chunk.split_at(room.min(chunk.len()));
        self.head.extend_from_slice(first);
        // Only the end of a chunk can be in the tail.
        let rest = &rest[rest.len().saturating_sub(most)..];
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(most);
        self.tail.drain(..over);
    }

    /// Reading was given up: there is more that nobody saw.
    pub(crate) fn stop(&mut self) {
        self.whole = false;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn finish(self) -> Captured {
        let truncated = !self.whole || self.bytes > self.bytes_max as u64;
        // The digest of what holds a secret would let it be guessed.
        let digest = (self.whole && self.redactor.is_empty()).then(|| hex(&self.hash.finalize()));
        let (bytes, max) = (self.bytes, self.bytes_max);
        if !truncated {
            let output = match String::from_utf8(self.head) {
                Ok(text) => text,
                Err(error) => fit(String::from_utf8_lossy(error.as_bytes()).into_owned(), max),
            };
            return Captured { output: read(output, &self.redactor), truncated, bytes, digest };
        }
        let mut all = self.head;
        all.extend(self.tail);
        if !self.redactor.is_empty() {
            // What the end of a cut text may have been the beginning of is not said either.
            all.truncate(if self.whole { all.len() } else { self.redactor.open_end(&all) });
            let mut text = String::from_utf8_lossy(&all).into_owned();
            self.redactor.text(&mut text);
            all = text.into_bytes();
        }
        let head = &all[..border_down(&all, self.head_max.min(all.len()))];
        let tail = &all[border_up(&all, all.len().saturating_sub(self.tail_max).max(head.len()))..];
        let gone = bytes.saturating_sub((head.len() + tail.len()) as u64);
        let more = if self.whole { "" } else { "+" };
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let text = format!("{head}\n[… {gone}{more} bytes left out …]\n{tail}");
        Captured { output: Output::Text(fit(text, max)), truncated, bytes, digest }
    }
}

fn read(mut text: String, redactor: &Redactor) -> Output {
    match serde_json::from_str(&text) {
        Ok(mut value) => {
            redactor.json(&mut value);
            Output::Json(value)
        }
        Err(_) if text.is_empty() => Output::Nothing,
        Err(_) => {
            redactor.text(&mut text);
            Output::Text(text)
        }
    }
}

/// Bytes that are not text grow when they are written as text.
fn fit(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The nearest place at or before this one where no character is cut; a character has four bytes
/// at most, so anything longer is no text.
fn border_down(bytes: &[u8], place: usize) -> usize {
    (place.saturating_sub(3)..=place).rev().find(|p| bytes.get(*p).is_none_or(|b| !continues(*b))).unwrap_or(place)
}

fn border_up(bytes: &[u8], place: usize) -> usize {
    (place..=place + 3).find(|p| bytes.get(*p).is_none_or(|b| !continues(*b))).unwrap_or(place).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(bytes_max: usize, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(bytes_max, Arc::default());
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture.finish()
    }

    fn text(captured: &Captured) -> &str {
        match &captured.output {
            Output::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_fits_is_kept_as_it_is_and_json_is_read() {
        assert_eq!(capture(300, &[b"{\"a\":", b" 1}"]).output, Output::Json(serde_json::json!({"a": 1})));
        assert_eq!(capture(300, &[]).output, Output::Nothing);
        let exact = capture(300, &[&[b'x'; 300]]);
        assert!(!exact.truncated);
        assert_eq!(text(&exact).len(), 300);
    }

    #[test]
    fn what_does_not_fit_keeps_head_tail_size_and_digest_of_the_whole() {
        let body: Vec<u8> = (0..100_000u32).flat_map(|n| format!("{n} ").into_bytes()).collect();
        for step in [1, 7, 1000, body.len()] {
            let chunks: Vec<_> = body.chunks(step).collect();
            let captured = capture(1000, &chunks);
            assert!(captured.truncated);
            assert_eq!(captured.bytes, body.len() as u64);
            assert_eq!(captured.digest.as_deref(), Some(hex(&Sha256::digest(&body)).as_str()));
            let text = text(&captured);
            assert!(text.len() <= 1000, "{}", text.len());
            assert!(text.starts_with("0 1 2 3 ") && text.ends_with(" 99998 99999 "), "{text}");
            assert!(text.contains("bytes left out"));
        }
    }

    #[test]
    fn no_character_is_cut_in_half() {
        for lead in 0..4 {
            let body = format!("{}{}", "x".repeat(lead), "é€𝄞".repeat(500));
            let captured = capture(500, &[body.as_bytes()]);
            let text = text(&captured);
            assert!(!text.contains('\u{fffd}'), "{text}");
            assert!(text.len() <= 500);
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_within_the_limit() {
        for body in [vec![0xffu8; 400], vec![0x80u8; 5000]] {
            let captured = capture(400, &[&body]);
            assert!(text(&captured).len() <= 400);
        }
    }

    #[test]
    fn an_output_that_was_not_read_to_its_end_says_so() {
        let mut capture = Capture::new(300, Arc::default());
        capture.push(b"some");
        capture.stop();
        let captured = capture.finish();
        assert!(captured.truncated && captured.digest.is_none());
        assert!(text(&captured).contains("0+ bytes left out"));
    }

    #[test]
    fn a_secret_is_not_kept_wherever_the_cut_falls() {
        let secret = instar_core::secret::Secret::exact("canary-91d0-value").unwrap();
        let redactor = Arc::new(Redactor::new([&secret]));
        for lead in 0..600 {
            let mut capture = Capture::new(300, redactor.clone());
            let body = format!("{}canary-91d0-value{}", "x".repeat(lead), "y".repeat(600 - lead));
            body.as_bytes().chunks(7).for_each(|chunk| capture.push(chunk));
            let captured = capture.finish();
            assert!(captured.digest.is_none());
            let text = text(&captured);
            assert!(!text.contains("canar") && !text.contains("value"), "{lead}: {text}");
        }
        let mut capture = Capture::new(300, redactor);
        capture.push(b"it is canary-91");
        capture.stop();
        assert!(!text(&capture.finish()).contains("canary"));
    }
}
