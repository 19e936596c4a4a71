//! The data folder of `instar dev`: one process has it at a time.

use anyhow::{Context, Result, bail};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) const VARIABLE: &str = "INSTAR_DATA_DIR";
pub(crate) const KEY: &str = "api-key";
const NAME: &str = ".instar";
const LOCK: &str = "lock";
const DATABASE: &str = "instar.db";
const ARCHIVE: &str = "archive";
const WORKSPACES: &str = "workspaces";
const SECRETS_KEY: &str = "secrets-key";

pub(crate) fn default() -> PathBuf {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| NAME.into(), PathBuf::from)
}

/// Holds the folder until it is dropped, or the process is gone.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    pub(crate) fn take(path: &Path) -> Result<Folder> {
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("the data folder {shown} cannot be made"))?;
        let path = path.canonicalize().with_context(|| format!("the data folder {shown} cannot be used"))?;
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK))
            .with_context(|| format!("the data folder {shown} cannot be written"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
                bail!("the data folder {shown} is in use by another process{holder}: end it, or give --data-dir");
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("the data folder {shown} cannot be locked"));
            }
        }
        // For whoever is refused; the lock itself is the kernel's.
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Folder { path, _lock: lock })
    }

    pub(crate) fn database(&self) -> String {
        format!("sqlite://{}", self.path.join(DATABASE).display())
    }

    pub(crate) fn archive(&self) -> String {
        self.path.join(ARCHIVE).display().to_string()
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.path.join(WORKSPACES)
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.path.join(KEY)
    }

    /// The key of an earlier start, else a new one. Readable by its owner only.
    pub(crate) fn key(&self) -> Result<String> {
        kept(&self.key_file(), || Ok(format!("isk_{}", random::<24>()?)))
    }

    /// The file with the key that seals accounts, made at the first start.
    pub(crate) fn secrets_key(&self) -> Result<PathBuf> {
        let file = self.path.join(SECRETS_KEY);
        kept(&file, random::<32>)?;
        Ok(file)
    }
}

/// What the file holds, else what is made now and kept there.
fn kept(file: &Path, make: impl FnOnce() -> Result<String>) -> Result<String> {
    match std::fs::read_to_string(file) {
        Ok(key) if !key.trim().is_empty() => return Ok(key.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
    }
    let key = make()?;
    let written = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(file);
    let context = || format!("{} cannot be written", file.display());
    writeln!(written.with_context(context)?, "{key}").with_context(context)?;
    Ok(key)
}

/// So many random bytes in hexadecimal.
fn random<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0u8; BYTES];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).context("no randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_held_by_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/data");
        let first = Folder::take(&path).unwrap();
        let refused = Folder::take(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        Folder::take(&path).unwrap();
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::take(root.path()).unwrap();
        let key = folder.key().unwrap();
        assert!(key.starts_with("isk_") && key.len() == 52, "{key}");
        assert_eq!(folder.key().unwrap(), key);
        let secrets = folder.secrets_key().unwrap();
        let sealed = std::fs::read_to_string(&secrets).unwrap();
        assert_eq!(sealed.trim().len(), 64);
        assert_eq!(std::fs::read_to_string(folder.secrets_key().unwrap()).unwrap(), sealed);
        for file in [folder.key_file(), secrets] {
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
