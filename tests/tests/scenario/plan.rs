//! Plans: a goal becomes tasks, agents do them, a critic that saw none of it judges.
//!
//! The model follows the scenario's own lists: what is proposed, what is said of each task, what the critic
//! finds, one entry per time it is asked.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Refusal, Reply, Request};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) static PLAIN: Group = Group {
    name: "plan",
    config: "[worker]\ninterrupt_grace_ms = 500\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        reaches_its_goal,
        is_rejected_and_drafted_anew,
        is_judged_by_the_critic_of_its_session,
        is_judged_and_tried_again,
        is_made_anew_when_the_critic_wants_that,
        is_numbered_from_t1_in_every_round,
        stops_after_its_last_iteration,
        stops_at_the_first_failure,
        waits_for_what_only_a_person_has,
        goes_on_when_the_blocker_is_done_at_last,
        stops_when_nothing_can_help,
        costs_no_more_than_it_may,
        ends_wherever_it_is_cancelled,
        ends_with_its_session,
        goes_on_without_the_agent_it_lost,
        takes_the_last_words_for_the_result,
        says_what_is_wrong_with_a_proposal,
        stops_without_a_plan,
    ],
};

/// One turn at a time, so that a task waits to be begun.
pub(crate) static CROWDED: Group = Group {
    name: "crowded_plan",
    config: "[worker]\nconcurrency = 1\ninterrupt_grace_ms = 500\n[plans]\nstart_timeout_ms = 700\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![is_given_to_another_when_it_is_not_begun],
};

/// What the model says, by whom it speaks for; the last entry is said again and again.
#[derive(Default)]
pub(crate) struct Lines {
    plans: Vec<Reply>,
    tasks: HashMap<String, Vec<Reply>>,
    verdicts: Vec<Reply>,
}

impl Lines {
    pub(crate) fn plan(mut self, tasks: Value) -> Lines {
        self.plans.push(Reply::call("propose_plan", json!({"tasks": tasks})));
        self
    }

    pub(crate) fn task(mut self, key: &str, replies: impl Into<Vec<Reply>>) -> Lines {
        self.tasks.insert(key.to_owned(), replies.into());
        self
    }

    pub(crate) fn verdict(mut self, findings: Value, replan: bool) -> Lines {
        let said = json!({"summary": "looked at", "findings": findings, "replan": replan});
        self.verdicts.push(Reply::call("submit_critique", said));
        self
    }

    pub(crate) fn pass(self) -> Lines {
        self.verdict(json!([]), false)
    }

    /// Has the model of a scenario follow them.
    pub(crate) fn follow(self, world: &World) -> Prompts {
        let (asked, prompts) = (Mutex::new(HashMap::<String, usize>::new()), Prompts::default());
        let heard = prompts.clone();
        world.script(move |request: &Request| {
            let text = request.user_text();
            let (who, lines) = match request.tools() {
                tools if tools.contains(&"propose_plan") => ("plan".to_owned(), self.plans.as_slice()),
                tools if tools.contains(&"submit_critique") => ("verdict".to_owned(), self.verdicts.as_slice()),
                tools if tools.contains(&"complete_task") => {
                    let key = key_in(&text);
                    let lines = self.tasks.get(&key).map(Vec::as_slice).unwrap_or_default();
                    (format!("task {key}"), lines)
                }
                _ => return instar_tests::puppet::reply(request),
            };
            heard.0.lock().unwrap().push((who.clone(), text));
            let mut asked = asked.lock().unwrap();
            let at = asked.entry(who.clone()).or_default();
            let reply = lines.get((*at).min(lines.len().saturating_sub(1))).cloned();
            *at += 1;
            reply.unwrap_or_else(|| done("done"))
        });
        prompts
    }
}

/// What the model was told, and by whom it spoke for.
#[derive(Clone, Default)]
pub(crate) struct Prompts(Arc<Mutex<Vec<(String, String)>>>);

impl Prompts {
    pub(crate) fn of(&self, who: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(name, _)| name == who).map(|(_, text)| text.clone()).collect()
    }
}

/// `Task KEY: title …`, or `… Go on with task KEY (title) …`.
fn key_in(text: &str) -> String {
    let rest = match text.strip_prefix("Task ") {
        Some(rest) => rest.split(':').next(),
        None => text.split("Go on with task ").nth(1).and_then(|rest| rest.split(' ').next()),
    };
    rest.unwrap_or_default().to_owned()
}

