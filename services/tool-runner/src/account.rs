//! The account of the agent that calls: claimed when one of its calls first needs it, and then its own until
//! its policy or its lease gives it back. A call that finds none waits as a row.

use crate::runner::Runner;
use chrono::Utc;
use instar_core::id::AgentId;
use instar_core::rune::payload::ResultStatus;
use instar_runtime::config::Secret;
use instar_runtime::flow::{self, FlowError, Outcome, Waits};
use instar_store::entity::{account, tool_call};
use instar_store::{Answer, Claim, StoreError, Wanted};
use instar_tools::{Account, Tool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// How much longer than its longest use an account is held.
const MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flow(#[from] FlowError),
}

pub(crate) enum Taken {
    Unneeded,
    Held(Account),
    /// It has to wait, and is written down as waiting; or it is somebody else's by now.
    Waits,
    Refused(Outcome),
}

/// What a call needs before it can begin.
pub(crate) async fn take(runner: &Runner, tool: &Tool, call: &mut tool_call::Model) -> Result<Taken, Failed> {
    if !tool.needs_account(&call.arguments) {
        return Ok(Taken::Unneeded);
    }
    if call.agent_id.is_nil() {
        let why =
            format!("the tool {} needs an account and this step acts for no agent: give its mission one", call.name);
        return Ok(Taken::Refused(refused(ResultStatus::Error, why)));
    }
    let (store, id) = (runner.hub.store(), AgentId::from(call.agent_id));
    let Some((agent, namespace)) = store.agent_in(id).await? else { return Ok(Taken::Waits) };
    let Some(wanted) = Wanted::of(&agent.config) else {
        let why = format!("the tool {} needs an account and this agent was given none", call.name);
        return Ok(Taken::Refused(refused(ResultStatus::Error, why)));
    };
    // It must not go to another agent while this call can still run.
    let lease = Duration::from_millis(runner.config.secrets.account_lease_ms).max(tool.spec().timeout() + MARGIN);
    loop {
        instar_crashpoint::crash_point!("runner.account.before");
        let claim = store.claim_account(&namespace, id, &wanted, lease).await?;
        instar_crashpoint::crash_point!("runner.account.after");
        match claim {
            Claim::Held(row) => {
                return Ok(open(runner, &row)
                    .map_or_else(|why| Taken::Refused(refused(ResultStatus::Error, why)), Taken::Held));
            }
            Claim::Unknown => {
                let why = format!("there is no such thing as {wanted}: it was removed, or never stored");
                return Ok(Taken::Refused(refused(ResultStatus::Error, why)));
            }
            Claim::Taken => {}
        }
        let waits = Waits::of(call).filter(|waits| waits.account.is_some());
        if let Some(waits) = waits {
            let now = store.now().await?;
            if waits.until.is_some_and(|until| until <= now) {
                let why = format!("{wanted} did not come free in time; the tool was not run");
                return Ok(Taken::Refused(refused(ResultStatus::Timeout, why)));
            }
            return Ok(Taken::Waits);
        }
        if !park(runner, call, &wanted).await? {
            return Ok(Taken::Waits);
        }
        // Once more: it may have come free before this call was known to wait.
    }
}

/// False if the call is no longer there to wait.
async fn park(runner: &Runner, call: &mut tool_call::Model, wanted: &Wanted) -> Result<bool, Failed> {
    let wait = chrono::Duration::milliseconds(i64::try_from(runner.config.secrets.account_wait_ms).unwrap_or(i64::MAX));
    let until = runner.hub.store().now().await?.checked_add_signed(wait).unwrap_or(chrono::DateTime::<Utc>::MAX_UTC);
    let commit = flow::wait_for_account(call, wanted.clone(), until, runner.id)?;
    let Answer::Moved(_) = runner.hub.commit(commit).await? else { return Ok(false) };
    match runner.hub.store().call(call.id.into()).await? {
        Some(row) if row.ended_at.is_none() => *call = row,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Its values, for this one call. The error never has any of them.
fn open(runner: &Runner, row: &account::Model) -> Result<Account, String> {
    let mut fields = BTreeMap::new();
    if let Some(sealed) = &row.sealed {
        let vault = runner.vault.as_ref().ok_or_else(|| {
            format!(
                "the account {:?} is sealed and this tool-runner has no key: set secrets.key_env or key_file",
                row.name
            )
        })?;
        fields =
            vault.open(row.id, sealed).map_err(|why| format!("the account {:?} cannot be used: {why}", row.name))?;
    }
    let references = row.refs.as_ref().and_then(Value::as_object).into_iter().flatten();
    // Without a reference it is among what is sealed.
    for (name, reference) in references.filter_map(|(name, value)| Some((name, value.as_str()?))) {
        let found: Option<Secret> = runner.effects.secrets().resolve(reference);
        let secret = found.ok_or_else(|| {
            format!(
                "the account {:?} cannot be used: its field {name} leads to no secret on this tool-runner",
                row.name
            )
        })?;
        fields.insert(name.clone(), secret);
    }
    Ok(Account { username: row.username.clone(), fields })
}

fn refused(status: ResultStatus, why: String) -> Outcome {
    Outcome { status, output: Value::Null, error: Some(why), duration_ms: 0, truncated: false }
}
