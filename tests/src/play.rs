//! Agents that live: workloads in which the house does most by itself, and what must be true of each of them
//! afterwards, whatever was struck meanwhile.

mod errand;
mod person;
mod word;

use crate::audit;
use crate::fleet::Fleet;
use crate::load::{insist, turn};
use crate::puppet;
use anyhow::{Context, Result, bail, ensure};
use instar_client::{Broadcast, Client, ClientError, NewAccount, NewAgent, NewSession};
use instar_core::id::{AgentId, SessionId};
use instar_store::Store;
use instar_store::entity::{account, agent, message, session, turn as turn_row};
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::wait;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A round that takes longer than this has been lost.
const ROUND_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(40);
const DRIVERS: usize = 4;
/// Agents that hear each broadcast.
const AUDIENCE: usize = 5;
const ACCOUNTS: usize = 2;
/// Agents that a plan finds.
const WORKERS: usize = 2;
/// Nudges after which an agent rests.
const NUDGES: usize = 3;

/// The word to which the model says nothing when it first hears it.
pub const HUSH: &str = "hush";

/// What a fleet needs for all of them.
pub const CONFIG: &str = r#"
[scheduler]
nudge_pause_ms = 100
[archive]
url = "archive"
after_ms = 1
[secrets]
key_env = "VAULT_KEY"
[[models]]
name = "small"
provider = "openai"
base_url = "MODEL_URL/v1"
model = "mock"
context_window = 2048
[[tools]]
name = "login"
kind = "http"
url = "TOOL_URL/echo/login"
parameters = { type = "object", properties = { token = { type = "string" } } }
headers = { authorization = "Bearer secret://account/password" }
side_effects = true
idempotent = false
"#;
pub const ENVIRONMENT: (&str, &str) = ("VAULT_KEY", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// Autonomous agents go on by themselves until they rest.
    Nudges,
    Broadcasts,
    /// Conversations that grow too long for their model.
    Summaries,
    /// Agents make agents.
    Children,
    /// More agents than accounts.
    Accounts,
    /// Sessions are closed and archived.
    Endings,
    /// Missions that run by themselves, and such as people have a hand in.
    Missions,
    /// Goals, tasks and a critic.
    Plans,
    /// Calls that wait for a person's word, and answers that people speak into.
    Words,
}

impl Play {
    pub const ALL: [Play; 9] = [
        Play::Nudges,
        Play::Broadcasts,
        Play::Summaries,
        Play::Children,
        Play::Accounts,
        Play::Endings,
        Play::Missions,
        Play::Plans,
        Play::Words,
    ];
}

impl Display for Play {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Play::Nudges => "nudges",
            Play::Broadcasts => "broadcasts",
            Play::Summaries => "summaries",
            Play::Children => "children",
            Play::Accounts => "accounts",
            Play::Endings => "endings",
            Play::Missions => "missions",
            Play::Plans => "plans",
            Play::Words => "words",
        })
    }
}

/// A message that begins with a tool gets a call of it, one for the puppet is followed, and everything else is
/// answered at once.
pub fn script() -> Script {
    let hushed: Mutex<BTreeSet<String>> = Mutex::default();
    Script::function(move |request: &Request| {
        let text = request.user_text();
        let asked = request.tool_results().is_empty().then(|| errand::reply(&request.tools(), &text));
        if let Some(reply) = asked.flatten() {
            return reply;
        }
        let word = text.split_whitespace().next().unwrap_or_default();
        match word {
            _ if text.starts_with("<conversation>") => Reply::text("They talked."),
            "call" | "calls" | "slow" => puppet::reply(request),
            HUSH if hushed.lock().is_ok_and(|mut hushed| hushed.insert(text.clone())) => Reply::hang(),
            "charge" | "put" | "login" if request.tool_results().is_empty() => {
                Reply::call(word, json!({"token": text}))
            }
            "echo" if request.tool_results().is_empty() => Reply::call("echo", json!({"text": text})),
            _ => Reply::text("There is nothing more to be done, and this is what there is to say about it for you."),
        }
    })
}

