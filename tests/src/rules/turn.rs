//! A turn from its claim to its end.

use super::{Case, World, born};
use crate::cast::fresh;
use anyhow::Result;
use chrono::{Duration, Utc};
use instar_core::cascade::{Fact, Reach};
use instar_core::decide::{Approval, Call, LATE_MAX, Mode};
use instar_core::id::{Entity, Kind, MessageId, TaskId, TurnId};
use instar_core::machine::{By, turn as machine};
use instar_core::rune::payload::{ResultStatus, Usage};
use instar_runtime::flow::{self, Asked, Ceiling, Day, Ending, Fatal, Loss, Spoken, Verdict};
use instar_runtime::plan::{Purpose, Work};
use instar_store::Commit;
use serde_json::json;

fn minutes() -> Duration {
    Duration::minutes(5)
}

fn words() -> Spoken {
    Spoken { text: "so be it".into(), usage: Usage { input_tokens: 10, output_tokens: 5 }, ..Spoken::default() }
}

fn ending<'a>(world: &'a World, waiting: &'a [MessageId]) -> Ending<'a> {
    Ending {
        turn: &world.turns[0],
        agent: &world.agents[0],
        worker: world.worker,
        waiting,
        pause: Duration::seconds(2),
        calls_max: 10,
        letters_max: 3,
        day: Day::default(),
    }
}

/// A command on the world's turn.
fn on_turn(
    builder: &'static str,
    event: &'static str,
    world: World,
    build: impl Fn(&World) -> Result<Commit> + 'static,
) -> Case {
    let turn = world.turn();
    Case::new(builder, world, build).by(turn, &machine::TABLE, event, By::System)
}

/// The turn is there for a task, whose owner its agent is.
fn for_a_task(mut world: World, state: &str) -> World {
    let planned = World::with_plan("executing", state);
    let (mut plan, mut task) = (planned.plans[0].clone(), planned.tasks[0].clone());
    (plan.session_id, task.session_id) = (world.session.id, world.session.id);
    (task.owner_id, task.turn_id) = (Some(world.agents[0].id), Some(world.turns[0].id));
    let (purpose, attempt) = (Purpose::Task, 1);
    let work = Work { plan: plan.id.into(), task: Some(TaskId::from(task.id)), purpose, attempt, of_hop: false };
    world.turns[0].input = json!({"work": work});
    world.plans.push(plan);
    world.tasks.push(task);
    world
}

fn asked(name: &str, verdict: Verdict) -> Asked {
    Asked {
        id: fresh(),
        provider_call_id: None,
        name: name.into(),
        arguments: json!({}),
        digest: "d".into(),
        effect: "read_only",
        verdict,
    }
}

/// Calls of one answer with every verdict there is, and what policy has to judge for each.
fn judged() -> Vec<(Asked, Call)> {
    let inherit = Approval::Inherit;
    let call = Call {
        valid: true,
        outside_sandbox: false,
        side_effects: true,
        spec: inherit,
        policy_override: inherit,
        mode: Mode::FullAccess,
    };
    let refused = |status| Verdict::Refused { status, why: "no".into() };
    vec![
        (asked("free", Verdict::Free), Call { side_effects: false, ..call }),
        (asked("approved", Verdict::Approved), call),
        (
            asked("ask", Verdict::Ask { reason: "why".into(), expires_at: None }),
            Call { spec: Approval::Always, ..call },
        ),
        (asked("denied", refused(ResultStatus::Denied)), Call { mode: Mode::ReadOnly, ..call }),
        (asked("wrong", refused(ResultStatus::Error)), Call { valid: false, ..call }),
        (asked("outside", refused(ResultStatus::SandboxViolation)), Call { outside_sandbox: true, ..call }),
    ]
}

