//! A server that is a program: started behind a guard and a supervisor of its own, like a command, so that
//! neither its end nor the runner's leaves anything of it behind.

use super::confided::Confided;
use super::config::ServerConfig;
use crate::command::{Ending, Orders, Report, Started, Watch, spawn};
use crate::outcome::{Failure, code};
use crate::sandbox::{Kernel, Mode, Room, Settings};
use instar_core::secret::Redactor;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// Of the runner's environment; what else a server needs its configuration names.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER"];
/// Between two counts of its processes: it lives long, and looking costs.
const LOOK_MS: i32 = 2_000;
/// From the end of its input to the polite signal.
const CLOSE_WAIT: Duration = Duration::from_millis(1_000);
const KILL_WAIT: Duration = Duration::from_secs(15);
const LAST_WORDS_BYTES: usize = 1 << 10;
const LINE_BYTES_MAX: usize = 4 << 10;

pub(super) struct Process {
    child: Child,
    orders: Orders,
    report: Report,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// Who takes them down; ends with its standard error.
    listener: Option<JoinHandle<()>>,
    confided: Arc<Confided>,
    grace: Duration,
    _scratch: Option<TempDir>,
}

pub(super) struct Launch<'a> {
    pub(super) config: &'a ServerConfig,
    pub(super) settings: &'a Settings,
    pub(super) kernel: Kernel,
    /// With secrets in it.
    pub(super) environment: Vec<(String, String)>,
    pub(super) confided: Arc<Confided>,
}

impl Launch<'_> {
    /// Blocks. An error means that the program did not run.
    pub(super) fn start(self) -> Result<(Process, Limited<ChildStdout>, ChildStdin), Failure> {
        let failed = |words: String| Failure::new(code::COMMAND_NOT_STARTED, words);
        let (config, settings) = (self.config, self.settings);
        let scratch = match &config.folder {
            Some(_) => None,
            None => {
                let made = tempfile::Builder::new().prefix("instar-mcp-").tempdir_in(&settings.scratch);
                Some(made.map_err(|error| failed(format!("no work folder: {error}")))?)
            }
        };
        let folder = match (&config.folder, &scratch) {
            (Some(folder), _) => folder.as_path(),
            (None, Some(scratch)) => scratch.path(),
            (None, None) => Path::new("/"),
        };
        let settings = Settings {
            read_paths: settings.read_paths.iter().chain(&config.read_paths).cloned().collect(),
            ..settings.clone()
        };
        let room = Room { scratch: folder, workspace: None, network: config.network, time: Duration::MAX };
        let room = (config.sandbox == Mode::Required).then_some(&room);
        let entry = settings.lasting_entry(self.kernel, room);
        let entry = entry.map_err(|error| Failure::new(code::SANDBOX_UNAVAILABLE, error.to_string()))?;
        let mut command = Command::new(&config.command[0]);
        command.args(&config.command[1..]).current_dir(folder).env_clear();
        let names = PASSED.iter().copied().chain(config.env.iter().map(String::as_str));
        command.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?)))).envs(self.environment);
        if room.is_some() {
            command.env("HOME", folder).env("TMPDIR", folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let processes_max = config.processes_max;
        let watch = Watch { kernel: self.kernel, sandbox: config.sandbox, processes_max, look_ms: LOOK_MS };
        let Started { mut child, orders, report } = spawn(command, entry, &watch, &config.command[0])?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (stdout, stdin) = pipes.ok_or_else(|| failed("it has no standard output".to_owned()))?;
        let last_words = Arc::<Mutex<Vec<u8>>>::default();
        let listener = child
            .stderr
            .take()
            .map(|stderr| tokio::spawn(listen(stderr, config.name.clone(), last_words.clone(), self.confided.clone())));
        let stdout = Limited { inner: stdout, line: 0, line_max: config.message_bytes_max };
        let (confided, grace) = (self.confided, settings.kill_grace());
        let process = Process { child, orders, report, last_words, listener, confided, grace, _scratch: scratch };
        Ok((process, stdout, stdin))
    }
}

