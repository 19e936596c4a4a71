//! From the bytes of an answer to events, in memory alone.
//!
//! Must not know: connections and time. What a frame means is the dialect's [`Decode`].

use std::collections::VecDeque;

use crate::error::ModelError;
use crate::event::Event;
use crate::sse::{Frame, Parser};

/// A dialect's reading of frames. After it made [`Event::Done`] or an error it is not asked again.
pub(crate) trait Decode: Send {
    fn frame(&mut self, frame: &Frame, events: &mut VecDeque<Event>) -> Result<(), ModelError>;

    /// No more frames will come, for the reason given. Either the answer is whole without them, or
    /// the reason is the error.
    fn end(&mut self, reason: ModelError, events: &mut VecDeque<Event>) -> Result<(), ModelError>;
}

pub(crate) struct Reader {
    parser: Parser,
    decode: Box<dyn Decode>,
    events: VecDeque<Event>,
    /// Comes after the events that were read before it.
    error: Option<ModelError>,
    bytes_left: usize,
    over: bool,
}

impl Reader {
    pub(crate) fn new(decode: Box<dyn Decode>, response_bytes_max: usize, frame_bytes_max: usize) -> Self {
        let (parser, events) = (Parser::new(frame_bytes_max), VecDeque::new());
        Self { parser, decode, events, error: None, bytes_left: response_bytes_max, over: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.over {
            return;
        }
        let Some(left) = self.bytes_left.checked_sub(bytes.len()) else {
            return self
                .fail(ModelError::permanent("the answer is larger than allowed").with_code("response_too_large"));
        };
        self.bytes_left = left;
        let mut frames = Vec::new();
        let pushed = self.parser.push(bytes, &mut frames);
        self.decode_all(frames);
        if let Err(error) = pushed
            && !self.over
        {
            self.fail(ModelError::permanent(error.to_string()).with_code("response_too_large"));
        }
    }

    /// The body ended, orderly or not.
    pub(crate) fn end(&mut self, reason: ModelError) {
        let last = self.parser.end();
        self.decode_all(last);
        if !self.over {
            self.over = true;
            self.error = self.decode.end(reason, &mut self.events).err();
        }
    }

    fn decode_all(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            if self.over {
                return;
            }
            if let Err(error) = self.decode.frame(&frame, &mut self.events) {
                return self.fail(error);
            }
            self.over = matches!(self.events.back(), Some(Event::Done { .. }));
        }
    }

    fn fail(&mut self, error: ModelError) {
        self.over = true;
        self.error = Some(error);
    }

    /// Whether no further bytes are needed.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether something of the answer waits to be handed out.
    pub(crate) fn has_content(&self) -> bool {
        self.events.iter().any(Event::is_content)
    }

    pub(crate) fn next(&mut self) -> Option<Result<Event, ModelError>> {
        self.events.pop_front().map(Ok).or_else(|| self.error.take().map(Err))
    }

    /// The error that stands in the way of any content.
    pub(crate) fn take_error(&mut self) -> Option<ModelError> {
        self.error.take()
    }
}

/// A frame that ought to be JSON. Gateways cut frames in two; the next try may get it whole.
pub(crate) fn parse(frame: &Frame) -> Result<serde_json::Value, ModelError> {
    serde_json::from_str(&frame.data)
        .map_err(|error| ModelError::transient(format!("an event is not JSON: {error}")).with_code("malformed_event"))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::response::{Accumulator, Response};

    /// Reads a body that comes in these pieces.
    pub(crate) fn read<'a>(
        decode: impl Decode + 'static,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<Event>, Response), ModelError> {
        let mut reader = Reader::new(Box::new(decode), 1 << 20, 1 << 20);
        let mut events = Vec::new();
        let mut accumulator = Accumulator::default();
        let mut drain = |reader: &mut Reader| {
            while let Some(event) = reader.next() {
                let event = event?;
                events.push(event.clone());
                accumulator.push(event);
            }
            Ok::<(), ModelError>(())
        };
        for piece in pieces {
            reader.push(piece);
            drain(&mut reader)?;
        }
        reader.end(ModelError::transient("ended early"));
        drain(&mut reader)?;
        Ok((events, accumulator.finish()?))
    }

    /// However the bytes are cut, and wherever comments fall between events, the answer is the same;
    /// and no answer comes of less than all of it, up to the bytes that prove it whole.
    pub(crate) fn cutting_changes_nothing<D: Decode + 'static>(body: &str, decode: fn() -> D, needed: &str) {
        let (events, whole) = read(decode(), [body.as_bytes()]).unwrap();
        let commented = body.replace("\n\n", "\n\n: keep-alive\r\n\n");
        assert_eq!(read(decode(), [commented.as_bytes()]).unwrap().0, events);
        assert_eq!(read(decode(), body.as_bytes().chunks(1)).unwrap().0, events);
        let proven = body.find(needed).unwrap() + needed.len();
        for end in 0..body.len() {
            let outcome = read(decode(), [&body.as_bytes()[..end]]);
            assert!(end >= proven || outcome.is_err(), "{}", &body[..end]);
        }
        proptest!(ProptestConfig::with_cases(64), |(cuts in prop::collection::vec(0..=body.len(), 0..20))| {
            let mut cuts = cuts;
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &body.as_bytes()[pair[0]..pair[1]]);
            prop_assert_eq!(&read(decode(), pieces).unwrap().1, &whole);
        });
    }

    struct Silent;

    impl Decode for Silent {
        fn frame(&mut self, _: &Frame, _: &mut VecDeque<Event>) -> Result<(), ModelError> {
            Ok(())
        }

        fn end(&mut self, reason: ModelError, _: &mut VecDeque<Event>) -> Result<(), ModelError> {
            Err(reason)
        }
    }

    #[test]
    fn an_answer_over_the_limit_is_refused() {
        for (response_max, frame_max) in [(10, 100), (100, 10)] {
            let mut reader = Reader::new(Box::new(Silent), response_max, frame_max);
            reader.push(b"data: 1234567");
            let error = reader.next().unwrap().unwrap_err();
            assert_eq!(error.code.as_deref(), Some("response_too_large"));
            assert!(reader.is_over() && !error.retryable());
        }
    }
}
