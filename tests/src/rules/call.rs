//! A call from its start to its one result.

use super::{Case, World, raised};
use crate::cast::{fresh, system};
use anyhow::Result;
use chrono::{Duration, Utc};
use instar_core::machine::{By, tool_call as machine};
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{self, Outcome, Waits};
use instar_store::{Commit, Wanted};
use serde_json::json;

fn on_call(
    builder: &'static str,
    event: &'static str,
    world: World,
    build: impl Fn(&World) -> Result<Commit> + 'static,
) -> Case {
    let call = world.call();
    Case::new(builder, world, build).by(call, &machine::TABLE, event, By::System)
}

fn result(status: ResultStatus) -> impl Fn(&World) -> Result<Commit> {
    move |world| {
        let error = (status != ResultStatus::Success).then(|| "why".to_owned());
        let outcome = Outcome { status, output: json!("hi"), error, duration_ms: 1, truncated: false };
        Ok(flow::result(&world.calls[0], system(), &outcome)?)
    }
}

pub fn cases() -> Vec<Case> {
    let two = || World::with_calls(&["executing", "executing"]);
    let pending = |states: &[&str]| World::with_calls(states);
    let again = || {
        let mut world = two();
        (world.calls[0].effect, world.calls[0].attempts) = ("idempotent".into(), 1);
        world
    };
    let risky = || {
        let mut world = two();
        (world.calls[0].effect, world.calls[0].attempts) = ("at_most_once".into(), 1);
        world
    };
    let lost = |world: &World| Ok(flow::lost(&world.calls[0], system())?.0);
    let until = || Utc::now() + Duration::minutes(1);
    let straight = pending(&["pending_call", "executing"]);
    let call = straight.call();
    let event = |event| raised(call, &machine::TABLE, event, By::System);
    let both = [event("no_approval_needed"), event("success")];
    vec![
        on_call("result", "success", two(), result(ResultStatus::Success)),
        on_call("result", "execution_error", two(), result(ResultStatus::Error)).when("error"),
        on_call("result", "execution_timeout", two(), result(ResultStatus::Timeout)).when("timeout"),
        on_call("result", "cancelled", two(), result(ResultStatus::Cancelled)).when("cancelled"),
        on_call("result", "sandbox_violation", two(), result(ResultStatus::SandboxViolation)).when("outside"),
        on_call("result", "policy_denied", pending(&["pending_call", "executing"]), result(ResultStatus::Denied))
            .when("denied"),
        on_call("result", "success", pending(&["executing"]), result(ResultStatus::Success)).when("the last one"),
        Case::new("result", straight, result(ResultStatus::Success)).causes(move |_| both.to_vec()).when("straight"),
        on_call("start", "attempt_started", two(), |world| Ok(flow::start(&world.calls[0], world.worker)?)),
        on_call("progress", "progress_update", two(), |world| {
            Ok(flow::progress(&world.calls[0], 0, world.worker, None, "half".into())?)
        }),
        on_call("lost", "reclaimed", again(), lost).when("it runs again"),
        on_call("lost", "worker_lost", risky(), lost),
        on_call("wait", "attempt_started", two(), move |world| {
            let waits = Waits { agents: vec![fresh()], account: None, until: Some(until()) };
            Ok(flow::wait(&world.calls[0], &waits, world.worker)?)
        }),
        on_call("wait_for_account", "progress_update", two(), move |world| {
            Ok(flow::wait_for_account(&world.calls[0], Wanted::Name("bank".into()), until(), world.worker)?)
        }),
    ]
}
