//! Server-sent events: lines into frames.
//!
//! Must not know: what the frames mean.

/// An event larger than this is no event of ours.
const FRAME_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: String,
}

#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Up to here no line ends.
    seen: usize,
    frame: Frame,
    has_data: bool,
}

/// More than [`FRAME_BYTES_MAX`] without an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.bytes.len() + self.frame.data.len() + bytes.len() > FRAME_BYTES_MAX {
            return Err(TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole frame. One that was cut off by the end of the stream is never seen.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            let end = self.seen
                + self.bytes.get(self.seen..)?.iter().position(|b| *b == b'\n').or_else(|| {
                    self.seen = self.bytes.len();
                    None
                })?;
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            self.seen = 0;
            let line = String::from_utf8_lossy(&line);
            if let Some(frame) = self.line(line.trim_end_matches(['\n', '\r'])) {
                return Some(frame);
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return std::mem::take(&mut self.has_data).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.frame.id = Some(value.to_owned()),
            "event" => self.frame.event = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
                self.has_data = true;
            }
            // A comment has no name; `retry` is ours to decide.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_however_the_bytes_arrive() {
        let text = ": hi\n\nid: 7\r\nevent: turn.started\r\ndata: {\"a\":\ndata: \"ü\"}\r\n\r\nevent: delta\ndata:x\n\nid: 8\n\ndata: cut";
        for size in [1, 2, 3, 1000] {
            let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
            for chunk in text.as_bytes().chunks(size) {
                decoder.push(chunk).unwrap();
                frames.extend(std::iter::from_fn(|| decoder.next()));
            }
            assert_eq!(frames.len(), 2, "{frames:?}");
            assert_eq!(frames[0].id.as_deref(), Some("7"));
            assert_eq!(frames[0].data, "{\"a\":\n\"ü\"}");
            assert_eq!((frames[1].event.as_deref(), frames[1].data.as_str()), (Some("delta"), "x"));
            assert_eq!(frames[1].id, None);
        }
    }

    #[test]
    fn a_frame_without_end_is_given_up() {
        let mut decoder = Decoder::default();
        let line = vec![b'x'; 1 << 20];
        assert!((0..64).any(|_| decoder.push(&line) == Err(TooLarge)));
    }
}