fn answered(builder: &'static str, of: Vec<(Asked, Call)>) -> Case {
    let mut world = World::with_turn("streaming");
    let judged = of.iter().map(|(asked, call)| (Entity::from(asked.id), *call));
    world.judged.extend(judged);
    let turn = world.turn();
    let calls: Vec<Asked> = of.into_iter().map(|(asked, _)| asked).collect();
    let build = move |world: &World| {
        let (turn, calls) = (&world.turns[0], calls.clone());
        Ok(match builder {
            "calls" => flow::calls(turn, world.worker, &words(), calls)?,
            _ => flow::calls_in_mind(turn, world.worker, &words(), calls)?,
        })
    };
    on_turn(builder, "tool_calls_received", world, build).meaning(move |outline| {
        born(outline, Kind::ToolCall).into_iter().map(|call| (Reach::NewCallsOfTurn, turn, call)).collect()
    })
}

fn begins() -> Vec<Case> {
    let claim = |world: &World| {
        Ok(flow::claim(&world.agents[0], &world.turns[0], &[fresh()], None, world.worker, minutes(), Vec::new())?)
    };
    let recover = |world: &World| Ok(flow::recover(&world.agents[0], &world.turns[0], fresh(), Loss::Died, "")?);
    let mut stopped = World::with_turn("streaming");
    stopped.agents[0].drive = "stopped".into();
    let resume = |ours: bool| {
        move |world: &World| {
            let agent = (!ours).then_some(&world.agents[0]);
            let worker = if ours { world.worker } else { fresh() };
            Ok(flow::resume(&world.turns[0], agent, worker, minutes(), Vec::new())?)
        }
    };
    vec![
        on_turn("claim", "start_turn", World::with_turn("queued"), claim),
        on_turn("claim", "start_turn", World::with_turn("queued"), |world| {
            let (agent, turn, first) = (&world.agents[0], &world.turns[0], fresh());
            Ok(flow::claim(agent, turn, &[], Some(first), world.worker, minutes(), Vec::new())?)
        })
        .when("with a prompt"),
        on_turn("claim", "start_turn", for_a_task(World::with_turn("queued"), "assigned"), claim).when("of a task"),
        on_turn("recover", "worker_lost", World::with_turn("streaming"), recover),
        on_turn("recover", "worker_lost", stopped, recover).when("of a stopped agent"),
        on_turn("recover", "worker_lost", World::with_turn("streaming").told("kill"), recover).when("told to end"),
        answered("calls", judged()),
        answered("calls_in_mind", judged().into_iter().take(1).collect()),
        on_turn("resume", "tools_finished", World::with_turn("tool_executing"), resume(true)),
        on_turn("resume", "tools_finished", World::with_turn("tool_executing"), resume(false)).when("by another"),
    ]
}

fn between() -> Vec<Case> {
    let streams = || World::with_turn("streaming");
    let delta = |builder, build: fn(&World) -> Result<Commit>| on_turn(builder, "assistant_delta", streams(), build);
    vec![
        delta("checkpoint", |world| Ok(flow::checkpoint(&world.turns[0], world.worker, "so", 0)?)),
        delta("hand_back", |world| Ok(flow::hand_back(&world.turns[0], world.worker, &words(), 0)?)),
        delta("pause", |world| Ok(flow::pause(&world.turns[0], world.worker, &words(), 0)?)),
        Case::new("park", streams(), |world| {
            let until = Utc::now() + minutes();
            Ok(flow::park(&world.turns[0], world.worker, until, "rate_limited", "later", &words())?)
        }),
        Case::new("begin_summary", streams(), |world| {
            Ok(flow::begin_summary(&world.turns[0], world.worker, Usage::default(), fresh())?.0)
        }),
        on_turn("end_summary", "usage_reported", streams(), |world| {
            let row = flow::summary_row(&world.turns[0], "in short", fresh(), None::<TurnId>);
            Ok(flow::end_summary(&world.turns[0], world.worker, Some(&row), Usage::default(), true)?.0)
        }),
    ]
}

type End = fn(Ending<'_>) -> Result<Commit>;

fn complete(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::complete(ending, &words())?.0)
}

fn by_limit(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::complete_by_limit(ending, Vec::new())?.0)
}

fn fail(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::fail(ending, "stream_error", "broken", "it broke", &words(), Fatal::No)?.0)
}

