//! Agents that make agents, speak to each other and end together, on both backends.

use anyhow::{Context, Result, ensure};
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_runtime::config::Config;
use instar_runtime::flow::Mode;
use instar_store::entity::{agent, message, turn};
use instar_testkit::model::{Reply, Script};
use instar_testkit::wait;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{audit, cast, on_both, puppet};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::{Value, json};

const TOOLS: [&str; 8] =
    ["echo", "charge", "spawn_agent", "send_message", "search_messages", "now", "wait_for", "terminate_agent"];

async fn troupe(stage: &Stage, change: impl FnOnce(&mut Config)) -> Result<Troupe> {
    let mut config = Config::default();
    config.models.push(instar_runtime::config::ModelConfig { name: "default".into(), ..Default::default() });
    change(&mut config);
    Troupe::start(stage, puppet::script(), config).await
}

async fn parent(troupe: &Troupe, config: Value) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    Ok((session, cast::agent_like(store, session, config).await?))
}

fn tools() -> Value {
    json!({"tools": TOOLS})
}

async fn children(troupe: &Troupe, of: AgentId) -> Result<Vec<agent::Model>> {
    let found = agent::Entity::find().filter(agent::Column::ParentId.eq(of.uuid()));
    Ok(found.order_by_asc(agent::Column::Id).all(troupe.context.hub.store().db()).await?)
}

async fn turns(troupe: &Troupe, of: AgentId) -> Result<Vec<turn::Model>> {
    let found = turn::Entity::find().filter(turn::Column::AgentId.eq(of.uuid()));
    Ok(found.order_by_asc(turn::Column::Id).all(troupe.context.hub.store().db()).await?)
}

/// The turn of a message to an agent, when it has ended.
async fn run(troupe: &Troupe, agent: AgentId, text: &str) -> Result<turn::Model> {
    let turn = troupe.send(agent, text, Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await
}

/// Status and result of each call of a turn.
async fn results(troupe: &Troupe, turn: &turn::Model) -> Result<Vec<(String, Value)>> {
    let calls = troupe.calls(TurnId::from(turn.id)).await?;
    Ok(calls.into_iter().map(|c| (c.result_status.unwrap_or_default(), c.result.unwrap_or_default())).collect())
}

fn error(result: &(String, Value)) -> &str {
    result.1["error"].as_str().unwrap_or_default()
}

fn spawn(name: &str, task: &str) -> String {
    format!("call spawn_agent {}", json!({"name": name, "task": task}))
}

/// Every agent of the session is at rest.
async fn at_rest(troupe: &Troupe, session: SessionId) -> Result<()> {
    wait::until_ok(WITHIN, || async {
        let live = turn::Entity::find().filter(turn::Column::SessionId.eq(session.uuid()));
        let live = live.filter(turn::Column::EndedAt.is_null()).all(troupe.context.hub.store().db()).await?;
        ensure!(live.is_empty(), "{} turns are live", live.len());
        Ok(())
    })
    .await
}

async fn rows(troupe: &Troupe, session: SessionId) -> Result<Vec<String>> {
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    Ok(runes.into_iter().flat_map(|rune| rune.moves).map(|moved| moved.row).collect())
}

async fn a_child_is_made_with_its_role_and_does_its_task(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let policy = json!({"allowed_paths": ["/srv"]});
    let made = json!({"tools": TOOLS, "approval_mode": "full_access", "policy": policy});
    let (session, root) = parent(&troupe, made).await?;
    let arguments =
        json!({"name": "scout", "role": "explorer", "task": "the answer is 42", "budget": {"max_tokens": 7}});
    let turn = run(&troupe, root, &format!("call spawn_agent {arguments}")).await?;
    let (status, result) = results(&troupe, &turn).await?.pop().context("a call")?;
    assert_eq!((status.as_str(), result["output"]["state"].as_str()), ("success", Some("working")), "{result}");
    let child = children(&troupe, root).await?.pop().context("a child")?;
    assert_eq!(result["output"]["agent_id"], json!(AgentId::from(child.id)));
    assert_eq!((child.name.as_str(), child.role.as_str(), child.model.as_str()), ("scout", "explorer", "default"));
    assert_eq!(child.config["tools"], json!(["echo", "now", "search_messages", "send_message"]), "it only looks");
    let budget = json!({"max_tokens": 7, "max_tool_calls": 40, "on_budget": "terminate"});
    assert_eq!((&child.config["budget"], &child.config["depth"]), (&budget, &json!(1)));
    assert_eq!(child.config["policy"], policy, "it may name no more than its parent");
    at_rest(&troupe, session).await?;
    let done = turns(&troupe, child.id.into()).await?;
    assert_eq!((done.len(), done[0].cause.as_str(), done[0].output.as_deref()), (1, "agent", Some("the answer is 42")));
    let rows = rows(&troupe, session).await?;
    for row in ["L1", "L2", "D1", "D25", "T26"] {
        ensure!(rows.iter().any(|told| told == row), "{row} of {rows:?}");
    }
    troupe.audit(session).await
}

async fn nobody_passes_on_what_he_has_not(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |config| config.agents.depth_max = 1).await?;
    let (session, root) = parent(&troupe, json!({"tools": ["echo", "spawn_agent"], "approval_mode": "auto"})).await?;
    let arguments = json!({"name": "x", "task": "t", "tools": ["echo", "charge", "*"]});
    let turn = troupe.send(root, &format!("call spawn_agent {arguments}"), Mode::Queue).await?.context("a turn")?;
    // In auto a person is asked before an agent is made.
    let waiting = troupe.in_state(turn, "tool_executing").await?;
    let call = troupe.calls(waiting.id.into()).await?.pop().context("a call")?;
    assert_eq!(call.status, "awaiting_approval");
    let id = instar_core::id::CallId::from(call.id);
    let act =
        instar_runtime::Act::new(session, id, &instar_core::machine::tool_call::TABLE, "approved", cast::person());
    let act = act.telling("tool.approved", json!({"digest": call.digest}));
    if let instar_runtime::Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? {
        troupe.context.hub.follow(&runes);
    }
    let turn = troupe.ended(waiting.id.into()).await?;
    let result = &results(&troupe, &turn).await?[0];
    ensure!(result.0 == "error" && error(result).contains("charge, *"), "{result:?}");
    assert!(children(&troupe, root).await?.is_empty());
    troupe.audit(session).await
}

