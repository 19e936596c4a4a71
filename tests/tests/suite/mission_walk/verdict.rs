//! What became of each command, and whether a refusal said what it must.

use anyhow::{Result, bail, ensure};
use instar_core::id::{AssetId, Entity, HopId, Kind, MissionId, StepId};
use instar_core::machine::{self, By, Refusal};
use instar_runtime::{Act, ActError, Done, Hub};
use std::collections::{BTreeMap, BTreeSet};

/// Commands that were issued, by what came of them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By people and agents.
    pub(super) asked: usize,
    /// By the system and by policy: results of calls, lost tools, gates that open by themselves.
    pub(super) raised: usize,
    pub(super) landed: usize,
    pub(super) ignored: usize,
    /// By the way in which they were.
    pub(super) refused: BTreeMap<&'static str, usize>,
    /// Runes of those that landed.
    pub(super) runes: usize,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.asked += other.asked;
        self.raised += other.raised;
        self.landed += other.landed;
        self.ignored += other.ignored;
        self.runes += other.runes;
        for (way, count) in other.refused {
            *self.refused.entry(way).or_default() += count;
        }
    }

    fn count(&mut self, by: By) {
        match by {
            By::User | By::Agent => self.asked += 1,
            By::System | By::Policy => self.raised += 1,
        }
    }

    fn refuse(&mut self, way: &'static str) {
        *self.refused.entry(way).or_default() += 1;
    }

    /// One that could not even be worked out from the rows.
    pub(super) fn unfit(&mut self, by: By, no: ActError) -> Result<()> {
        self.count(by);
        match no {
            ActError::Unfit(why) => self.names_what_there_is(&why),
            other => bail!("it should have been found unfit: {other}"),
        }
    }

    /// Says of what it refuses where it stands and what there is instead.
    fn names_what_there_is(&mut self, why: &str) -> Result<()> {
        let (place, advice) = why.split_once(": ").unwrap_or((why, ""));
        ensure!(!place.is_empty() && !advice.trim().is_empty(), "it does not say what to do: {why:?}");
        if advice.contains("is no asset") {
            ensure!(place == "inputs" || place == "output", "it does not say where: {why:?}");
            ensure!(advice.contains("it has: ") && advice.contains("ast_"), "it names no asset there is: {why:?}");
        }
        self.refuse("unfit");
        Ok(())
    }

    /// Says whether it landed.
    pub(super) async fn carry_out(&mut self, hub: &Hub, act: Act<'_>) -> Result<bool> {
        let (entity, event, by) = (act.entity, act.event.to_owned(), act.actor.by);
        let machine = act.machine.name;
        self.count(by);
        match act.carry_out(hub).await {
            Ok(Done::Moved { runes }) => {
                self.landed += 1;
                self.runes += runes.len();
                return Ok(true);
            }
            Ok(Done::Ignored) => self.ignored += 1,
            Err(ActError::Refused(no)) => {
                names_what_is_allowed(&no, by)?;
                // Of a command with several events a later one may have been refused.
                if no.event == event && no.machine == machine {
                    let state = state(hub, entity).await?;
                    ensure!(state.as_ref().is_none_or(|state| *state == no.from), "it is {state:?}: {no}");
                }
                self.refuse("refused");
            }
            Err(ActError::Absent(who)) => {
                ensure!(who == entity && state(hub, entity).await?.is_none(), "{event} on {entity}: no {who}");
                self.refuse("absent");
            }
            Err(no @ ActError::Stale { expected, found }) => {
                let (said, row) = (no.to_string(), hub.store().mission(MissionId::from(entity.id)).await?);
                ensure!(row.is_some_and(|row| row.revision == found), "{said}");
                ensure!(said.contains(&format!("revision {found}")) && said.contains(&expected.to_string()), "{said}");
                self.refuse("stale");
            }
            Err(ActError::Unfit(why)) => self.names_what_there_is(&why)?,
            // Nobody else is in the session, and what follows from other moves is not raised.
            Err(error) => bail!("{event} on {entity}: {error}"),
        }
        Ok(false)
    }
}

/// Everything that the table lets the caller do from here, besides what was just refused, and why that was.
fn names_what_is_allowed(no: &Refusal, by: By) -> Result<()> {
    let Some(table) = machine::by_name(no.machine) else { bail!("no machine {}", no.machine) };
    let state = table.state(&no.from);
    ensure!(state.is_some() || no.from == "none", "{} is no state: {no}", no.from);
    let legal: BTreeSet<&str> = table.allowed(state, by).into_iter().filter(|event| *event != no.event).collect();
    let named: BTreeSet<&str> = no.allowed.iter().copied().collect();
    ensure!(named == legal, "{no}, and the table allows {legal:?}");
    let said = no.to_string();
    ensure!(!no.advice.is_empty() && named.iter().all(|event| said.contains(event)), "{said}");
    ensure!(!named.is_empty() || said.contains("allowed now: nothing"), "{said}");
    Ok(())
}

/// The state that a row is in by itself.
async fn state(hub: &Hub, entity: Entity) -> Result<Option<String>> {
    let store = hub.store();
    Ok(match entity.kind {
        Kind::Mission => store.mission(MissionId::from(entity.id)).await?.map(|row| row.status),
        Kind::Hop => store.hop(HopId::from(entity.id)).await?.map(|row| row.status),
        Kind::ToolStep => store.step(StepId::from(entity.id)).await?.map(|row| row.status),
        Kind::Asset => store.asset(AssetId::from(entity.id)).await?.map(|row| row.status),
        _ => None,
    })
}