fn fail_drive(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::fail(ending, "stream_error", "broken", "it broke", &words(), Fatal::Drive)?.0)
}

fn fail_provider(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::fail(ending, "stream_error", "broken", "it broke", &words(), Fatal::Provider)?.0)
}

fn crash(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::fail(ending, "tool_crash", "broken", "it broke", &words(), Fatal::Drive)?.0)
}

fn late(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::fail(ending, "turn_deadline", "timeout", "too long", &words(), Fatal::No)?.0)
}

fn give_up(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::give_up(ending, &Spoken::default())?.0)
}

fn interrupt(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "interrupt", "enough", &words())?.0)
}

fn steer(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "steer", "steer", &words())?.0)
}

fn steer_after_tools(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "tools_finished_steered", "steer", &Spoken::default())?.0)
}

fn pause(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "session_paused", "pause", &words())?.0)
}

fn exhaust(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "budget_exhausted", "budget", &words())?.0)
}

fn time_out(ending: Ending<'_>) -> Result<Commit> {
    Ok(flow::interrupt(ending, "interrupt_timeout", "enough", &words())?.0)
}

/// How a turn ends.
struct Way {
    builder: &'static str,
    /// What it is called here.
    how: &'static str,
    /// The state that the turn ends from.
    from: &'static str,
    event: &'static str,
    /// What else is known.
    facts: &'static [Fact],
    end: End,
}

const fn way(
    builder: &'static str,
    how: &'static str,
    from: &'static str,
    event: &'static str,
    facts: &'static [Fact],
    end: End,
) -> Way {
    Way { builder, how, from, event, facts, end }
}

const WAYS: &[Way] = &[
    way("complete", "", "streaming", "response_done", &[], complete),
    way("complete_by_limit", "", "tool_executing", "tools_finished_last", &[], by_limit),
    way("fail", "", "streaming", "stream_error", &[], fail),
    way("fail", "fatal", "streaming", "stream_error", &[Fact::DriveFatal], fail_drive),
    way("fail", "crash", "tool_executing", "tool_crash", &[Fact::DriveFatal], crash),
    way("fail", "late", "streaming", "turn_deadline", &[], late),
    way("fail", "late with calls", "tool_executing", "turn_deadline", &[], late),
    way("fail", "late too often", "streaming", "turn_deadline", &[Fact::LateTooOften], late),
    way("fail", "with its provider", "streaming", "stream_error", &[Fact::DriveFatal], fail_provider),
    way("give_up", "", "streaming", "recovery_exhausted", &[], give_up),
    way("interrupt", "", "streaming", "interrupt", &[], interrupt),
    way("interrupt", "after tools", "tool_executing", "interrupt", &[], interrupt),
    way("interrupt", "steered", "streaming", "steer", &[], steer),
    way("interrupt", "steered after tools", "tool_executing", "tools_finished_steered", &[], steer_after_tools),
    way("interrupt", "paused", "streaming", "session_paused", &[], pause),
    way("interrupt", "spent", "streaming", "budget_exhausted", &[], exhaust),
    way("interrupt", "forced", "streaming", "interrupt_timeout", &[], time_out),
];

/// How else it stands with an agent when its turn ends.
const STANDS: [&str; 5] = ["", "input waits", "told to end", "its parent ended", "stopped"];

fn ends() -> Vec<Case> {
    let mut all = Vec::new();
    for Way { builder, how, from, event, facts, end } in WAYS {
        for stands in STANDS {
            let mut world = World::with_turn(from).knowing(facts);
            if facts.contains(&Fact::LateTooOften) {
                world.agents[0].late_count = Some(LATE_MAX - 1);
            }
            let mut waiting: Vec<MessageId> = Vec::new();
            match stands {
                "input waits" => waiting.push(fresh()),
                "told to end" => world = world.told("kill"),
                "its parent ended" => world = world.told("parent_closed"),
                "stopped" => world.agents[0].drive = "stopped".into(),
                _ => {}
            }
            let agent = world.agents[0].id;
            let input = !waiting.is_empty();
            let case = on_turn(builder, event, world, move |world| end(ending(world, &waiting)));
            let case = if input { case.with_input(agent) } else { case };
            let when = [*how, stands].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
            all.push(case.when(when));
        }
    }
    all
}