async fn agents_are_made_so_many_and_so_deep(stage: Stage) -> Result<()> {
    let limits = |config: &mut Config| {
        (config.agents.children_max, config.agents.children_at_work_max, config.agents.depth_max) = (2, 1, 1);
    };
    let troupe = troupe(&stage, limits).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let orchestrator =
        json!({"name": "a", "role": "orchestrator", "task": "call spawn_agent {\"name\": \"z\", \"task\": \"t\"}"});
    let turn =
        run(&troupe, root, &format!("call spawn_agent {orchestrator} ;; {} ;; {}", spawn("a", "t"), spawn("b", "x")))
            .await?;
    let found = results(&troupe, &turn).await?;
    assert_eq!(found[0].0, "success", "{found:?}");
    ensure!(found[1].0 == "error" && error(&found[1]).contains("choose another name"), "{found:?}");
    assert_eq!(found[2].0, "success", "{found:?}");
    let turn = run(&troupe, root, &spawn("c", "t")).await?;
    let refused = &results(&troupe, &turn).await?[0];
    ensure!(refused.0 == "error" && error(refused).contains("the most you may have"), "{refused:?}");
    at_rest(&troupe, session).await?;
    let made = children(&troupe, root).await?;
    assert_eq!(made.len(), 2);
    let inner = turns(&troupe, made[0].id.into()).await?;
    let refused = &results(&troupe, &inner[0]).await?[0];
    ensure!(refused.0 == "error" && error(refused).contains("generations deep"), "{refused:?}");
    Ok(())
}

async fn a_model_that_is_not_there_fails_the_child_and_tells_the_parent(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let arguments = json!({"name": "ghost", "model": "nowhere", "task": "t"});
    let turn = run(&troupe, root, &format!("call spawn_agent {arguments}")).await?;
    let result = &results(&troupe, &turn).await?[0];
    ensure!(result.0 == "error" && error(result).contains("configured are: default"), "{result:?}");
    let child = children(&troupe, root).await?.pop().context("a child")?;
    assert_eq!((child.lifecycle.as_str(), child.drive.as_str()), ("failed", "errored"));
    ensure!(child.last_error.as_deref().is_some_and(|why| why.contains("nowhere")), "{:?}", child.last_error);
    let letters = message::Entity::find().filter(message::Column::AgentId.eq(root.uuid()));
    let letters = letters.filter(message::Column::Source.eq("agent")).all(troupe.context.hub.store().db()).await?;
    assert_eq!((letters.len(), letters[0].turn_id), (1, Some(turn.id)), "told in the turn that asked");
    let rows = rows(&troupe, session).await?;
    for row in ["L3", "D24", "D26"] {
        ensure!(rows.iter().any(|told| told == row), "{row} of {rows:?}");
    }
    assert_eq!(turns(&troupe, root).await?.len(), 1, "no turn more");
    troupe.audit(session).await
}