pub(crate) fn done(result: &str) -> Reply {
    Reply::call("complete_task", json!({"result": result}))
}

fn failed(reason: &str, retry: bool) -> Reply {
    Reply::call("fail_task", json!({"reason": reason, "retry": retry}))
}

pub(crate) fn blocked(reason: &str) -> Reply {
    Reply::call("block_task", json!({"reason": reason}))
}

pub(crate) fn slowly() -> Reply {
    Reply::text("never").slow(Duration::from_secs(50), Duration::ZERO)
}

pub(crate) fn task(id: &str, deps: &[&str]) -> Value {
    json!({"id": id, "title": format!("do {id}"), "description": format!("Do {id} well."), "deps": deps})
}

fn finding(severity: &str, task: Option<&str>) -> Value {
    let mut finding = json!({"severity": severity, "category": "correctness", "title": format!("an {severity}"),
        "description": "look again"});
    if let Some(task) = task {
        finding["task"] = json!(task);
    }
    finding
}

/// A session with a first agent, and a plan whose agents follow the scenario's script.
pub(crate) async fn begin(world: &World, more: Value) -> Result<(String, String)> {
    let session = world.session().await?;
    world.agent(&session, json!({"name": "root", "tools": ["echo"]})).await?;
    let plan = set_goal(world, &session, more).await?;
    Ok((session, plan))
}

async fn set_goal(world: &World, session: &str, more: Value) -> Result<String> {
    let own = format!("[{}]", world.name);
    let mut new = json!({"goal": "Reach the shore.", "autonomy": "auto",
        "instructions": {"orchestrator": own, "worker": own, "critic": own}});
    if let (Some(new), Value::Object(more)) = (new.as_object_mut(), more) {
        new.extend(more);
    }
    text(&world.act(&format!("/v1/sessions/{session}/plans"), new).await?, "id")
}

async fn is(world: &World, plan: &str, status: &str) -> Result<Value> {
    world.until(&format!("/v1/plans/{plan}"), |plan| plan["status"] == status).await
}

async fn drafted(world: &World, plan: &str) -> Result<Value> {
    world.until(&format!("/v1/plans/{plan}"), |plan| plan["waiting_for"] == "approval of the draft").await
}

pub(crate) fn of<'a>(plan: &'a Value, key: &str) -> &'a Value {
    let tasks = plan["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    tasks.iter().find(|task| task["key"] == key).unwrap_or(&Value::Null)
}

pub(crate) async fn task_is(world: &World, plan: &str, key: &str, status: &str) -> Result<Value> {
    world.until(&format!("/v1/plans/{plan}"), |plan| of(plan, key)["status"] == status).await
}

fn diamond() -> Value {
    json!([task("a", &[]), task("b", &["a"]), task("c", &["a"]), task("d", &["b", "c"])])
}

