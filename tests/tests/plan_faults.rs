//! A plan of fifty tasks over eight agents, some of which fail, while a process dies every second: each task is
//! done once, in its order, and a critic has the last word. And a process that dies at a plan's own commits.

use anyhow::{Context, Result, ensure};
use instar_client::Plan;
use instar_core::id::SessionId;
use instar_store::{Options, Store};
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

fn tasks(layers: &[usize]) -> Vec<Value> {
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
            tasks.push(json!({"id": name(layer, n), "title": "a part", "description": "Do it.", "deps": deps}));
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
            return quick(Reply::call("propose_plan", json!({"tasks": tasks(layers)})));
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
    ensure!(met.tasks.len() == 50 && killed > 2, "{} tasks, {killed} killed", met.tasks.len());
    ensure!(met.tasks.iter().any(|task| task.attempt > 1), "nothing ever failed");
    is_sound(&Store::open(Options::new(&database)).await?, &met).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_at_a_plans_commits_leaves_it_to_the_next_one() -> Result<()> {
    const SMALL: [usize; 3] = [1, 2, 1];
    let database = instar_testkit::postgres::shared().await?;
    let mut fleet = fleet(&SMALL, &database).await?;
    let store = Store::open(Options::new(&database)).await?;
    let mut struck = 0;
    for service in ["scheduler", "agent-worker", "tool-runner"] {
        for point in ["plan.step.before", "plan.step.after"] {
            let (session, _) = fleet.agents(2, &[]).await?;
            let at = fleet.nodes.iter().position(|node| node.service == service).context("a node")?;
            fleet.nodes.remove(at).terminate(Duration::from_secs(30)).await?;
            // The second one that it takes.
            let mut armed = fleet.spawn(service, &[(instar_crashpoint::VARIABLE, &format!("{point}:2"))]).await?;
            let new = json!({"goal": "Four parts.", "autonomy": "auto", "attempts_max": 10});
            let plan = fleet.client.create_plan(&session, &new).await?.id;
            // Whoever gets there first takes a step: a plan may reach its goal without this one.
            let came = wait::until_ok(Duration::from_secs(20), || {
                let (ended, found) = (armed.ended(), fleet.client.plan(&plan));
                async move {
                    let died = ended?.is_some();
                    ensure!(died || found.await?.status == "goal_met", "it lives, and the plan goes on");
                    Ok(died)
                }
            });
            struck += usize::from(came.await.with_context(|| format!("{service} {point}"))?);
            drop(armed.kill9().await);
            let next = fleet.spawn(service, &[]).await?;
            fleet.nodes.push(next);
            let met = ended(&fleet, &plan).await.with_context(|| format!("{service} {point}"))?;
            is_sound(&store, &met).await.with_context(|| format!("{service} {point}"))?;
        }
    }
    // A fault that does not strike shows nothing.
    ensure!(struck >= 2, "only {struck} of six struck");
    Ok(())
}