async fn agents_of_a_circle_speak_and_others_are_out_of_reach(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let (_, stranger) = parent(&troupe, tools()).await?;
    let task = format!("call send_message {}", json!({"to": "parent", "content": "I am here"}));
    run(&troupe, root, &spawn("a", &task)).await?;
    at_rest(&troupe, session).await?;
    run(&troupe, root, &spawn("b", "ready")).await?;
    at_rest(&troupe, session).await?;
    let heard = turns(&troupe, root).await?;
    ensure!(heard.iter().any(|turn| turn.output.as_deref() == Some("I am here")), "{heard:?}");
    let made = children(&troupe, root).await?;
    let (a, b) = (AgentId::from(made[0].id), AgentId::from(made[1].id));
    let before = made[1].nudge_count;
    let say = |to: String| format!("call send_message {}", json!({"to": to, "content": "well done"}));
    for (to, ok) in
        [("b".to_owned(), true), (b.to_string(), true), (stranger.to_string(), false), ("nobody".into(), false)]
    {
        let turn = run(&troupe, a, &say(to.clone())).await?;
        let result = &results(&troupe, &turn).await?[0];
        assert_eq!(result.0 == "success", ok, "{to}: {result:?}");
    }
    at_rest(&troupe, session).await?;
    let told = turns(&troupe, b).await?;
    let answers: Vec<_> = told.iter().filter_map(|turn| turn.output.as_deref()).collect();
    assert_eq!(answers, ["ready", "well done", "well done"]);
    assert_eq!(children(&troupe, root).await?[1].nudge_count, before, "nudges go on being counted");
    for (machine, event, why) in [
        (&instar_core::machine::agent_drive::TABLE, "stop", "is stopped"),
        (&instar_core::machine::agent_lifecycle::TABLE, "kill", "is terminated"),
    ] {
        let act = instar_runtime::Act::new(session, b, machine, event, cast::person());
        act.carry_out(&troupe.context.hub).await?;
        let turn = run(&troupe, a, &say(b.to_string())).await?;
        let result = &results(&troupe, &turn).await?[0];
        ensure!(result.0 == "error" && error(result).contains(why), "{event}: {result:?}");
    }
    troupe.audit(session).await
}

async fn of_two_children_that_would_be_one_too_many_one_is_made(stage: Stage) -> Result<()> {
    let side_by_side = |config: &mut Config| {
        config.agents.children_max = 1;
        config.tools.push(json!({"name": "spawn_agent", "kind": "native", "parallel_safe": true}));
    };
    let troupe = troupe(&stage, side_by_side).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let calls: Vec<Value> = (0..6).map(|n| json!(["spawn_agent", {"name": format!("n{n}"), "task": "t"}])).collect();
    let turn = run(&troupe, root, &format!("calls {}", json!(calls))).await?;
    let found = results(&troupe, &turn).await?;
    assert_eq!(found.iter().filter(|result| result.0 == "success").count(), 1, "{found:?}");
    assert_eq!(children(&troupe, root).await?.len(), 1);
    at_rest(&troupe, session).await?;
    troupe.audit(session).await
}

