//! What people do to missions while something is struck: turn down, change, mend, cancel, start over. Each word of
//! theirs may be lost, and may have been heard all the same: it is said until what it asks for is so.

use super::{Driver, ROUND_WITHIN, errand};
use crate::load::insist;
use anyhow::{Context, Result, bail, ensure};
use instar_client::{Hop, NewAgent};
use instar_core::id::{HopId, StepId};
use instar_testkit::wait;
use serde_json::{Value, json};
use std::time::Instant;

const RENAMED: &str = "said louder";

/// How a mission comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Policy alone decides.
    Plain,
    /// Its plan is turned down, its steps are changed, and each gate is opened by a person.
    Decided,
    /// Its first steps fail and are mended.
    Mended,
    /// It is cancelled before it runs, and started over.
    Restarted,
    /// A plan carries its hop out.
    Planned,
}

impl Errand {
    pub(super) const ALL: [Errand; 5] =
        [Errand::Plain, Errand::Decided, Errand::Mended, Errand::Restarted, Errand::Planned];

    /// By which its agent knows what to propose.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Errand::Plain => "plainly",
            Errand::Decided => "decided",
            Errand::Mended => "mended",
            Errand::Restarted => "restarted",
            Errand::Planned => "planned",
        }
    }

    pub(super) fn gates(self) -> Value {
        let by_person = |here: bool| if here { "manual" } else { "auto" };
        let (decided, held) = (self == Errand::Decided, self == Errand::Decided || self == Errand::Restarted);
        json!({"mission": "auto", "plan": by_person(decided), "impl": by_person(decided), "execute": by_person(held)})
    }
}

impl Driver {
    /// A mission of one hop; every time in another way.
    pub(super) async fn sail(&self, word: &str) -> Result<(String, Vec<String>)> {
        let errand = Errand::ALL[self.rounds % Errand::ALL.len()];
        let tools = errand::TOOLS.map(String::from).into();
        let agent = self.make(&self.session, NewAgent { tools, ..Default::default() }).await?;
        let (began, once, new) = (Instant::now(), self.once(), errand::mission(word, &agent, errand));
        let mission = insist(began, || once.create_mission(&self.session, &new)).await?.id;
        let followed = match errand {
            Errand::Plain | Errand::Planned => Ok(mission),
            Errand::Decided => self.decide(&mission).await.map(|()| mission),
            Errand::Mended => self.mend(&mission).await.map(|()| mission),
            Errand::Restarted => self.restart(&mission).await,
        };
        let mission = followed.with_context(|| format!("{errand:?}"))?;
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.mission(&mission).await?;
            ensure!(shown.status == "COMPLETED", "{errand:?} {mission} is {}: {:?}", shown.status, shown.rest);
            self.at_rest(self.session.parse()?).await
        })
        .await?;
        Ok((self.session.clone(), vec![mission]))
    }

    /// Something about the mission's hop, until that is as it shall be.
    async fn say(&self, mission: &str, action: &str, body: Value, heard: impl Fn(&Hop) -> bool) -> Result<()> {
        wait::until_ok(ROUND_WITHIN, || async {
            let hop = self.client.mission(mission).await?.current_hop.context("no hop yet")?;
            let hop = self.client.hop(&hop).await?;
            if heard(&hop) {
                return Ok(());
            }
            let said = self.client.act_on_hop(&hop.id, action, &body).await.map(|hop| hop.status);
            bail!("{} is {}; {action}: {said:?}", hop.id, hop.status)
        })
        .await
    }

    async fn decide(&self, mission: &str) -> Result<()> {
        // The first draft only: the next one is another revision.
        let no = json!({"feedback": "in other words", "revision": 1});
        self.say(mission, "reject-plan", no, |hop| hop.revision > 1).await?;
        self.say(mission, "approve-plan", json!({}), |hop| !hop.status.starts_with("HOP_PLAN")).await?;
        wait::until_ok(ROUND_WITHIN, || async {
            let hop = self.client.mission(mission).await?.current_hop.context("no hop")?;
            let hop = self.client.hop(&hop).await?;
            let steps = self.store.steps_of(hop.id.parse::<HopId>()?).await?;
            if steps.iter().any(|step| step.name == RENAMED) {
                return Ok(());
            }
            let step = steps.first().map(|step| StepId::from(step.id)).context("no steps yet")?;
            let body = json!({"revision": hop.revision, "steps": [{"id": step, "name": RENAMED}]});
            let said = self.client.act_on_hop(&hop.id, "edit-impl", &body).await.map(|hop| hop.status);
            bail!("{} is {}; edit-impl: {said:?}", hop.id, hop.status)
        })
        .await?;
        let ready = |hop: &Hop| ["HOP_IMPL_READY", "EXECUTING", "COMPLETED"].contains(&hop.status.as_str());
        self.say(mission, "approve-impl", json!({}), ready).await?;
        self.say(mission, "execute", json!({}), begun).await
    }

    /// Only what has failed can be mended: it is tried until that has come to a good end.
    async fn mend(&self, mission: &str) -> Result<()> {
        self.say(mission, "fix", json!({"reason": "other steps"}), |hop| hop.status == "COMPLETED").await
    }

    /// Says which mission has taken its place.
    async fn restart(&self, mission: &str) -> Result<String> {
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.mission(mission).await?;
            let hop = self.client.hop(&shown.current_hop.context("no hop yet")?).await?;
            ensure!(hop.status == "HOP_IMPL_READY", "{} is {}", hop.id, hop.status);
            Ok(())
        })
        .await?;
        let once = self.once();
        let next = wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.mission(mission).await?;
            if let Some(next) = shown.rest.get("reset_to").and_then(Value::as_str) {
                return Ok(next.to_owned());
            }
            let action = if shown.status == "CANCELLED" { "reset" } else { "cancel" };
            let said = match action {
                "reset" => once.act_on_mission(mission, action, &json!({})).await,
                _ => self.client.act_on_mission(mission, action, &json!({})).await,
            };
            bail!("{mission} is {}; {action}: {:?}", shown.status, said.map(|mission| mission.status))
        })
        .await?;
        self.say(&next, "execute", json!({}), begun).await?;
        Ok(next)
    }
}

fn begun(hop: &Hop) -> bool {
    ["EXECUTING", "COMPLETED"].contains(&hop.status.as_str())
}
