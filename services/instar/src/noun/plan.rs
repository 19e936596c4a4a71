//! `instar plan …`

use super::session::changed;
use super::{Extent, content};
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::{Args, Subcommand, ValueEnum};
use instar_client::{Client, Plan, Query, Task};
use instar_core::plan::Named;
use serde_json::{Value, json as object};
use std::collections::HashMap;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Set a goal that agents carry out
    Create {
        session: String,
        /// The goal, or - for standard input
        goal: String,
        /// Whether its draft waits for a person
        #[arg(long, value_enum)]
        autonomy: Option<Autonomy>,
        /// A JSON object: max_tokens, max_tool_calls, max_wall_time_ms
        #[arg(long, value_parser = json)]
        budget: Option<Value>,
        /// What the critic goes by
        #[arg(long)]
        rubric: Option<String>,
        /// Rounds of work and review
        #[arg(long)]
        max_iterations: Option<i64>,
        /// Agents of one role up to which more are made
        #[arg(long)]
        workers_max: Option<i64>,
        /// Stop at the first task that fails
        #[arg(long)]
        stop_on_first_failure: bool,
        #[command(flatten)]
        makes: Box<Makes>,
    },
    /// List plans
    List {
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show a plan and the graph of its tasks
    #[command(visible_alias = "get")]
    Show { plan: String },
    /// Let the draft of a plan run
    Approve {
        plan: String,
        /// The revision that was looked at: it must still be the one
        #[arg(long)]
        revision: Option<i64>,
    },
    /// Have another draft made
    Reject {
        plan: String,
        /// What another plan needs
        #[arg(long)]
        feedback: String,
        /// The revision that was looked at: it must still be the one
        #[arg(long)]
        revision: Option<i64>,
    },
    /// Stop a plan, with all of its tasks
    Cancel {
        plan: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let tasks go on that waited for a person
    Unblock {
        plan: String,
        /// What they waited for, in words to their agents
        #[arg(long)]
        note: Option<String>,
    },
}

/// Who does it, and what those are made of that are made for it.
#[derive(Debug, Args)]
pub(crate) struct Makes {
    /// How often a task is tried
    #[arg(long)]
    attempts_max: Option<i64>,
    /// The model of agents that are made for it
    #[arg(long)]
    model: Option<String>,
    /// A tool of agents that are made for it; may be repeated
    #[arg(long = "tool")]
    tools: Vec<String>,
    /// Their instructions by role, as a JSON object
    #[arg(long, value_parser = json)]
    instructions: Option<Value>,
    /// Who makes the plan
    #[arg(long)]
    orchestrator: Option<String>,
}

impl Makes {
    fn add_to(self, new: &mut Value) {
        let given = [
            ("attempts_max", self.attempts_max.map(Value::from)),
            ("model", self.model.map(Value::from)),
            ("tools", Some(self.tools).filter(|tools| !tools.is_empty()).map(Value::from)),
            ("instructions", self.instructions),
            ("orchestrator_id", self.orchestrator.map(Value::from)),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                new[name] = value;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Autonomy {
    Manual,
    Auto,
}

const COLUMNS: &[Column<Plan>] = &[
    ("ID", |p| p.id.clone()),
    ("STATUS", |p| p.status.clone()),
    ("ROUND", |p| p.iteration.to_string()),
    ("CREATED", |p| time(&p.created_at)),
    ("GOAL", |p| short(&p.goal, 50)),
    ("NOTE", |p| short(p.waiting_for.as_deref().or(p.reason.as_deref()).unwrap_or_default(), 60)),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let done = match self {
            Verb::Create {
                session,
                goal,
                autonomy,
                budget,
                rubric,
                max_iterations,
                workers_max,
                stop_on_first_failure,
                makes,
            } => {
                let autonomy = autonomy.map(|how| match how {
                    Autonomy::Manual => "manual",
                    Autonomy::Auto => "auto",
                });
                let mut new = object!({
                    "goal": content(&goal)?, "autonomy": autonomy, "budget": budget, "rubric": rubric,
                    "max_iterations": max_iterations, "workers_max": workers_max,
                    "stop_on_first_failure": stop_on_first_failure,
                });
                makes.add_to(&mut new);
                client.create_plan(&session, &new).await?
            }
            Verb::List { session, status, extent } => {
                let query = Query::new().maybe("session", session).maybe("status", status);
                let plans = extent.read(client, "plans", query).await?;
                return Ok(output::list(format, &plans, COLUMNS)?);
            }
            Verb::Show { plan } => return Ok(show(format, &client.plan(&plan).await?)?),
            Verb::Approve { plan, revision } => client.approve_plan(&plan, revision).await?,
            Verb::Reject { plan, feedback, revision } => client.reject_plan(&plan, &feedback, revision).await?,
            Verb::Cancel { plan, reason } => client.cancel_plan(&plan, reason.as_deref()).await?,
            Verb::Unblock { plan, note } => client.unblock_plan(&plan, note.as_deref()).await?,
        };
        Ok(changed(format, &done, COLUMNS)?)
    }
}

fn show(format: Format, plan: &Plan) -> std::io::Result<()> {
    if format != Format::Table {
        return output::one(format, plan);
    }
    let shown = Plan { tasks: Vec::new(), ..plan.clone() };
    let mut value = serde_json::to_value(&shown)?;
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, value| !["tasks", "critiques"].contains(&name.as_str()) && !value.is_null());
    }
    output::one(format, &value)?;
    output::say(&format!("\n{}", graph(&plan.tasks)))
}

/// A line per task, below those it waits for; how far in says how many steps that is from the start.
fn graph(tasks: &[Task]) -> String {
    let by_id: HashMap<&str, &Task> = tasks.iter().map(|task| (task.id.as_str(), task)).collect();
    let mut depths: HashMap<&str, usize> = HashMap::new();
    // Tasks come after those they wait for, if not at once then after as many rounds as there are tasks.
    for _ in 0..tasks.len() {
        for task in tasks {
            let below = task.deps.iter().filter_map(|dep| depths.get(dep.as_str())).max().map_or(0, |depth| depth + 1);
            let known: bool =
                task.deps.iter().all(|dep| depths.contains_key(dep.as_str()) || !by_id.contains_key(dep.as_str()));
            if known {
                depths.insert(&task.id, below);
            }
        }
    }
    let depth = |task: &Task| depths.get(task.id.as_str()).copied().unwrap_or_default();
    let mut ordered: Vec<&Task> = tasks.iter().collect();
    ordered.sort_by_key(|task| depth(task));
    let mut text = String::new();
    for task in ordered {
        let deps: Vec<String> =
            task.deps.iter().filter_map(|dep| by_id.get(dep.as_str())).map(|dep| name(dep, tasks)).collect();
        let after = if deps.is_empty() { String::new() } else { format!("  <- {}", deps.join(", ")) };
        let error = task.error.as_deref().filter(|_| ["failed", "blocked"].contains(&task.status.as_str()));
        let error = error.map(|error| format!("  ({})", short(error, 60))).unwrap_or_default();
        let line = format!(
            "{}{} {}: {}{after}{error}",
            "  ".repeat(depth(task)),
            mark(&task.status),
            name(task, tasks),
            short(&task.title, 60)
        );
        text += &output::clean(&line);
        text.push('\n');
    }
    text
}

fn named(task: &Task) -> Named<'_> {
    Named { key: &task.key, iteration: task.iteration }
}

/// Its id, and before it the round where a later one has the same.
fn name(task: &Task, all: &[Task]) -> String {
    named(task).among(all.iter().filter(|task| task.status != "cancelled").map(named))
}

fn mark(status: &str) -> String {
    format!("[{status}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_stands_below_those_it_waits_for() {
        let task = |id: &str, deps: &[&str]| Task {
            id: id.into(),
            key: id.into(),
            title: "t".into(),
            status: "pending".into(),
            deps: deps.iter().map(|dep| dep.to_string()).collect(),
            ..Task::default()
        };
        let shown = graph(&[task("d", &["b", "c"]), task("b", &["a"]), task("c", &["a"]), task("a", &[])]);
        assert_eq!(
            shown,
            "[pending] a: t\n  [pending] b: t  <- a\n  [pending] c: t  <- a\n    [pending] d: t  <- b, c\n"
        );
    }
}