async fn a_task_beyond_the_places_waits_until_a_sibling_is_done(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |config| config.agents.children_at_work_max = 1).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let text = format!("{} ;; {} ;; {}", spawn("a", "slow 3000 first"), spawn("b", "second"), spawn("c", "third"));
    let turn = run(&troupe, root, &text).await?;
    let found = results(&troupe, &turn).await?;
    let state = |n: usize| found[n].1["output"]["state"].as_str().unwrap_or_default().to_owned();
    ensure!(state(0) == "working" && state(1).starts_with("waiting") && state(2).starts_with("waiting"), "{found:?}");
    let made = children(&troupe, root).await?;
    assert_eq!(made.iter().map(|child| child.lifecycle == "spawning").collect::<Vec<_>>(), [false, true, true]);
    wait::until_ok(WITHIN, || async {
        let kids = children(&troupe, root).await?;
        let mut ends = Vec::new();
        for kid in &kids {
            let turn = turns(&troupe, kid.id.into()).await?.pop().context("no turn yet")?;
            ends.push((turn.created_at, turn.ended_at.context("not ended yet")?, turn.output));
        }
        ensure!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one after the other: {ends:?}");
        let said: Vec<_> = ends.iter().filter_map(|(.., said)| said.as_deref()).collect();
        assert_eq!(said, ["first", "second", "third"]);
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

fn wait_for(agents: &[&str], timeout_ms: Option<u64>) -> String {
    let mut arguments = json!({"agents": agents});
    if let Some(ms) = timeout_ms {
        arguments["timeout_ms"] = json!(ms);
    }
    format!("call wait_for {arguments}")
}

async fn a_parent_waits_for_its_children_and_has_their_answers(stage: Stage) -> Result<()> {
    // One after the other takes longer than a turn may.
    let slowly = |config: &mut Config| {
        (config.worker.turn_deadline_ms, config.agents.children_at_work_max) = (4_000, 1);
    };
    let troupe = troupe(&stage, slowly).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let text = format!("{} ;; {} ;; {}", spawn("a", "slow 2500 forty"), spawn("b", "two"), wait_for(&["a", "b"], None));
    let turn = run(&troupe, root, &text).await?;
    assert_eq!(turn.status, "completed", "the wait is longer than the deadline, and is not counted: {turn:?}");
    let (status, result) = results(&troupe, &turn).await?.pop().context("a call")?;
    assert_eq!((status.as_str(), &result["output"]["done"]), ("success", &json!(true)), "{result}");
    let said: Vec<_> = result["output"]["agents"].as_array().context("agents")?.iter().collect();
    assert_eq!((said[0]["output"].as_str(), said[1]["output"].as_str()), (Some("forty"), Some("two")));
    assert_eq!((said[0]["state"].as_str(), said[1]["name"].as_str()), (Some("idle"), Some("b")));
    let call = troupe.calls(TurnId::from(turn.id)).await?.pop().context("a call")?;
    assert_eq!((call.attempts, call.owner), (1, None), "nobody had it while it waited");
    troupe.audit(session).await
}

async fn a_wait_ends_by_its_timeout_and_by_the_end_of_a_child(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let text = format!("{} ;; {}", spawn("a", "slow 60000 never"), wait_for(&["a"], Some(300)));
    let turn = run(&troupe, root, &text).await?;
    let (status, result) = results(&troupe, &turn).await?.pop().context("a call")?;
    assert_eq!((status.as_str(), &result["output"]["done"]), ("success", &json!(false)), "{result}");
    assert_eq!(result["output"]["agents"][0]["state"], "working", "{result}");
    let turn = troupe.send(root, &wait_for(&["a"], None), Mode::Queue).await?.context("a turn")?;
    let waits = waiting(&troupe, turn).await?;
    assert_eq!(waits["agents"].as_array().map(Vec::len), Some(1));
    let child = AgentId::from(children(&troupe, root).await?[0].id);
    end(&troupe, session, child, "kill_forced").await?;
    let turn = troupe.ended(turn).await?;
    let (_, result) = results(&troupe, &turn).await?.pop().context("a call")?;
    assert_eq!(
        (&result["output"]["done"], &result["output"]["agents"][0]["state"]),
        (&json!(true), &json!("terminated"))
    );
    let turn = run(&troupe, root, &wait_for(&["nobody"], None)).await?;
    let refused = &results(&troupe, &turn).await?[0];
    ensure!(refused.0 == "error" && error(refused).contains("none of the agents that you made"), "{refused:?}");
    troupe.audit(session).await
}

/// What the only call of a turn waits for, once it does.
async fn waiting(troupe: &Troupe, turn: TurnId) -> Result<Value> {
    wait::until_ok(WITHIN, || async {
        let call = troupe.calls(turn).await?.pop().context("a call")?;
        call.waits_for.context("it does not wait yet")
    })
    .await
}

/// A parent whose turn waits for a child, all of whose processes are gone; then `meanwhile` happens, and others
/// start.
async fn across_a_restart(stage: &Stage, timeout_ms: Option<u64>) -> Result<turn::Model> {
    let first = troupe(stage, |config| config.lease.ttl_ms = 600).await?;
    let (session, root) = parent(&first, tools()).await?;
    let text = format!("{} ;; {}", spawn("a", "slow 600 late"), wait_for(&["a"], timeout_ms));
    let turn = first.send(root, &text, Mode::Queue).await?.context("a turn")?;
    wait::until_ok(WITHIN, || async {
        let calls = first.calls(turn).await?;
        ensure!(calls.iter().any(|call| call.waits_for.is_some()), "nothing waits yet");
        Ok(())
    })
    .await?;
    // What the first had in mind is gone with it, and so is its bus.
    first.context.drain.begin();
    let _ = first.context.drain.wait_for(std::time::Duration::from_secs(5)).await;
    drop(first);
    let second = troupe(stage, |config| config.lease.ttl_ms = 600).await?;
    let turn = second.ended(turn).await?;
    at_rest(&second, session).await?;
    second.audit(session).await?;
    Ok(turn)
}

async fn a_wait_outlives_every_process(stage: Stage) -> Result<()> {
    for timeout_ms in [None, Some(60_000)] {
        let turn = across_a_restart(&stage, timeout_ms).await?;
        assert_eq!((turn.status.as_str(), turn.output.as_deref()), ("completed", Some("done")));
    }
    Ok(())
}

async fn hundreds_of_waits_are_rows_and_nothing_else(stage: Stage) -> Result<()> {
    let side_by_side = |config: &mut Config| {
        config.tools.push(json!({"name": "wait_for", "kind": "native", "parallel_safe": true}));
        config.worker.repeated_calls_max = 0;
    };
    let troupe = troupe(&stage, side_by_side).await?;
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let mut parents = Vec::new();
    for _ in 0..10 {
        let root = cast::agent_like(store, session, tools()).await?;
        run(&troupe, root, &spawn("a", "slow 120000 never")).await?;
        parents.push(root);
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let calls: Vec<Value> = (0..20).map(|_| json!(["wait_for", {"agents": ["a"]}])).collect();
    let mut waiting = Vec::new();
    for root in &parents {
        let turn = troupe.send(*root, &format!("calls {}", json!(calls)), Mode::Queue).await?;
        waiting.push(turn.context("a turn")?);
    }
    let bound = std::time::Duration::from_secs(120);
    wait::until_ok(bound, || async {
        let mut parked = 0;
        for turn in &waiting {
            parked += troupe.calls(*turn).await?.iter().filter(|call| call.waits_for.is_some()).count();
        }
        ensure!(parked == 20 * parents.len(), "{parked} wait");
        ensure!(tasks() <= before + 10, "{} tasks, {before} before", tasks());
        Ok(())
    })
    .await?;
    for root in &parents {
        let child = AgentId::from(children(&troupe, *root).await?[0].id);
        end(&troupe, session, child, "kill_forced").await?;
    }
    wait::until_ok(bound, || async {
        for turn in &waiting {
            let turn = troupe.turn(*turn).await?;
            ensure!(turn.ended_at.is_some(), "{} open", turn.open_calls);
        }
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

/// As the API ends an agent.
async fn end(troupe: &Troupe, session: SessionId, agent: AgentId, event: &str) -> Result<()> {
    let table = &instar_core::machine::agent_lifecycle::TABLE;
    let act = instar_runtime::Act::new(session, agent, table, event, cast::person());
    if let instar_runtime::Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? {
        troupe.context.hub.follow(&runes);
    }
    Ok(())
}

/// A parent, its child and its grandchild, which are idle unless `grandchild` does something.
async fn generations(troupe: &Troupe, grandchild: &str) -> Result<(SessionId, [AgentId; 3])> {
    let (session, root) = parent(troupe, tools()).await?;
    let inner = json!({"name": "inner", "task": grandchild}).to_string();
    let middle = json!({"name": "middle", "role": "orchestrator", "task": format!("call spawn_agent {inner}")});
    run(troupe, root, &format!("call spawn_agent {middle} ;; {}", wait_for(&["middle"], None))).await?;
    let middle = AgentId::from(children(troupe, root).await?[0].id);
    let inner = AgentId::from(children(troupe, middle).await?[0].id);
    Ok((session, [root, middle, inner]))
}

/// Each has ended, for this reason.
async fn all_ended(troupe: &Troupe, session: SessionId, agents: &[AgentId]) -> Result<Vec<String>> {
    wait::until_ok(WITHIN, || async {
        for agent in agents {
            let row = troupe.context.hub.store().agent(*agent).await?.context("an agent")?;
            ensure!(row.lifecycle == "terminated", "{agent} is {}", row.lifecycle);
        }
        Ok(())
    })
    .await?;
    at_rest(troupe, session).await?;
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let reason = |agent: &AgentId| {
        let ended = runes.iter().find(|rune| rune.kind == "agent.terminated" && rune.agent_id == Some(*agent));
        let told = ended.and_then(|rune| serde_json::from_str::<Value>(rune.payload.get()).ok());
        told.and_then(|told| told["reason"].as_str().map(str::to_owned)).unwrap_or_default()
    };
    troupe.audit(session).await?;
    Ok(agents.iter().map(reason).collect())
}

async fn a_child_in_the_making_may_end_and_may_be_spoken_to(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |config| config.agents.children_at_work_max = 1).await?;
    let (session, root) = parent(&troupe, tools()).await?;
    let text = format!("{} ;; {} ;; {}", spawn("a", "slow 3000 first"), spawn("b", "second"), spawn("c", "third"));
    run(&troupe, root, &text).await?;
    let made = children(&troupe, root).await?;
    let (b, c) = (AgentId::from(made[1].id), AgentId::from(made[2].id));
    end(&troupe, session, b, "kill").await?;
    let turn = troupe.send(c, "and more", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.turn(turn).await?.status, "queued", "it waits for a place");
    let turn = troupe.ended(turn).await?;
    let said = turn.output.clone().unwrap_or_default();
    ensure!(said.contains("and more") && said.contains("third"), "both messages are its input: {said}");
    assert_eq!(turns(&troupe, c).await?.len(), 1);
    assert!(turns(&troupe, b).await?.is_empty());
    at_rest(&troupe, session).await?;
    let rows = rows(&troupe, session).await?;
    ensure!(["L2", "L12", "D4"].iter().all(|row| rows.iter().any(|told| told == row)), "{rows:?}");
    troupe.audit(session).await
}

async fn what_an_idle_agent_made_ends_with_it(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, family) = generations(&troupe, "done").await?;
    at_rest(&troupe, session).await?;
    end(&troupe, session, family[0], "kill").await?;
    assert_eq!(all_ended(&troupe, session, &family).await?, ["kill", "parent_closed", "parent_closed"]);
    let rows = rows(&troupe, session).await?;
    ensure!(["L9", "L10", "D23"].iter().all(|row| rows.iter().any(|told| told == row)), "{rows:?}");
    Ok(())
}

async fn what_an_agent_in_a_turn_made_ends_after_it(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |config| config.worker.interrupt_grace_ms = 300).await?;
    let (session, family) = generations(&troupe, "slow 30000 never").await?;
    let turn = troupe.send(family[0], "slow 30000 never", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "streaming").await?;
    end(&troupe, session, family[0], "kill").await?;
    assert_eq!(all_ended(&troupe, session, &family).await?, ["kill", "parent_closed", "parent_closed"]);
    let rows = rows(&troupe, session).await?;
    ensure!(["L13", "L6", "L9", "L10", "L14"].iter().all(|row| rows.iter().any(|told| told == row)), "{rows:?}");
    Ok(())
}

/// The tables are read one after the other: an agent may seem to be in a turn that is no longer there. Whatever has
/// nobody to tell it then (L13, L14) is worked out from another look, and does not fail the command.
async fn a_picture_of_two_moments_is_looked_at_again(stage: Stage) -> Result<()> {
    use instar_core::machine::agent_lifecycle::TABLE;
    let troupe = troupe(&stage, |config| config.worker.interrupt_grace_ms = 300).await?;
    let hub = &troupe.context.hub;
    // The agent itself is in a turn; then only what it made is.
    for (at, row) in [(0, "L13"), (1, "L14")] {
        let (session, family) = generations(&troupe, "done").await?;
        at_rest(&troupe, session).await?;
        let turn = troupe.send(family[at], "slow 30000 never", Mode::Queue).await?.context("a turn")?;
        troupe.in_state(turn, "streaming").await?;
        let act = || {
            let torn = std::sync::atomic::AtomicBool::new(true);
            instar_runtime::Act::new(session, family[0], &TABLE, "kill", cast::person()).preparing(move |picture| {
                if torn.swap(false, std::sync::atomic::Ordering::SeqCst) {
                    picture.turns.clear();
                }
                Ok(())
            })
        };
        ensure!(act().prepare(hub).await?.is_some(), "to go with another commit");
        let instar_runtime::Done::Moved { runes } = act().carry_out(hub).await? else {
            anyhow::bail!("nothing moved");
        };
        hub.follow(&runes);
        all_ended(&troupe, session, &family).await?;
        let rows = rows(&troupe, session).await?;
        ensure!(rows.iter().any(|told| told == row), "{row}: {rows:?}");
    }
    Ok(())
}

async fn a_forced_end_gives_results_then_ends_turns_then_agents(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, family) = generations(&troupe, "slow 30000 never").await?;
    let inner = family[2].to_string();
    let turn = troupe.send(family[1], &wait_for(&[&inner], None), Mode::Queue).await?.context("a turn")?;
    waiting(&troupe, turn).await?;
    end(&troupe, session, family[1], "kill_forced").await?;
    assert_eq!(all_ended(&troupe, session, &family[1..]).await?, ["kill_forced", "parent_closed"]);
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let at = |kind: &str, agent: AgentId| {
        runes.iter().rposition(|rune| rune.kind == kind && rune.agent_id == Some(agent)).context("a rune")
    };
    let (result, ended) = (at("tool.result", family[1])?, at("turn.interrupted", family[1])?);
    ensure!(result < ended && ended < at("agent.terminated", family[1])?, "results, then turns, then agents");
    Ok(())
}

async fn a_parent_ends_a_child_that_is_idle_and_no_other(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |_| ()).await?;
    let (session, family) = generations(&troupe, "done").await?;
    at_rest(&troupe, session).await?;
    let end = |agent: &str| format!("call terminate_agent {}", json!({"agent": agent}));
    let turn = run(&troupe, family[0], &format!("{} ;; {}", spawn("busy", "slow 3000 late"), end("busy"))).await?;
    let refused = &results(&troupe, &turn).await?[1];
    let says = |words: &str| error(refused).contains(words);
    let spared = refused.0 == "success" || says("is in a turn") || says("is about to begin something");
    ensure!(spared, "{refused:?}");
    let turn = run(&troupe, family[0], &end(&family[2].to_string())).await?;
    let refused = &results(&troupe, &turn).await?[0];
    ensure!(refused.0 == "error" && error(refused).contains("that you may address"), "not its own child: {refused:?}");
    let turn = run(&troupe, family[0], &end("middle")).await?;
    assert_eq!(results(&troupe, &turn).await?[0].0, "success");
    assert_eq!(all_ended(&troupe, session, &family[1..]).await?, ["terminated by its parent", "parent_closed"]);
    Ok(())
}

/// Several parents, each in a turn of its own: what holds one parent's children back does not hold theirs.
async fn agents_that_make_agents_at_once_make_no_more_than_the_session_may_have(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage, |config| config.agents.session_max = 8).await?;
    let (session, first) = parent(&troupe, tools()).await?;
    let mut parents = vec![first];
    for _ in 1..5 {
        parents.push(cast::agent_like(troupe.context.hub.store(), session, tools()).await?);
    }
    let asked = spawn("ann", "say hello");
    let turns = futures::future::try_join_all(parents.iter().map(|parent| run(&troupe, *parent, &asked))).await?;
    at_rest(&troupe, session).await?;
    let mut refused = 0;
    for turn in &turns {
        let results = results(&troupe, turn).await?;
        match results[0].0.as_str() {
            "success" => {}
            _ => {
                ensure!(error(&results[0]).contains("the session may have 8 agents"), "{results:?}");
                refused += 1;
            }
        }
    }
    let there = agent::Entity::find().filter(agent::Column::SessionId.eq(session.uuid()));
    let there = there.all(troupe.context.hub.store().db()).await?.len();
    ensure!(there == 8 && refused == 2, "{there} agents, {refused} refused");
    let wrong = audit::session(troupe.context.hub.store(), session).await?;
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

/// What two agents say that answer each letter with one; to a person they say nothing of note.
fn correspondents() -> Script {
    Script::function(|request| {
        let said = request.user_text();
        let write = |to: &str| Reply::call("send_message", json!({"to": to, "content": "your turn"}));
        match said.as_str() {
            _ if request.messages().last().is_some_and(|last| last["role"] == "tool") => Reply::text("Done."),
            // With whatever has waited before it.
            _ if said.ends_with("how are you") => Reply::text("Good to hear from you."),
            "go" => Reply::call("spawn_agent", json!({"name": "bea", "task": "begin"})),
            "begin" => write("parent"),
            "write to bea" => write("bea"),
            "write to parent" => write("parent"),
            _ if said.contains("Message from bea") => write("bea"),
            _ if said.contains("Message from ada") => write("parent"),
            _ => Reply::text("Done."),
        }
    })
}

async fn letters_of(troupe: &Troupe, agent: AgentId) -> Result<Vec<message::Model>> {
    let found = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid()));
    Ok(found.filter(message::Column::Source.eq("agent")).all(troupe.context.hub.store().db()).await?)
}

