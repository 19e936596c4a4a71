//! The words of the command line, and which module answers them.

use crate::failure::Failure;
use crate::output::Format;
use crate::{connect, decide, dev, doctor, events, export, import, migrate, noun, replay, send, serve, verify};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Runs and drives durable fleets of LLM agents.
#[derive(Debug, Parser)]
#[command(name = "instar", version, propagate_version = true)]
#[command(after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused by the machine, 5 not reachable.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// How to print answers
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub(crate) output: Format,
    /// The API server [default: http://127.0.0.1:7700]
    #[arg(long, global = true, env = "INSTAR_SERVER", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// The API key; that of a local `instar dev` is found by itself
    #[arg(long, global = true, env = "INSTAR_API_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sessions: create, list, get, pause, resume, close, …
    #[command(subcommand)]
    Session(noun::session::Verb),
    /// Agents: create, list, get, start, stop, hold, terminate
    #[command(subcommand)]
    Agent(noun::agent::Verb),
    /// Credentials that agents claim: list, add, remove
    #[command(subcommand)]
    Account(noun::account::Verb),
    /// Turns: list, get, interrupt, steer
    #[command(subcommand)]
    Turn(noun::turn::Verb),
    /// Missions: create, list, get, approve, reject, request-changes, …
    #[command(subcommand)]
    Mission(noun::mission::Verb),
    /// Hops of missions: create, list, get, approve, reject, edit, execute, …
    #[command(subcommand)]
    Hop(noun::hop::Verb),
    /// Plans: create, list, show, approve, reject, cancel, unblock
    #[command(subcommand)]
    Plan(noun::plan::Verb),
    /// Tools and their calls
    #[command(subcommand)]
    Tool(noun::tool::Verb),
    /// Assets of missions: list, get, provide, content, lineage, accept, …
    #[command(subcommand)]
    Asset(noun::asset::Verb),
    /// Tool steps of hops: list, get, complete, cancel, …
    #[command(subcommand)]
    Step(noun::step::Verb),
    /// Models that agents may name
    #[command(subcommand)]
    Model(noun::catalog::ModelVerb),
    /// State machines, as the server runs them
    #[command(subcommand)]
    Machine(noun::catalog::MachineVerb),
    /// Send a message to an agent and follow its answer
    Send(send::Arguments),
    /// Send a message to every agent of a session
    Broadcast(send::Everybody),
    /// Approve a tool call that waits for it
    Approve(decide::Approve),
    /// Deny a tool call that waits for approval
    Deny(decide::Deny),
    /// Print the events of a session
    Events(events::Arguments),
    /// Check a runelog against every invariant and its hashes
    Verify(verify::Arguments),
    /// Fold a runelog through the machines and compare it with the rows
    Replay(replay::Arguments),
    /// Write a session's runelog as JSON lines
    Export(export::Arguments),
    /// Bring in an exported runelog of a closed session, to look at it here
    Import(import::Arguments),
    /// Run everything in one process, on SQLite
    Dev(dev::Arguments),
    /// Run one service
    Serve(serve::Arguments),
    /// Bring the database's schema up to date
    Migrate(migrate::Arguments),
    /// Say what keeps Instar from running here
    Doctor(doctor::Arguments),
    /// Print the completions of a shell
    Completions { shell: clap_complete::Shell },
}