impl Process {
    /// Ends it with everything that it started, the polite way first; its input has been closed by whoever
    /// spoke to it. Says how it ended.
    pub(super) async fn end(mut self) -> String {
        if tokio::time::timeout(CLOSE_WAIT, self.child.wait()).await.is_err() {
            self.orders.term();
            if tokio::time::timeout(self.grace, self.child.wait()).await.is_err() {
                self.orders.kill();
                if tokio::time::timeout(KILL_WAIT, self.child.wait()).await.is_err() {
                    tracing::error!("an MCP server's processes do not end; its supervisor goes on killing them");
                    return "its processes do not end".to_owned();
                }
            }
        }
        // Should somebody have killed the guard, its supervisor is there yet.
        self.orders.kill();
        let report = tokio::task::spawn_blocking(move || self.report.read());
        let ending = tokio::time::timeout(KILL_WAIT, report).await.ok().and_then(Result::ok).flatten();
        let how = match ending {
            None => "it was killed".to_owned(),
            Some(Ending::TooMany) => "it had too many processes".to_owned(),
            Some(Ending::Status(status)) if libc::WIFSIGNALED(status) => {
                format!("it was ended by signal {}", libc::WTERMSIG(status))
            }
            Some(Ending::Status(status)) => format!("it ended with status {}", libc::WEXITSTATUS(status)),
        };
        // All of them are dead: what they said is on its way, unless somebody else holds the other end.
        if let Some(listener) = self.listener {
            drop(tokio::time::timeout(CLOSE_WAIT, listener).await);
        }
        let last = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let said = last_words(&last, &self.confided.now());
        if said.is_empty() { how } else { format!("{how}; it said: {said}") }
    }
}

/// The end of what is kept. It was cut somewhere: what is before its last bytes may begin with the end of a secret.
fn last_words(kept: &[u8], redactor: &Redactor) -> String {
    let kept = String::from_utf8_lossy(kept);
    redactor.tail(&kept, kept.len().saturating_sub(LAST_WORDS_BYTES)).trim().to_owned()
}

/// Standard error is free text: the end of it is kept for when the server fails.
async fn listen(mut stderr: ChildStderr, server: String, last: Arc<Mutex<Vec<u8>>>, confided: Arc<Confided>) {
    let (mut chunk, mut line) = (vec![0; LINE_BYTES_MAX], Vec::new());
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        let redactor = confided.now();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend_from_slice(&chunk[..length]);
        let over = last.len().saturating_sub(LAST_WORDS_BYTES + redactor.reach());
        last.drain(..over);
        drop(last);
        if tracing::enabled!(tracing::Level::DEBUG) {
            line.extend_from_slice(&chunk[..length]);
            let rest = line.split_off(redactor.open_end(&line));
            let mut said = String::from_utf8_lossy(&line).trim_end().to_owned();
            redactor.text(&mut said);
            tracing::debug!(server, said, "an MCP server speaks");
            line = rest;
        }
    }
}

/// Ends with an error where one line is too long: the peer reads whole lines, and would wait for an answer
/// that it has thrown away.
pub(super) struct Limited<R> {
    inner: R,
    line: usize,
    line_max: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for Limited<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &polled {
            let read = &buf.filled()[before..];
            self.line = match read.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => read.len() - end - 1,
                None => self.line + read.len(),
            };
            if self.line > self.line_max {
                let words = format!("a message over {} bytes", self.line_max);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, words)));
            }
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::secret::Secret;

    #[test]
    fn last_words_begin_with_no_end_of_a_secret() {
        let secret = "a-secret-that-is-longer-than-its-blot";
        let redactor = Redactor::new([&Secret::new(secret).unwrap()]);
        let said = secret.repeat(200);
        let most = LAST_WORDS_BYTES + redactor.reach();
        for cut in 0..secret.len() {
            let kept = &said[said.len() - most - cut..said.len() - cut];
            let shown = last_words(kept.as_bytes(), &redactor).replace("[redacted]", "");
            assert!(secret.starts_with(&shown), "{shown}");
        }
        assert_eq!(last_words(b" short \n", &redactor), "short");
    }
}