async fn two_agents_do_not_keep_each_other_alive(stage: Stage) -> Result<()> {
    let most = 3;
    let mut config = Config::default();
    config.models.push(instar_runtime::config::ModelConfig { name: "default".into(), ..Default::default() });
    config.agents.letter_turns_max = most;
    let troupe = Troupe::start(&stage, correspondents(), config).await?;
    let store = troupe.context.hub.store();
    let (session, root) = parent(&troupe, tools()).await?;
    run(&troupe, root, "go").await?;
    let child = AgentId::from(children(&troupe, root).await?.pop().context("a child")?.id);
    at_rest(&troupe, session).await?;
    let (mut rests, mut works) = (Vec::new(), Vec::new());
    for id in [root, child] {
        let row = store.agent(id).await?.context("an agent")?;
        if row.drive == "idle" {
            rests.push(row)
        } else {
            works.push(row)
        }
        let made = turns(&troupe, id).await?.len();
        // The task and the word of a person are turns of their own.
        ensure!(made <= most as usize + 2, "{made} turns of {id}");
    }
    let (resting, other) = (rests.pop().context("one rests")?, works.pop().context("the other was not at its limit")?);
    let resting_id = AgentId::from(resting.id);
    ensure!(resting.letter_count == Some(i64::from(most)), "{:?}", resting.letter_count);
    assert_eq!(store.waiting(resting_id).await?.len(), 1, "the last letter is kept");
    let runes = audit::runes(store, session).await?;
    let idled = runes.iter().find(|rune| rune.kind == "agent.drive_idled").context("it is told")?;
    let told = idled.payload.get();
    ensure!(told.contains("letter_limit") && told.contains("\"needs_attention\":true"), "{told}");
    // Another letter waits as well, and whoever writes it is told.
    let to = if resting_id == root { "parent" } else { "bea" };
    let turn = run(&troupe, other.id.into(), &format!("write to {to}")).await?;
    let result = &results(&troupe, &turn).await?[0];
    let state = result.1["output"]["state"].as_str().unwrap_or_default();
    ensure!(result.0 == "success" && state.contains("too many messages"), "{result:?}");
    at_rest(&troupe, session).await?;
    assert_eq!(store.waiting(resting_id).await?.len(), 2);
    assert_eq!(store.agent(resting_id).await?.context("an agent")?.drive, "idle");
    // A word of a person has it read all of them.
    let turn = run(&troupe, resting_id, "how are you").await?;
    assert_eq!(turn.output.as_deref(), Some("Good to hear from you."));
    assert_eq!(store.waiting(resting_id).await?.len(), 0);
    let read = letters_of(&troupe, resting_id).await?.into_iter().filter(|one| one.turn_id == Some(turn.id)).count();
    assert_eq!(read, 2);
    let row = store.agent(resting_id).await?.context("an agent")?;
    assert_eq!((row.drive.as_str(), row.letter_count), ("running", None));
    troupe.audit(session).await
}

