use super::*;
use chrono::{DateTime, Utc};
use instar_core::plan::Used;
use instar_store::entity::{plan, session};
use serde_json::json;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_000 + seconds, 0).expect("a time")
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn task(n: u128, status: &str, deps: &[u128]) -> task::Model {
    task::Model {
        id: id(n),
        session_id: id(1),
        plan_id: id(2),
        key: n.to_string(),
        title: "t".into(),
        description: "d".into(),
        priority: "medium".into(),
        role: "worker".into(),
        deps: json!(deps.iter().map(|dep| id(*dep)).collect::<Vec<_>>()),
        success_criteria: json!([]),
        status: status.into(),
        epoch: 0,
        version: 0,
        attempt: 1,
        attempts_max: 2,
        iteration: 1,
        asked: 0,
        owner_id: is_owned(status).then(|| id(50)),
        turn_id: is_owned(status).then(|| id(60)),
        result: None,
        evidence: json!([]),
        error: None,
        assigned_at: Some(at(0)),
        started_at: None,
        created_at: at(0),
        updated_at: at(0),
        ended_at: None,
    }
}

fn is_owned(status: &str) -> bool {
    ["assigned", "running"].contains(&status)
}

fn turn(status: &str, output: Option<&str>) -> turn::Model {
    turn::Model {
        id: id(60),
        session_id: id(1),
        agent_id: id(50),
        status: status.into(),
        epoch: 0,
        version: 0,
        cause: "task".into(),
        attempts: 1,
        iterations: 1,
        open_calls: 0,
        input: json!({}),
        output: output.map(str::to_owned),
        usage: json!({}),
        finish_reason: None,
        segment: None,
        reserved: None,
        control: None,
        error: (status == "error").then(|| json!({"message": "no model"})),
        deadline_at: None,
        traceparent: None,
        created_at: at(0),
        updated_at: at(0),
        ended_at: (!["queued", "streaming"].contains(&status)).then(|| at(1)),
    }
}

fn agent(lifecycle: &str, drive: &str) -> agent::Model {
    agent::Model {
        id: id(50),
        session_id: id(1),
        name: "a".into(),
        role: "worker".into(),
        model: "m".into(),
        lifecycle: lifecycle.into(),
        drive: drive.into(),
        epoch: 0,
        version: 0,
        owner: None,
        parent_id: None,
        nudge_count: 0,
        letter_count: None,
        late_count: None,
        today: None,
        last_error: None,
        config: json!({}),
        usage: json!({}),
        created_at: at(0),
        updated_at: at(0),
    }
}

fn scene(status: &str, tasks: Vec<task::Model>) -> Scene {
    let session = session::Model {
        id: id(1),
        namespace: "n".into(),
        name: None,
        status: "active".into(),
        epoch: 0,
        version: 0,
        head_seq: 0,
        published_seq: 0,
        sealed_seq: 0,
        root_agent_id: None,
        config: json!({}),
        budget: json!({}),
        final_hash: None,
        holds: None,
        reset_at: None,
        created_at: at(0),
        updated_at: at(0),
    };
    let plan = plan::Model {
        id: id(2),
        session_id: id(1),
        hop_id: None,
        goal: "g".into(),
        autonomy: "manual".into(),
        config: json!({}),
        budget: json!({}),
        status: status.into(),
        epoch: 0,
        version: 0,
        iteration: 1,
        revision: 0,
        drafted: false,
        asked: 0,
        orchestrator_id: None,
        critic_id: None,
        turn_id: None,
        feedback: None,
        reason: None,
        summary: None,
        created_at: at(0),
        updated_at: at(0),
        ended_at: None,
    };
    let (turns, owners) = (HashMap::new(), HashMap::from([(id(50), agent("idle", "running"))]));
    Scene {
        session,
        plan,
        tasks,
        turns,
        owners,
        critiques: Vec::new(),
        evidence: HashMap::new(),
        used: Used::default(),
        now: at(10),
    }
}

fn step(scene: &Scene) -> Option<Step> {
    next(scene, Duration::seconds(60))
}

fn with_turn(task: task::Model, turn: turn::Model) -> Scene {
    let mut scene = scene("executing", vec![task]);
    scene.turns.insert(turn.id, turn);
    scene
}

#[test]
fn a_goal_is_planned_and_a_draft_waits_unless_policy_lets_it_run() {
    assert_eq!(step(&scene("goal_received", vec![])), Some(Step::Plan));
    let mut planning = scene("planning", vec![]);
    assert_eq!(step(&planning), Some(Step::Plan), "its turn ended without a draft");
    planning.plan.asked = ASKED_MAX;
    assert!(matches!(step(&planning), Some(Step::Raise("user_cancel", _))));
    planning.plan.drafted = true;
    assert_eq!(step(&planning), None);
    planning.plan.autonomy = "auto".into();
    assert!(matches!(step(&planning), Some(Step::Raise("auto_start", _))));
    planning.session.status = "paused".into();
    assert_eq!(step(&planning), None, "a plan is frozen with its session");
}

