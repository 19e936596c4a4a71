//! Steps that were proposed are held against the tools and assets there are when they are approved, and again when
//! they are executed: what was there in between may have gone.

use super::chain::faults;
use super::propose::edited;
use crate::act::{Act, ActError, Done};
use crate::hub::Hub;
use crate::snapshot::{Missions, REPAIRS_MAX, is_by_plan};
use instar_core::cascade::{Fact, Reach};
use instar_core::decide::{self, Tries};
use instar_core::id::{HopId, MissionId, SessionId, StepId};
use instar_core::machine::hop as hop_machine;
use instar_core::rune::{Actor, Rune};
use instar_store::entity::hop;
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// How often it looks again when the rows changed under it.
const LOOKS_MAX: usize = 8;

/// What came of a look at a hop's steps.
#[derive(Debug, Default)]
pub struct Inspected {
    /// Why they cannot be run, in words. If there is anything the approval is taken back already.
    pub wrong: Vec<String>,
    /// What that told, for whoever looked to follow.
    pub runes: Vec<Rune>,
}

impl Hub {
    /// Looks whether the steps of a hop that is about to be approved or executed can be run, with the tools and assets
    /// there are. Where they cannot the hop goes back to whoever implements it. `revision`: what whoever decides has
    /// seen; about anything else the decision itself will be refused, and nothing changes here.
    pub async fn inspect_hop(&self, id: HopId, revision: Option<i64>, actor: &Actor) -> Result<Inspected, ActError> {
        for _ in 0..LOOKS_MAX {
            let Some(hop) = self.store().hop(id).await? else { return Ok(Inspected::default()) };
            if !is_decided_on(&hop) || revision.is_some_and(|seen| seen != hop.revision) {
                return Ok(Inspected::default());
            }
            let rows = Missions::of(self.store().mission_rows(MissionId::from(hop.mission_id), Some(id)).await?);
            let (wrong, steps) = self.broken(&rows, &hop).await;
            if wrong.is_empty() {
                return Ok(Inspected::default());
            }
            let why = format!("its steps cannot be run any more: {}", wrong.join("; "));
            match take_back(&hop, &wrong, &why, steps, actor).carry_out(self).await {
                Ok(Done::Moved { runes }) => return Ok(Inspected { wrong, runes }),
                Err(ActError::Contended) => continue,
                // Whatever stands against it stands against the decision too, which says so.
                Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_)) => {
                    return Ok(Inspected::default());
                }
                Err(error) => return Err(error),
            }
        }
        Err(ActError::Contended)
    }

    /// Everything that is wrong, and what of it is about which step.
    async fn broken(&self, rows: &Missions, hop: &hop::Model) -> (Vec<String>, BTreeMap<Uuid, Vec<String>>) {
        let live = edited(rows, hop.id, &[]);
        // Everything is done already: executing it only says so.
        if live.is_empty() && rows.steps_of(hop.id).any(|step| step.status == "COMPLETED") {
            return Default::default();
        }
        let names: Vec<String> = live.iter().filter_map(|step| step.tool.clone()).collect();
        let Some(tools) = self.tools_for(&names).await else { return Default::default() };
        let found = faults(rows, hop, &live, |name| tools.for_step(name).map(|tool| tool.face()));
        let mut steps: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for (at, why) in &found {
            if let Some(step) = at.and_then(|at| live.get(at)) {
                steps.entry(step.id).or_default().push(why.clone());
            }
        }
        (found.into_iter().map(|(_, why)| why).collect(), steps)
    }
}

/// Whether its steps wait for an approval or for their execution.
fn is_decided_on(hop: &hop::Model) -> bool {
    let waits = [hop_machine::State::ImplProposed.token(), hop_machine::State::ImplReady.token()];
    waits.contains(&hop.status.as_str()) && !is_by_plan(hop)
}

fn take_back<'a>(
    hop: &hop::Model,
    wrong: &[String],
    why: &'a str,
    steps: BTreeMap<Uuid, Vec<String>>,
    actor: &Actor,
) -> Act<'a> {
    let (id, seen) = (HopId::from(hop.id), hop.version);
    let repairs = Tries { made: u32::try_from(hop.repairs).unwrap_or_default(), max: REPAIRS_MAX };
    let event = decide::validation_failed(true, repairs).token();
    let act = Act::new(SessionId::from(hop.session_id), id, &hop_machine::TABLE, event, actor.clone());
    let act = act.reason(why);
    let act = steps
        .keys()
        .fold(act.given(Fact::Repairable), |act, step| act.meaning(Reach::BrokenStepsOfHop, id, StepId::from(*step)));
    let act = act.telling("hop.impl_invalid", json!({"errors": wrong})).provided(move |snapshot| {
        let found = snapshot.missions.hops.get(&id.uuid()).map(|hop| hop.version);
        if found == Some(seen) { Ok(()) } else { Err(ActError::Contended) }
    });
    act.editing(move |snapshot| {
        for (step, errors) in &steps {
            if let Some(row) = snapshot.missions.step_mut(*step) {
                row.validation_errors = Some(json!(errors));
            }
        }
        // Whoever proposes anew reads it.
        if let Some(row) = snapshot.missions.hops.get_mut(&id.uuid()) {
            row.error = Some(json!({"message": why}));
        }
    })
}
