//! `instar replay`: the states that a log folds to, against those that the rows show.

use crate::failure::{FAILED, Failure};
use crate::log::Log;
use crate::output::{self, Format};
use clap::Args;
use instar_client::{Agent, Asset, Client, Hop, Mission, Plan, Query, ToolCall, Turn};
use instar_core::fold::{self, Difference, States};
use instar_core::id::Entity;
use instar_core::machine::{
    Table, agent_drive, agent_lifecycle, asset, hop, mission, plan, session, task, tool_call, tool_step, turn,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// How often a session that moves while it is read is read again.
const READS_MAX: usize = 5;
/// The machines whose rows the API shows.
const COMPARED: [&Table; 11] = [
    &session::TABLE,
    &agent_lifecycle::TABLE,
    &agent_drive::TABLE,
    &turn::TABLE,
    &tool_call::TABLE,
    &plan::TABLE,
    &task::TABLE,
    &mission::TABLE,
    &hop::TABLE,
    &tool_step::TABLE,
    &asset::TABLE,
];
/// What is removed from view is in no list.
const DELETED: &str = "deleted";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A session, or a file of JSON lines as `instar export` writes it (- for standard input)
    #[arg(value_name = "SESSION|FILE")]
    pub(crate) log: String,
}

type Row = (&'static Table, Entity, String);

impl Arguments {
    pub(crate) async fn run(
        self,
        client: impl FnOnce() -> Result<Client, Failure>,
        format: Format,
    ) -> Result<ExitCode, Failure> {
        let (mut log, client) = Log::read(&self.log, client).await?;
        let mut rows = None;
        if let Some(client) = client {
            let mut reads = 1;
            rows = loop {
                let found = rows_of(&client, &self.log).await?;
                let head = client.session(&self.log).await?.head_seq;
                if log.session.as_ref().is_some_and(|session| session.head_seq == head) {
                    break Some(found);
                }
                if reads == READS_MAX {
                    let advice = "the session moves while it is read: pause it, or try again when it is quieter";
                    return Err(Failure::new(FAILED, advice));
                }
                reads += 1;
                log = Log::of_session(&client, &self.log).await?;
            };
        }
        let imported =
            log.session.as_ref().and_then(|session| session.rest.get("imported")).is_some_and(|is| *is == true);
        // Of one that ran elsewhere only the session's own row is here.
        let compared = if imported { &COMPARED[..1] } else { &COMPARED[..] };
        let outcome = Outcome::of(&log, rows.as_deref(), compared);
        match format {
            Format::Table => output::say(&outcome.text())?,
            Format::Json | Format::Yaml => output::value(format, &outcome.json())?,
        }
        Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

async fn rows_of(client: &Client, id: &str) -> Result<Vec<Row>, Failure> {
    let of_session = || Query::new().with("session", id);
    let session = client.session(id).await?;
    // The last step of an archived session is in the catalogue; its own log ended before that.
    let status = if session.status == "archived" { "closed".to_owned() } else { session.status };
    let row = (&session::TABLE, session.id.clone(), status);
    let agents: Vec<Agent> = client.every(&["v1", "agents"], of_session(), usize::MAX).await?;
    let calls: Vec<ToolCall> = client.every(&["v1", "tool-calls"], of_session(), usize::MAX).await?;
    let mut shown = vec![row];
    for agent in agents.iter().filter(|agent| agent.session_id == id) {
        shown.push((&agent_lifecycle::TABLE, agent.id.clone(), agent.lifecycle.clone()));
        shown.push((&agent_drive::TABLE, agent.id.clone(), agent.drive.clone()));
        let turns = Query::new().with("agent", &agent.id);
        let turns: Vec<Turn> = client.every(&["v1", "turns"], turns, usize::MAX).await?;
        shown.extend(turns.into_iter().map(|turn| (&turn::TABLE, turn.id, turn.status)));
    }
    let calls = calls.into_iter().filter(|call| call.session_id == id);
    shown.extend(calls.map(|call| (&tool_call::TABLE, call.id, call.status)));
    let missions: Vec<Mission> = client.every(&["v1", "missions"], of_session(), usize::MAX).await?;
    shown.extend(missions.into_iter().map(|mission| (&mission::TABLE, mission.id, mission.status)));
    let hops: Vec<Hop> = client.every(&["v1", "hops"], of_session(), usize::MAX).await?;
    // Deleted hops are in no list unless one asks for them, and their steps may be there still.
    let gone: Vec<Hop> = client.every(&["v1", "hops"], of_session().with("status", DELETED), usize::MAX).await?;
    for hop in hops.iter().chain(&gone) {
        let steps = client.steps(&hop.id).await?.data;
        shown.extend(steps.into_iter().map(|step| (&tool_step::TABLE, step.id, step.status)));
        // What only its steps see is listed with the hop.
        let own: Vec<Asset> = client.every(&["v1", "assets"], Query::new().with("hop", &hop.id), usize::MAX).await?;
        shown.extend(own.into_iter().map(|asset| (&asset::TABLE, asset.id, asset.status)));
    }
    shown.extend(hops.into_iter().map(|hop| (&hop::TABLE, hop.id, hop.status)));
    let assets: Vec<Asset> = client.every(&["v1", "assets"], of_session(), usize::MAX).await?;
    shown.extend(assets.into_iter().map(|asset| (&asset::TABLE, asset.id, asset.status)));
    shown.sort_by(|a, b| (a.0.name, &a.1).cmp(&(b.0.name, &b.1)));
    shown.dedup_by(|a, b| a.0.name == b.0.name && a.1 == b.1);
    let plans: Vec<Plan> = client.every(&["v1", "plans"], of_session(), usize::MAX).await?;
    for listed in plans.into_iter().filter(|plan| plan.session_id == id) {
        let whole = client.plan(&listed.id).await?;
        shown.push((&plan::TABLE, whole.id, whole.status));
        shown.extend(whole.tasks.into_iter().map(|task| (&task::TABLE, task.id, task.status)));
    }
    let read = |(table, id, state): (&'static Table, String, String)| {
        let entity = id.parse().map_err(|error| Failure::new(FAILED, format!("the server shows {id:?}: {error}")))?;
        Ok((table, entity, state))
    };
    shown.into_iter().map(read).collect()
}

struct Outcome {
    session: String,
    runes: usize,
    states: States,
    violations: Vec<fold::Violation>,
    /// None when there was nothing to compare with.
    rows: Option<usize>,
    differences: Vec<Difference>,
}

impl Outcome {
    fn of(log: &Log, rows: Option<&[Row]>, compared: &[&Table]) -> Outcome {
        let (states, violations) = fold::fold(log.runes.iter());
        let mut differences = Vec::new();
        if let Some(rows) = rows {
            differences = states.diff(rows.iter().map(|(table, entity, state)| (*table, *entity, state.as_str())));
            differences.retain(|found| compared.iter().any(|table| table.name == found.machine));
            differences.retain(|found| found.row.is_some() || found.runes != Some(DELETED));
        }
        let (session, runes) = (log.name(), log.runes.len());
        Outcome { session, runes, states, violations, rows: rows.map(<[Row]>::len), differences }
    }

    fn is_ok(&self) -> bool {
        self.violations.is_empty() && self.differences.is_empty()
    }

    /// Machine, state, how many.
    fn counts(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for (table, _, state) in self.states.iter() {
            *counts.entry((table.name, state)).or_default() += 1;
        }
        counts
    }

    fn text(&self) -> String {
        let mut text = format!("log     {}, {} runes\n", self.session, self.runes);
        for ((machine, state), count) in self.counts() {
            text += &format!("  {machine:<16} {state:<18} {count}\n");
        }
        text += &format!("fold    {} states, {} violations\n", self.states.len(), self.violations.len());
        for violation in &self.violations {
            text += &format!("  {violation}\n");
        }
        text += &match self.rows {
            Some(rows) => format!("rows    {rows} compared, {} differences\n", self.differences.len()),
            None => "rows    none to compare with: this is a file\n".to_owned(),
        };
        for difference in &self.differences {
            text += &format!("  {difference}\n");
        }
        text + if self.is_ok() { "ok\n" } else { "NOT ok\n" }
    }

    fn json(&self) -> Value {
        let counts: Vec<Value> = self
            .counts()
            .into_iter()
            .map(|((machine, state), count)| json!({"machine": machine, "state": state, "count": count}))
            .collect();
        let violations: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        let differences: Vec<String> = self.differences.iter().map(ToString::to_string).collect();
        json!({"session": self.session, "runes": self.runes, "states": counts, "rows": self.rows,
            "violations": violations, "differences": differences, "ok": self.is_ok()})
    }
}