/// One thing that was done from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Round {
    pub began: Instant,
    pub ended: Instant,
    pub session: String,
    /// Whom it is about: agents, or the mission or plan.
    pub agents: Vec<String>,
    /// What tells it from the others.
    word: String,
}

/// Drivers at work; stopped and awaited by [`Run::stop`].
pub struct Run {
    play: Play,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    drivers: JoinSet<Result<Vec<Round>>>,
}

impl Run {
    pub async fn start(play: Play, fleet: &Fleet, store: &Store) -> Result<Run> {
        if play == Play::Accounts {
            for n in 0..ACCOUNTS {
                let fields = BTreeMap::from([("password".to_owned(), format!("password-{n}-of-the-pool"))]);
                let new =
                    NewAccount { name: format!("pool-{n}"), pool: Some("pool".into()), fields, ..Default::default() };
                match fleet.client.create_account(&new).await {
                    Ok(_) | Err(ClientError::Problem { status: 409, .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut drivers = JoinSet::new();
        for nth in 0..DRIVERS {
            let (client, store, stop, done) = (fleet.client.clone(), store.clone(), stop.clone(), done.clone());
            drivers.spawn(async move {
                let mut driver = Driver::new(play, client, store, nth).await?;
                let mut rounds = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let (session, agents, word) = driver.round().await.with_context(|| format!("a round of {play}"))?;
                    rounds.push(Round { began, ended: Instant::now(), session, agents, word });
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(rounds)
            });
        }
        Ok(Run { play, stop, done, drivers })
    }

    pub fn finished(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits for so many more rounds.
    pub async fn more(&mut self, rounds: u64, within: Duration) -> Result<()> {
        let (goal, end) = (self.finished() + rounds, Instant::now() + within);
        while self.finished() < goal {
            if let Some(ended) = self.drivers.try_join_next() {
                ended.context("a driver")??;
            }
            if Instant::now() > end {
                bail!("{} of {rounds} rounds of {} in {within:?}", rounds - (goal - self.finished()), self.play);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Lets every driver finish its round.
    pub async fn stop(mut self) -> Result<Vec<Round>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(ended) = self.drivers.join_next().await {
            all.extend(ended.context("a driver")??);
        }
        Ok(all)
    }
}

/// Who does one round after another.
struct Driver {
    play: Play,
    client: Client,
    store: Store,
    session: String,
    agents: Vec<String>,
    rounds: usize,
}

impl Driver {
    /// Each of them begins elsewhere among the ways in which a round can go.
    async fn new(play: Play, client: Client, store: Store, nth: usize) -> Result<Driver> {
        let mut driver = Driver { play, client, store, session: String::new(), agents: Vec::new(), rounds: nth };
        driver.session = driver.open().await?;
        let count = match play {
            Play::Broadcasts => AUDIENCE,
            Play::Summaries => 1,
            Play::Plans => WORKERS,
            _ => 0,
        };
        for _ in 0..count {
            let model = if play == Play::Summaries { "small" } else { "default" };
            let made = driver.make(&driver.session, NewAgent { model: model.into(), ..Default::default() }).await?;
            driver.agents.push(made);
        }
        Ok(driver)
    }

    /// One thing, however often its answer is lost.
    fn once(&self) -> Client {
        self.client.clone().with_idempotency_key(uuid::Uuid::now_v7().simple().to_string())
    }

    async fn open(&self) -> Result<String> {
        let (began, once, new) = (Instant::now(), self.once(), NewSession::default());
        Ok(insist(began, || once.create_session(&new)).await?.id)
    }

    async fn make(&self, session: &str, new: NewAgent) -> Result<String> {
        let (began, once) = (Instant::now(), self.once());
        let name = if new.name.is_empty() { "ada".to_owned() } else { new.name.clone() };
        let model = if new.model.is_empty() { "default".to_owned() } else { new.model.clone() };
        let new = NewAgent { name, model, ..new };
        Ok(insist(began, || once.create_agent(session, &new)).await?.id)
    }

    async fn round(&mut self) -> Result<(String, Vec<String>, String)> {
        self.rounds += 1;
        let word = format!("w{}", uuid::Uuid::now_v7().simple());
        let (session, agents) = match self.play {
            Play::Nudges => self.nudges().await?,
            Play::Broadcasts => self.broadcast(&word).await?,
            Play::Summaries => self.talk(&word).await?,
            Play::Children => self.spawn(&word).await?,
            Play::Accounts => self.log_in(&word).await?,
            Play::Endings => self.end(&word).await?,
            Play::Missions => self.sail(&word).await?,
            Play::Plans => self.reach(&word).await?,
            Play::Words => self.speak(&word).await?,
        };
        Ok((session, agents, word))
    }

    async fn nudges(&self) -> Result<(String, Vec<String>)> {
        let new = NewAgent { drive_loop: Some("autonomous".into()), ..Default::default() };
        let agent = self.make(&self.session, new).await?;
        let (began, once) = (Instant::now(), self.once());
        insist(began, || once.start_agent(&agent)).await?;
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.agent(&agent).await?;
            ensure!(shown.drive == "idle", "{agent} is {} after {} nudges", shown.drive, shown.nudge_count);
            Ok(())
        })
        .await?;
        Ok((self.session.clone(), vec![agent]))
    }

    async fn broadcast(&self, word: &str) -> Result<(String, Vec<String>)> {
        let (began, once) = (Instant::now(), self.once());
        let said = Broadcast { content: format!("say {word}"), standing: Some(false), expires_at: None };
        insist(began, || once.broadcast(&self.session, &said)).await?;
        let session: SessionId = self.session.parse()?;
        wait::until_ok(ROUND_WITHIN, || async {
            let heard = message::Entity::find().filter(message::Column::SessionId.eq(session.uuid()));
            let heard = heard.filter(message::Column::Content.eq(&said.content)).count(self.store.db()).await?;
            ensure!(heard as usize >= AUDIENCE, "{heard} of {AUDIENCE} have heard it");
            self.at_rest(session).await
        })
        .await?;
        Ok((self.session.clone(), self.agents.clone()))
    }

    async fn at_rest(&self, session: SessionId) -> Result<()> {
        let live = turn_row::Entity::find().filter(turn_row::Column::SessionId.eq(session.uuid()));
        let live = live.filter(turn_row::Column::EndedAt.is_null()).count(self.store.db()).await?;
        ensure!(live == 0, "{live} turns have not ended");
        Ok(())
    }

    async fn talk(&self, word: &str) -> Result<(String, Vec<String>)> {
        self.completes(&self.agents[0], &format!("say {word} {}", "and so on ".repeat(120))).await?;
        Ok((self.session.clone(), self.agents.clone()))
    }

    async fn spawn(&self, word: &str) -> Result<(String, Vec<String>)> {
        let new = NewAgent { tools: vec!["spawn_agent".into()], ..Default::default() };
        let agent = self.make(&self.session, new).await?;
        let arguments = json!({"name": word, "task": format!("say {word}")});
        self.completes(&agent, &format!("call spawn_agent {arguments}")).await?;
        let parent: AgentId = agent.parse()?;
        wait::until_ok(ROUND_WITHIN, || async {
            let children = self.store.live_children(parent).await?;
            ensure!(!children.is_empty() && children.iter().all(|kin| kin.rests()), "{} children", children.len());
            Ok(())
        })
        .await?;
        Ok((self.session.clone(), vec![agent]))
    }

    async fn log_in(&self, word: &str) -> Result<(String, Vec<String>)> {
        let account = Some(json!({"pool": "pool"}));
        let agent =
            self.make(&self.session, NewAgent { tools: vec!["login".into()], account, ..Default::default() }).await?;
        self.completes(&agent, &format!("login {word}")).await?;
        let (began, once) = (Instant::now(), self.once());
        insist(began, || once.terminate_agent(&agent, false)).await?;
        Ok((self.session.clone(), vec![agent]))
    }

    async fn end(&self, word: &str) -> Result<(String, Vec<String>)> {
        let session = self.open().await?;
        let mut agents = Vec::new();
        for tool in ["charge", "echo"] {
            let agent = self.make(&session, NewAgent { tools: vec![tool.into()], ..Default::default() }).await?;
            self.completes(&agent, &format!("{tool} {word}")).await?;
            agents.push(agent);
        }
        // Every other one while a turn is under way.
        if self.rounds.is_multiple_of(2) {
            let (began, once, text) = (Instant::now(), self.once(), format!("echo {word} again"));
            insist(began, || once.send_message(&agents[1], &text, Default::default())).await?;
        }
        self.becomes(&session, "closed", |client, id| async move { client.close_session(&id).await.map(drop) }).await?;
        if self.rounds % 4 < 2 {
            self.becomes(&session, "archived", |client, id| async move { client.archive_session(&id).await.map(drop) })
                .await?;
        }
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.session(&session).await?;
            ensure!(shown.status == "archived", "{session} is {}", shown.status);
            Ok(())
        })
        .await?;
        Ok((session, agents))
    }

    async fn reach(&self, word: &str) -> Result<(String, Vec<String>)> {
        let (began, once) = (Instant::now(), self.once());
        let new = json!({"goal": format!("say {word}"), "autonomy": "auto", "attempts_max": 10});
        let plan = insist(began, || once.create_plan(&self.session, &new)).await?.id;
        wait::until_ok(ROUND_WITHIN, || async {
            let shown = self.client.plan(&plan).await?;
            ensure!(shown.status == "goal_met", "{plan} is {}: {:?}", shown.status, shown.tasks);
            self.at_rest(self.session.parse()?).await
        })
        .await?;
        Ok((self.session.clone(), vec![plan]))
    }

    /// Asks for it, which may have been heard before, and waits until it is so or beyond.
    async fn becomes<F>(&self, session: &str, status: &str, ask: impl Fn(Client, String) -> F) -> Result<()>
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        let once = self.once();
        wait::until_ok(ROUND_WITHIN, || async {
            let asked = ask(once.clone(), session.to_owned()).await;
            let shown = self.client.session(session).await?;
            let there = shown.status == status || shown.status == "archived";
            ensure!(there, "{session} is {}, not {status}: {asked:?}", shown.status);
            Ok(())
        })
        .await
    }

    async fn completes(&self, agent: &str, text: &str) -> Result<()> {
        let ended = turn(&self.client, agent, text).await?;
        ensure!(ended.status == "completed", "{} of {agent} ended as {}", ended.turn, ended.status);
        Ok(())
    }
}

/// Everything that is wrong after the rounds of a play, in words.
pub async fn verify(play: Play, rounds: &[Round], fleet: &Fleet, store: &Store) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let sessions: BTreeSet<&str> = rounds.iter().map(|round| round.session.as_str()).collect();
    for id in &sessions {
        match play {
            Play::Endings => wrong.extend(ended(fleet, store, id).await?),
            _ => wrong.extend(audit::session(store, id.parse()?).await?),
        }
    }
    for round in rounds {
        let said = match play {
            Play::Nudges => nudged(store, round).await?,
            Play::Broadcasts => heard(store, round).await?,
            Play::Summaries => summarised(store, round).await?,
            Play::Children => born(store, round).await?,
            Play::Missions => errand::sailed(store, round).await?,
            Play::Plans => errand::reached(store, round).await?,
            Play::Words => word::spoken(fleet, store, round).await?,
            Play::Accounts | Play::Endings => Vec::new(),
        };
        wrong.extend(said);
    }
    if play == Play::Accounts {
        wrong.extend(given_back(fleet, store).await?);
    }
    wrong.sort();
    wrong.dedup();
    Ok(wrong)
}

/// Each agent rested after as many nudges as it may have: none was lost, and none counted twice.
async fn nudged(store: &Store, round: &Round) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let runes = audit::runes(store, round.session.parse()?).await?;
    for id in &round.agents {
        let agent: AgentId = id.parse()?;
        let count = |kind: &str| runes.iter().filter(|r| r.kind == kind && r.agent_id == Some(agent)).count();
        let found = [count("agent.nudged"), count("turn.completed"), count("turn.queued"), count("agent.drive_idled")];
        if found != [NUDGES, NUDGES, NUDGES, 1] {
            wrong.push(format!("{id}: nudged, completed, queued, idled: {found:?}"));
        }
    }
    Ok(wrong)
}

/// Everybody got it, once.
async fn heard(store: &Store, round: &Round) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for id in &round.agents {
        let agent: AgentId = id.parse()?;
        let got = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid()));
        let got = got.filter(message::Column::Content.eq(format!("say {}", round.word))).count(store.db()).await?;
        if got != 1 {
            wrong.push(format!("{id} got the broadcast {} {got} times", round.word));
        }
    }
    Ok(wrong)
}

