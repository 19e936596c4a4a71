//! The walls around a command: what they are made of, and whether this machine has them.
//!
//! Everything that needs memory or can fail for long is prepared here, before the fork; between
//! fork and exec only system calls are made (`enter`).

mod enter;
mod landlock;
mod limit;
mod seccomp;

pub(crate) use enter::{Entry, Stage};

use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Landlock and seccomp, or the call is refused.
    #[default]
    Required,
    /// Limits, a clean environment and an own session only: for machines that are walls themselves.
    Off,
}

/// Of one process each, except `processes`, which is of a whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Address space, so more than what is used.
    pub memory_bytes: u64,
    pub file_bytes: u64,
    pub open_files: u64,
    /// More than 4095 are not told apart.
    pub processes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, file_bytes: 256 << 20, open_files: 256, processes: 64 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub sandbox: Mode,
    pub limits: Limits,
    /// Folders and files that commands may read and execute besides the system's own.
    pub read_paths: Vec<PathBuf>,
    /// Where each call gets a fresh folder.
    pub scratch: PathBuf,
    /// Where programs are looked for.
    pub path: String,
    /// User and group of commands; needs a runner that is root.
    pub run_as: Option<(u32, u32)>,
    /// From the polite signal to the other one.
    pub kill_grace_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sandbox: Mode::Required,
            limits: Limits::default(),
            read_paths: Vec::new(),
            scratch: std::env::temp_dir(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            run_as: None,
            kill_grace_ms: 1000,
        }
    }
}

/// Why a command may not run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sandbox cannot be had: {0}; use a kernel that has it, or set sandbox = \"off\" if the machine is a wall itself"
)]
pub struct Unavailable(pub String);

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// 0: none.
    pub landlock_abi: u32,
    pub seccomp: bool,
    /// Whether this process may make them. With one a call's processes end in one stroke; without
    /// they are looked for until none is left.
    pub pid_namespaces: bool,
}

impl Kernel {
    pub fn probe() -> Self {
        Self {
            landlock_abi: enter::landlock_abi(),
            seccomp: enter::seccomp_filters(),
            pid_namespaces: enter::pid_namespaces(),
        }
    }
}

impl Settings {
    /// Whether commands can run here as these settings ask: for a start that fails early.
    pub fn check(&self, kernel: Kernel) -> Result<(), Unavailable> {
        match self.sandbox {
            Mode::Off => Ok(()),
            Mode::Required if kernel.landlock_abi == 0 => Err(Unavailable("the kernel has no Landlock".to_owned())),
            Mode::Required if !kernel.seccomp => Err(Unavailable("the kernel has no seccomp filters".to_owned())),
            Mode::Required => Ok(()),
        }
    }

    pub(crate) fn kill_grace(&self) -> Duration {
        Duration::from_millis(self.kill_grace_ms)
    }

    /// Prepares the walls of one call.
    pub(crate) fn entry(&self, kernel: Kernel, room: &Room<'_>) -> Result<Entry, Unavailable> {
        self.check(kernel)?;
        let (mut ruleset, mut filters): (Option<OwnedFd>, _) = (None, Vec::new());
        if self.sandbox == Mode::Required {
            ruleset = Some(landlock::ruleset(self, room).map_err(Unavailable)?);
            filters = seccomp::filters(room.network, kernel.landlock_abi).map_err(Unavailable)?;
        }
        let limits = limit::limits(&self.limits, self.run_as.map(|user| user.0), room.time);
        Ok(Entry { ruleset, filters, limits, run_as: self.run_as })
    }
}

impl Settings {
    /// Prepares what stands around a program that outlives calls: no limit that grows with a call's time or
    /// size, and walls only where there is a room for it.
    pub(crate) fn lasting_entry(&self, kernel: Kernel, room: Option<&Room<'_>>) -> Result<Entry, Unavailable> {
        let (mut ruleset, mut filters): (Option<OwnedFd>, _) = (None, Vec::new());
        if let Some(room) = room {
            Settings { sandbox: Mode::Required, ..self.clone() }.check(kernel)?;
            ruleset = Some(landlock::ruleset(self, room).map_err(Unavailable)?);
            filters = seccomp::filters(room.network, kernel.landlock_abi).map_err(Unavailable)?;
        }
        Ok(Entry { ruleset, filters, limits: limit::lasting(), run_as: self.run_as })
    }
}

/// What one call may use.
pub(crate) struct Room<'a> {
    pub scratch: &'a Path,
    pub workspace: Option<(&'a Path, bool)>,
    pub network: bool,
    pub time: Duration,
}
