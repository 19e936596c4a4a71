//! Those who act: what they may raise, and that nobody decides on his own request.

use super::{ACTOR, Report, rows};
use crate::cascade::follows;
use crate::id::Entity;
use crate::machine::{By, Phase, Row, Table, by_row};
use crate::rune::Rune;
use std::collections::HashMap;

const PROPOSALS: [&str; 8] = [
    "mission.proposed",
    "mission.revised",
    "hop.plan_proposed",
    "hop.plan_revised",
    "hop.impl_proposed",
    "hop.impl_revised",
    "plan.created",
    "plan.updated",
];
const DECISIONS: [&str; 6] =
    ["tool.approved", "tool.denied", "mission.approved", "hop.plan_approved", "hop.impl_approved", "plan.approved"];

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The agent on whose request somebody has yet to decide.
    asked: HashMap<Entity, String>,
    // Of the commit that is being read:
    actors: Vec<By>,
    acts: Vec<Act>,
}

#[derive(Debug)]
struct Act {
    seq: i64,
    by: By,
    /// What the move may have been.
    rows: Vec<(&'static Table, &'static Row)>,
}

impl Act {
    fn is_for(&self, by: By) -> bool {
        self.rows.iter().any(|(table, row)| table.raisers(row).contains(&by))
    }

    fn follows(&self, causes: &[&str]) -> bool {
        self.rows.iter().any(|(table, row)| follows(table, table.events[row.event as usize].token, causes))
    }
}

impl Watch {
    pub(super) fn after(&mut self, rune: &Rune, report: &mut Report) {
        let by = rune.actor.by;
        if rune.actor.id.is_empty() {
            report.fire(&ACTOR, rune.seq, format!("{} was done by a {} without a name", rune.kind, by.token()));
        }
        if !self.actors.contains(&by) {
            self.actors.push(by);
        }
        self.decision(rune, report);
        for moved in &rune.moves {
            let rows: Vec<_> = rows(moved).collect();
            // A row that no table has is INV-TABLE's.
            if !rows.is_empty() {
                self.acts.push(Act { seq: rune.seq, by, rows });
            }
            if by_row(&moved.row).and_then(|table| table.phase(&moved.to)) == Some(Phase::Terminal) {
                self.asked.remove(&moved.entity);
            }
        }
    }

    fn decision(&mut self, rune: &Rune, report: &mut Report) {
        let (kind, actor) = (rune.kind.as_str(), &rune.actor);
        if kind == "tool.approval_requested" {
            self.asked.extend(rune.agent_id.map(|agent| (rune.entity, agent.to_string())));
        } else if PROPOSALS.contains(&kind) {
            self.asked.remove(&rune.entity);
            self.asked.extend((actor.by == By::Agent).then(|| (rune.entity, actor.id.clone())));
        } else if DECISIONS.contains(&kind)
            && let Some(asker) = self.asked.remove(&rune.entity)
        {
            #[derive(serde::Deserialize)]
            struct Decided {
                approver: Option<String>,
            }
            let named = serde_json::from_str::<Decided>(rune.payload.get()).ok().and_then(|d| d.approver);
            // One that comes as an agent is refused by the row.
            if actor.by != By::Agent && (actor.id == asker || named.as_ref() == Some(&asker)) {
                report.fire(&ACTOR, rune.seq, format!("{kind} of {} by {asker}, which asked for it", rune.entity));
            }
        }
    }

    /// What is open to the system may be a consequence, whoever the actor is; what is not must be the
    /// actor's own, or be raised by a cascade of the list from something that is.
    pub(super) fn commit(&mut self, seq: i64, report: &mut Report) {
        let acts = std::mem::take(&mut self.acts);
        let (sound, mut open): (Vec<&Act>, Vec<&Act>) =
            acts.iter().partition(|act| act.is_for(act.by) || act.is_for(By::System));
        let mut causes: Vec<&str> = ids(&sound);
        loop {
            let next: Vec<&Act>;
            (next, open) = open.into_iter().partition(|act| act.follows(&causes));
            if next.is_empty() {
                break;
            }
            causes.extend(ids(&next));
        }
        for act in &open {
            let row = act.rows[0].1.id;
            report.fire(&ACTOR, act.seq, format!("{row} is not for the {} and follows from nothing", act.by.token()));
        }
        for by in std::mem::take(&mut self.actors) {
            let told = open.iter().any(|act| act.by == by);
            if !told && !acts.is_empty() && !acts.iter().any(|act| act.is_for(by)) {
                report.fire(&ACTOR, seq, format!("none of the commit's events is for the {} to raise", by.token()));
            }
        }
    }
}

fn ids(acts: &[&Act]) -> Vec<&'static str> {
    acts.iter().map(|act| act.rows[0].1.id).collect()
}
