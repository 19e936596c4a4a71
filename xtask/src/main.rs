//! The chores of this repository: `cargo xtask test`, `demo`, `bench`, `faults`, `mcp`, `docs`.
//!
//! It must not know the product; what a chore does lives in the crates it runs.

mod bench;
mod cargo;
mod check;
mod servers;
mod turn;

use std::process::ExitCode;

use anyhow::{Result, bail};
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
    /// Build the command `instar` and the bench `bench-NAME` of the crate instar-tests, then run the
    /// bench against a Postgres and a NATS of its own; `turn` is in the folder `bench` and brings its own, and
    /// `engine` needs none
    Bench {
        name: String,
        /// A Postgres that does not wait for the disk
        #[arg(long)]
        fast: bool,
        /// `turn`: keep symbols, and record where the product's processes spend their time
        #[arg(long)]
        profile: bool,
        /// Handed to the bench, after `--`
        #[arg(last = true)]
        extra: Vec<String>,
    },
    /// Run a small fleet on the embedded default: turns, tool calls, an approval that waits
    Demo,
    /// Strike every fault under load and check what must be true afterwards; resumable with --tally FILE
    Faults {
        /// After `--`: how many rounds, then a part of the faults' names; --tally FILE keeps what is done and goes on
        /// where it was, --until N goes on until so many have struck, --shard i/n takes a part of them. Or `nobus`, then
        /// how many seconds without NATS
        #[arg(last = true)]
        extra: Vec<String>,
    },
    /// Install real MCP servers from the package registries, use them and kill them in mid-call
    Mcp,
    /// Write the generated documentation anew
    Docs,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Arguments::parse().chore {
        Chore::Test { no_lint, extra } => check::run(!no_lint, &extra).await,
        Chore::Bench { name, fast, profile, extra } => match (name.as_str(), fast, profile) {
            ("turn", false, profile) => turn::run(profile, &extra),
            ("engine", false, false) => bench::engine(&extra),
            ("turn" | "engine", ..) | (_, _, true) => {
                bail!("--fast is for every bench but `turn` and `engine`, --profile for `turn` alone")
            }
            (name, fast, false) => bench::run(name, !fast, &extra).await,
        },
        Chore::Demo => cargo::step(&["run", "-q", "-p", "instar", "--", "dev", "--demo"]).exit(),
        Chore::Faults { extra } => bench::faults(&extra),
        Chore::Mcp => bench::real_servers().await,
        Chore::Docs => cargo::step(&["run", "-q", "-p", "instar-tests", "--bin", "gen-docs"]).exit(),
    }
}