#[test]
fn what_can_run_is_assigned_by_priority_and_age() {
    let mut low = task(10, "pending", &[]);
    low.priority = "low".into();
    let mut urgent = task(13, "pending", &[12]);
    urgent.priority = "critical".into();
    let tasks = vec![low, task(11, "pending", &[]), task(12, "completed", &[]), urgent, task(14, "pending", &[11])];
    assert_eq!(step(&scene("executing", tasks)), Some(Step::Assign(vec![id(13), id(11), id(10)])));
}

#[test]
fn the_end_of_a_turn_is_the_result_a_question_or_a_failure() {
    let running = || task(10, "running", &[]);
    assert_eq!(step(&with_turn(running(), turn("streaming", None))), None);
    let said = step(&with_turn(running(), turn("completed", Some("done"))));
    assert_eq!(said, Some(Step::Finish(id(10), "done".into())));
    let strict = task::Model { success_criteria: json!(["it is"]), ..running() };
    assert!(matches!(step(&with_turn(strict.clone(), turn("completed", Some("done")))), Some(Step::Ask(..))));
    let asked = task::Model { asked: REPORTS_MAX, ..strict };
    assert!(matches!(step(&with_turn(asked, turn("completed", Some("done")))), Some(Step::Move(_, "fail", _))));
    assert!(matches!(step(&with_turn(running(), turn("completed", Some(SILENCE)))), Some(Step::Ask(..))));
    assert!(matches!(step(&with_turn(running(), turn("interrupted", None))), Some(Step::Ask(..))));
    let failed = step(&with_turn(running(), turn("error", None)));
    assert_eq!(failed, Some(Step::Move(id(10), "fail", "no model".into())));
}

#[test]
fn a_task_without_its_agent_or_that_is_not_begun_goes_back() {
    let mut lost = with_turn(task(10, "running", &[]), turn("streaming", None));
    for (lifecycle, drive) in [("terminated", "stopped"), ("idle", "errored"), ("running_turn", "stopped")] {
        lost.owners.insert(id(50), agent(lifecycle, drive));
        assert!(matches!(step(&lost), Some(Step::Move(_, "agent_lost", _))), "{lifecycle} {drive}");
    }
    lost.tasks[0].attempt = 2;
    assert!(matches!(step(&lost), Some(Step::Move(_, "fail", _))), "no attempt is left");
    let mut waits = with_turn(task(10, "assigned", &[]), turn("queued", None));
    assert_eq!(step(&waits), None);
    waits.now = at(61);
    assert!(matches!(step(&waits), Some(Step::Move(_, "start_timeout", _))));
}

#[test]
fn a_blocked_plan_retries_waits_for_a_person_or_stops() {
    let tasks = |attempt| vec![task::Model { attempt, ..task(10, "failed", &[]) }, task(11, "blocked", &[10])];
    assert!(matches!(step(&scene("blocked", tasks(1))), Some(Step::Move(_, "retry", _))));
    assert!(matches!(step(&scene("blocked", tasks(2))), Some(Step::Raise("unresolvable", _))));
    let mut person = tasks(2);
    person.push(task(12, "blocked", &[]));
    assert_eq!(step(&scene("blocked", person)), None);
}

#[test]
fn a_review_asks_for_a_verdict_and_gives_up_in_the_end() {
    let mut judged = scene("reviewing", vec![task(10, "completed", &[])]);
    assert_eq!(step(&judged), Some(Step::Review));
    judged.plan.turn_id = Some(id(60));
    judged.turns.insert(id(60), turn("streaming", None));
    assert_eq!(step(&judged), None);
    judged.plan.turn_id = None;
    judged.plan.asked = ASKED_MAX;
    assert!(matches!(step(&judged), Some(Step::Raise("user_cancel", _))));
}

#[test]
fn a_spent_budget_goes_before_everything_else() {
    let mut spent = scene("executing", vec![task(10, "pending", &[])]);
    spent.plan.budget = json!({"max_tokens": 5});
    spent.used.tokens = 5;
    assert!(matches!(step(&spent), Some(Step::Raise("budget_exhausted", _))));
}

#[test]
fn what_nobody_said_about_the_last_task_is_said_here() {
    let over = step(&scene("executing", vec![task(10, "completed", &[]), task(11, "cancelled", &[])]));
    assert!(matches!(over, Some(Step::Raise("all_tasks_terminal", _))));
    let stuck = step(&scene("executing", vec![task(10, "completed", &[]), task(11, "blocked", &[])]));
    assert!(matches!(stuck, Some(Step::Raise("all_runnable_blocked", _))));
}
