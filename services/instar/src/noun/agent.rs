//! `instar agent …`

use super::Extent;
use super::session::changed;
use crate::cli::budget as limits;
use crate::failure::{FAILED, Failure};
use crate::output::{self, Column, Format, short};
use clap::Subcommand;
use instar_client::{Agent, AgentImport, Client, NewAgent, Query};
use serde_json::{Value, json};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make an agent in a session
    Create {
        session: String,
        #[arg(long)]
        name: String,
        /// A model of the configuration
        #[arg(long, default_value = "default")]
        model: String,
        #[arg(long)]
        role: Option<String>,
        #[arg(long)]
        system_prompt: Option<String>,
        /// A tool it may use, such as echo or clock.*; may be repeated
        #[arg(long = "tool")]
        tools: Vec<String>,
        #[arg(long = "loop", value_parser = ["reactive", "autonomous"])]
        drive_loop: Option<String>,
        /// Limits: max_tokens=100000,max_cost=2.50 (also max_tool_calls, max_wall_time_ms, on_budget), or a JSON object
        #[arg(long, value_parser = limits)]
        budget: Option<Value>,
        #[arg(long, value_parser = ["full_access", "auto", "read_only"])]
        approval_mode: Option<String>,
        /// Provider calls of one turn, instead of worker.provider_calls_max
        #[arg(long)]
        provider_calls_max: Option<i64>,
        /// The account that it claims when a call needs one
        #[arg(long)]
        account: Option<String>,
        /// Any account of this pool instead
        #[arg(long, conflicts_with = "account")]
        account_pool: Option<String>,
    },
    /// Change what it is made of, from its next turn on; none takes a prompt, an account or a limit of calls away
    Configure {
        agent: String,
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        role: Option<String>,
        /// A model of the configuration
        #[arg(long)]
        model: Option<String>,
        #[arg(long)]
        system_prompt: Option<String>,
        /// The tools it may use from now on; may be repeated
        #[arg(long = "tool")]
        tools: Vec<String>,
        #[arg(long = "loop", value_parser = ["reactive", "autonomous"])]
        drive_loop: Option<String>,
        /// Whether one loaded from its definition takes up work at once
        #[arg(long)]
        auto_start: Option<bool>,
        #[arg(long, value_parser = ["full_access", "auto", "read_only"])]
        approval_mode: Option<String>,
        /// Provider calls of one turn
        #[arg(long)]
        provider_calls_max: Option<String>,
        #[arg(long)]
        account: Option<String>,
        /// Any account of this pool instead
        #[arg(long, conflicts_with = "account")]
        account_pool: Option<String>,
    },
    /// List agents
    List {
        #[arg(long)]
        session: Option<String>,
        /// Whether it exists and is in a turn, such as idle
        #[arg(long)]
        lifecycle: Option<String>,
        /// Whether it takes work, such as running
        #[arg(long)]
        drive: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show an agent
    Get { agent: String },
    /// Let it take up work
    Start { agent: String },
    /// Let it finish its turn and take up no more
    Stop { agent: String },
    /// Keep it from work until it is started
    Hold { agent: String },
    /// Set or raise its limits, max_tokens=none takes one away; one that they had stopped is started again by start
    Budget {
        agent: String,
        /// Limits: max_tokens=100000,max_cost=2.50 (also max_tool_calls, max_wall_time_ms, on_budget), or a JSON object
        #[arg(value_parser = limits)]
        budget: Value,
    },
    /// End it for good
    Terminate {
        agent: String,
        /// Do not wait for its turn
        #[arg(long)]
        force: bool,
    },
    /// End it at once and remove it from the fleet; its log stays
    Delete { agent: String },
    /// Print what it is made of, as import reads it
    Export { agent: String },
    /// Load agents into a session; none is started unless its definition says auto_start
    Import {
        session: String,
        /// A JSON file with a definition or a list of them (- for standard input)
        file: String,
    },
}

