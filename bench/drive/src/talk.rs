//! A model that talks slowly to many at once: twenty words a second to each, and each word says when it left.
//!
//! One task for all of them, and for each word one write: it has to cost less than reading it.

use crate::model::{ending, frame};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

/// Between two words of a stream, in steps; streams are spread over the steps.
const STEPS: usize = 50;
const STEP: Duration = Duration::from_millis(1);
pub const WORDS_PER_SECOND: usize = 20;
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";

struct Stream {
    socket: TcpStream,
    words_left: usize,
}

pub struct Talk {
    steps: RefCell<Vec<Vec<Stream>>>,
    next: Cell<usize>,
    /// Words of an answer.
    length: Cell<usize>,
    said: Cell<u64>,
    /// Streams whose reader left, or did not read.
    broken: Cell<u64>,
}

pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

impl Talk {
    /// It talks until the program ends.
    pub fn start() -> Rc<Talk> {
        let steps = RefCell::new((0..STEPS).map(|_| Vec::new()).collect());
        let talk = Talk { steps, next: Cell::new(0), length: Cell::new(0), said: Cell::new(0), broken: Cell::new(0) };
        let talk = Rc::new(talk);
        spawn_local({
            let talk = talk.clone();
            async move {
                let begun = Instant::now();
                for n in 0u32.. {
                    sleep_until(begun + STEP * n).await;
                    talk.step(n as usize % STEPS);
                }
            }
        });
        talk
    }

    /// How long answers are from now on.
    pub fn for_seconds(&self, seconds: f64) {
        self.length.set((seconds * WORDS_PER_SECOND as f64) as usize);
    }

    pub fn to(&self, socket: TcpStream) {
        let begun = HEAD.to_owned() + &chunk(&frame(json!({"role": "assistant", "content": ""}), None));
        if matches!(socket.try_write(begun.as_bytes()), Ok(sent) if sent == begun.len()) {
            let step = self.next.replace((self.next.get() + 1) % STEPS);
            self.steps.borrow_mut()[step].push(Stream { socket, words_left: self.length.get() });
        } else {
            self.broken.set(self.broken.get() + 1);
        }
    }

    pub fn streams(&self) -> usize {
        self.steps.borrow().iter().map(Vec::len).sum()
    }

    /// Words that have left so far, to all.
    pub fn said(&self) -> u64 {
        self.said.get()
    }

    pub fn broken(&self) -> u64 {
        self.broken.get()
    }

    /// Hangs up.
    pub fn end(&self) {
        self.steps.borrow_mut().iter_mut().for_each(Vec::clear);
        self.broken.set(0);
    }

    fn step(&self, step: usize) {
        let streams = &mut self.steps.borrow_mut()[step];
        if streams.is_empty() {
            return;
        }
        let word = chunk(&frame(json!({"content": format!("@{:016}|word ", now_us())}), None));
        let last = word.clone() + &chunk(&ending("stop")) + "0\r\n\r\n";
        streams.retain_mut(|stream| {
            stream.words_left = stream.words_left.saturating_sub(1);
            let bytes = if stream.words_left == 0 { last.as_bytes() } else { word.as_bytes() };
            let sent = matches!(stream.socket.try_write(bytes), Ok(sent) if sent == bytes.len());
            let count = if sent { &self.said } else { &self.broken };
            count.set(count.get() + 1);
            sent && stream.words_left > 0
        });
    }
}
