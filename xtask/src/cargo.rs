//! Running cargo as a step of a chore.
//!
//! It must not know why.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};
use instar_testkit::process::Group;

pub(crate) struct Step(Command);

const OF_THIS_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// `cargo` with these arguments, in the workspace.
pub(crate) fn step(arguments: &[&str]) -> Step {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(WORKSPACE);
    // What cargo says of this package to what it runs: build scripts that watch it (ring's) would see it
    // changed, and most of the graph would be built again for every other way of calling cargo.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THIS_PACKAGE.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    Step(command)
}

/// Whether a subcommand such as `clippy` is installed.
pub(crate) fn has(subcommand: &str) -> bool {
    let mut asked = step(&[subcommand, "--version"]).0;
    asked.stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Where a release build puts this program.
pub(crate) fn released(program: &str) -> PathBuf {
    built("", "release", program)
}

/// Where a build of the workspace in this folder puts a program.
pub(crate) fn built(folder: &str, profile: &str, program: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| Path::new(folder).join("target").into());
    Path::new(WORKSPACE).join(target).join(profile).join(program)
}

impl Step {
    pub(crate) fn args(mut self, arguments: &[String]) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env<V: AsRef<OsStr>>(mut self, variables: impl IntoIterator<Item = (&'static str, V)>) -> Self {
        self.0.envs(variables);
        self
    }

    /// Whatever ends this process ends cargo too, and all that it runs.
    fn status(self) -> Result<ExitStatus> {
        let group = Group::spawn(self.0).context("cargo could not be executed: is it on PATH?")?;
        Ok(group.wait()?)
    }

    /// Whether it succeeded.
    pub(crate) fn run(self) -> Result<bool> {
        Ok(self.status()?.success())
    }

    /// Its exit code, for the chore to end with.
    pub(crate) fn exit(self) -> Result<ExitCode> {
        // Ended by a signal: no code of its own.
        let code = self.status()?.code().unwrap_or(1);
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}
