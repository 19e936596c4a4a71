//! What people say to turns and to calls that wait for them while something is struck: approve, deny, cancel, resolve,
//! steer, interrupt. A word may be lost and may have been heard all the same: it is said until what it asks for is so.

use super::{Driver, ROUND_WITHIN, Round};
use crate::audit;
use crate::fleet::Fleet;
use crate::load::insist;
use anyhow::{Context, Result, bail, ensure};
use instar_client::{ClientError, Mode, NewAgent, Resolution};
use instar_core::id::{AgentId, CallId, TurnId};
use instar_core::rune::Rune;
use instar_store::Store;
use instar_store::entity::{message, tool_call, turn};
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::time::Instant;

/// How long the model takes to begin an answer that somebody speaks into.
const BREATH_MS: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Approve,
    Steer,
    Deny,
    Interrupt,
    Cancel,
}

impl Word {
    const ALL: [Word; 5] = [Word::Approve, Word::Steer, Word::Deny, Word::Interrupt, Word::Cancel];
}

impl Driver {
    /// A call that needs a person's word, or an answer that somebody speaks into; every time in another way.
    pub(super) async fn speak(&self, token: &str) -> Result<(String, Vec<String>)> {
        let word = Word::ALL[self.rounds % Word::ALL.len()];
        let approval_mode = Some("auto".to_owned());
        let new = NewAgent { tools: vec!["charge".into()], approval_mode, ..Default::default() };
        let agent = self.make(&self.session, new).await?;
        let spoken = match word {
            Word::Steer | Word::Interrupt => self.speak_into(&agent, token, word).await,
            _ => self.decide_on_call(&agent, token, word).await,
        };
        spoken.with_context(|| format!("{word:?}"))?;
        Ok((self.session.clone(), vec![agent]))
    }

    async fn begin(&self, agent: &str, text: &str) -> Result<String> {
        let (began, once) = (Instant::now(), self.once());
        let sent = insist(began, || once.send_message(agent, text, Mode::Queue)).await?;
        sent.turn_id.context("an idle agent was given no turn")
    }

    async fn over(&self, turn: &str) -> Result<String> {
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.turn(turn).await?;
            ensure!(shown.is_over(), "{turn} is {}, waiting for {:?}", shown.status, shown.waiting_for);
            Ok(shown.status)
        })
        .await
    }

    async fn decide_on_call(&self, agent: &str, token: &str, word: Word) -> Result<()> {
        let turn = self.begin(agent, &format!("charge {token}")).await?;
        let row = wait::until_ok(ROUND_WITHIN, || async {
            let calls = self.store.calls_of(turn.parse::<TurnId>()?).await?;
            calls.into_iter().next().with_context(|| format!("{turn} has no call yet"))
        })
        .await?;
        let (id, call) = (CallId::from(row.id), CallId::from(row.id).to_string());
        wait::until_ok(ROUND_WITHIN, || async {
            let now = self.store.call(id).await?.context("the call is gone")?;
            if now.status != "awaiting_approval" {
                return Ok(());
            }
            let said = match word {
                Word::Deny => self.client.deny(&call, "not today").await,
                Word::Cancel => self.client.cancel_call(&call).await,
                _ => self.client.approve(&call, Some(&row.digest)).await,
            };
            bail!("{call} is {}: {:?}", now.status, said.map(|call| call.status))
        })
        .await?;
        let ended = self.over(&turn).await?;
        ensure!(ended == "completed", "{turn} ended as {ended}");
        let now = self.store.call(id).await?.context("the call is gone")?;
        if now.result_status.as_deref() == Some("unknown") {
            // Its runner died over it: a person looks, and says what came of it.
            let (began, once) = (Instant::now(), self.once());
            insist(began, || once.resolve_call(&call, Resolution::Success, None)).await?;
        }
        Ok(())
    }

    async fn speak_into(&self, agent: &str, token: &str, word: Word) -> Result<()> {
        let turn = self.begin(agent, &format!("slow {BREATH_MS} {token}")).await?;
        let (once, text) = (self.once(), format!("say {token}"));
        let mut heard = false;
        let end = Instant::now() + ROUND_WITHIN;
        while !heard && Instant::now() < end {
            let shown = match self.client.turn(&turn).await {
                Ok(shown) if shown.is_over() => break,
                Ok(shown) => shown,
                // Nobody is there to ask: it is being struck.
                Err(_) => {
                    tokio::time::sleep(super::POLL).await;
                    continue;
                }
            };
            if shown.status != "streaming" {
                tokio::time::sleep(super::POLL).await;
                continue;
            }
            let said = match word {
                Word::Steer => once.steer_turn(&turn, &text).await.map(drop),
                _ => once.interrupt_turn(&turn, Some("enough")).await.map(drop),
            };
            match said {
                Ok(()) => heard = true,
                // It was over before the word came.
                Err(ClientError::Problem { status: 409, .. }) => {}
                Err(_) => tokio::time::sleep(super::POLL).await,
            }
        }
        let ended = self.over(&turn).await?;
        ensure!(["completed", "interrupted"].contains(&ended.as_str()), "{turn} ended as {ended}");
        wait::until_ok(ROUND_WITHIN, || async { self.at_rest(self.session.parse()?).await }).await?;
        if word == Word::Steer && heard {
            self.was_answered(agent, &text).await?;
        }
        Ok(())
    }

    /// What was said into an answer is there once, and got an answer of its own.
    async fn was_answered(&self, agent: &str, text: &str) -> Result<()> {
        let agent: AgentId = agent.parse()?;
        let found = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid()));
        let found = found.filter(message::Column::Content.eq(text)).all(self.store.db()).await?;
        ensure!(found.len() == 1, "{text:?} is there {} times", found.len());
        let turn = found[0].turn_id.with_context(|| format!("{text:?} has no turn"))?;
        let row = turn::Entity::find_by_id(turn).one(self.store.db()).await?.context("no such turn")?;
        ensure!(row.status == "completed", "the turn of {text:?} ended as {}", row.status);
        Ok(())
    }
}

/// Each call was decided once and has one result; what was denied or called off had no effect, and what succeeded had
/// one.
pub(super) async fn spoken(fleet: &Fleet, store: &Store, round: &Round) -> Result<Vec<String>> {
    let (runes, effects) = (audit::runes(store, round.session.parse()?).await?, fleet.tool.ledger().effects());
    let mut wrong = Vec::new();
    for id in &round.agents {
        let agent: AgentId = id.parse()?;
        let calls = tool_call::Entity::find().filter(tool_call::Column::AgentId.eq(agent.uuid()));
        for call in calls.all(store.db()).await? {
            let name = CallId::from(call.id).to_string();
            let told =
                |kind: &str| runes.iter().filter(|rune: &&Rune| rune.entity.id == call.id && rune.kind == kind).count();
            let done = effects.iter().filter(|effect| effect.key.as_deref() == Some(&name)).count();
            let (decided, results) = (told("tool.approved") + told("tool.denied"), told("tool.result"));
            let fits = match call.result_status.as_deref() {
                // Nobody knew, until a person said so.
                _ if told("tool.resolved") > 0 => told("tool.resolved") == 1 && decided == 1 && done <= 1,
                Some("success") => decided == 1 && done == 1,
                Some("denied") => decided == 1 && done == 0,
                Some("cancelled") if told("tool.approved") == 0 => done == 0,
                _ => false,
            };
            if !fits || results != 1 {
                let status = call.result_status;
                wrong.push(format!("{name}: {status:?}, {decided} decisions, {results} results, {done} effects"));
            }
        }
    }
    Ok(wrong)
}