/// By its evidence too, and by nobody who had a part in the work.
async fn is_judged_by_the_critic_of_its_session(world: World) -> Result<()> {
    let echo = Reply::call("echo", json!({"text": "soundings of the reef"}));
    let lines = Lines::default().plan(json!([task("a", &[])])).task("a", [echo, done("charted")]).pass();
    let prompts = lines.follow(&world);
    let session = world.session().await?;
    world.agent(&session, json!({"name": "root", "tools": ["echo"]})).await?;
    let own = json!({"name": "judge", "role": "critic", "system_prompt": format!("[{}]", world.name)});
    let judge = world.agent(&session, own).await?;
    let plan = set_goal(&world, &session, json!({"tools": ["echo"]})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(met["critic_id"] == json!(judge), "{met}");
    let told = prompts.of("verdict");
    ensure!(told[0].contains("(tool.result)") && told[0].contains("soundings of the reef"), "{told:?}");
    Ok(())
}

async fn reaches_its_goal(world: World) -> Result<()> {
    let lines = Lines::default().plan(diamond()).task("a", [done("the boat is built")]).pass();
    let prompts = lines.follow(&world);
    let rubric = "Nobody may drown.";
    let (session, plan) = begin(&world, json!({"autonomy": "manual", "rubric": rubric})).await?;
    let draft = drafted(&world, &plan).await?;
    ensure!(draft["tasks"].as_array().is_some_and(|tasks| tasks.len() == 4), "{draft}");
    world.refused(&format!("/v1/plans/{plan}/unblock"), json!({}), "").await?;
    let (code, said) = world.run(&["plan", "approve", &plan]).await?;
    ensure!(code == 0, "{said}");
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(of(&met, "a")["result"] == "the boat is built" && met["summary"] == "looked at", "{met}");
    ensure!(of(&met, "a")["evidence"].as_array().is_some_and(|runes| !runes.is_empty()), "{met}");
    ensure!(met["critiques"][0]["pass"] == true && met["usage"]["tool_calls"] == 6, "{met}");
    // Whoever builds on a result sees it; the critic sees all of them, and a conversation of its own.
    ensure!(prompts.of("task b")[0].contains("the boat is built"), "{:?}", prompts.of("task b"));
    let judged = &prompts.of("verdict")[0];
    ensure!(judged.contains(rubric) && judged.contains("the boat is built") && judged.contains("run_"), "{judged}");
    let critic = text(&met, "critic_id")?;
    let owners: Vec<&Value> = ["a", "b", "c", "d"].map(|key| &of(&met, key)["owner_id"]).into();
    ensure!(!owners.contains(&&json!(critic)), "the critic had no part in it");
    let order: Vec<String> = {
        let runes = world.runes_of(&session, "plan.task_completed", 4).await?;
        runes.iter().map(|rune| rune["entity_id"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let at = |key: &str| order.iter().position(|id| of(&met, key)["id"] == id.as_str());
    ensure!(at("a") == Some(0) && at("d") == Some(3), "{order:?}");
    world.runes_of(&session, "plan.critique", 1).await?;
    world.refused(&format!("/v1/plans/{plan}/cancel"), json!({}), "").await?;
    let (code, said) = world.run(&["plan", "show", &plan]).await?;
    ensure!(code == 0 && said.contains("    [completed] d: do d  <- b, c"), "{said}");
    let (code, said) = world.run(&["replay", &session]).await?;
    ensure!(code == 0 && said.contains("task             completed          4"), "{said}");
    let (code, said) = world.run(&["plan", "approve", &plan]).await?;
    ensure!(code == 4, "{said}");
    Ok(())
}

async fn is_rejected_and_drafted_anew(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("swim", &[])])).plan(json!([task("row", &[])])).pass();
    let prompts = lines.follow(&world);
    let (session, plan) = begin(&world, json!({"autonomy": "manual"})).await?;
    drafted(&world, &plan).await?;
    world.act(&format!("/v1/plans/{plan}/reject"), json!({"feedback": "Nobody can swim."})).await?;
    let anew = world.until(&format!("/v1/plans/{plan}"), |plan| plan["revision"] == 2).await?;
    ensure!(of(&anew, "swim")["status"] == "cancelled" && of(&anew, "row")["status"] == "pending", "{anew}");
    let asked = prompts.of("plan");
    // With the feedback comes what it is about.
    ensure!(asked[1].contains("Nobody can swim.") && asked[1].contains("- swim (do swim)"), "{asked:?}");
    ensure!(asked[1].matches("Goal:").count() == 1, "{asked:?}");
    // Whoever decides on the first draft decides on what is no longer there.
    for (verb, body) in [("approve", json!({"revision": 1})), ("reject", json!({"revision": 1, "feedback": "no"}))] {
        let stale = world.post(&format!("/v1/plans/{plan}/{verb}"), body).await?;
        let told = stale.refuses(409, "revision 2");
        ensure!(told["revision"] == 2, "{told}");
    }
    world.act(&format!("/v1/plans/{plan}/approve"), json!({"revision": 2})).await?;
    is(&world, &plan, "goal_met").await?;
    world.runes_of(&session, "plan.updated", 1).await?;
    Ok(())
}

async fn is_judged_and_tried_again(world: World) -> Result<()> {
    let lines = Lines::default()
        .plan(json!([task("a", &[])]))
        .task("a", [failed("no wood", true), done("a boat")])
        .verdict(json!([finding("error", Some("a")), finding("warning", None), finding("info", None)]), false)
        .pass();
    let prompts = lines.follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(met["iteration"] == 2 && of(&met, "a")["attempt"] == 2, "{met}");
    let added = of(&met, "fix-1-1");
    ensure!(added["priority"] == "medium" && added["title"] == "an warning", "{met}");
    ensure!(prompts.of("task a")[1].contains("no wood"), "{:?}", prompts.of("task a"));
    // Whoever is asked anew goes by what is so now, and not by what was so before.
    ensure!(prompts.of("task a")[1].matches("Task a:").count() == 1, "{:?}", prompts.of("task a"));
    let judged = prompts.of("verdict");
    ensure!(judged[0].contains("(do a, failed)") && judged[1].contains("(do a, completed)"), "{judged:?}");
    ensure!(!judged[1].contains("(do a, failed)"), "{judged:?}");
    let said = world.runes_of(&session, "plan.critique", 2).await?;
    ensure!(said[0]["payload"]["pass"] == false && said[1]["payload"]["pass"] == true, "{said:?}");
    Ok(())
}

async fn is_made_anew_when_the_critic_wants_that(world: World) -> Result<()> {
    let lines = Lines::default()
        .plan(json!([task("a", &[])]))
        .plan(json!([task("b", &["a"])]))
        .task("a", [done("a raft")])
        .verdict(json!([finding("error", Some("a"))]), true)
        .pass();
    let prompts = lines.follow(&world);
    let (_, plan) = begin(&world, json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(met["iteration"] == 2 && met["revision"] == 2, "{met}");
    ensure!(of(&met, "b")["deps"][0] == of(&met, "a")["id"], "{met}");
    let asked = prompts.of("plan");
    ensure!(asked[1].contains("a raft") && asked[1].contains("an error"), "{asked:?}");
    ensure!(asked[1].matches("Goal:").count() == 1, "{asked:?}");
    Ok(())
}

/// An id means the task of the newest round that has it; what failed in an earlier one is left.
async fn is_numbered_from_t1_in_every_round(world: World) -> Result<()> {
    let lines = Lines::default()
        .plan(json!([task("t1", &[]), task("t2", &["t1"])]))
        .plan(json!([task("t1", &["1/t1"]), task("t2", &["t1"])]))
        .task("t1", [done("a raft"), done("planks")])
        .task("t2", [failed("it leaks", true), done("a boat")])
        .verdict(json!([finding("error", Some("t2"))]), true)
        .pass();
    let prompts = lines.follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let ended = world.until(&format!("/v1/plans/{plan}"), |plan| plan["ended_at"].is_string()).await?;
    ensure!(ended["status"] == "goal_met" && ended["iteration"] == 2 && ended["revision"] == 2, "{ended}");
    let tasks = ended["tasks"].as_array().context("tasks")?;
    let places: Vec<_> = tasks.iter().map(|task| (task["key"].as_str(), task["iteration"].as_i64())).collect();
    let round = |n| [(Some("t1"), Some(n)), (Some("t2"), Some(n))];
    ensure!(places == [round(1), round(2)].concat(), "{places:?}");
    ensure!(tasks[2]["deps"] == json!([tasks[0]["id"]]) && tasks[3]["deps"] == json!([tasks[2]["id"]]), "{ended}");
    ensure!(tasks[1]["status"] == "failed" && tasks[1]["attempt"] == 1, "the old plan is not gone on with: {ended}");
    let told = [
        ("plan", vec!["1/t1 (do t1, completed): a raft", "1/t2 (do t2, failed): it leaks", "from t1"]),
        ("task t1", vec!["- 1/t1 (do t1): a raft"]),
        ("task t2", vec!["- t1 (do t1): planks"]),
        ("verdict", vec!["- 1/t1 (do t1, completed)", "- t1 (do t1, completed)", "- 1/t2 (do t2, failed)"]),
    ];
    for (who, words) in told {
        let said = prompts.of(who).pop().unwrap_or_default();
        ensure!(words.iter().all(|words| said.contains(words)), "{who} was told: {said}");
    }
    let (code, said) = world.run(&["plan", "show", &plan]).await?;
    ensure!(code == 0 && said.contains("t1: do t1  <- 1/t1"), "{said}");
    let (code, said) = world.run(&["verify", &session]).await?;
    ensure!(code == 0, "{said}");
    Ok(())
}

async fn stops_after_its_last_iteration(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[])])).verdict(json!([finding("error", None)]), false).follow(&world);
    let (session, plan) = begin(&world, json!({"max_iterations": 1})).await?;
    let stopped = is(&world, &plan, "stopped").await?;
    ensure!(stopped["reason"] == "max_iterations" && stopped["critiques"][0]["pass"] == false, "{stopped}");
    world.runes_of(&session, "plan.critique", 1).await?;
    Ok(())
}