async fn two_agents_cause_each_other_no_more_turns_than_a_day_has(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.models.push(instar_runtime::config::ModelConfig { name: "default".into(), ..Default::default() });
    (config.agents.letter_turns_max, config.agents.turns_per_day_max) = (0, 3);
    let troupe = Troupe::start(&stage, correspondents(), config).await?;
    let store = troupe.context.hub.store();
    let (session, root) = parent(&troupe, tools()).await?;
    run(&troupe, root, "go").await?;
    let child = AgentId::from(children(&troupe, root).await?.pop().context("a child")?.id);
    at_rest(&troupe, session).await?;
    let mut resting = Vec::new();
    for id in [root, child] {
        let row = store.agent(id).await?.context("an agent")?;
        let today = row.today.clone().context("it is counted")?;
        ensure!(today["turns"].as_i64() <= Some(3), "{today}");
        if row.drive == "idle" {
            ensure!(today["turns"] == 3 && today["rests"] == true, "{today}");
            resting.push(id);
        }
    }
    let resting = resting.pop().context("one rests")?;
    assert_eq!(store.waiting(resting).await?.len(), 1, "the last letter is kept");
    let runes = audit::runes(store, session).await?;
    let idled = runes.iter().find(|rune| rune.kind == "agent.drive_idled").context("it is told")?;
    ensure!(idled.payload.get().contains("daily_limit"), "{}", idled.payload.get());
    // A person is answered, and what has waited is read with that.
    let turn = run(&troupe, resting, "how are you").await?;
    assert_eq!(turn.output.as_deref(), Some("Good to hear from you."));
    assert_eq!(store.waiting(resting).await?.len(), 0);
    troupe.audit(session).await?;
    // One that rests for another reason as well goes on for no day that is over: a person looks at it first.
    let mut today = store.agent(resting).await?.and_then(|row| row.today).context("it is counted")?;
    today.as_object_mut().context("an object")?.remove("rests");
    let row = agent::Entity::update_many().filter(agent::Column::Id.eq(resting.uuid()));
    let row = row.col_expr(agent::Column::Drive, Expr::value("idle"));
    row.col_expr(agent::Column::Today, Expr::value(today)).exec(store.db()).await?;
    let (other, name) = if resting == root { (child, "parent") } else { (root, "bea") };
    let turn = run(&troupe, other, &format!("write to {name}")).await?;
    let result = &results(&troupe, &turn).await?[0];
    let state = result.1["output"]["state"].as_str().unwrap_or_default();
    ensure!(state.contains("without a word of a person"), "{result:?}");
    let today = store.agent(resting).await?.context("an agent")?.today.context("it is counted")?;
    ensure!(today["turns"] == 3 && today.get("rests").is_none(), "{today}");
    Ok(())
}

