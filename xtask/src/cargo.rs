//! Running cargo as a step of a chore.
//!
//! It must not know why.

use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};

pub(crate) struct Step(Command);

/// `cargo` with these arguments, in the workspace.
pub(crate) fn step(arguments: &[&str]) -> Step {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    Step(command)
}

/// Whether a subcommand such as `clippy` is installed.
pub(crate) fn has(subcommand: &str) -> bool {
    let mut asked = step(&[subcommand, "--version"]).0;
    asked.stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

impl Step {
    pub(crate) fn args(mut self, arguments: &[String]) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, variables: [(&str, String); 2]) -> Self {
        self.0.envs(variables);
        self
    }

    fn status(mut self) -> Result<ExitStatus> {
        self.0.status().context("cargo could not be executed: is it on PATH?")
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