async fn stops_at_the_first_failure(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &[]), task("c", &["b"])]));
    lines.task("a", [failed("no", true)]).task("b", [slowly()]).follow(&world);
    let (_, plan) = begin(&world, json!({"stop_on_first_failure": true})).await?;
    let stopped = is(&world, &plan, "stopped").await?;
    ensure!(of(&stopped, "a")["status"] == "failed" && of(&stopped, "c")["status"] == "cancelled", "{stopped}");
    // What somebody worked on ends too.
    if let Some(turn) = of(&stopped, "b")["turn_id"].as_str() {
        world.turn_is(turn, "interrupted").await?;
    }
    Ok(())
}

async fn waits_for_what_only_a_person_has(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"])]));
    let prompts = lines.task("a", [blocked("the key of the boathouse"), done("rowed")]).pass().follow(&world);
    let (_, plan) = begin(&world, json!({})).await?;
    let stuck = is(&world, &plan, "blocked").await?;
    ensure!(of(&stuck, "a")["error"] == "the key of the boathouse" && of(&stuck, "a")["owner_id"].is_null(), "{stuck}");
    let note = "It is under the mat.";
    world.act(&format!("/v1/plans/{plan}/unblock"), json!({"note": note})).await?;
    is(&world, &plan, "goal_met").await?;
    ensure!(prompts.of("task a")[1].contains(note), "{:?}", prompts.of("task a"));
    Ok(())
}

