//! A plan of fifty tasks over eight agents, some of which fail, while a process dies every second: each task is
//! done once, in its order, and a critic has the last word. And a process that dies at a plan's own commits.

use anyhow::{Context, Result, ensure};
use instar_client::Plan;
use instar_core::id::{PlanId, SessionId};
use instar_core::machine::By;
use instar_core::rune::Actor;
use instar_runtime::flow::{self, NewPlan};
use instar_store::{Answer, Options, Store};
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::wait;
use instar_tests::audit;
use instar_tests::fleet::{Fleet, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(180);
/// How many tasks lie side by side, from the first to the last.
const LAYERS: [usize; 10] = [1, 3, 6, 8, 9, 8, 6, 5, 3, 1];
const AGENTS: usize = 8;
/// The title of a task whose agent says what came of it without a tool.
const WORDY: &str = "a part told in words";

fn tasks(layers: &[usize], title: &str) -> Vec<Value> {
    let name = |layer: usize, n: usize| format!("t{layer}-{n}");
    let mut tasks = Vec::new();
    for (layer, width) in layers.iter().enumerate() {
        for n in 0..*width {
            let above = layer.checked_sub(1).map_or(0, |layer| layers[layer]);
            // The last one waits for all above it; the others for two.
            let all = layer + 1 == layers.len();
            let mut deps: Vec<String> = match all {
                true => (0..above).map(|d| name(layer - 1, d)).collect(),
                false => (0..above.min(2)).map(|d| name(layer - 1, (n + d) % above)).collect(),
            };
            deps.sort();
            deps.dedup();
            tasks.push(json!({"id": name(layer, n), "title": title, "description": "Do it.", "deps": deps}));
        }
    }
    tasks
}

/// A number from a text, the same each time.
fn throw(text: &str) -> u64 {
    text.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(131).wrapping_add(u64::from(byte))) >> 7
}

/// Proposes the graph, fails a task now and then on its first attempts, finds fault with what is left failed.
fn script(layers: &'static [usize]) -> Script {
    Script::function(move |request: &Request| {
        let (tools, text) = (request.tools(), request.user_text());
        let quick = |reply: Reply| reply.slow(Duration::from_millis(30 + throw(&text) % 120), Duration::ZERO);
        if tools.contains(&"propose_plan") {
            let title = if text.contains("in words") { WORDY } else { "a part" };
            return quick(Reply::call("propose_plan", json!({"tasks": tasks(layers, title)})));
        }
        if tools.contains(&"submit_critique") {
            let failed = text.lines().filter(|line| line.starts_with("- ") && line.contains(", failed): "));
            let finding = |line: &str| {
                let key = line[2..].split(' ').next().unwrap_or_default();
                json!({"severity": "error", "category": "completeness", "title": "not done", "task": key})
            };
            let findings: Vec<Value> = failed.map(finding).collect();
            return quick(Reply::call("submit_critique", json!({"summary": "judged", "findings": findings})));
        }
        if tools.contains(&"complete_task") && text.contains(WORDY) {
            return quick(Reply::text("It is done."));
        }
        if tools.contains(&"complete_task") {
            let (again, key) = (text.contains("This is attempt 3"), text.split(':').next().unwrap_or_default());
            let fails = !again && throw(&format!("{key}{}", text.contains("This is attempt"))).is_multiple_of(5);
            return quick(match fails {
                true => Reply::call("fail_task", json!({"reason": "a die fell badly"})),
                false => Reply::call("complete_task", json!({"result": format!("{key} is done")})),
            });
        }
        Reply::text("Nothing was asked of me.")
    })
}

async fn fleet(layers: &'static [usize], database: &str) -> Result<Fleet> {
    let nats = instar_testkit::nats::shared().await?;
    let binary = env!("CARGO_BIN_EXE_instar-armed").into();
    let mut setup = Setup::new(binary, database, &nats, script(layers));
    setup.config = "[lease]\nttl_ms = 900\n[scheduler]\nerror_threshold = 0\n".to_owned();
    Fleet::start(setup).await
}

async fn ended(fleet: &Fleet, plan: &str) -> Result<Plan> {
    let found = wait::until_ok(WITHIN, || async {
        let plan = fleet.client.plan(plan).await?;
        let left: Vec<String> = plan
            .tasks
            .iter()
            .filter(|task| task.status != "completed")
            .map(|task| format!("{} {} {:?}", task.key, task.status, task.error))
            .collect();
        ensure!(["goal_met", "stopped"].contains(&plan.status.as_str()), "{}: {left:?}", plan.status);
        Ok(plan)
    });
    found.await
}