const COLUMNS: &[Column<Agent>] = &[
    ("ID", |a| a.id.clone()),
    ("NAME", |a| a.name.clone()),
    ("MODEL", |a| a.model.clone()),
    ("LIFECYCLE", |a| a.lifecycle.clone()),
    ("DRIVE", |a| a.drive.clone()),
    ("ACTIVITY", |a| a.activity.clone().unwrap_or_default()),
    ("ATTENTION", |a| a.attention.clone().unwrap_or_default()),
    ("PARENT", |a| a.parent_id.clone().unwrap_or_default()),
    ("LAST ERROR", |a| short(a.last_error.as_deref().unwrap_or_default(), 50)),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let done = match self {
            Verb::Create {
                session,
                name,
                model,
                role,
                system_prompt,
                tools,
                drive_loop,
                budget,
                approval_mode,
                provider_calls_max,
                account,
                account_pool,
            } => {
                let account = account_pool.map(|pool| json!({"pool": pool})).or(account.map(Value::String));
                let new = NewAgent {
                    name,
                    role,
                    model,
                    system_prompt,
                    tools,
                    drive_loop,
                    budget,
                    provider_calls_max,
                    approval_mode,
                    account,
                };
                client.create_agent(&session, &new).await?
            }
            Verb::Configure {
                agent,
                name,
                role,
                model,
                system_prompt,
                tools,
                drive_loop,
                auto_start,
                approval_mode,
                provider_calls_max,
                account,
                account_pool,
            } => {
                let account = account_pool.map(|pool| json!({"pool": pool})).or(account.map(none));
                let changes = [
                    ("name", name.map(Value::String)),
                    ("role", role.map(Value::String)),
                    ("model", model.map(Value::String)),
                    ("system_prompt", system_prompt.map(none)),
                    ("tools", (!tools.is_empty()).then(|| json!(tools))),
                    ("loop", drive_loop.map(Value::String)),
                    ("auto_start", auto_start.map(Value::Bool)),
                    ("approval_mode", approval_mode.map(Value::String)),
                    ("provider_calls_max", provider_calls_max.map(number)),
                    ("account", account),
                ];
                let given = changes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
                client.configure_agent(&agent, &Value::Object(given.collect())).await?
            }
            Verb::List { session, lifecycle, drive, extent } => {
                let query = Query::new().maybe("session", session).maybe("lifecycle", lifecycle).maybe("drive", drive);
                let agents = extent.read(client, "agents", query).await?;
                return Ok(output::list(format, &agents, COLUMNS)?);
            }
            Verb::Get { agent } => return Ok(output::one(format, &client.agent(&agent).await?)?),
            Verb::Start { agent } => client.start_agent(&agent).await?,
            Verb::Stop { agent } => client.stop_agent(&agent).await?,
            Verb::Hold { agent } => client.hold_agent(&agent).await?,
            Verb::Budget { agent, budget } => {
                client.configure_agent(&agent, &serde_json::json!({"budget": budget})).await?
            }
            Verb::Terminate { agent, force } => client.terminate_agent(&agent, force).await?,
            Verb::Delete { agent } => client.delete_agent(&agent).await?,
            Verb::Export { agent } => {
                return Ok(output::value(format, &serde_json::to_value(client.agent_definition(&agent).await?)?)?);
            }
            Verb::Import { session, file } => {
                let agents = client.import_agents(&session, &definitions(&file)?).await?;
                return Ok(output::list(format, &agents, COLUMNS)?);
            }
        };
        Ok(changed(format, &done, COLUMNS)?)
    }
}

/// `none` is nothing.
fn none(text: String) -> Value {
    if text == "none" { Value::Null } else { Value::String(text) }
}

/// What is no number is the server's to refuse.
fn number(text: String) -> Value {
    text.parse::<i64>().map_or_else(|_| none(text), Value::from)
}

/// What a file has; its name is where they come from.
fn definitions(file: &str) -> Result<AgentImport, Failure> {
    let unread = |error: &dyn std::fmt::Display| Failure::new(FAILED, format!("{file}: {error}"));
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let read: Value = serde_json::from_str(&text.map_err(|e| unread(&e))?).map_err(|e| unread(&e))?;
    let list = if read.is_array() { read } else { json!([read]) };
    let agents = serde_json::from_value(list).map_err(|e| unread(&e))?;
    let origin = std::path::Path::new(file).file_name().filter(|_| file != "-");
    Ok(AgentImport { agents, origin: origin.map(|name| name.to_string_lossy().into_owned()) })
}