/// A failed task is tried again while it has attempts, and takes those along that waited for it.
async fn goes_on_when_the_blocker_is_done_at_last(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"])]));
    lines.task("a", [failed("a storm", true), done("calm")]).pass().follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(of(&met, "a")["attempt"] == 2 && met["iteration"] == 1, "{met}");
    for kind in ["plan.task_blocked", "plan.blocked", "plan.task_unblocked", "plan.unblocked"] {
        world.runes_of(&session, kind, 1).await?;
    }
    Ok(())
}

async fn stops_when_nothing_can_help(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"])]));
    lines.task("a", [failed("it sank", false)]).follow(&world);
    let (_, plan) = begin(&world, json!({})).await?;
    let stopped = is(&world, &plan, "stopped").await?;
    ensure!(stopped["reason"].as_str().is_some_and(|why| why.starts_with("unresolvable: a")), "{stopped}");
    ensure!(of(&stopped, "b")["status"] == "cancelled", "{stopped}");
    Ok(())
}

async fn costs_no_more_than_it_may(world: World) -> Result<()> {
    // By what it has seen, not by how often it was asked: a provider call may be made twice.
    world.script(|request| {
        let made = request.messages().iter().filter(|message| message["role"] == "tool").count();
        match request.tools() {
            tools if tools.contains(&"propose_plan") => {
                Reply::call("propose_plan", json!({"tasks": [task("a", &[]), task("b", &["a"])]}))
            }
            _ if made < 4 => Reply::call("echo", json!({"text": format!("again {made}")})),
            _ => Reply::text("never").slow(Duration::from_secs(2), Duration::ZERO),
        }
    });
    let (session, plan) = begin(&world, json!({"budget": {"max_tool_calls": 4}})).await?;
    let stopped = is(&world, &plan, "stopped").await.context("by its calls")?;
    ensure!(stopped["reason"].as_str().is_some_and(|why| why.starts_with("budget: ")), "{stopped}");
    let turn = text(of(&stopped, "a"), "turn_id")?;
    // Its next call is not made, and an answer that was under way is cut off.
    let ended = world.until(&format!("/v1/turns/{turn}"), |turn| turn["ended_at"].is_string()).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    ensure!(is(&world, &plan, "stopped").await?["status"] == "stopped", "it goes on");
    // The first answer costs more than that.
    let plan = set_goal(&world, &session, json!({"autonomy": "manual", "budget": {"max_tokens": 1}})).await?;
    let stopped = is(&world, &plan, "stopped").await.context("by its tokens")?;
    ensure!(stopped["reason"].as_str().is_some_and(|why| why.contains("tokens")), "{stopped}");
    let plan = set_goal(&world, &session, json!({"autonomy": "manual", "budget": {"max_wall_time_ms": 1500}})).await?;
    let stopped = is(&world, &plan, "stopped").await.context("by its time")?;
    ensure!(stopped["reason"].as_str().is_some_and(|why| why.contains("wall_time_ms")), "{stopped}");
    let refused =
        world.post(&format!("/v1/sessions/{session}/plans"), json!({"goal": "x", "budget": {"max_cost": 1}})).await?;
    refused.refuses(422, "is no limit of a plan");
    Ok(())
}