/// Each task once, none before those it waits for, the critic's word, and nothing wrong with the log.
async fn is_sound(store: &Store, plan: &Plan) -> Result<()> {
    ensure!(plan.status == "goal_met", "{}: {:?}", plan.status, plan.reason);
    let session: SessionId = plan.session_id.parse()?;
    let runes = audit::runes(store, session).await?;
    let mut completed: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for rune in runes.iter().filter(|rune| rune.kind == "plan.task_completed") {
        completed.entry(rune.entity.to_string()).or_default().push(rune.seq);
    }
    for task in &plan.tasks {
        let seqs = completed.get(&task.id).with_context(|| format!("{} was never completed", task.key))?;
        ensure!(seqs.len() == 1, "{} was completed {} times", task.key, seqs.len());
        let began = runes.iter().filter(|r| r.kind == "plan.task_started" && r.entity.to_string() == task.id);
        let first = began.map(|rune| rune.seq).min().context("begun")?;
        for dep in &task.deps {
            ensure!(completed[dep][0] < first, "{} began before {dep} was done", task.key);
        }
    }
    let verdicts: Vec<bool> = runes
        .iter()
        .filter(|rune| rune.kind == "plan.critique")
        .filter_map(|rune| serde_json::from_str::<Value>(rune.payload.get()).ok()?["pass"].as_bool())
        .collect();
    ensure!(verdicts.last() == Some(&true), "{verdicts:?}");
    let wrong = wait::until_ok(WITHIN, || async {
        let wrong = audit::session(store, session).await?;
        ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(wrong)
    });
    wrong.await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_fifty_tasks_reaches_its_goal_though_a_process_dies_every_second() -> Result<()> {
    let database = instar_testkit::postgres::shared().await?;
    let mut fleet = fleet(&LAYERS, &database).await?;
    let more = fleet.spawn("agent-worker", &[]).await?;
    fleet.nodes.push(more);
    let (session, _) = fleet.agents(AGENTS, &[]).await?;
    let began = Instant::now();
    let new = json!({"goal": "Fifty parts.", "autonomy": "auto", "workers_max": AGENTS, "attempts_max": 10});
    let plan = fleet.client.create_plan(&session, &new).await?.id;
    let mut killed = 0;
    // In turn: two workers, the runner, the scheduler.
    let order = ["agent-worker", "agent-worker", "tool-runner", "agent-worker", "scheduler"];
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let found = fleet.client.plan(&plan).await?;
        if ["goal_met", "stopped"].contains(&found.status.as_str()) || began.elapsed() > WITHIN {
            break;
        }
        let service = order[killed % order.len()];
        let at = fleet.nodes.iter().position(|node| node.service == service).context("a node")?;
        let mut node = fleet.nodes.remove(at);
        node.kill9().await?;
        let next = fleet.spawn(service, &[]).await?;
        fleet.nodes.push(next);
        killed += 1;
    }
    let met = ended(&fleet, &plan).await?;
    println!("{} tasks in {:.1} s, {killed} processes killed", met.tasks.len(), began.elapsed().as_secs_f64());
    let added: Vec<_> = met.tasks.iter().filter(|task| !task.key.contains('-')).map(|task| json!(task)).collect();
    ensure!(met.tasks.len() == 50 && killed > 2, "{} tasks, {killed} killed; added: {added:#?}", met.tasks.len());
    ensure!(met.tasks.iter().any(|task| task.attempt > 1), "nothing ever failed");
    // Each was asked for what it is, and for nothing that its agent did before.
    for task in &met.tasks {
        let own = json!(format!("Task {} is done", task.key));
        let came = task.rest.get("result");
        ensure!(came == Some(&own), "{} came to {came:?}", task.key);
    }
    is_sound(&Store::open(Options::new(&database)).await?, &met).await
}

/// Who takes a plan's steps by design, the how manieth step it dies at, and a goal that leads it there.
///
/// A runner takes those that follow from what a tool has said, a worker those that follow from a turn that ended in
/// words; each is told right after its own commit. A scheduler takes what nobody was told of, so that its plan is one
/// that was written down by somebody who died before a word. The API takes the first step of what it writes down.
const TAKERS: [(&str, u32, &str); 3] =
    [("tool-runner", 2, "Four parts."), ("agent-worker", 2, "Four parts, in words."), ("scheduler", 1, "Four parts.")];

/// A plan, by its session.
async fn begin(fleet: &Fleet, store: &Store, service: &str, session: &str, goal: &str) -> Result<String> {
    if service != "scheduler" {
        let new = json!({"goal": goal, "autonomy": "auto", "attempts_max": 10});
        return Ok(fleet.client.create_plan(session, &new).await?.id);
    }
    let session = store.session(session.parse()?).await?.context("a session")?;
    let new = NewPlan {
        goal: goal.into(),
        autonomy: "auto".into(),
        config: json!({"attempts_max": 10}),
        budget: json!({}),
        ..NewPlan::default()
    };
    let (commit, plan) = flow::set_goal(&session, new, Actor::new(By::User, "key_test"), None)?;
    ensure!(matches!(store.commit(commit).await?, Answer::Moved(_)), "the goal was not set");
    Ok(PlanId::from(plan.id).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_at_a_plans_commits_leaves_it_to_the_next_one() -> Result<()> {
    const SMALL: [usize; 3] = [1, 2, 1];
    let database = instar_testkit::postgres::shared().await?;
    let mut fleet = fleet(&SMALL, &database).await?;
    let store = Store::open(Options::new(&database)).await?;
    for (service, step, goal) in TAKERS {
        for point in ["plan.step.before", "plan.step.after"] {
            let (session, _) = fleet.agents(2, &[]).await?;
            let at = fleet.nodes.iter().position(|node| node.service == service).context("a node")?;
            fleet.nodes.remove(at).terminate(Duration::from_secs(30)).await?;
            let armed = [(instar_crashpoint::VARIABLE, format!("{point}:{step}"))];
            let armed: Vec<(&str, &str)> = armed.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut armed = fleet.spawn(service, &armed).await?;
            let plan = begin(&fleet, &store, service, &session, goal).await?;
            // A fault that does not strike shows nothing.
            let struck = wait::until_ok(Duration::from_secs(60), || {
                let (ended, found) = (armed.ended(), fleet.client.plan(&plan));
                async move {
                    ensure!(ended?.is_some(), "it lives, and the plan is {}", found.await?.status);
                    Ok(())
                }
            });
            struck.await.with_context(|| format!("{service} {point}"))?;
            drop(armed.kill9().await);
            let next = fleet.spawn(service, &[]).await?;
            fleet.nodes.push(next);
            let met = ended(&fleet, &plan).await.with_context(|| format!("{service} {point}"))?;
            is_sound(&store, &met).await.with_context(|| format!("{service} {point}"))?;
        }
    }
    Ok(())
}
