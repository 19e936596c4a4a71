//! A checker is checked by faults: each one must fire its own invariant and no other.

use super::*;
use crate::id::{AgentId, Entity, Kind, RuneId, SessionId};
use crate::machine::By;
use crate::rune::sample::sample;
use crate::rune::{Actor, Draft, chain};
use serde_json::value::RawValue;
use uuid::Uuid;

const fn entity(kind: Kind, id: u128) -> Entity {
    Entity::new(kind, Uuid::from_u128(id))
}
const SESSION: Entity = entity(Kind::Session, 1);
const AGENT: Entity = entity(Kind::Agent, 2);
const TURN: Entity = entity(Kind::Turn, 3);
const NEXT: Entity = entity(Kind::Turn, 4);
const CALL: Entity = entity(Kind::ToolCall, 5);
const MISSION: Entity = entity(Kind::Mission, 6);
const HOP: Entity = entity(Kind::Hop, 7);
const STEP: Entity = entity(Kind::ToolStep, 8);

/// A rune before its envelope is closed, so that faults are hashed along with the rest.
#[derive(Clone)]
struct Plain {
    kind: String,
    entity: Entity,
    payload: String,
    moves: Vec<Moved>,
    by: By,
    actor: &'static str,
    epoch: i64,
    commit: u128,
    session: Entity,
}

#[derive(Clone, Default)]
struct Log {
    plain: Vec<Plain>,
    commits: u128,
}

impl Log {
    /// A commit of one rune; moves are written `row entity from>to`, a birth has nothing before `>`.
    fn add(&mut self, by: By, kind: &str, entity: Entity, moves: &[(&str, Entity, &str)]) -> &mut Plain {
        self.commits += 1;
        self.more(by, kind, entity, moves)
    }

    /// Another rune of the same commit.
    fn more(&mut self, by: By, kind: &str, entity: Entity, moves: &[(&str, Entity, &str)]) -> &mut Plain {
        let moved = |(row, entity, states): &(&str, Entity, &str)| {
            let (from, to) = states.split_once('>').expect("two states");
            Moved { row: (*row).into(), entity: *entity, from: (!from.is_empty()).then(|| from.into()), to: to.into() }
        };
        let payload = sample(kind).unwrap_or("{}").to_owned();
        let moves = moves.iter().map(moved).collect();
        let (kind, commit) = (kind.to_owned(), self.commits);
        self.plain.push(Plain {
            kind,
            entity,
            payload,
            moves,
            by,
            actor: by.token(),
            epoch: 1,
            commit,
            session: SESSION,
        });
        self.plain.last_mut().expect("just pushed")
    }

    fn runes(&self) -> Vec<Rune> {
        let close = |(i, p): (usize, &Plain)| {
            let id = RuneId::from(Uuid::from_u128(100 + i as u128));
            let session_id = SessionId::from(p.session.id);
            let payload = RawValue::from_string(p.payload.clone()).expect("JSON");
            let mut draft = Draft::raw(&p.kind, p.entity, payload).expect("a kind");
            draft.moves = p.moves.clone();
            draft.agent_id =
                matches!(p.entity.kind, Kind::Agent | Kind::Turn | Kind::ToolCall).then(|| AgentId::from(AGENT.id));
            let actor = Actor::new(p.by, p.actor);
            let command_id = CommandId::from(Uuid::from_u128(p.commit));
            Rune {
                hash: draft.hash(id, session_id, &actor, p.epoch, None, 0, command_id),
                id,
                session_id,
                seq: i as i64 + 1,
                kind: p.kind.clone(),
                entity: p.entity,
                agent_id: draft.agent_id,
                turn_id: None,
                actor,
                visibility: draft.visibility,
                payload: draft.payload,
                moves: draft.moves,
                epoch: p.epoch,
                traceparent: None,
                at_us: 0,
                command_id,
            }
        };
        self.plain.iter().enumerate().map(close).collect()
    }