impl Cli {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let Cli { global, command } = self;
        let format = global.output;
        let client = || connect::client(&global);
        match command {
            Command::Session(verb) => verb.run(&client()?, format).await,
            Command::Agent(verb) => verb.run(&client()?, format).await,
            Command::Account(verb) => verb.run(&client()?, format).await,
            Command::Turn(verb) => verb.run(&client()?, format).await,
            Command::Mission(verb) => verb.run(&client()?, format).await,
            Command::Hop(verb) => verb.run(&client()?, format).await,
            Command::Plan(verb) => verb.run(&client()?, format).await,
            Command::Tool(verb) => verb.run(&client()?, format).await,
            Command::Asset(verb) => verb.run(&client()?, format).await,
            Command::Step(verb) => verb.run(&client()?, format).await,
            Command::Model(verb) => verb.run(&client()?, format).await,
            Command::Machine(verb) => verb.run(&client()?, format).await,
            Command::Send(arguments) => return arguments.run(&client()?, format).await,
            Command::Broadcast(arguments) => arguments.run(&client()?, format).await,
            Command::Approve(arguments) => arguments.run(&client()?, format).await,
            Command::Deny(arguments) => arguments.run(&client()?, format).await,
            Command::Events(arguments) => arguments.run(&client()?, format).await,
            Command::Verify(arguments) => return arguments.run(client, format).await,
            Command::Replay(arguments) => return arguments.run(client, format).await,
            Command::Export(arguments) => arguments.run(&client()?).await,
            Command::Import(arguments) => arguments.run(&client()?, format).await,
            Command::Dev(arguments) => return arguments.run().await,
            Command::Serve(arguments) => return arguments.run().await,
            Command::Migrate(arguments) => arguments.run().await,
            Command::Doctor(arguments) => return arguments.run(format).await,
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "instar", &mut script);
                std::io::Write::write_all(&mut std::io::stdout(), &script).map_err(Failure::from)
            }
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// An argument that is JSON.
pub(crate) fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// Limits: a JSON object, or pairs such as `max_tokens=100000,max_cost=2.50`.
pub(crate) fn budget(text: &str) -> Result<serde_json::Value, String> {
    if text.trim_start().starts_with('{') {
        return json(text);
    }
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            format!("not JSON, nor limits such as max_tokens=100000,max_cost=2.50: {pair:?} has no =")
        })?;
        // What is no whole number is an amount or a word, and the server's to judge.
        let value = match value {
            "none" => serde_json::Value::Null,
            value => value.parse::<i64>().map_or_else(|_| value.into(), serde_json::Value::from),
        };
        Ok((name.trim().to_owned(), value))
    };
    text.split(',').map(pair).collect::<Result<serde_json::Map<_, _>, String>>().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_pairs_or_json() {
        let pairs = budget("max_tokens=5,max_cost=2.50,on_budget=stop").unwrap();
        assert_eq!(pairs, serde_json::json!({"max_tokens": 5, "max_cost": "2.50", "on_budget": "stop"}));
        assert_eq!(budget("max_tokens=none").unwrap(), serde_json::json!({"max_tokens": null}));
        assert_eq!(budget("{\"max_tokens\": 5}").unwrap(), serde_json::json!({"max_tokens": 5}));
        assert!(budget("plenty").is_err() && budget("{").is_err());
    }

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_words_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_verbs_of_the_contract_are_there() {
        let lines = [
            "instar session create --name x --budget {\"tokens\":1}",
            "instar session list --status active -o json",
            "instar -o yaml session get ses_1",
            "instar session pause ses_1 --in-flight interrupt",
            "instar agent create ses_1 --name a --tool echo --tool clock.* --approval-mode auto",
            "instar agent terminate agt_1 --force",
            "instar agent create ses_1 --name a --account-pool crm",
            "instar account list --pool crm",
            "instar account add crm-1 --pool crm --username ada --field password=- --field-env token=TOKEN",
            "instar account remove crm-1",
            "instar turn steer trn_1 left",
            "instar mission create ses_1 --name x --goal y --output-asset map --gate plan=auto --agent agt_1",
            "instar mission list --awaits person",
            "instar mission approve mis_1 --revision 2",
            "instar mission request-changes mis_1 smaller",
            "instar mission revise mis_1 --revision 1 {}",
            "instar hop create mis_1 --name x --output-asset ast_1 --final",
            "instar hop approve hop_1 --run",
            "instar hop edit hop_1 --revision 1 {}",
            "instar hop retry hop_1 --restart",
            "instar hop show hop_1 -o json",
            "instar plan create ses_1 goal --autonomy auto --budget {\"max_tokens\":1000}",
            "instar plan show pln_1 -o json",
            "instar plan reject pln_1 --feedback smaller",
            "instar tool call resolve call_1 --outcome success --result {}",
            "instar asset provide ast_1 --file -",
            "instar asset provide ast_1 --value {\"a\":1}",
            "instar asset content ast_1 --number 2",
            "instar asset lineage ast_1 --down",
            "instar step complete stp_1 --outputs {}",
            "instar step request-changes stp_1 --reason no",
            "instar send agt_1 - --mode steer --no-wait",
            "instar broadcast ses_1 hello --expires-at 2030-01-31T12:00:00Z",
            "instar approve call_1 --digest abc",
            "instar deny call_1 --reason no",
            "instar events ses_1 --follow --after 7",
            "instar verify ses_1",
            "instar replay log.jsonl",
            "instar export ses_1 log.jsonl",
            "instar import log.jsonl",
            "instar completions zsh",
            "instar migrate --config x.toml",
            "instar doctor",
            "instar serve agent-worker --config x.toml",
            "instar dev --port 0 --data-dir d --api-key k --config x.toml --demo",
        ];
        for line in lines {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    #[test]
    fn what_cannot_be_meant_is_a_usage_error() {
        let lines = [
            "instar",
            "instar session",
            "instar deny call_1",
            "instar session create --budget {",
            "instar session list --limit 0",
            "instar serve everything",
            "instar send agt_1 hi --mode shout",
            "instar -o xml session list",
        ];
        for line in lines {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
