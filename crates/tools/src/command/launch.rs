//! Starts a command behind its walls.

use super::supervisor::{self, Ends, Plan};
use crate::inject::Charged;
use crate::outcome::{Failure, code};
use crate::runner::Invocation;
use crate::sandbox::{Entry, Kernel, Mode, Room, Settings, Stage};
use crate::spec::Workspace;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

pub(crate) struct Launch {
    pub settings: Arc<Settings>,
    pub kernel: Kernel,
    pub call: Invocation,
    pub charged: Charged,
    pub end: Instant,
}

pub(super) struct Launched {
    /// The guard, whose end is the end of everything.
    pub child: Child,
    pub orders: Orders,
    pub report: Report,
    pub scratch: Scratch,
}

/// A program with its guard and supervisor.
pub(crate) struct Started {
    /// The guard, whose end is the end of everything.
    pub child: Child,
    pub orders: Orders,
    pub report: Report,
}

/// How a program is watched.
pub(crate) struct Watch {
    pub kernel: Kernel,
    pub sandbox: Mode,
    pub processes_max: u64,
    pub look_ms: i32,
}

/// The runner's end of the pipe of orders. Dropping it is the last order.
pub(crate) struct Orders(File);

impl Orders {
    pub(crate) fn term(&mut self) {
        self.send(supervisor::ORDER_TERM);
    }

    pub(crate) fn kill(&mut self) {
        self.send(supervisor::ORDER_KILL);
    }

    /// Fails only when the supervisor has ended, which is what was wanted.
    fn send(&mut self, order: u8) {
        let _ = self.0.write(&[order]);
    }
}

/// What the supervisor says about the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As the kernel gives it to who waits.
    Status(i32),
    TooMany,
}

pub(crate) struct Report(io::PipeReader);

impl Report {
    fn words(mut self) -> Option<(i32, i32)> {
        let mut words = [0; 8];
        self.0.read_exact(&mut words).ok()?;
        let [a, b, c, d, e, f, g, h] = words;
        Some((i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h])))
    }

    /// Call it when the guard has ended, or it waits.
    pub(crate) fn read(self) -> Option<Ending> {
        self.words().and_then(|(tag, status)| match tag {
            supervisor::ENDED => Some(Ending::Status(status)),
            supervisor::TOO_MANY => Some(Ending::TooMany),
            _ => None,
        })
    }
}

impl Launch {
    /// Blocks. An error means that the command did not run.
    pub(super) fn start(self) -> Result<Launched, Failure> {
        let spec = self.call.tool.spec();
        let scratch = Scratch::new(&self.settings)?;
        let workspace = self.workspace()?;
        let room = Room {
            scratch: scratch.path(),
            workspace: workspace.as_deref().map(|folder| (folder, spec.workspace == Workspace::Write)),
            network: spec.network,
            time: self.end.saturating_duration_since(Instant::now()),
        };
        let entry = self.settings.entry(self.kernel, &room);
        let entry = entry.map_err(|error| Failure::new(code::SANDBOX_UNAVAILABLE, error.to_string()))?;
        let watch = Watch {
            kernel: self.kernel,
            sandbox: self.settings.sandbox,
            processes_max: self.settings.limits.processes,
            look_ms: supervisor::LOOK_MS,
        };
        let command = self.command(scratch.path(), workspace.as_deref());
        let Started { child, orders, report } = spawn(command, entry, &watch, &spec.command[0])?;
        Ok(Launched { child, orders, report, scratch })
    }

    fn workspace(&self) -> Result<Option<PathBuf>, Failure> {
        let missing = |words: &str| Failure::new(code::WORKSPACE_MISSING, words);
        match (self.call.tool.spec().workspace, &self.call.workspace) {
            (Workspace::None, _) => Ok(None),
            (_, None) => Err(missing("the tool works in a workspace and this call has none")),
            (_, Some(folder)) => {
                let real = fs::canonicalize(folder).ok().filter(|real| real.is_dir() && real.parent().is_some());
                real.map(Some).ok_or_else(|| missing("the workspace is not a folder, or the root of all"))
            }
        }
    }