/// A turn makes one summary at the most, and a long conversation has some.
async fn summarised(store: &Store, round: &Round) -> Result<Vec<String>> {
    let agent: AgentId = round.agents[0].parse()?;
    let rows = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid())).all(store.db()).await?;
    let mut turns: BTreeMap<_, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.source == "summary") {
        *turns.entry(row.turn_id).or_default() += 1;
    }
    let twice = turns.values().filter(|count| **count > 1).count();
    let said = rows.iter().filter(|row| row.source == "direct").count();
    let mut wrong = Vec::new();
    if twice > 0 {
        wrong.push(format!("{twice} turns of {agent} made more than one summary"));
    }
    if turns.is_empty() && said > 6 {
        wrong.push(format!("{agent} heard {said} long messages and nothing was summarised"));
    }
    Ok(wrong)
}

/// One child, with one task done.
async fn born(store: &Store, round: &Round) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for id in &round.agents {
        let parent: AgentId = id.parse()?;
        let children = agent::Entity::find().filter(agent::Column::ParentId.eq(parent.uuid())).all(store.db()).await?;
        let mut done = 0;
        for child in &children {
            let turns = turn_row::Entity::find().filter(turn_row::Column::AgentId.eq(child.id));
            done += turns.filter(turn_row::Column::Status.eq("completed")).count(store.db()).await?;
        }
        if (children.len(), done) != (1, 1) {
            wrong.push(format!("{id} made {} agents, which did {done} tasks", children.len()));
        }
    }
    Ok(wrong)
}

