//! `instar`: the command. Nouns and verbs over the API, the services, and `dev`, which is all of them
//! in one process.

#[cfg(feature = "count-allocations")]
mod allocation;
mod catalog;
mod cli;
mod connect;
mod decide;
mod demo;
mod describe;
mod dev;
mod doctor;
mod events;
mod export;
mod failure;
mod folder;
mod import;
mod log;
mod migrate;
mod noun;
mod output;
mod replay;
mod send;
mod serve;
mod service;
mod verify;

use clap::Parser;
use std::process::ExitCode;

/// A service allocates at every step of a turn, on several threads.
#[cfg(not(feature = "count-allocations"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command with the process's own arguments; `main` of the binary.
pub fn main() -> ExitCode {
    // Ends by itself with 2 when the arguments are not usable.
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::Failure::from(error).report(),
    };
    let outcome = runtime.block_on(cli.run());
    // Standard input may still be read by a thread that nobody can end.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|failure| failure.report())
}