async fn ends_wherever_it_is_cancelled(world: World) -> Result<()> {
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"])]));
    let lines = lines.task("a", [slowly(), blocked("a key"), done("x")]).task("b", [done("y")]);
    let lines = Lines { verdicts: vec![slowly()], ..lines };
    lines.follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let cancel = |plan: String| {
        let world = world.clone();
        async move { world.act(&format!("/v1/plans/{plan}/cancel"), json!({"reason": "enough"})).await }
    };
    // While somebody works on it.
    let running = task_is(&world, &plan, "a", "running").await?;
    let stopped = cancel(plan).await?;
    ensure!(stopped["status"] == "stopped" && stopped["reason"] == "enough", "{stopped}");
    ensure!(["a", "b"].iter().all(|key| of(&stopped, key)["status"] == "cancelled"), "{stopped}");
    world.turn_is(&text(of(&running, "a"), "turn_id")?, "interrupted").await?;
    // While it is blocked, and while it is judged.
    let plan = set_goal(&world, &session, json!({})).await?;
    is(&world, &plan, "blocked").await?;
    cancel(plan).await?;
    let plan = set_goal(&world, &session, json!({})).await?;
    is(&world, &plan, "reviewing").await?;
    cancel(plan).await?;
    // While a draft waits for a person.
    let plan = set_goal(&world, &session, json!({"autonomy": "manual"})).await?;
    drafted(&world, &plan).await?;
    cancel(plan).await?;
    // Before anybody had time for it.
    let busy = world.agent(&session, json!({"name": "busy", "role": "orchestrator"})).await?;
    let turn = world.begin(&busy, "slow 50000 never").await?;
    world.turn_is(&turn, "streaming").await?;
    let plan = set_goal(&world, &session, json!({"orchestrator_id": busy})).await?;
    is(&world, &plan, "goal_received").await?;
    world.refused(&format!("/v1/plans/{plan}/approve"), json!({}), "").await?;
    cancel(plan).await?;
    Ok(())
}

async fn ends_with_its_session(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[]), task("b", &["a"])])).task("a", [slowly()]).follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    task_is(&world, &plan, "a", "running").await?;
    world.act(&format!("/v1/sessions/{session}/close"), json!({})).await?;
    let stopped = is(&world, &plan, "stopped").await?;
    ensure!(["a", "b"].iter().all(|key| of(&stopped, key)["status"] == "cancelled"), "{stopped}");
    world.until(&format!("/v1/sessions/{session}"), |session| session["status"] == "closed").await?;
    Ok(())
}