on_both! {
    two_agents_cause_each_other_no_more_turns_than_a_day_has;
    two_agents_do_not_keep_each_other_alive;
    agents_that_make_agents_at_once_make_no_more_than_the_session_may_have;
    a_child_in_the_making_may_end_and_may_be_spoken_to;
    what_an_idle_agent_made_ends_with_it;
    what_an_agent_in_a_turn_made_ends_after_it;
    a_picture_of_two_moments_is_looked_at_again;
    a_forced_end_gives_results_then_ends_turns_then_agents;
    a_parent_ends_a_child_that_is_idle_and_no_other;
    a_parent_waits_for_its_children_and_has_their_answers;
    a_wait_ends_by_its_timeout_and_by_the_end_of_a_child;
    a_wait_outlives_every_process;
    hundreds_of_waits_are_rows_and_nothing_else;
    a_task_beyond_the_places_waits_until_a_sibling_is_done;
    a_child_is_made_with_its_role_and_does_its_task;
    nobody_passes_on_what_he_has_not;
    agents_are_made_so_many_and_so_deep;
    a_model_that_is_not_there_fails_the_child_and_tells_the_parent;
    agents_of_a_circle_speak_and_others_are_out_of_reach;
    of_two_children_that_would_be_one_too_many_one_is_made;
}
