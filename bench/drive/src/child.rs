//! A process of a candidate: it says that it is ready, and ends with this program, however that ends.

use anyhow::{Context, Result, bail};
use instar_testkit::process;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct Child {
    pub name: String,
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
    log: PathBuf,
}

impl Child {
    /// `folder`: where it works and its log is.
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Result<Child> {
        let log = folder.join(format!("{name}.log"));
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut process = process::spawn(command).with_context(|| format!("{name} does not start"))?;
        let output = process.stdout.take().context("no standard output")?;
        let (sender, lines) = unbounded_channel();
        // Until it ends: it must not wait for somebody to read.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let input = process.stdin.take();
        Ok(Child { name: name.to_owned(), process, input, lines, log })
    }

    /// Starts it and waits for a line that begins with `ready`.
    pub async fn ready(name: &str, command: Command, folder: &Path) -> Result<Child> {
        let mut child = Child::start(name, command, folder)?;
        let line = child.line(READY_WITHIN).await?;
        if !line.starts_with("ready") {
            bail!("{name} said {line}");
        }
        Ok(child)
    }

    pub async fn line(&mut self, within: Duration) -> Result<String> {
        match tokio::time::timeout(within, self.lines.recv()).await {
            Ok(Some(line)) => Ok(line),
            said => bail!("{} {}:\n{}", self.name, if said.is_ok() { "ended" } else { "is silent" }, self.log_tail()),
        }
    }

    pub fn order(&mut self, order: &str) -> Result<()> {
        Ok(writeln!(self.input.as_mut().context("no standard input")?, "{order}")?)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program with nothing of our environment but where programs are found.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}