    fn find(&mut self, kind: &str) -> &mut Plain {
        self.plain.iter_mut().find(|p| p.kind == kind).expect("a rune of this kind")
    }

    fn at(&self, kind: &str) -> usize {
        self.plain.iter().position(|p| p.kind == kind).expect("a rune of this kind")
    }
}

fn number(n: i64) -> String {
    format!(r#"{{"cause":"user","number":{n}}}"#)
}

/// An agent works through a turn with one approved call.
fn opened() -> Log {
    let mut log = Log::default();
    log.add(By::User, "session.created", SESSION, &[("S1", SESSION, ">created")]);
    log.more(By::User, "agent.spawning", AGENT, &[("L1", AGENT, ">spawning"), ("D1", AGENT, ">idle")]);
    log.add(By::System, "agent.ready", AGENT, &[("L2", AGENT, "spawning>idle")]);
    log.more(By::System, "session.activated", SESSION, &[("S3", SESSION, "created>active")]);
    log.add(By::User, "agent.message_received", AGENT, &[]);
    log.more(By::User, "agent.drive_started", AGENT, &[("D4", AGENT, "idle>running")]);
    log.more(By::User, "turn.queued", TURN, &[("T26", TURN, ">queued")]).payload = number(1);
    let started =
        [("T1", TURN, "queued>streaming"), ("L4", AGENT, "idle>running_turn"), ("S4", SESSION, "active>active")];
    log.add(By::System, "turn.started", TURN, &started);
    log.add(By::Agent, "turn.tool_calls_received", TURN, &[("T3", TURN, "streaming>tool_executing")]);
    log.more(By::Agent, "tool.call", CALL, &[("C1", CALL, ">pending_call")]);
    let asked = log.more(By::Agent, "tool.approval_requested", CALL, &[("C2", CALL, "pending_call>awaiting_approval")]);
    asked.payload = r#"{"policy_reason":"asks","digest":"d1"}"#.into();
    let approved = log.add(By::User, "tool.approved", CALL, &[("C5", CALL, "awaiting_approval>executing")]);
    approved.payload = r#"{"approver":"key","digest":"d1"}"#.into();
    log.add(By::System, "tool.started", CALL, &[("C22", CALL, "executing>executing")]);
    log.add(By::System, "tool.result", CALL, &[("C9", CALL, "executing>completed_result")]);
    log.more(By::System, "turn.tools_finished", TURN, &[("T8", TURN, "tool_executing>streaming")]);
    log
}

/// The turn ends, a mission gets a hop with a step, everything is closed.
fn closed(mut log: Log) -> Log {
    log.add(By::Agent, "turn.assistant_final", TURN, &[]);
    let done =
        [("T4", TURN, "streaming>completed"), ("L5", AGENT, "running_turn>idle"), ("S5", SESSION, "active>active")];
    log.more(By::Agent, "turn.completed", TURN, &done);
    log.more(By::Agent, "turn.queued", NEXT, &[("T26", NEXT, ">queued")]).payload = number(2);
    log.add(By::Agent, "mission.proposed", MISSION, &[("M1", MISSION, ">AWAITING_APPROVAL")]);
    log.add(By::User, "mission.approved", MISSION, &[("M2", MISSION, "AWAITING_APPROVAL>IN_PROGRESS")]);
    log.add(By::User, "hop.plan_proposed", HOP, &[("H2", HOP, ">HOP_PLAN_PROPOSED")]).payload =
        format!(r#"{{"mission_id":"{MISSION}","name":"leg"}}"#);
    log.add(By::User, "hop.plan_approved", HOP, &[("H4", HOP, "HOP_PLAN_PROPOSED>HOP_PLAN_READY")]);
    log.add(By::Agent, "hop.impl_started", HOP, &[("H9", HOP, "HOP_PLAN_READY>HOP_IMPL_STARTED")]);
    log.add(By::Agent, "step.created", STEP, &[("ST1", STEP, ">AWAITING_CONFIGURATION")]).payload =
        format!(r#"{{"hop_id":"{HOP}","sequence_order":1}}"#);
    log.add(By::User, "session.closing", SESSION, &[("S9", SESSION, "active>closing")]);
    log.more(By::User, "turn.interrupted", NEXT, &[("T28", NEXT, "queued>interrupted")]);
    let ended = [("L17", AGENT, "idle>terminated"), ("D23", AGENT, "running>stopped")];
    log.more(By::User, "agent.terminated", AGENT, &ended);
    log.more(By::User, "mission.cancelled", MISSION, &[("M19", MISSION, "IN_PROGRESS>CANCELLED")]);
    log.more(By::User, "hop.cancelled", HOP, &[("H25", HOP, "HOP_IMPL_STARTED>CANCELLED")]);
    log.more(By::User, "step.cancelled", STEP, &[("ST9", STEP, "AWAITING_CONFIGURATION>CANCELLED")]);
    log.add(By::System, "session.closed", SESSION, &[("S16", SESSION, "closing>closed")]);
    log
}

fn ids(runes: &[Rune], complete: bool) -> Vec<&'static str> {
    let found = check(runes, Scope { complete, ..Scope::default() });
    found.iter().map(|v| v.id).collect()
}

#[test]
fn a_clean_log_fires_nothing() {
    let runes = closed(opened()).runes();
    let seals = vec![
        chain(Seal::EMPTY, runes[..5].iter().map(|r| (r.seq, r.hash))).expect("no gap"),
        chain(Seal::EMPTY, runes.iter().map(|r| (r.seq, r.hash))).expect("no gap"),
    ];
    let found = check(&runes, Scope { seals, complete: true, ..Scope::default() });
    assert_eq!(found, vec![]);
}

/// A fault planted in a clean log, and whether the log counts as complete.
fn planted(id: &str) -> (Vec<Rune>, bool) {
    let mut log = opened();
    let whole = |log: Log| (closed(log).runes(), true);
    match id {
        "INV-EVENTID-MONOTONIC" => {
            let (mut runes, complete) = whole(log);
            runes.iter_mut().skip(4).for_each(|r| r.seq -= 1);
            (runes, complete)
        }
        "INV-SEGMENT-CONTIGUOUS" => {
            let (mut runes, complete) = whole(log);
            runes.iter_mut().skip(4).for_each(|r| r.seq += 1);
            (runes, complete)
        }
        "INV-HASH" => {
            let (mut runes, complete) = whole(log);
            runes[4].at_us += 1;
            (runes, complete)
        }
        "INV-RUNE-KIND" => {
            log.find("turn.started").payload = "{}".into();
            whole(log)
        }
        "INV-CLOSED-LAST" => {
            let mut log = closed(log);
            log.add(By::User, "session.config", SESSION, &[]);
            (log.runes(), true)
        }
        "INV-TABLE" => {
            log.add(By::User, "session.paused", SESSION, &[("S6", SESSION, "paused>paused")]);
            log.add(By::User, "session.resumed", SESSION, &[("S10", SESSION, "paused>active")]);
            whole(log)
        }
        "INV-ACTOR" => {
            log.find("tool.approved").by = By::Agent;
            whole(log)
        }
        "INV-PAIR" => {
            log.add(By::System, "agent.drive_idled", AGENT, &[("D5", AGENT, "running>idle")]);
            log.add(By::User, "agent.drive_started", AGENT, &[("D3", AGENT, "idle>running")]);
            whole(log)
        }
        "INV-AGENT-ENDS" => {
            // Told to end while it is in its turn; the turn ends as if nobody had.
            log.add(
                By::User,
                "turn.control_requested",
                TURN,
                &[("L13", AGENT, "running_turn>running_turn"), ("T27", TURN, "streaming>streaming")],
            );
            whole(log)
        }
        "INV-TURN-START" => {
            let at = log.at("turn.started");
            let mut stopped = Log::default();
            stopped.add(By::User, "agent.drive_stopped", AGENT, &[("D6", AGENT, "running>stopped")]).commit = 1000;
            log.plain.splice(at..at, stopped.plain);
            log.add(By::User, "agent.drive_started", AGENT, &[("D9", AGENT, "stopped>running")]);
            whole(log)
        }
        "INV-COORDINATION" => {
            // A mission that is cancelled leaves its hop as it was.
            let mut log = closed(log);
            let cut = log.at("hop.cancelled");
            log.plain.drain(cut..cut + 2);
            (log.runes(), true)
        }
        "INV-MISSION-STOPPED" => {
            let mut log = closed(log);
            let rest = log.plain.split_off(log.at("hop.impl_started"));
            let stop = [("H24", HOP, "HOP_PLAN_READY>CANCELLED"), ("M17", MISSION, "IN_PROGRESS>IN_PROGRESS")];
            log.add(By::User, "hop.cancelled", HOP, &stop);
            log.more(By::User, "mission.attention", MISSION, &[]).payload = r#"{"reason":"stopped_by_person"}"#.into();
            // A person's own command on it would have let it go on.
            let next = entity(Kind::Hop, 70);
            log.add(By::Agent, "hop.plan_started", next, &[("H1", next, ">HOP_PLAN_STARTED")]).payload =
                format!(r#"{{"mission_id":"{MISSION}","sequence_order":2}}"#);
            let (end, of_hop) =
                (|p: &Plain| p.kind != "hop.impl_started" && p.entity != STEP, |p: &Plain| p.entity == HOP);
            log.plain.extend(rest.into_iter().filter(end).map(|mut p| {
                if of_hop(&p) {
                    p.entity = next;
                    p.moves[0].entity = next;
                    p.moves[0].from = Some("HOP_PLAN_STARTED".into());
                }
                p
            }));
            (log.runes(), true)
        }
        "INV-EPOCH" => {
            let mut log = closed(log);
            log.plain.iter_mut().for_each(|p| p.epoch = 2);
            log.find("tool.result").epoch = 1;
            (log.runes(), true)
        }
        "INV-TURN-SEQUENTIAL" => {
            let other = entity(Kind::Turn, 40);
            log.add(By::User, "turn.queued", other, &[("T26", other, ">queued")]).payload = number(2);
            log.add(By::System, "turn.started", other, &[("T1", other, "queued>streaming")]);
            log.add(By::User, "turn.interrupted", other, &[("T5", other, "streaming>interrupted")]);
            let mut log = closed(log);
            log.plain
                .iter_mut()
                .filter(|p| p.entity == NEXT && p.kind == "turn.queued")
                .for_each(|p| p.payload = number(3));
            (log.runes(), true)
        }
        "INV-TURN-TERMINAL" => {
            let mut log = closed(log);
            let cut = log.at("turn.interrupted");
            log.plain.remove(cut);
            (log.runes(), true)
        }
        "INV-TURN-ONE-END" => {
            let mut log = closed(log);
            let end = log.plain[log.at("turn.completed")].clone();
            let cut = log.at("mission.proposed");
            log.plain.insert(cut, Plain { moves: vec![], commit: 1000, ..end });
            (log.runes(), true)
        }
        "INV-TURN-ORDER" => {
            log.find("turn.queued").payload = number(9);
            whole(log)
        }
        "INV-TOOL-TERMINAL" => {
            log.add(By::System, "tool.result", CALL, &[]);
            whole(log)
        }
        "INV-TOOL-CALL-BEFORE-RESULT" => {
            log.add(By::System, "tool.result", entity(Kind::ToolCall, 50), &[]);
            whole(log)
        }
        "INV-TOOL-APPROVAL-BEFORE-EXEC" => {
            let at = log.at("tool.approved");
            let early = Plain {
                kind: "tool.started".into(),
                payload: r#"{"attempt":1}"#.into(),
                moves: vec![],
                commit: 1000,
                ..log.plain[at].clone()
            };
            log.plain.insert(at, early);
            whole(log)
        }
        other => panic!("no fault is planted for {other}"),
    }
}

#[test]
fn every_invariant_fires_alone_for_the_fault_that_breaks_it() {
    // These two need more than the runes: see below.
    for invariant in LIST.iter().filter(|i| ![SEAL.id, HEAD.id].contains(&i.id)) {
        let (runes, complete) = planted(invariant.id);
        let found = check(&runes, Scope { complete, ..Scope::default() });
        let fired: Vec<&str> = found.iter().map(|v| v.id).collect();
        assert_eq!(fired, [invariant.id], "{found:#?}");
        assert_eq!(found[0].severity, invariant.severity);
        assert!(found[0].seq > 0 && !found[0].message.is_empty());
    }
}

/// In a turn, told to end by a person or with its parent: the turn then ends by `kind` with these moves.
fn told_to_end(row: &str, kind: &str, moves: &[(&str, Entity, &str)]) -> Log {
    let mut log = opened();
    let told = [(row, AGENT, "running_turn>running_turn"), ("T27", TURN, "streaming>streaming")];
    log.add(By::System, "turn.control_requested", TURN, &told);
    // Once more, and a lost worker in between: nothing of that takes it back.
    log.add(By::User, "turn.control_requested", TURN, &[("T27", TURN, "streaming>streaming")]);
    let again = [("T23", TURN, "streaming>streaming"), ("L16", AGENT, "running_turn>running_turn")];
    log.add(By::System, "turn.recovered", TURN, &again);
    log.add(By::System, kind, TURN, moves);
    log
}

#[test]
fn whoever_was_told_to_end_ends_with_its_turn_however_that_ends() {
    let ends = [
        ("turn.completed", "T4", "streaming>completed", "L5"),
        ("turn.interrupted", "T5", "streaming>interrupted", "L6"),
        ("turn.error", "T19", "streaming>error", "L7"),
        ("turn.error", "T25", "streaming>error", "L19"),
    ];
    for ((kind, turn, states, agent), told) in ends.iter().flat_map(|end| [(end, "L13"), (end, "L14")]) {
        let moves = [(*turn, TURN, *states), (*agent, AGENT, "running_turn>idle")];
        let lost = told_to_end(told, kind, &moves);
        let fired = check(&lost.runes(), Scope::default());
        assert!(fired.iter().any(|v| v.id == AGENT_ENDS.id && v.seq == lost.plain.len() as i64), "{turn}: {fired:?}");
        let mut kept = lost.clone();
        let after = [("L9", AGENT, "idle>terminated"), ("D23", AGENT, "running>stopped")];
        kept.more(By::System, "agent.terminated", AGENT, &after);
        assert!(!ids(&kept.runes(), false).contains(&AGENT_ENDS.id), "{turn}");
    }
    // An agent that is still in a turn that is over has not ended either.
    let stuck = told_to_end("L13", "turn.error", &[("T25", TURN, "streaming>error")]);
    assert!(ids(&stuck.runes(), false).contains(&AGENT_ENDS.id));
    // A turn that goes on keeps it waiting.
    let mut waits = told_to_end("L13", "turn.error", &[]);
    waits.plain.pop();
    assert_eq!(ids(&waits.runes(), false), [""; 0]);
}

#[test]
fn no_turn_begins_while_its_session_is_held() {
    let mut log = opened();
    let at = log.at("turn.started");
    let mut paused = Log::default();
    paused.add(By::User, "session.paused", SESSION, &[("S6", SESSION, "active>paused")]).commit = 1000;
    log.plain.splice(at..at, paused.plain);
    log.find("turn.started").moves.retain(|moved| moved.row != "S4");
    assert_eq!(ids(&log.runes(), false), [TURN_START.id]);
}

#[test]
fn a_stopped_mission_goes_on_by_a_person() {
    let goes_on = |by: By, resumed: bool| {
        let mut log = closed(opened());
        log.plain.truncate(log.at("hop.impl_started"));
        let stop = [("H24", HOP, "HOP_PLAN_READY>CANCELLED"), ("M17", MISSION, "IN_PROGRESS>IN_PROGRESS")];
        log.add(By::User, "hop.cancelled", HOP, &stop);
        log.more(By::User, "mission.attention", MISSION, &[]).payload = r#"{"reason":"stopped_by_person"}"#.into();
        if resumed {
            log.add(By::User, "mission.resumed", MISSION, &[("M20", MISSION, "IN_PROGRESS>IN_PROGRESS")]);
        }
        let next = entity(Kind::Hop, 70);
        let (kind, row) = if by == By::User { ("hop.plan_proposed", "H2") } else { ("hop.plan_started", "H1") };
        let to = if by == By::User { ">HOP_PLAN_PROPOSED" } else { ">HOP_PLAN_STARTED" };
        log.add(by, kind, next, &[(row, next, to)]).payload =
            format!(r#"{{"mission_id":"{MISSION}","sequence_order":2,"name":"leg"}}"#);
        ids(&log.runes(), false)
    };
    assert_eq!(goes_on(By::User, false), [""; 0]);
    assert_eq!([By::Agent, By::System].map(|by| goes_on(by, true)), [[""; 0]; 2]);
    assert_eq!([By::Agent, By::System].map(|by| goes_on(by, false)), [[STOPPED.id]; 2]);
}

#[test]
fn a_seal_shows_what_was_changed_removed_or_cut_off() {
    let mut log = opened();
    let sealed = log.runes();
    let seal = chain(Seal::EMPTY, sealed.iter().map(|r| (r.seq, r.hash))).expect("no gap");
    let scope = || Scope { seals: vec![seal], ..Scope::default() };
    assert_eq!(check(&sealed, scope()), vec![]);
    // Rewritten together with its hash: only the chain remembers.
    log.find("agent.message_received").actor = "somebody else";
    let fired: Vec<&str> = check(&log.runes(), scope()).iter().map(|v| v.id).collect();
    assert_eq!(fired, [SEAL.id]);
    let cut: Vec<&str> = check(&sealed[..sealed.len() - 3], scope()).iter().map(|v| v.id).collect();
    assert_eq!(cut, [SEAL.id]);
}

#[test]
fn a_log_that_ends_before_its_session_says_so_shows() {
    let runes = closed(opened()).runes();
    let fired = |runes: &[Rune]| -> Vec<&str> {
        let head = Some(closed(opened()).plain.len() as i64);
        check(runes, Scope { head, ..Scope::default() }).iter().map(|v| v.id).collect()
    };
    assert_eq!(fired(&runes), [""; 0]);
    assert_eq!(fired(&runes[..runes.len() - 1]), [HEAD.id]);
    assert_eq!(fired(&[]), [HEAD.id]);
    // Runes that came after the number was read are none of its business.
    assert_eq!(check(&runes, Scope { head: Some(3), ..Scope::default() }), vec![]);
}

#[test]
fn what_cannot_be_a_consequence_must_be_for_the_actor_of_its_rune() {
    // An agent approves its own call beside something that it may do.
    let mut log = opened();
    let at = log.at("tool.approved");
    let usage = Plain {
        kind: "turn.usage".into(),
        entity: TURN,
        payload: sample("turn.usage").expect("a sample").into(),
        moves: vec![Moved {
            row: "T24".into(),
            entity: TURN,
            from: Some("tool_executing".into()),
            to: "tool_executing".into(),
        }],
        by: By::Agent,
        ..log.plain[at].clone()
    };
    log.plain[at].by = By::Agent;
    log.plain.insert(at, usage);
    let found = check(&log.runes(), Scope::default());
    assert_eq!(found.iter().map(|v| v.id).collect::<Vec<_>>(), [ACTOR.id], "{found:#?}");
    assert_eq!(found[0].seq, at as i64 + 2, "at the rune that approves: {found:#?}");
    // A row that is for fewer than its event is.
    let mut log = closed(opened());
    log.plain.truncate(log.at("mission.proposed"));
    log.add(By::User, "agent.drive_stopped", AGENT, &[("D6", AGENT, "running>stopped")]);
    log.add(By::User, "agent.drive_started", AGENT, &[("D9", AGENT, "stopped>running")]);
    assert_eq!(ids(&log.runes(), false), [""; 0]);
    log.plain.last_mut().expect("a rune").by = By::System;
    assert_eq!(ids(&log.runes(), false), [ACTOR.id]);
}

#[test]
fn a_consequence_that_is_not_for_the_system_needs_its_cause_in_the_commit() {
    let failed = |log: &mut Log| {
        log.add(By::System, "hop.failed", HOP, &[("H8", HOP, "HOP_PLAN_STARTED>FAILED")]);
        log.more(By::System, "mission.failed", MISSION, &[("M10", MISSION, "IN_PROGRESS>FAILED")]);
    };
    let mut log = closed(opened());
    log.plain.truncate(log.at("hop.plan_proposed"));
    log.add(By::Agent, "hop.plan_started", HOP, &[("H1", HOP, ">HOP_PLAN_STARTED")]).payload =
        format!(r#"{{"mission_id":"{MISSION}","sequence_order":1}}"#);
    failed(&mut log);
    // An agent may plan a failed hop again, which takes up the mission; it may not take it up itself.
    log.add(By::Agent, "hop.retried", HOP, &[("H30", HOP, "FAILED>HOP_PLAN_STARTED")]);
    log.more(By::Agent, "mission.retried", MISSION, &[("M14", MISSION, "FAILED>IN_PROGRESS")]);
    assert_eq!(ids(&log.runes(), false), [""; 0]);
    failed(&mut log);
    // Two that could follow from each other are not each other's excuse.
    log.add(By::Agent, "hop.fixed", HOP, &[("H28", HOP, "FAILED>HOP_IMPL_STARTED")]);
    log.more(By::Agent, "mission.retried", MISSION, &[("M14", MISSION, "FAILED>IN_PROGRESS")]);
    assert_eq!(ids(&log.runes(), false), [ACTOR.id; 2]);
}

#[test]
fn an_agent_that_decides_on_its_own_request_shows() {
    let own: &'static str = AGENT.to_string().leak();
    let mut log = opened();
    log.find("tool.approved").actor = own;
    assert_eq!(ids(&log.runes(), false), [ACTOR.id]);
    let mut log = opened();
    log.find("tool.approved").payload = format!(r#"{{"approver":"{own}","digest":"d1"}}"#);
    assert_eq!(ids(&log.runes(), false), [ACTOR.id]);
    // The same person or service may propose and decide; another's proposal may be decided on.
    let mut log = closed(opened());
    log.find("mission.proposed").actor = own;
    assert_eq!(ids(&log.runes(), true), [""; 0]);
    log.find("mission.approved").actor = own;
    assert_eq!(ids(&log.runes(), true), [ACTOR.id]);
}

#[test]
fn two_owners_of_one_epoch_show() {
    let mut log = opened();
    log.find("turn.tools_finished").actor = "another worker";
    assert_eq!(ids(&log.runes(), false), [EPOCH.id]);
    // Under an epoch of its own, without a lease, or as a person: that is how it should be.
    for (epoch, by) in [(2, By::System), (0, By::System)] {
        let mut log = opened();
        let last = log.find("turn.tools_finished");
        (last.actor, last.epoch, last.by) = ("another worker", epoch, by);
        assert_eq!(ids(&log.runes(), false), [""; 0]);
    }
    let mut log = opened();
    log.find("agent.drive_started").actor = "another person";
    log.find("tool.result").actor = "a runner";
    assert_eq!(ids(&log.runes(), false), [""; 0]);
}

#[test]
fn a_call_that_waited_for_an_approval_does_not_start_without_one() {
    // The call is let through as if nobody had been asked.
    let mut log = opened();
    let at = log.at("tool.approved");
    log.plain.remove(at);
    log.find("tool.started")
        .moves
        .insert(0, Moved { row: "C4".into(), entity: CALL, from: Some("pending_call".into()), to: "executing".into() });
    assert_eq!(ids(&log.runes(), false), [APPROVAL_BEFORE_EXEC.id, TABLE.id]);
    // Or as if it had been approved, without the rune that says by whom.
    log.find("tool.started").moves[0] =
        Moved { row: "C5".into(), entity: CALL, from: Some("awaiting_approval".into()), to: "executing".into() };
    let fired = ids(&log.runes(), false);
    assert!(fired.contains(&APPROVAL_BEFORE_EXEC.id), "{fired:?}");
}

#[test]
fn a_move_without_all_runes_of_its_row_shows() {
    let mut log = opened();
    let cut = log.at("agent.message_received");
    log.plain.remove(cut);
    assert_eq!(ids(&log.runes(), false), [RUNE_KIND.id]);
    // The rune is there, but about somebody else.
    let mut log = opened();
    log.find("agent.message_received").entity = entity(Kind::Agent, 20);
    assert_eq!(ids(&log.runes(), false), [RUNE_KIND.id]);
    // Or in another commit.
    let mut log = opened();
    log.find("agent.message_received").commit = 1000;
    assert_eq!(ids(&log.runes(), false), [RUNE_KIND.id]);
}

#[test]
fn what_is_still_open_counts_only_when_the_log_is_complete() {
    let mut log = opened();
    let cut = log.at("tool.result");
    log.plain.truncate(cut);
    assert_eq!(ids(&log.runes(), false), [""; 0]);
    assert_eq!(ids(&log.runes(), true), [TURN_TERMINAL.id, TOOL_TERMINAL.id]);
}

#[test]
fn an_approval_of_something_else_than_was_asked_shows() {
    let mut log = opened();
    log.find("tool.approved").payload = r#"{"approver":"key","digest":"d2"}"#.into();
    assert_eq!(ids(&log.runes(), false), [APPROVAL_BEFORE_EXEC.id]);
}

#[test]
fn a_move_on_the_wrong_kind_and_a_payload_that_is_none_show() {
    let mut log = opened();
    log.find("tool.started").kind = "tool.progress".into();
    log.find("tool.progress").payload = r#"{"chunk":"x"}"#.into();
    assert_eq!(ids(&log.runes(), false), [RUNE_KIND.id]);
    let mut runes = opened().runes();
    runes[opened().at("turn.tool_calls_received")].kind = "agent.confused".into();
    assert_eq!(ids(&runes, false), [HASH.id, RUNE_KIND.id]);
}

#[test]
fn steps_that_do_not_fit_their_hop_show_at_the_end_of_the_commit() {
    let mut log = closed(opened());
    let cut = log.at("step.cancelled");
    log.plain.remove(cut);
    assert_eq!(ids(&log.runes(), true), [COORDINATION.id]);
}

#[test]
fn a_rune_of_another_session_and_an_actor_without_a_name_show() {
    let mut log = opened();
    log.find("turn.started").session = entity(Kind::Session, 99);
    assert_eq!(ids(&log.runes(), false), [MONOTONIC.id]);
    let mut log = opened();
    log.find("turn.started").actor = "";
    assert_eq!(ids(&log.runes(), false), [ACTOR.id]);
}

#[test]
fn a_checker_can_be_asked_while_it_reads() {
    let mut checker = Checker::new(Seal::EMPTY, vec![]);
    let (runes, _) = planted("INV-TOOL-TERMINAL");
    runes.iter().for_each(|rune| checker.push(rune));
    assert_eq!(checker.found().len(), 1);
    assert!(checker.states().len() > 5);
}
