//! Server-sent events from bytes, however they are cut.
//!
//! Must not know: what the events mean. Fields other than `event` and `data` serve reconnecting,
//! which providers do not offer, and are ignored.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Empty if the event had no name.
    pub event: String,
    pub data: String,
}

/// A frame over the limit; the stream can't be understood any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {bytes_max} bytes")]
pub struct TooLarge {
    pub bytes_max: usize,
}

const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Keeps bytes, not text, until an event is whole: a chunk may end inside a character.
#[derive(Debug)]
pub struct Parser {
    bytes_max: usize,
    line: Vec<u8>,
    event: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return; a line feed now belongs to it.
    after_return: bool,
    first_line: bool,
}

impl Parser {
    pub fn new(bytes_max: usize) -> Self {
        let (line, event, data) = Default::default();
        Self { bytes_max, line, event, data, has_data: false, after_return: false, first_line: true }
    }

    /// Takes the next bytes and adds the events they complete.
    pub fn push(&mut self, bytes: &[u8], frames: &mut impl Extend<Frame>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    frames.extend(self.end_of_line());
                }
                _ => {
                    self.after_return = false;
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
                    let (line, after) = rest.split_at(end);
                    if self.line.len() + line.len() + self.data.len() + self.event.len() > self.bytes_max {
                        return Err(TooLarge { bytes_max: self.bytes_max });
                    }
                    self.line.extend_from_slice(line);
                    rest = after;
                    continue;
                }
            }
            rest = &rest[1..];
        }
        Ok(())
    }

    /// The event that lacks only its blank line, once no more bytes come. Servers forget it at the
    /// end; a line that is itself unfinished proves nothing and is dropped.
    pub fn end(&mut self) -> Option<Frame> {
        self.line.clear();
        self.dispatch()
    }

    fn end_of_line(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        let mut rest = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            rest = rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(rest);
        }
        let frame = if rest.is_empty() {
            self.dispatch()
        } else {
            self.field(rest);
            None
        };
        // Keeps the allocation for the next line.
        self.line = line;
        self.line.clear();
        frame
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => value.clone_into(&mut self.event),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            // A comment (nothing before the colon), `id`, `retry`, or a field of the future.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Frame> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The standard has no events without data.
        let frame = (!self.data.is_empty()).then(|| Frame { event: text(&self.event), data: text(&self.data) });
        self.event.clear();
        self.data.clear();
        self.has_data = false;
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut parser = Parser::new(1 << 20);
        let mut frames = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut frames).unwrap();
        }
        frames.extend(parser.end());
        frames
    }

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn the_shapes_that_servers_send() {
        let rows: [(&str, Vec<Frame>); 12] = [
            ("data: a\n\n", vec![frame("", "a")]),
            ("data:a\n\n", vec![frame("", "a")]),
            ("data:  a\n\n", vec![frame("", " a")]),
            ("event: x\r\ndata: a\r\n\r\n", vec![frame("x", "a")]),
            ("event: x\rdata: a\r\r", vec![frame("x", "a")]),
            ("data: a\ndata: b\ndata\n\n", vec![frame("", "a\nb\n")]),
            (": keep-alive\n\ndata: a\n: more\n\n", vec![frame("", "a")]),
            ("id: 1\nretry: 5\nnew: thing\ndata: a\n\n", vec![frame("", "a")]),
            ("event: lonely\n\ndata:\n\ndata: a\n\n", vec![frame("", "a")]),
            ("\u{feff}data: a\n\n", vec![frame("", "a")]),
            ("data: a\n\ndata: b\n", vec![frame("", "a"), frame("", "b")]),
            ("data: a\n\ndata: b", vec![frame("", "a")]),
        ];
        for (bytes, frames) in rows {
            assert_eq!(parse(&[bytes.as_bytes()]), frames, "{bytes:?}");
        }
    }

    #[test]
    fn an_event_over_the_limit_is_an_error_and_not_a_growing_buffer() {
        let mut parser = Parser::new(16);
        let mut frames = Vec::new();
        let error = parser.push(&[b'x'; 17], &mut frames).unwrap_err();
        assert_eq!(error, TooLarge { bytes_max: 16 });
        let mut parser = Parser::new(16);
        let lines = b"data: 12345\n".repeat(4);
        assert!(parser.push(&lines, &mut frames).is_err() && frames.is_empty());
    }

    proptest! {
        #[test]
        fn cutting_the_bytes_changes_nothing(
            bytes in proptest::collection::vec(prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>(),
            ], 0..200),
            lines in proptest::collection::vec("(data|event|id|)(:|: |)[a-zé\u{1f600}]{0,6}(\n|\r|\r\n|\n\n)", 0..20),
            cuts in proptest::collection::vec(0usize..400, 0..12),
        ) {
            for bytes in [bytes, lines.concat().into_bytes()] {
                let whole = parse(&[&bytes]);
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
                cuts.extend([0, bytes.len()]);
                cuts.sort_unstable();
                let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
                prop_assert_eq!(&parse(&pieces), &whole);
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                prop_assert_eq!(&parse(&single), &whole);
            }
        }
    }
}
