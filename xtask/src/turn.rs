//! `cargo xtask bench turn`: builds of this version and of what it is measured beside, then the program that does it.
//!
//! It must not know what is measured.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use instar_testkit::process::Group;

use crate::cargo;

/// A workspace of its own, so that whoever builds the product builds none of it.
const FOLDER: &str = "bench";
const NAME: &str = "instar";
const COUNTED: &str = "instar-counted";

/// With these, what is measured is built already, or nothing is measured.
const BUILT: [&str; 3] = ["--product", "--agree", "--help"];

pub(crate) fn run(profile: bool, extra: &[String]) -> Result<ExitCode> {
    let given = |option: &str| extra.iter().any(|argument| argument.starts_with(option));
    let mut arguments = Vec::new();
    if !BUILT.iter().any(|option| given(option)) {
        let Some(products) = products(if profile { "profiling" } else { "release" })? else {
            return Ok(ExitCode::FAILURE);
        };
        arguments.extend(products);
    }
    if profile && !given("--record") {
        arguments.extend(["--record".to_owned(), cargo::built("", "profiles", "").display().to_string()]);
    }
    if !bench(&["-p", "bench-floor", "-p", "bench-turn"])? {
        return Ok(ExitCode::FAILURE);
    }
    // Without them the bench says who is missing, and measures the others.
    let peers = bench(&["-p", "bench-restate", "-p", "bench-dbos"])?;
    if !peers {
        println!("xtask bench turn: the peers are not built");
    }
    let mut bench = Command::new(cargo::built(FOLDER, "release", "bench-turn"));
    bench.args(arguments).args(extra);
    let ended = Group::spawn(bench).context("the bench could not be executed")?.wait()?;
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command as it is shipped, and one that counts what it allocates; as arguments for the bench.
fn products(profile: &str) -> Result<Option<Vec<String>>> {
    let build = ["build", "--profile", profile, "-p", NAME, "--bin", NAME];
    let counting = [&build[..], &["--features", "count-allocations"]].concat();
    let (own, counted) = (cargo::built("", profile, NAME), cargo::built("", profile, COUNTED));
    // Who calls whom can be followed only where frames have pointers.
    let flags = (profile == "profiling").then_some(("RUSTFLAGS", "-C force-frame-pointers=yes"));
    let run = |arguments| cargo::step(arguments).env(flags).run();
    // The one that is shipped last: both have the same name.
    let built = run(&counting)? && kept(&own, &counted)? && run(&build)?;
    let named = |option: &str, path: PathBuf| [option.to_owned(), format!("{NAME}={}", path.display())];
    Ok(built.then(|| [named("--product", own), named("--counted", counted)].concat()))
}

fn kept(from: &Path, to: &Path) -> Result<bool> {
    std::fs::copy(from, to).with_context(|| format!("{} could not be copied", from.display()))?;
    Ok(true)
}

fn bench(packages: &[&str]) -> Result<bool> {
    cargo::step(&[&["build", "--release", "--manifest-path", "bench/Cargo.toml"], packages].concat()).run()
}
