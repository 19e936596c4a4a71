//! Sessions and agents come into being, and are spoken to.

use super::{Case, Cause, World, born, new_turn, only, raised};
use crate::cast::{fresh, person, system};
use anyhow::Result;
use chrono::Utc;
use instar_core::cascade::{Fact, Reach};
use instar_core::id::{AgentId, Entity, Kind, SessionId};
use instar_core::machine::{By, agent_drive, agent_lifecycle, session, turn};
use instar_runtime::flow::{self, Ceiling, Letter, Loaded, Mode, NewAgent, NewSession, Today};
use instar_store::entity::{agent, broadcast};
use instar_store::{Addressee, Change, Commit};
use serde_json::json;

/// It is asked for and ready at once.
fn spawned(agent: Entity, by: By) -> Vec<Cause> {
    let table = &agent_lifecycle::TABLE;
    vec![raised(agent, table, "spawn", by), raised(agent, table, "init_complete", By::System)]
}

fn births() -> Vec<Case> {
    let named = || NewAgent { name: "ada".into(), ..NewAgent::default() };
    let open = |root: Option<NewAgent>| {
        move |_: &World| Ok(flow::open(NewSession::default(), root.clone(), person(), None)?.commit)
    };
    let join =
        |new: NewAgent| move |world: &World| Ok(flow::join(&world.session, vec![new.clone()], person(), None)?.commit);
    let created = |root: bool| {
        let mut world = World::new().knowing(if root { &[Fact::Root] } else { &[] });
        world.session.status = "created".into();
        world
    };
    let whole = |outline: &instar_store::Outline| {
        let (session, agent) = (only(outline, Kind::Session), only(outline, Kind::Agent));
        let ready = raised(agent, &agent_lifecycle::TABLE, "init_complete", By::System);
        vec![raised(session, &session::TABLE, "create_session", By::User), ready]
    };
    let of_root = |outline: &instar_store::Outline| {
        let (session, agent) = (only(outline, Kind::Session), only(outline, Kind::Agent));
        vec![(Reach::NewRootOfSession, session, agent), (Reach::SessionOfAgent, agent, session)]
    };
    let loaded = || NewAgent { loaded: Some(Loaded { origin: None, auto_start: true }), ..named() };
    let unbound = || NewAgent { unbound: true, ..named() };
    let mut making = World::new();
    (making.agents[0].lifecycle, making.session.status) = ("spawning".into(), "created".into());
    making.session.root_agent_id = Some(making.agents[0].id);
    let agent = making.agent();
    vec![
        Case::new("open", World::new().knowing(&[Fact::Root]), open(Some(named()))).causes(whole).meaning(of_root),
        Case::new("open", World::new(), open(None))
            .when("with nobody")
            .causes(|outline| vec![raised(only(outline, Kind::Session), &session::TABLE, "create_session", By::User)]),
        Case::new("join", World::new(), join(named())).causes(|outline| spawned(only(outline, Kind::Agent), By::User)),
        Case::new("join", created(true), join(named()))
            .when("the first")
            .causes(|outline| spawned(only(outline, Kind::Agent), By::User)),
        Case::new("join", created(true), join(unbound()))
            .when("in the making")
            .causes(|outline| vec![raised(only(outline, Kind::Agent), &agent_lifecycle::TABLE, "spawn", By::User)]),
        Case::new("join", World::new().knowing(&[Fact::Loaded]), join(loaded())).when("loaded").causes(|outline| {
            let agent = only(outline, Kind::Agent);
            let mut causes = spawned(agent, By::User);
            causes.push(raised(agent, &agent_drive::TABLE, "start", By::System));
            causes
        }),
        Case::new("ready", making, |world| Ok(flow::ready(&world.session, &world.agents[0], system())?)).by(
            agent,
            &agent_lifecycle::TABLE,
            "init_complete",
            By::System,
        ),
    ]
}

/// Something said to the world's agent, by this event of its drive; `busy`: it waits behind a turn.
fn said(
    builder: &'static str,
    event: &'static str,
    by: By,
    world: World,
    build: impl Fn(&World, bool) -> Result<Commit> + 'static,
) -> Case {
    let (busy, agent) = (!world.turns.is_empty(), world.agent());
    let case = Case::new(builder, world, move |world| build(world, busy)).by(agent, &agent_drive::TABLE, event, by);
    if busy { case } else { case.with_input(agent.id) }
}