    fn command(&self, scratch: &Path, workspace: Option<&Path>) -> Command {
        let spec = self.call.tool.spec();
        let mut command = Command::new(&spec.command[0]);
        command.args(&spec.command[1..]).current_dir(scratch).env_clear();
        let passed = spec.env.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(passed).envs(self.charged.environment.iter().map(|(name, value)| (name, value)));
        let id = self.call.call_id.to_string();
        command
            .env("PATH", &self.settings.path)
            .env("HOME", scratch)
            .env("TMPDIR", scratch)
            .env("LANG", "C.UTF-8")
            .env("INSTAR_CALL_ID", &id)
            .env("INSTAR_IDEMPOTENCY_KEY", &id)
            .env("INSTAR_ATTEMPT", self.call.attempt.to_string());
        if let Some(folder) = workspace {
            command.env("INSTAR_WORKSPACE", folder);
        }
        if let Some(traceparent) = self.call.traceparent.as_ref().filter(|text| !text.contains('\0')) {
            command.env("TRACEPARENT", traceparent);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Blocks. An error means that the program did not run.
pub(crate) fn spawn(mut command: Command, entry: Entry, watch: &Watch, program: &str) -> Result<Started, Failure> {
    let pipes = || -> io::Result<_> { Ok((io::pipe()?, io::pipe()?)) };
    let ((orders_in, orders), (report, report_in)) =
        pipes().map_err(|error| Failure::passing(code::COMMAND_NOT_STARTED, format!("no pipe: {error}")))?;
    let plan = Plan {
        ends: Ends { orders: orders_in.as_raw_fd(), reports: report_in.as_raw_fd() },
        namespace: watch.kernel.pid_namespaces,
        proc: watch.sandbox == Mode::Off,
        processes_max: watch.processes_max,
        look_ms: watch.look_ms,
    };
    behind_walls(&mut command, entry, plan);
    let child = command.spawn();
    // Only the supervisor may hold these now.
    drop((orders_in, report_in));
    let (orders, report) = (Orders(File::from(OwnedFd::from(orders))), Report(report));
    match child {
        Ok(child) => Ok(Started { child, orders, report }),
        Err(error) => Err(not_started(error, report, program)),
    }
}

#[allow(unsafe_code)]
fn behind_walls(command: &mut Command, entry: Entry, plan: Plan) {
    let prepare = move || {
        let mut stage = Stage::Session;
        let result = supervisor::split(plan).and_then(|()| entry.enter(&mut stage));
        if result.is_err() {
            supervisor::report(plan.ends.reports, supervisor::NOT_STARTED, stage as i32);
        }
        result
    };
    // SAFETY: `prepare` only makes system calls on memory that was prepared before the fork: it
    // takes no lock and no memory. `last_os_error` holds a number.
    unsafe { command.pre_exec(prepare) };
}

fn not_started(error: io::Error, report: Report, program: &str) -> Failure {
    let stage = report.words().filter(|(tag, _)| *tag == supervisor::NOT_STARTED).and_then(|(_, n)| Stage::of(n));
    match stage {
        Some(stage) => {
            let words = format!("the sandbox cannot be had: {stage:?} failed: {error}");
            Failure::new(code::SANDBOX_UNAVAILABLE, words)
        }
        None if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Failure::new(code::COMMAND_NOT_STARTED, format!("{program} cannot be run: {error}"))
        }
        None => Failure::passing(code::COMMAND_NOT_STARTED, format!("{program} could not be started: {error}")),
    }
}

/// A fresh folder of one call.
pub(super) struct Scratch(TempDir);

impl Scratch {
    fn new(settings: &Settings) -> Result<Self, Failure> {
        let make = || -> io::Result<TempDir> {
            let folder = tempfile::Builder::new().prefix("instar-call-").tempdir_in(&settings.scratch)?;
            fs::set_permissions(folder.path(), Permissions::from_mode(0o700))?;
            if let Some((user, group)) = settings.run_as {
                chown(folder.path(), Some(user), Some(group))?;
            }
            Ok(folder)
        };
        let failed = |error| Failure::passing(code::COMMAND_NOT_STARTED, format!("no work folder: {error}"));
        make().map(Scratch).map_err(failed)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A command may have locked its own folders: then they are opened and removed once more.
    pub(super) fn remove(self) {
        let path = self.0.keep();
        if fs::remove_dir_all(&path).is_err() {
            unlock(&path, 0);
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(%error, "a call's work folder could not be removed");
            }
        }
    }
}

fn unlock(folder: &Path, depth: usize) {
    const DEPTH_MAX: usize = 100;
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if depth < DEPTH_MAX {
            unlock(&entry.path(), depth + 1);
        }
    }
}
