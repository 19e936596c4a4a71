//! The chores of this repository: `cargo xtask test`, `bench`, `docs`.
//!
//! It must not know the product; what a chore does lives in the crates it runs.

mod cargo;
mod check;
mod servers;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Set up Postgres and NATS, then run formatting check, clippy and every test
    Test {
        /// Leave out the formatting check and clippy
        #[arg(long)]
        no_lint: bool,
        /// Handed to `cargo test`, after `--`
        #[arg(last = true)]
        extra: Vec<String>,
    },
    /// Run the bench `bench-NAME` of the crate instar-tests against a Postgres and a NATS of its
    /// own
    Bench {
        name: String,
        /// A Postgres that does not wait for the disk
        #[arg(long)]
        fast: bool,
        /// Handed to the bench, after `--`
        #[arg(last = true)]
        extra: Vec<String>,
    },
    /// Carry one turn on the embedded store while its process is killed after every commit
    Demo,
    /// Write the generated documentation anew
    Docs,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Arguments::parse().chore {
        Chore::Test { no_lint, extra } => check::run(!no_lint, &extra).await,
        Chore::Bench { name, fast, extra } => {
            let bench = format!("bench-{name}");
            let built = cargo::step(&["build", "--release", "-p", "instar-tests", "--bin", &bench]);
            if !built.run()? {
                return Ok(ExitCode::FAILURE);
            }
            let servers = servers::Servers::start(!fast).await?;
            let run = cargo::step(&["run", "--release", "-q", "-p", "instar-tests", "--bin", &bench, "--"]);
            run.args(&extra).env(servers.env()).exit()
        }
        Chore::Demo => cargo::step(&["run", "-q", "-p", "instar-tests", "--bin", "walkthrough"]).exit(),
        Chore::Docs => cargo::step(&["run", "-q", "-p", "instar-tests", "--bin", "gen-docs"]).exit(),
    }
}