/// Every account comes back, no call was sent twice, and none with another's credential.
async fn given_back(fleet: &Fleet, store: &Store) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let back = wait::until_ok(Duration::from_secs(10), || async {
        let held = account::Entity::find().filter(account::Column::Holder.is_not_null()).count(store.db()).await?;
        ensure!(held == 0, "{held} accounts are held by agents that have ended");
        Ok(())
    });
    wrong.extend(back.await.err().map(|error| error.to_string()));
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    for got in fleet.tool.echoed().iter().filter(|got| got.name == "login") {
        *sent.entry(got.headers.get("idempotency-key").cloned().unwrap_or_default()).or_default() += 1;
        if !got.headers.get("authorization").is_some_and(|auth| auth.ends_with("-of-the-pool")) {
            wrong.push(format!("{:?} came without an account", got.headers));
        }
    }
    wrong.extend(sent.iter().filter(|(_, n)| **n > 1).map(|(call, n)| format!("{call} was sent {n} times")));
    Ok(wrong)
}

/// A session that ended is sealed, its archive is complete, and verifies.
async fn ended(fleet: &Fleet, store: &Store, id: &str) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let key: SessionId = id.parse()?;
    let row = session::Entity::find_by_id(key.uuid()).one(store.db()).await?.context("no such session")?;
    if row.sealed_seq != row.head_seq || row.final_hash.is_none() {
        wrong.push(format!("{id} is sealed up to {} of {}", row.sealed_seq, row.head_seq));
    }
    let runes = fleet.client.every_rune(id, 0).await?;
    let (last, count) = (runes.last().map(|rune| rune.kind.clone()), runes.len() as i64);
    if last.as_deref() != Some("session.closed") || count != row.head_seq {
        wrong.push(format!("{id} has {count} of {} runes, and ends with {last:?}", row.head_seq));
    }
    let (good, said) = fleet.run(&["verify", id]).await?;
    if !good {
        wrong.push(format!("verify {id}: {said}"));
    }
    Ok(wrong)
}
