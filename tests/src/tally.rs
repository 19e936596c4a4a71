//! What faults have come to, as lines of a file: a run that was interrupted goes on where it was, and several side by
//! side count as one.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// One fault in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Of the program that was struck.
    pub build: String,
    pub fault: String,
    pub round: u32,
    /// It did not strike: the crash point was not reached.
    pub void: bool,
    pub before: u64,
    pub turns: u64,
    pub recovery_s: f64,
    pub violations: Vec<String>,
}

pub struct Tally {
    build: String,
    file: Option<PathBuf>,
    lines: Vec<Line>,
}

impl Tally {
    /// Without a file it is kept in mind only.
    pub fn open(file: Option<&Path>, build: String) -> Result<Tally> {
        let mut tally = Tally { build, file: file.map(Path::to_owned), lines: Vec::new() };
        if let Some(path) = file {
            // Before hours have passed: whether it can be written to.
            File::options().create(true).append(true).open(path).with_context(|| path.display().to_string())?;
        }
        tally.refresh()?;
        Ok(tally)
    }

    /// Takes in what other runs have added.
    pub fn refresh(&mut self) -> Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.trim_end().ends_with('}'));
        let lines = whole.map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display())));
        let lines: Vec<Line> = lines.collect::<Result<_>>()?;
        let other = lines.iter().find(|line| line.build != self.build);
        ensure!(
            other.is_none(),
            "{} has faults of another build ({}, this one is {}): name another file, or remove it",
            path.display(),
            other.map(|line| line.build.as_str()).unwrap_or_default(),
            self.build
        );
        self.lines = lines;
        Ok(())
    }

    pub fn has(&self, fault: &str, round: u32) -> bool {
        self.lines.iter().any(|line| line.round == round && line.fault == fault)
    }

    /// Appended as one piece, so that runs side by side may share a file.
    pub fn add(&mut self, line: Line) -> Result<()> {
        if let Some(path) = &self.file {
            let mut file = File::options().read(true).append(true).open(path)?;
            let mut text = serde_json::to_string(&line)? + "\n";
            if !ends_whole(&mut file)? {
                // What a run has not written to its end counts as not done.
                text.insert(0, '\n');
            }
            file.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Faults that struck.
    pub fn struck(&self) -> usize {
        self.lines.iter().filter(|line| !line.void).count()
    }

    pub fn void(&self) -> usize {
        self.lines.len() - self.struck()
    }

    pub fn violations(&self) -> usize {
        self.lines.iter().map(|line| line.violations.len()).sum()
    }

    /// One row per fault, over all rounds, and the sum.
    pub fn table(&self) -> String {
        let mut table = "fault | runs | turns before | turns | violations | recovery s (max)\n".to_owned();
        table += "---|---:|---:|---:|---:|---:\n";
        let mut seen = BTreeSet::new();
        let order = self.lines.iter().map(|line| &line.fault).filter(|fault| seen.insert(*fault));
        let mut of: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in &self.lines {
            of.entry(&line.fault).or_default().push(line);
        }
        for fault in order {
            let lines = of.get(fault.as_str()).map(Vec::as_slice).unwrap_or_default();
            let struck: Vec<_> = lines.iter().filter(|line| !line.void).collect();
            let sum = |field: fn(&Line) -> u64| struck.iter().map(|line| field(line)).sum::<u64>();
            let slowest = struck.iter().map(|line| line.recovery_s).fold(0.0, f64::max);
            let wrong: Vec<_> = lines.iter().flat_map(|line| &line.violations).collect();
            let (runs, before, turns) = (struck.len(), sum(|line| line.before), sum(|line| line.turns));
            let _ = writeln!(table, "{fault} | {runs} | {before} | {turns} | {} | {slowest:.2}", wrong.len());
            for violation in wrong {
                let _ = writeln!(table, "    {violation}");
            }
        }
        let (struck, void, bad) = (self.struck(), self.void(), self.violations());
        let _ = write!(table, "\n{struck} faults under load, {void} void, {bad} violations");
        table
    }
}

fn ends_whole(file: &mut File) -> Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Tells builds of a program apart.
pub fn build_of(program: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(program).with_context(|| program.display().to_string())?);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Part of the faults: those at every `of`th place, from the `nth` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    nth: usize,
    of: usize,
}

impl Shard {
    pub const ALL: Shard = Shard { nth: 1, of: 1 };

    pub fn has(self, place: usize) -> bool {
        place % self.of == self.nth - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Shard> {
        let parts = text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
        let (nth, of) = parts.filter(|(nth, of)| (1..=*of).contains(nth)).with_context(|| {
            format!("--shard {text}: give i/n, such as 1/3, 2/3 and 3/3 for three runs side by side")
        })?;
        Ok(Shard { nth, of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fault: &str, round: u32, void: bool, violations: &[&str]) -> Line {
        let violations = violations.iter().map(|said| (*said).to_owned()).collect();
        let (build, fault) = ("b1".to_owned(), fault.to_owned());
        Line { build, fault, round, void, before: 3, turns: 10, recovery_s: f64::from(round) + 0.5, violations }
    }

    #[test]
    fn a_run_that_was_interrupted_goes_on_where_it_was() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tally");
        let mut first = Tally::open(Some(&file), "b1".into())?;
        first.add(line("a", 0, false, &[]))?;
        first.add(line("b", 0, true, &[]))?;
        let mut beside = Tally::open(Some(&file), "b1".into())?;
        assert!(beside.has("a", 0) && beside.has("b", 0) && !beside.has("a", 1));
        // Killed in the midst of a line.
        File::options().append(true).open(&file)?.write_all(b"{\"build\":\"b1\",\"fau")?;
        beside.add(line("a", 1, false, &["a turn was lost"]))?;
        let mut again = Tally::open(Some(&file), "b1".into())?;
        assert_eq!((again.struck(), again.void(), again.violations()), (2, 1, 1));
        assert!(again.has("a", 1));
        let table = again.table();
        assert!(
            table.contains("a | 2 | 6 | 20 | 1 | 1.50\n    a turn was lost\nb | 0 | 0 | 0 | 0 | 0.00\n"),
            "{table}"
        );
        assert!(table.ends_with("2 faults under load, 1 void, 1 violations"), "{table}");
        first.refresh()?;
        again.refresh()?;
        assert_eq!(first.struck(), again.struck());
        let refused = Tally::open(Some(&file), "b2".into()).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|why| why.contains("another build")));
        Ok(())
    }

    #[test]
    fn shards_share_everything_out() -> Result<()> {
        let shards: Vec<Shard> = ["1/3", "2/3", "3/3"].iter().map(|text| text.parse()).collect::<Result<_>>()?;
        for place in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(place)).count(), 1);
            assert!(Shard::ALL.has(place));
        }
        for bad in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
        Ok(())
    }
}