/// K10 by a stop, and K5 with K11 by an error of the provider.
async fn goes_on_without_the_agent_it_lost(world: World) -> Result<()> {
    let invalid = || Reply::refused(Refusal::Invalid("no such thing".into()));
    let lines = Lines::default().plan(json!([task("a", &[]), task("b", &["a"]), task("c", &["b"])]));
    lines.task("a", [slowly(), done("x")]).task("b", [invalid(), done("y")]).pass().follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let running = task_is(&world, &plan, "a", "running").await?;
    let owner = text(of(&running, "a"), "owner_id")?;
    world.act(&format!("/v1/agents/{owner}/stop"), json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(of(&met, "a")["attempt"] == 2 && of(&met, "a")["owner_id"] != owner.as_str(), "{met}");
    ensure!(of(&met, "b")["attempt"] == 2, "{met}");
    world.runes_of(&session, "plan.task_failed", 1).await?;
    Ok(())
}

async fn takes_the_last_words_for_the_result(world: World) -> Result<()> {
    let mut strict = task("b", &["a"]);
    strict["success_criteria"] = json!(["somebody saw it"]);
    let lines = Lines::default().plan(json!([task("a", &[]), strict]));
    let lines = lines.task("a", [Reply::text("I rowed across.")]);
    let prompts = lines.task("b", [Reply::text("I think so."), done("seen")]).pass().follow(&world);
    let (_, plan) = begin(&world, json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(of(&met, "a")["result"] == "I rowed across." && of(&met, "b")["result"] == "seen", "{met}");
    ensure!(prompts.of("task b").len() == 2, "{:?}", prompts.of("task b"));
    Ok(())
}

async fn says_what_is_wrong_with_a_proposal(world: World) -> Result<()> {
    let many: Vec<Value> = (0..201).map(|n| task(&format!("t{n}"), &[])).collect();
    let lines = Lines::default()
        .plan(json!([]))
        .plan(json!([task("a", &["b"]), task("b", &["a"])]))
        .plan(json!([task("a", &["ghost"])]))
        .plan(json!([task("a", &[]), task("a", &[])]))
        .plan(json!(many))
        .plan(json!([{"id": "a"}]))
        .plan(json!([task("a", &[])]));
    lines.pass().follow(&world);
    let (session, plan) = begin(&world, json!({})).await?;
    let met = is(&world, &plan, "goal_met").await?;
    ensure!(met["revision"] == 1, "{met}");
    let results = world.runes_of(&session, "tool.result", 7).await?;
    let said: Vec<String> = results.iter().map(|rune| rune["payload"]["error"].to_string()).collect();
    for (said, words) in
        said.iter().zip(["at least one", "circle: a -> b -> a", "ghost", "two tasks", "too many", "title"])
    {
        ensure!(said.contains(words), "{said} lacks {words}");
    }
    Ok(())
}

async fn stops_without_a_plan(world: World) -> Result<()> {
    Lines { plans: vec![Reply::text("I would rather not.")], ..Lines::default() }.follow(&world);
    let (_, plan) = begin(&world, json!({})).await?;
    let stopped = is(&world, &plan, "stopped").await?;
    ensure!(stopped["reason"].as_str().is_some_and(|why| why.starts_with("no plan")), "{stopped}");
    // Nor does one begin without a goal, or by an agent that is not there.
    let path = format!("/v1/sessions/{}/plans", text(&stopped, "session_id")?);
    world.post(&path, json!({"goal": " "})).await?.refuses(422, "must not be empty");
    world.post(&path, json!({"goal": "x", "max_iterations": 0})).await?.refuses(422, "must be 1 to 100");
    world.post(&path, json!({"goal": "x", "tools": ["complete_task"]})).await?.refuses(422, "leave it out");
    let nobody = json!({"goal": "x", "orchestrator_id": format!("agt_{}", "0".repeat(32))});
    world.post(&path, nobody).await?.refuses(422, "there is no such agent");
    let absent = world.request("GET", &format!("/v1/plans/pln_{}", "0".repeat(32)), None).await?;
    absent.refuses(404, "");
    Ok(())
}

/// K9: every worker is busy, so that nobody begins it.
async fn is_given_to_another_when_it_is_not_begun(world: World) -> Result<()> {
    Lines::default().plan(json!([task("a", &[])])).pass().follow(&world);
    let (session, plan) = begin(&world, json!({"autonomy": "manual"})).await?;
    drafted(&world, &plan).await?;
    let busy = world.agent(&session, json!({"name": "busy"})).await?;
    let turn = world.begin(&busy, "slow 50000 never").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/plans/{plan}/approve"), json!({})).await?;
    let back = world.runes_of(&session, "plan.task_updated", 1).await?;
    ensure!(back[0]["payload"]["reason"].as_str().is_some_and(|why| why.contains("in time")), "{back:?}");
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    let met = is(&world, &plan, "goal_met").await.context("after the turn that was in the way")?;
    ensure!(of(&met, "a")["attempt"] == 1, "what was not begun is no attempt: {met}");
    Ok(())
}