fn messages() -> Vec<Case> {
    let message = |world: &World, busy: bool| {
        Ok(flow::message(&world.session, &world.agents[0], busy, "hello", person(), None)?.commit)
    };
    let case = |world| said("message", "message_received", By::User, world, message);
    let mut first = World::new().idle();
    first.session.status = "created".into();
    first.session.root_agent_id = Some(first.agents[0].id);
    let live = World::with_turn("streaming");
    let (agent, running) = (live.agent(), live.turn());
    let control = [
        raised(agent, &agent_drive::TABLE, "message_received", By::User),
        raised(running, &turn::TABLE, "request_control", By::User),
    ];
    let steer = |world: &World| {
        let (session, agent, turn) = (&world.session, &world.agents[0], &world.turns[0]);
        Ok(flow::steer(session, agent, turn, "rather this", Mode::Steer, person(), None)?.commit)
    };
    let broadcast = |more: bool| {
        move |world: &World, busy: bool| {
            let row = broadcast::Model {
                id: fresh(),
                session_id: world.session.id,
                content: "all hands".into(),
                standing: false,
                expires_at: None,
                sender: "key_test".into(),
                created_at: Utc::now(),
                version: 0,
            };
            let (session, agent) = (world.session.clone(), world.agents[0].clone());
            let to = Addressee { session, agent, busy, live: None };
            Ok(match more {
                false => flow::broadcast(&row, &[&to], false, person(), None)?,
                true => flow::broadcast_more(&row, &[&to], None)?,
            })
        }
    };
    let all = |name, more, world| said(name, "broadcast_received", By::User, world, broadcast(more));
    vec![
        case(World::new()),
        case(World::new().idle()).when("to an idle one"),
        case(World::with_turn("streaming")).when("to a busy one"),
        case(World::with_turn("queued")).when("behind a turn that waits"),
        case(first).when("the first of a session"),
        Case::new("steer", live, steer).causes(move |_| control.to_vec()),
        all("broadcast", false, World::new()),
        all("broadcast", false, World::new().idle()).when("to an idle one"),
        all("broadcast", false, World::with_turn("streaming")).when("to a busy one"),
        all("broadcast_more", true, World::new()),
    ]
}

/// Ten turns a day.
fn ceiling() -> Ceiling {
    Ceiling { turns: 10, ..Ceiling::default() }
}

/// The agent has caused itself as much as it may.
fn sated(mut world: World) -> World {
    let today = Today { turns: 10, ..Today::of(&world.agents[0], Utc::now()) };
    world.agents[0].today = Some(json!(today));
    world
}

fn days() -> Vec<Case> {
    let rested = || {
        let mut world = World::new().idle();
        let today = Today { rests: true, ..Today::of(&world.agents[0], Utc::now()) };
        (world.agents[0].today, world.agents[0].config) = (Some(json!(today)), json!({"loop": "autonomous"}));
        world
    };
    let (tired, rested) = (sated(World::new()), [rested(), rested()]);
    let (rests, [raised_for, dawn]) = (tired.agent(), [rested[0].agent(), rested[1].agent()]);
    let [by_hand, by_clock] = rested;
    let table = &agent_drive::TABLE;
    vec![
        Case::new("rest_for_today", tired, |world| Ok(flow::rest_for_today(&world.agents[0], None, system())?)).by(
            rests,
            table,
            "nudge_limit_reached",
            By::System,
        ),
        Case::new("go_on_today", by_hand, |world| {
            let agent = &world.agents[0];
            let mut commit = Commit::new(SessionId::from(world.session.id), person());
            let change = Change::entity(&agent::TABLE, AgentId::from(agent.id));
            let today = Today::of(agent, commit.at());
            let change = flow::go_on_today(&mut commit, agent, change, By::User, today)?;
            commit.change(change);
            Ok(commit)
        })
        .by(raised_for, table, "start", By::User),
        Case::new("new_day", by_clock, |world| Ok(flow::new_day(&world.agents[0], system())?)).by(
            dawn,
            table,
            "start",
            By::System,
        ),
    ]
}

fn by_itself() -> Vec<Case> {
    let queued = |outline: &instar_store::Outline| {
        vec![raised(only(outline, Kind::Turn), &turn::TABLE, "queue_turn", By::System)]
    };
    let mut errored = World::new();
    errored.agents[0].drive = "errored".into();
    let agent = errored.agent();
    let take_up = |asked: bool| {
        move |world: &World| Ok(flow::take_up(&world.agents[0], &[fresh()], asked, 3, ceiling(), system())?.0)
    };
    let rests = |world: World| {
        let agent = world.agent();
        let case = Case::new("take_up", world, take_up(false));
        case.by(agent, &agent_drive::TABLE, "nudge_limit_reached", By::System)
    };
    let mut tired = World::new();
    tired.agents[0].letter_count = Some(3);
    vec![
        Case::new("take_up", World::new(), take_up(true)).causes(queued),
        rests(tired).when("after too many letters"),
        rests(sated(World::new())).when("too much in a day"),
        Case::new("nudge", World::new(), |world| Ok(flow::nudge(&world.agents[0], None, system())?.0)).causes(queued),
        Case::new("relaunch", errored, |world| Ok(flow::relaunch(&world.agents[0], system())?)).by(
            agent,
            &agent_drive::TABLE,
            "start",
            By::System,
        ),
    ]
}

