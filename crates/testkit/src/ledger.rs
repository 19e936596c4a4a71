//! The witness: which effects happened, in a file of its own, on disk before anybody is told.
//!
//! It must not know the system under test, nor share a table or a process' memory with it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One thing that was really done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// From 1, in order.
    pub number: u64,
    pub at_ms: u64,
    pub name: String,
    /// The Idempotency-Key of the request.
    pub key: Option<String>,
    /// SHA-256 of the request's body, in hexadecimal.
    pub digest: String,
    pub attempt: Option<String>,
}

struct Inner {
    file: File,
    effects: Vec<Effect>,
    /// The place of the first effect of each name and key.
    first: HashMap<(String, String), usize>,
}

impl Inner {
    fn remember(&mut self, effect: Effect) {
        if let Some(key) = effect.key.clone() {
            self.first.entry((effect.name.clone(), key)).or_insert(self.effects.len());
        }
        self.effects.push(effect);
    }
}

/// An append-only file of effects. Clones are the same ledger.
#[derive(Clone)]
pub struct Ledger {
    path: Arc<Path>,
    inner: Arc<Mutex<Inner>>,
}

impl Ledger {
    /// Opens the file, with the effects of earlier processes if there are any. One process may
    /// write at a time.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = File::options().create(true).append(true).read(true).open(&path);
        let file = file.with_context(|| format!("the ledger {} cannot be opened", path.display()))?;
        file.try_lock().with_context(|| format!("{} has another writer", path.display()))?;
        file.set_len(whole_lines(&path)?.len() as u64)?;
        let mut inner = Inner { file, effects: Vec::new(), first: HashMap::new() };
        Self::read(&path)?.into_iter().for_each(|effect| inner.remember(effect));
        Ok(Self { path: path.into(), inner: Arc::new(Mutex::new(inner)) })
    }

    /// The effects in a ledger that another process may be writing.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Effect>> {
        let text = whole_lines(path.as_ref())?;
        let effects = text.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("the ledger has a line that is none: {line}"))
        });
        effects.collect()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.lock().effects.clone()
    }

    pub fn count(&self) -> usize {
        self.lock().effects.len()
    }

    pub fn count_of(&self, name: &str) -> usize {
        self.lock().effects.iter().filter(|effect| effect.name == name).count()
    }

    /// Keys under which more than one effect happened, and how many.
    pub fn duplicates(&self) -> BTreeMap<String, usize> {
        duplicates(&self.lock().effects)
    }

    /// Does the effect: when this returns it is on disk. `once` gives back the earlier effect of
    /// the same name and key instead of a second one.
    pub(crate) fn record(&self, mut effect: Effect, once: bool) -> Result<Effect> {
        let mut inner = self.lock();
        if let Some(key) = effect.key.clone().filter(|_| once)
            && let Some(place) = inner.first.get(&(effect.name.clone(), key))
        {
            return Ok(inner.effects[*place].clone());
        }
        effect.number = inner.effects.len() as u64 + 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        effect.at_ms = since.as_millis() as u64;
        let line = format!("{}\n", serde_json::to_string(&effect)?);
        inner.file.write_all(line.as_bytes()).context("the ledger cannot be written")?;
        inner.file.sync_data().context("the ledger cannot be synced")?;
        inner.remember(effect.clone());
        Ok(effect)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A last line without its end was cut off by a crash, before anybody was told: it did not happen.
fn whole_lines(path: &Path) -> Result<String> {
    let mut text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.context("the ledger cannot be read")?,
    };
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

/// Keys under which more than one effect happened, and how many.
pub fn duplicates(effects: &[Effect]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for key in effects.iter().filter_map(|effect| effect.key.as_ref()) {
        *counts.entry(key.clone()).or_default() += 1;
    }
    counts.retain(|_, count| *count > 1);
    counts
}