fn special_ends() -> Vec<Case> {
    let nudged = |count: i64, facts: &[Fact]| {
        let mut world = World::with_turn("streaming").knowing(facts);
        world.turns[0].cause = flow::NUDGE.into();
        (world.agents[0].nudge_count, world.agents[0].config) = (count, json!({"loop": "autonomous"}));
        world
    };
    let done =
        |world, when| on_turn("complete", "response_done", world, |world| complete(ending(world, &[]))).when(when);
    let mut parent = World::with_turn("streaming").told("kill");
    let mut child = World::new().agents.remove(0);
    (child.session_id, child.parent_id) = (parent.session.id, Some(parent.agents[0].id));
    parent.agents.push(child);
    let mut written_to = World::with_turn("streaming");
    written_to.agents[0].letter_count = Some(3);
    let agent = written_to.agents[0].id;
    let letters = on_turn("complete", "response_done", written_to, |world| complete(ending(world, &[fresh()])));
    let spoken_to = |world: &World| complete(ending(world, &[fresh()]));
    let by_itself = |when, ceiling: Option<Ceiling>| {
        let day = Day { ceiling: ceiling.unwrap_or_default(), counts: true, ..Day::default() };
        let mut world = World::with_turn("streaming");
        (world.turns[0].cause, world.agents[0].config) = (flow::AGENT_CAUSE.into(), json!({"loop": "autonomous"}));
        on_turn("complete", "response_done", world, move |world| complete(Ending { day, ..ending(world, &[]) }))
            .when(when)
    };
    let spent = |when, facts: &[Fact]| {
        let world = World::with_turn("streaming").knowing(facts);
        on_turn("interrupt", "budget_exhausted", world, |world| exhaust(ending(world, &[]))).when(when)
    };
    let one_too_many = [Fact::DriveFatal, Fact::ErrorThreshold];
    let failing = for_a_task(World::with_turn("streaming"), "running").knowing(&[Fact::DriveFatal]);
    let last = nudged(2, &[Fact::Nudged, Fact::NudgeLimit]);
    let last_agent = last.agents[0].id;
    vec![
        done(nudged(0, &[Fact::Nudged]), "a nudge"),
        done(nudged(2, &[Fact::Nudged, Fact::NudgeLimit]), "the last nudge"),
        on_turn("complete", "response_done", last, spoken_to)
            .with_input(last_agent)
            .when("the last nudge, input waits"),
        done(nudged(0, &[]).told("kill"), "a nudge, told to end"),
        on_turn("fail", "stream_error", nudged(0, &[Fact::DriveFatal]), |world| fail(ending(world, &[])))
            .when("a nudge"),
        done(parent, "a parent told to end"),
        done(for_a_task(World::with_turn("streaming").told("kill"), "running"), "with a task, told to end"),
        on_turn("give_up", "recovery_exhausted", for_a_task(World::with_turn("streaming"), "running"), |world| {
            give_up(ending(world, &[]))
        })
        .when("with a task"),
        letters.with_input(agent).when("after too many letters"),
        spent("at its own limit, to stop", &[Fact::AgentBudget, Fact::BudgetStops]),
        spent("at its own limit, to end", &[Fact::AgentBudget, Fact::BudgetTerminates]),
        spent("at its session's limit", &[Fact::SessionBudget]),
        on_turn("fail", "stream_error", failing, |world| fail_drive(ending(world, &[]))).when("with a task, fatal"),
        on_turn("fail", "stream_error", World::with_turn("streaming").knowing(&one_too_many), |world| {
            fail_drive(ending(world, &[]))
        })
        .when("one error too many"),
        by_itself("too much in a day", Some(Ceiling { turns: 1, ..Ceiling::default() })),
        by_itself("of its own", None),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut all = begins();
    all.extend(between());
    all.extend(ends());
    all.extend(special_ends());
    all
}