fn letters() -> Vec<Case> {
    let tell = |world: &World, busy: bool| {
        let mut commit = world.as_agent();
        let mut from = world.agents[0].clone();
        from.id = fresh();
        flow::tell(&mut commit, Letter { from: &from, content: "psst" }, &world.agents[0], busy, 3, ceiling())?;
        Ok(commit)
    };
    let case = |world| said("tell", "agent_message_received", By::Agent, world, tell);
    let mut tired = World::new();
    tired.agents[0].letter_count = Some(3);
    vec![
        case(World::new()),
        case(World::new().idle()).when("an idle one"),
        case(World::with_turn("streaming")).when("a busy one"),
        case(tired.clone()).when("one that has had enough"),
        case(tired.idle()).when("an idle one that has had enough"),
        case(sated(World::new())).when("one that has caused enough today"),
        case(sated(World::new().idle())).when("an idle one that has caused enough today"),
    ]
}

fn children() -> Vec<Case> {
    let bear = |starts: bool| {
        move |world: &World| {
            let mut commit = world.as_agent();
            let (session, parent) = (&world.session, &world.agents[0]);
            flow::bear_child(&mut commit, session, parent, NewAgent::default(), "dig", starts)?;
            Ok(commit)
        }
    };
    let fail = |world: &World| {
        let mut commit = world.as_agent();
        let (session, parent) = (&world.session, &world.agents[0]);
        flow::fail_child(&mut commit, session, parent, None, NewAgent::default(), "no such model")?;
        Ok(commit)
    };
    let parent = World::with_turn("tool_executing");
    let of = parent.agent();
    let mut waits = World::new();
    let mut child = World::new().agents.remove(0);
    (child.session_id, child.parent_id) = (waits.session.id, Some(waits.agents[0].id));
    (child.lifecycle, child.drive) = ("spawning".into(), "idle".into());
    let id = Entity::new(Kind::Agent, child.id);
    waits.agents.push(child);
    let woken = move |_: &instar_store::Outline| {
        let ready = raised(id, &agent_lifecycle::TABLE, "init_complete", By::System);
        vec![ready, raised(id, &agent_drive::TABLE, "agent_message_received", By::Agent)]
    };
    let finish = |with_task: bool| {
        move |world: &World| {
            let (parent, child) = (&world.agents[0], &world.agents[1]);
            let task = instar_store::entity::message::Model {
                id: fresh(),
                session_id: child.session_id,
                agent_id: child.id,
                turn_id: None,
                version: 0,
                role: "user".into(),
                source: flow::AGENT_SOURCE.into(),
                mode: "queue".into(),
                content: "dig".into(),
                data: Some(json!({})),
                created_at: Utc::now(),
            };
            Ok(flow::finish_child(parent, child, with_task.then_some(&task), system())?.0)
        }
    };
    vec![
        Case::new("bear_child", World::with_turn("tool_executing"), bear(true))
            .causes(|outline| {
                let child = only(outline, Kind::Agent);
                let mut causes = spawned(child, By::Agent);
                causes.push(raised(child, &agent_drive::TABLE, "agent_message_received", By::Agent));
                causes
            })
            .meaning(|outline| {
                let child = born(outline, Kind::Agent);
                child.into_iter().map(|child| (Reach::NewTurnOfAgent, child, new_turn(outline, child))).collect()
            }),
        Case::new("bear_child", World::with_turn("tool_executing"), bear(false))
            .when("one that waits for a place")
            .causes(|outline| vec![raised(only(outline, Kind::Agent), &agent_lifecycle::TABLE, "spawn", By::Agent)]),
        Case::new("fail_child", parent, fail)
            .causes(|outline| {
                let (child, table) = (only(outline, Kind::Agent), &agent_lifecycle::TABLE);
                vec![raised(child, table, "spawn", By::Agent), raised(child, table, "init_error", By::System)]
            })
            .meaning(move |outline| vec![(Reach::DriveOfParent, only(outline, Kind::Agent), of)]),
        Case::new("finish_child", waits.clone(), finish(true)).causes(woken).with_input(id.id),
        Case::new("finish_child", waits, finish(false)).when("woken before").by(
            id,
            &agent_lifecycle::TABLE,
            "init_complete",
            By::System,
        ),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut all = births();
    all.extend(messages());
    all.extend(days());
    all.extend(by_itself());
    all.extend(letters());
    all.extend(children());
    all
}
