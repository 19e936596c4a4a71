//! A plan's steps, carried out: each a commit of its own, worked out from rows that it names by their versions.

use super::prompt;
use super::scene::Scene;
use super::step::{Step, next, takes_work};
use crate::act::{Act, ActError, Done};
use crate::flow::{self, Engaged, FlowError, Hand, NewAgent};
use crate::hub::Hub;
use crate::wake::Ready;
use instar_core::id::{AgentId, HopId, MissionId, PlanId, SessionId, TaskId};
use instar_core::machine::{By, plan as plan_machine, task as task_machine};
use instar_core::rune::payload::MissionAttention;
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, mission, plan, task};
use instar_store::{Answer, Change, Commit, StoreError};
use serde_json::json;
use std::collections::HashMap;

/// Steps that one look takes at the most; whoever looks next goes on.
const STEPS_MAX: usize = 256;
/// Free critics of a session among which one without a part in the work is looked for.
const CRITICS_LOOKED_AT: u64 = 20;
/// How often it is looked again because others changed the same rows.
const LOOKS_MAX: usize = 8;

/// Why a person should look at a mission: the plan that carries its hop out finds nobody.
const PLAN_WAITS: &str = "plan_waits";

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Act(#[from] ActError),
    #[error("a rune could not be told: {0}")]
    Untold(#[from] serde_json::Error),
}

/// What became of a step.
enum Taken {
    /// Something moved.
    Moved,
    /// Others were faster.
    Lost,
    /// Whoever could do it is busy.
    Waits,
    /// Nobody can do it, and nobody may be made who could: why, and what people can do.
    Short(String),
}

/// Who could take a step.
enum Found {
    Hand(Lent),
    /// Somebody who is busy now.
    Busy,
    /// Nobody, and why nobody is made.
    Nobody(String),
}

impl Found {
    fn or_taken(self) -> Result<Lent, Taken> {
        match self {
            Found::Hand(hand) => Ok(hand),
            Found::Busy => Err(Taken::Waits),
            Found::Nobody(why) => Err(Taken::Short(why)),
        }
    }
}

impl Hub {
    /// Takes every step that a plan's rows ask for. Any process may, at any time.
    pub async fn settle_plan(&self, id: PlanId) -> Result<(), PlanError> {
        let timeout = self.planning().policy.start_timeout;
        let timeout = chrono::Duration::from_std(timeout).unwrap_or(chrono::Duration::MAX);
        let mut lost = 0;
        for _ in 0..STEPS_MAX {
            let Some(scene) = Scene::load(self.store(), id).await? else { return Ok(()) };
            if scene.is_short() && scene.is_under_way() {
                self.note(&scene, None).await?;
                continue;
            }
            let Some(step) = next(&scene, timeout) else { return Ok(()) };
            instar_crashpoint::crash_point!("plan.step.before");
            let taken = self.take(&scene, step).await?;
            instar_crashpoint::crash_point!("plan.step.after");
            match taken {
                Taken::Moved => lost = 0,
                Taken::Lost if lost < LOOKS_MAX => lost += 1,
                Taken::Lost | Taken::Waits => return Ok(()),
                // As long as others of its agents work it is not people who have to act.
                Taken::Short(_) if scene.is_under_way() => return Ok(()),
                Taken::Short(why) => return self.note(&scene, Some(why)).await,
            }
        }
        Ok(())
    }

    async fn take(&self, scene: &Scene, step: Step) -> Result<Taken, PlanError> {
        let system = Actor::system("plan");
        match step {
            Step::Raise(event, why) => {
                let act = Act::new(session(scene), scene.id(), &plan_machine::TABLE, event, system).reason(&why);
                self.raise(act).await
            }
            Step::Move(task, event, why) => {
                let act = Act::new(session(scene), TaskId::from(task), &task_machine::TABLE, event, system);
                // Whoever was faster may have brought the plan somewhere where this is no longer wanted: a task that
                // failed is tried again while others run, and not while a critic judges it.
                let seen = (scene.plan.id, scene.plan.status.clone());
                let act = act.reason(&why).provided(move |snapshot| {
                    let found = snapshot.plan(seen.0).map(|plan| plan.status.as_str());
                    if found == Some(seen.1.as_str()) { Ok(()) } else { Err(ActError::Contended) }
                });
                self.raise(act).await
            }
            Step::Finish(id, text) => {
                let Some(owner) = scene.task(id).and_then(|task| task.owner_id) else { return Ok(Taken::Lost) };
                // It said so itself, in its own words.
                let actor = Actor::new(By::Agent, AgentId::from(owner).to_string());
                let result = json!(text);
                let act = Act::new(session(scene), TaskId::from(id), &task_machine::TABLE, "complete", actor)
                    .telling("plan.task_completed", json!({"result": result}))
                    .setting(|change| change.set(task::Column::Result, result.clone()));
                self.raise(act).await
            }
            Step::Ask(id, why) => {
                let Some(task) = scene.task(id) else { return Ok(Taken::Lost) };
                let Some(owner) = task.owner_id else { return Ok(Taken::Lost) };
                // Its own messages come first; it is asked when they are answered.
                let Some(owner) = self.store().free_agent(owner).await? else { return Ok(Taken::Waits) };
                let (commit, engaged) =
                    flow::ask_for_report(&scene.plan, task, &owner, &prompt::report(task, &why), system)?;
                self.engage(scene, &Lent::Free(Box::new(owner)), commit, engaged).await
            }
            Step::Plan => {
                let hand = match self.orchestrator(scene).await?.or_taken() {
                    Ok(hand) => hand,
                    Err(taken) => return Ok(taken),
                };
                let (commit, engaged) = flow::ask_for_plan(&scene.plan, hand.lent(), &prompt::plan(scene), system)?;
                self.engage(scene, &hand, commit, engaged).await
            }
            Step::Review => {
                let hand = match self.critic(scene).await?.or_taken() {
                    Ok(hand) => hand,
                    Err(taken) => return Ok(taken),
                };
                let text = prompt::critique(scene);
                let (commit, engaged) = flow::ask_for_critique(&scene.plan, hand.lent(), &text, system)?;
                self.engage(scene, &hand, commit, engaged).await
            }
            Step::Assign(tasks) => self.assign(scene, &tasks).await,
        }
    }

    async fn raise(&self, act: Act<'_>) -> Result<Taken, PlanError> {
        match act.carry_out(self).await {
            Ok(Done::Moved { runes }) => {
                self.follow_but_plans(&runes);
                Ok(Taken::Moved)
            }
            // Somebody else has seen to it, or is about to.
            Ok(Done::Ignored) | Err(ActError::Refused(_) | ActError::Absent(_) | ActError::Contended) => {
                Ok(Taken::Lost)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn engage(
        &self,
        scene: &Scene,
        hand: &Lent,
        mut commit: Commit,
        engaged: Engaged,
    ) -> Result<Taken, PlanError> {
        if matches!(hand, Lent::New(_)) && self.planning().policy.session_max > 0 {
            flow::counted(&mut commit, &scene.session);
        }
        let Answer::Moved(_) = self.commit(commit).await? else { return Ok(Taken::Lost) };
        let Engaged { agent, turn, epoch, owner } = engaged;
        let ready = Ready { session: session(scene), agent, turn, epoch, reason: "queued", news: None };
        self.wake_turn(ready, owner, None);
        Ok(Taken::Moved)
    }

    /// Gives tasks to agents that are free, and makes agents where that is allowed.
    async fn assign(&self, scene: &Scene, tasks: &[uuid::Uuid]) -> Result<Taken, PlanError> {
        let mut free: HashMap<&str, Vec<agent::Model>> = HashMap::new();
        let (mut taken, mut short) = (Taken::Waits, None);
        let most = tasks.len() as u64;
        for task in tasks.iter().filter_map(|id| scene.task(*id)) {
            let role = task.role.as_str();
            if !free.contains_key(role) {
                let mut found = self.store().free_agents(session(scene), role, most).await?;
                // The oldest is taken first.
                found.reverse();
                free.insert(role, found);
            }
            let hand = match free.get_mut(role).and_then(Vec::pop) {
                Some(agent) => Lent::Free(Box::new(agent)),
                None => match self.newcomer(scene, role).await? {
                    Found::Hand(new) => new,
                    Found::Busy => continue,
                    Found::Nobody(why) => {
                        short.get_or_insert(why);
                        continue;
                    }
                },
            };
            let text = prompt::task(scene, task);
            let (commit, engaged) = flow::assign(&scene.plan, task, hand.lent(), &text, Actor::system("plan"))?;
            match self.engage(scene, &hand, commit, engaged).await? {
                Taken::Moved => taken = Taken::Moved,
                _ if matches!(taken, Taken::Waits) => taken = Taken::Lost,
                _ => {}
            }
        }
        Ok(match (taken, short) {
            (Taken::Waits, Some(why)) => Taken::Short(why),
            (taken, _) => taken,
        })
    }

    /// What people read of a plan for which there is nobody; `None`: somebody is at work again.
    async fn note(&self, scene: &Scene, why: Option<String>) -> Result<(), PlanError> {
        let (plan, id) = (&scene.plan, scene.id());
        if plan.reason == why {
            return Ok(());
        }
        let mut commit = Commit::new(session(scene), Actor::system("plan"));
        let at = commit.at();
        let change = Change::entity(&plan::TABLE, id);
        commit.change(change.version(plan.version).set(plan::Column::Reason, why.clone()));
        let hop = match plan.hop_id {
            Some(hop) => self.store().hop(HopId::from(hop)).await?,
            None => None,
        };
        let mission = match &hop {
            Some(hop) => self.store().mission(MissionId::from(hop.mission_id)).await?,
            None => None,
        };
        if let Some(mission) = mission {
            let of = MissionId::from(mission.id);
            let called = mission.attention.as_ref().is_some_and(|attention| attention["reason"] == PLAN_WAITS);
            let hop = plan.hop_id.map(HopId::from);
            let attention = match &why {
                Some(why) => Some(json!({"reason": PLAN_WAITS, "hop_id": hop, "plan_id": id, "detail": why, "at": at})),
                None if called => None,
                None => mission.attention.clone(),
            };
            let change = Change::entity(&mission::TABLE, of).version(mission.version);
            commit.change(change.set(mission::Column::Attention, attention));
            if let Some(why) = &why {
                let error = json!({"plan_id": id, "detail": why});
                commit.rune(Draft::new(of, &MissionAttention { reason: PLAN_WAITS.into(), hop_id: hop, error })?);
            }
        }
        // If somebody has changed it meanwhile, whoever looks next says it.
        self.commit(commit).await?;
        Ok(())
    }

    /// An agent to be made, if there are fewer of its role than there may be.
    async fn newcomer(&self, scene: &Scene, role: &str) -> Result<Found, PlanError> {
        let default = self.planning().policy.workers_max;
        let most = scene.plan.config["workers_max"].as_u64().unwrap_or(u64::from(default));
        let there = self.store().agents_at_hand(session(scene), role).await?;
        if there >= most && there == 0 {
            return Ok(Found::Nobody(format!(
                "an agent of role {role}: there is none that takes work, and none is made because workers_max is \
                 {most}: add one (instar agent create), start one that is stopped, or raise plans.workers_max"
            )));
        }
        if there >= most {
            return Ok(Found::Busy);
        }
        self.made(scene, role, there).await
    }

    /// One more agent of a role, of which so many are at hand; where the session is full, one of those.
    async fn made(&self, scene: &Scene, role: &str, there: u64) -> Result<Found, PlanError> {
        Ok(match self.made_for(scene, role, format!("{role}-{}", there + 1)).await? {
            Some(new) => Found::Hand(Lent::New(new)),
            None if there > 0 => Found::Busy,
            None => Found::Nobody(format!(
                "an agent of role {role}: there is none that takes work, and none is made because the session has as \
                 many agents as it may have: end one that is not needed (instar agent terminate), start one that is \
                 stopped, or raise agents.session_max"
            )),
        })
    }

    /// Whether the session may have one more. Counted after its row was read, whose version the commit names.
    async fn has_room(&self, scene: &Scene) -> Result<bool, PlanError> {
        let max = u64::from(self.planning().policy.session_max);
        Ok(max == 0 || self.store().count_agents(session(scene), max).await? < max)
    }

    /// What an agent is made of that a plan needs: as the plan says, else as its orchestrator or the session's first
    /// agent is. Whoever makes an agent may not loosen what a person has to approve. `None`: the session is full.
    async fn made_for(&self, scene: &Scene, role: &str, name: String) -> Result<Option<NewAgent>, PlanError> {
        if !self.has_room(scene).await? {
            return Ok(None);
        }
        let (plan, policy) = (&scene.plan, &self.planning().policy);
        let model_of = plan.orchestrator_id.filter(|_| role != "orchestrator").or(scene.session.root_agent_id);
        let like = match model_of {
            Some(id) => self.store().agent(AgentId::from(id)).await?,
            None => None,
        };
        let given = plan.config["model"].as_str().map(str::to_owned);
        let by_role = policy.models.get(role).cloned();
        let model = given.or(by_role).or(like.as_ref().map(|agent| agent.model.clone()));
        let tools: Vec<String> = match plan.config["tools"].as_array() {
            // A critic goes by what it is shown.
            _ if role == "critic" => Vec::new(),
            Some(tools) => tools.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            None => like.as_ref().map(agent::Model::tools).unwrap_or_default(),
        };
        let mode = like.as_ref().map(|agent| agent.config["approval_mode"].clone());
        let scope = like.as_ref().and_then(|agent| agent.config.get("policy").cloned());
        let overrides = like.as_ref().and_then(|agent| agent.config.get("tool_approvals").cloned());
        let prompt = match plan.config["instructions"][role].as_str() {
            Some(prompt) => prompt.to_owned(),
            None => prompt::instructions(role),
        };
        let config = json!({
            "system_prompt": prompt,
            "tools": tools,
            "loop": "reactive",
            "approval_mode": mode.filter(|mode| !mode.is_null()),
            "tool_approvals": overrides,
            "policy": scope,
            "depth": 1,
            (flow::MADE_FOR): scene.id(),
        });
        let parent = plan.orchestrator_id.filter(|_| role != "orchestrator").map(AgentId::from);
        let parent = match parent {
            Some(id) => self.store().agent(id).await?.filter(lives).map(|_| id),
            None => None,
        };
        let model = model.unwrap_or_else(|| policy.model.clone());
        Ok(Some(NewAgent { name, role: role.to_owned(), model, config, tools, parent, ..NewAgent::default() }))
    }

    /// The plan's own as long as it takes work; else one that is free; else a new one.
    async fn orchestrator(&self, scene: &Scene) -> Result<Found, PlanError> {
        if let Some(own) = scene.plan.orchestrator_id {
            let row = self.store().agent(AgentId::from(own)).await?;
            if row.as_ref().is_some_and(takes_work) {
                let free = self.store().free_agent(own).await?;
                return Ok(free.map_or(Found::Busy, |agent| Found::Hand(Lent::Free(Box::new(agent)))));
            }
        }
        let mut free = self.store().free_agents(session(scene), "orchestrator", 1).await?;
        if let Some(agent) = free.pop() {
            return Ok(Found::Hand(Lent::Free(Box::new(agent))));
        }
        let there = self.store().agents_at_hand(session(scene), "orchestrator").await?;
        self.made(scene, "orchestrator", there).await
    }

    /// The one that has judged the plan before; else one that the session keeps for it and that had no part in the
    /// work; else a new one, which has seen none of it.
    async fn critic(&self, scene: &Scene) -> Result<Found, PlanError> {
        if let Some(own) = scene.plan.critic_id {
            let row = self.store().agent(AgentId::from(own)).await?;
            if row.as_ref().is_some_and(takes_work) {
                let free = self.store().free_agent(own).await?;
                return Ok(free.map_or(Found::Busy, |agent| Found::Hand(Lent::Free(Box::new(agent)))));
            }
        }
        let part = |agent: &agent::Model| {
            let led = scene.plan.orchestrator_id == Some(agent.id);
            led || scene.tasks.iter().any(|task| task.owner_id == Some(agent.id))
        };
        let free = self.store().free_agents(session(scene), "critic", CRITICS_LOOKED_AT).await?;
        if let Some(agent) = free.into_iter().find(|agent| !part(agent)) {
            return Ok(Found::Hand(Lent::Free(Box::new(agent))));
        }
        let there = self.store().agents_at_hand(session(scene), "critic").await?;
        self.made(scene, "critic", there).await
    }
}

/// A hand that is not in a commit yet.
enum Lent {
    Free(Box<agent::Model>),
    New(NewAgent),
}

impl Lent {
    fn lent(&self) -> Hand<'_> {
        match self {
            Lent::Free(agent) => Hand::Free(agent),
            Lent::New(new) => Hand::New(new.clone()),
        }
    }
}

fn lives(agent: &agent::Model) -> bool {
    !["terminated", "failed"].contains(&agent.lifecycle.as_str())
}

fn session(scene: &Scene) -> SessionId {
    SessionId::from(scene.plan.session_id)
}
