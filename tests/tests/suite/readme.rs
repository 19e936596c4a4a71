//! The README's transcript, really run: every `$` line of its console block by one shell in a fresh
//! folder, and what it prints against what the page shows.
//!
//! Ids, hashes and numbers of more than one digit (ports, times, sequence numbers) may differ.

use anyhow::{Context, Result, bail, ensure};
use instar_testkit::process::Group;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const README: &str = include_str!("../../../README.md");
const WITHIN: Duration = Duration::from_secs(60);
/// Commands that only look: asked again until they show what the page shows.
const LOOKS: [&str; 2] = ["instar tool calls", "instar turn list"];

struct Step {
    command: String,
    shown: String,
}

impl Step {
    /// Whether what it prints may come later than its end.
    fn is_background(&self) -> bool {
        self.command.trim_end().ends_with('&')
    }

    fn looks(&self) -> bool {
        LOOKS.iter().any(|look| self.command.starts_with(look))
    }
}

#[test]
fn the_transcript_of_the_readme_is_what_happens() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut shell = Shell::start(folder.path())?;
    let steps = steps(README);
    ensure!(steps.len() > 5, "the README has no transcript");
    for step in &steps {
        let begun = Instant::now();
        let mut printed = shell.run(&step.command)?;
        while plain(&printed) != plain(&step.shown) {
            let may_change = step.looks() || step.is_background();
            if !may_change || begun.elapsed() > WITHIN {
                let log = std::fs::read_to_string(folder.path().join("dev.log")).unwrap_or_default();
                bail!("$ {}\nprints\n{printed}\nand the README shows\n{}\n{log}", step.command, step.shown);
            }
            std::thread::sleep(Duration::from_millis(50));
            printed = if step.looks() { shell.run(&step.command)? } else { shell.printed()? };
        }
    }
    Ok(())
}

/// `$ ` begins a command, `> ` goes on with it, the rest is what it prints.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let block = page.lines().skip_while(|line| *line != "```console").skip(1).take_while(|line| *line != "```");
    for line in block {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: String::new() });
        } else if let Some(step) = steps.last_mut() {
            let (text, line) = match line.strip_prefix("> ") {
                Some(more) => (&mut step.command, format!("\n{more}")),
                None => (&mut step.shown, format!("{line}\n")),
            };
            text.push_str(&line);
        }
    }
    steps
}

/// Without what differs from run to run. An id may be cut short with an ellipsis on the page.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        let hex = rest.find(|c| !is_hex(c)).unwrap_or(rest.len());
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let after_word = plain.ends_with(|c: char| c.is_alphanumeric());
        let taken = if hex >= 16 && !after_word {
            plain.push('…');
            hex
        } else if hex > 0 && !after_word && rest[hex..].starts_with('…') {
            plain.push('…');
            hex + '…'.len_utf8()
        } else if digits >= 2 || (digits == 1 && rest[1..].starts_with(" seals")) {
            // How many seals there are by now depends on the clock.
            plain.push('#');
            digits
        } else {
            match first {
                ' ' if plain.ends_with([' ', '\n']) => {}
                first => plain.push(first),
            }
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    plain.replace(" \n", "\n")
}

/// One shell for the whole transcript, so that its variables and its processes stay.
struct Shell {
    _group: Group,
    stdin: ChildStdin,
    /// A line when a command has ended: its exit code.
    ends: Receiver<String>,
    printed: std::path::PathBuf,
    commands: usize,
}

impl Shell {
    fn start(folder: &Path) -> Result<Shell> {
        let (bin, home) = (folder.join("bin"), folder.join("home"));
        std::fs::create_dir(&bin)?;
        std::fs::create_dir(&home)?;
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_instar-armed"), bin.join("instar"))?;
        let path = std::env::var("PATH").context("PATH")?;
        let address = format!("127.0.0.1:{}", instar_testkit::wait::free_port()?);
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc"])
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", &home)
            // The page has the default port; here it may be taken.
            .env("INSTAR__API__LISTEN", &address)
            .env("INSTAR_SERVER", format!("http://{address}"))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Whatever it has started ends with it, also should this process be killed.
        let mut group = Group::spawn(command)?;
        let stdin = group.child().stdin.take().context("no standard input")?;
        let stdout = group.child().stdout.take().context("no standard output")?;
        let (tell, ends) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(tell.send(line)));
        });
        let printed = folder.join("printed");
        std::fs::create_dir(&printed)?;
        Ok(Shell { _group: group, stdin, ends, printed, commands: 0 })
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.stdin.write_all(text.as_bytes())?;
        Ok(self.stdin.flush()?)
    }

    /// Runs a command and gives what it has printed, on both outputs.
    fn run(&mut self, command: &str) -> Result<String> {
        self.commands += 1;
        let file = self.printed.join(self.commands.to_string());
        self.write(&format!("{{ {command}\n}} >'{}' 2>&1 </dev/null; echo $?\n", file.display()))?;
        let end = self.ends.recv_timeout(WITHIN).with_context(|| format!("$ {command}\ndoes not end"))?;
        ensure!(end == "0", "$ {command}\nends with {end}:\n{}", self.printed()?);
        if let Some(killed) = command.strip_prefix("kill -9 ") {
            // A person is not as fast as this shell: the next command must find it gone.
            self.write(&format!("{{ wait {killed}; }} 2>/dev/null; echo $?\n"))?;
            self.ends.recv_timeout(WITHIN).context("what was killed does not end")?;
        }
        self.printed()
    }

    /// What the last command has printed up to now.
    fn printed(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.printed.join(self.commands.to_string()))?)
    }
}

#[test]
fn only_what_differs_from_run_to_run_is_left_out() {
    assert_eq!(plain("ses_01a1e35110b1729fa87545550563d74a  12 of 12"), "ses_… # of #");
    assert_eq!(plain("ses_01a1… 3 of 3\n"), "ses_… 3 of 3");
    assert_ne!(plain("0 violations"), plain("1 violations"));
    assert_ne!(plain("turn  completed"), plain("turn  error"));
}
