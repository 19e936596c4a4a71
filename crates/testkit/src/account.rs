//! Who runs Postgres: it refuses to run as root, so root lends it another account.
//!
//! It must not know what the commands do that it lends the account to.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::binary::PostgresBin;
use crate::process;

/// `None`: we are an ordinary user and run it ourselves.
pub(crate) struct Account(Option<(u32, u32)>);

impl Account {
    pub(crate) fn for_postgres() -> Result<Self> {
        if !process::is_root() {
            return Ok(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd").context("/etc/passwd cannot be read")?;
        let found = ["postgres", "nobody"].iter().find_map(|name| ids(&users, name));
        let ids = found.context(
            "Postgres refuses to run as root and there is no account postgres or nobody to run it: \
             add one, or run the tests as an ordinary user",
        )?;
        Ok(Self(Some(ids)))
    }

    /// A command run by this account in `dir`.
    pub(crate) fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir);
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }

    /// A new temporary folder that belongs to this account and that it can reach. It is not removed
    /// by itself.
    pub(crate) fn folder(&self, prefix: &str) -> Result<PathBuf> {
        // The temporary folder of the environment may lie in a home that only its owner may enter.
        let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
        for place in &places {
            let Ok(dir) = tempfile::Builder::new().prefix(prefix).tempdir_in(place) else {
                continue;
            };
            if let Some((user, group)) = self.0 {
                chown(dir.path(), Some(user), Some(group))?;
            }
            if self.can(&mut self.command(Path::new("true"), dir.path())) {
                return Ok(dir.keep().canonicalize()?);
            }
        }
        bail!("the account that runs Postgres can reach none of {places:?}: set TMPDIR")
    }

    /// The installation itself if this account can run it, else a copy of it inside `dir`.
    pub(crate) fn readable(&self, install: &PostgresBin, dir: &Path) -> Result<PostgresBin> {
        let runs = |bin: &Path| {
            ["postgres", "initdb"].iter().all(|name| self.can(self.command(&bin.join(name), dir).arg("--version")))
        };
        if runs(&install.bin) {
            return Ok(install.clone());
        }
        let inner = install.bin.strip_prefix(&install.root).context("bin lies outside its root")?;
        let root = dir.join("install");
        copy(&install.root, &root)
            .with_context(|| format!("copying {} to where Postgres may read it", install.root.display()))?;
        let copied = PostgresBin { bin: root.join(inner), root };
        if !runs(&copied.bin) {
            bail!("the account that runs Postgres cannot run {}, nor a copy of it", install.bin.display());
        }
        Ok(copied)
    }

    fn can(&self, command: &mut Command) -> bool {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    }
}

/// User and group number in a line such as `postgres:x:101:104:…`.
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        // The copy lies in a folder that its account owns; what root makes in it must be open to
        // it.
        fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        fs::copy(from, to)?;
    }
    Ok(())
}
