//! Speaks to a command and hears it out, in bounded memory however much it says.

use crate::capture::{Capture, Captured};
use crate::outcome::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};

const CHUNK_BYTES: usize = 64 << 10;
const LINE_BYTES_MAX: usize = 4 << 10;
/// Of each output of one call; after that a command's progress is of no interest any more.
const PROGRESS_BYTES_MAX: usize = 64 << 10;
const LAST_WORDS_BYTES: usize = 1 << 10;

pub(super) struct Heard {
    pub output: Captured,
    /// The end of standard error.
    pub last_words: String,
}

/// Takes the three pipes of the child at once, so that the child can be waited for beside.
pub(super) fn all(
    child: &mut Child,
    arguments: String,
    keep_max: usize,
    progress: Sink,
) -> impl Future<Output = Heard> + use<> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    async move {
        let ((), output, last_words) =
            tokio::join!(tell(stdin, arguments), hear(stdout, keep_max, &progress), listen(stderr, &progress));
        Heard { output, last_words }
    }
}

/// A command need not read its arguments: then the pipe breaks, and that is no failure.
async fn tell(stdin: Option<ChildStdin>, arguments: String) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(arguments.as_bytes()).await;
        let _ = stdin.shutdown().await;
    }
}

async fn hear(stdout: Option<impl AsyncRead + Unpin>, keep_max: usize, progress: &Sink) -> Captured {
    let mut capture = Capture::new(keep_max, progress.redactor().clone());
    let mut lines = Lines::new(Stream::Stdout, progress);
    if let Some(mut stdout) = stdout {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = stdout.read(&mut chunk).await {
            capture.push(&chunk[..length]);
            lines.pass_on(&chunk[..length]);
        }
    }
    lines.end();
    capture.finish()
}

async fn listen(stderr: Option<impl AsyncRead + Unpin>, progress: &Sink) -> String {
    let redactor = progress.redactor().clone();
    let last_max = LAST_WORDS_BYTES + redactor.reach();
    let (mut lines, mut last) = (Lines::new(Stream::Stderr, progress), Vec::new());
    let Some(mut stderr) = stderr else { return String::new() };
    let mut chunk = vec![0; LINE_BYTES_MAX];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        let said = &chunk[..length];
        last.extend_from_slice(said);
        last.drain(..last.len().saturating_sub(last_max));
        lines.pass_on(said);
    }
    lines.end();
    let last = String::from_utf8_lossy(&last);
    let from = last.len().saturating_sub(LAST_WORDS_BYTES);
    redactor.tail(&last, from).trim_start_matches('\u{fffd}').to_owned()
}

/// What a command writes to one of its outputs, line by line, as its progress.
struct Lines<'a> {
    line: Vec<u8>,
    left: usize,
    stream: Stream,
    progress: &'a Sink,
}

impl<'a> Lines<'a> {
    fn new(stream: Stream, progress: &'a Sink) -> Self {
        Self { line: Vec::new(), left: PROGRESS_BYTES_MAX, stream, progress }
    }

    fn pass_on(&mut self, said: &[u8]) {
        for part in said.split_inclusive(|byte| *byte == b'\n').flat_map(|part| part.chunks(LINE_BYTES_MAX)) {
            if self.left == 0 {
                return;
            }
            self.line.extend_from_slice(part);
            let whole = part.ends_with(b"\n");
            if whole || self.line.len() >= LINE_BYTES_MAX {
                self.left = self.left.saturating_sub(self.line.len());
                // A secret that was cut in two would be known by neither half.
                let open = if whole { self.line.len() } else { self.progress.redactor().open_end(&self.line) };
                let rest = self.line.split_off(open);
                self.speak();
                self.line = rest;
            }
        }
    }

    fn speak(&mut self) {
        let text = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if !text.is_empty() {
            self.progress.say(text, Some(self.stream));
        }
    }

    fn end(mut self) {
        self.speak();
    }
}
