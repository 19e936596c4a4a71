//! What must be true of a session after whatever happened to it.

use anyhow::{Result, ensure};
use instar_core::id::SessionId;
use instar_core::invariant::{self, Scope};
use instar_core::{fold, rune::Rune};
use instar_store::entity::{tool_call, turn};
use instar_store::{PAGE_MAX, State, Store};
use instar_testkit::ledger::Effect;
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::BTreeMap;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);

pub async fn runes(store: &Store, session: SessionId) -> Result<Vec<Rune>> {
    let mut runes: Vec<Rune> = Vec::new();
    loop {
        let after = runes.last().map_or(0, |r| r.seq);
        let page = store.runes(session, after, PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(runes);
        }
        runes.extend(page);
    }
}

/// The log and the rows as of one moment: read again until nothing was written in between.
async fn view(store: &Store, session: SessionId) -> Result<(Vec<Rune>, Vec<State>)> {
    wait::until_ok(WITHIN, || async {
        let (runes, live) = (runes(store, session).await?, store.states(session).await?);
        let newer = store.runes(session, runes.last().map_or(0, |r| r.seq), 1).await?;
        ensure!(newer.is_empty(), "{session} moves while it is read");
        Ok((runes, live))
    })
    .await
}

/// What `verify` and `replay` find wrong with a session's log, in words.
pub async fn log(store: &Store, session: SessionId) -> Result<(Vec<Rune>, Vec<String>)> {
    let mut wrong = Vec::new();
    let (runes, live) = view(store, session).await?;
    wrong.extend(invariant::check(&runes, Scope::default()).iter().map(|v| format!("verify: {v:?}")));
    let (states, illegal) = fold::fold(runes.iter());
    wrong.extend(illegal.iter().map(|v| format!("replay: {v:?}")));
    let differences = states.diff(live.iter().map(|(m, e, s)| (*m, *e, s.as_str())));
    wrong.extend(differences.iter().map(|d| format!("replay: {d:?}")));
    Ok((runes, wrong))
}

/// Everything that is wrong, in words; nothing, if all is well. The session must be at rest.
pub async fn session(store: &Store, session: SessionId) -> Result<Vec<String>> {
    let (runes, mut wrong) = log(store, session).await?;
    let turns = turn::Entity::find().filter(turn::Column::SessionId.eq(session.uuid())).all(store.db()).await?;
    for turn in turns.iter().filter(|t| t.ended_at.is_none()) {
        wrong.push(format!("turn {} has not ended: {} with {} open calls", turn.id, turn.status, turn.open_calls));
    }
    let calls =
        tool_call::Entity::find().filter(tool_call::Column::SessionId.eq(session.uuid())).all(store.db()).await?;
    let mut results: BTreeMap<_, usize> = BTreeMap::new();
    for rune in runes.iter().filter(|r| r.kind == "tool.result") {
        *results.entry(rune.entity.id).or_default() += 1;
    }
    for call in &calls {
        match results.get(&call.id) {
            Some(1) => {}
            other => wrong.push(format!("call {} has {} results", call.id, other.copied().unwrap_or(0))),
        }
    }
    Ok(wrong)
}

/// Effects of tools that must not be repeated, done more than once for the same body.
pub fn repeated(effects: &[Effect], name: &str) -> Vec<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for effect in effects.iter().filter(|e| e.name == name) {
        *seen.entry(&effect.digest).or_default() += 1;
    }
    seen.into_iter()
        .filter(|(_, n)| *n > 1)
        .map(|(body, n)| format!("effect {body} of {name} was done {n} times"))
        .collect()
}
