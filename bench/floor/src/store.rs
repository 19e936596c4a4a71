//! Rows, and lanes that commit steps in groups.

use crate::bus::Bus;
use crate::setting;
use crate::step::{Kind, Step, agent_id, session_id};
use anyhow::{Result, ensure};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

const LANES: usize = 2;
const GROUP_MAX: usize = 256;
const WAITING_MAX: usize = 4096;
/// How long a lane waits for as many steps as its last group had.
const GATHER: Duration = Duration::from_millis(1);

const SCHEMA: &str = "\
CREATE TABLE agents (id uuid PRIMARY KEY, session_id uuid, config jsonb NOT NULL, version int8, head int8, state bytea) \
  WITH (fillfactor = 50);
CREATE TABLE turns (id uuid PRIMARY KEY, session_id uuid, agent_id uuid, status text, seq int8, ended_us int8, body bytea);
CREATE INDEX ON turns (agent_id, id);
CREATE TABLE log (session_id uuid, seq int8, runes int4, at_us int8, body bytea, PRIMARY KEY (session_id, seq));
ALTER TABLE log ALTER body SET STORAGE PLAIN;";

/// Plans for rows by key, whatever the tables' statistics say.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

const COMMIT: &str = "\
WITH moved AS (
  UPDATE agents a SET version = a.version + 1, head = a.head + x.runes, state = x.state
  FROM unnest($1::uuid[], $2::int8[], $3::int4[], $4::bytea[], $5::bytea[]) x(id, version, runes, state, body)
  WHERE a.id = x.id AND a.version = x.version
  RETURNING a.id, a.session_id, a.head - x.runes + 1 AS seq, x.runes, x.body),
ended AS (
  INSERT INTO turns (id, session_id, agent_id, status, seq, ended_us, body)
  SELECT x.turn, m.session_id, m.id, 'completed', m.seq, $6::int8, x.body
  FROM unnest($7::uuid[], $8::uuid[], $9::bytea[]) x(agent, turn, body) JOIN moved m ON m.id = x.agent)
INSERT INTO log (session_id, seq, runes, at_us, body)
SELECT session_id, seq, runes, $6::int8, body FROM moved RETURNING 1";

async fn connect() -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(&setting("DATABASE_URL")?, NoTls).await?;
    tokio::task::spawn_local(async move { drop(connection.await) });
    Ok(client)
}

pub(crate) async fn init(agents: usize) -> Result<()> {
    let client = connect().await?;
    client.batch_execute(SCHEMA).await?;
    let insert = "INSERT INTO agents VALUES ($1, $2, \
        '{\"tools\":[\"echo\"],\"system_prompt\":\"You are an agent that does what it is told.\"}', 0, 0, '')";
    for agent in 0..agents {
        client.execute(insert, &[&agent_id(agent), &session_id(agent)]).await?;
    }
    client.batch_execute("VACUUM ANALYZE").await?;
    Ok(())
}

type Waiting = (Step, oneshot::Sender<()>);

/// Commits steps; those of an agent always through the same lane.
#[derive(Clone)]
pub(crate) struct Writer(Rc<Vec<mpsc::Sender<Waiting>>>);

impl Writer {
    pub(crate) async fn start(bus: &Bus) -> Result<Writer> {
        let mut lanes = Vec::new();
        for _ in 0..LANES {
            let client = connect().await?;
            client.batch_execute(SETTINGS).await?;
            let statement = client.prepare(COMMIT).await?;
            let (sender, steps) = mpsc::channel(WAITING_MAX);
            let lane = Lane { client, statement, bus: bus.clone() };
            tokio::task::spawn_local(async move {
                if let Err(error) = lane.run(steps).await {
                    // Nothing here mends anything: the bench sees a process that ended.
                    eprintln!("{error:?}");
                    std::process::exit(1);
                }
            });
            lanes.push(sender);
        }
        Ok(Writer(Rc::new(lanes)))
    }

    /// Returns when it is durable.
    pub(crate) async fn commit(&self, step: Step) -> Result<()> {
        let (done, landed) = oneshot::channel();
        self.0[step.agent % self.0.len()].send((step, done)).await?;
        Ok(landed.await?)
    }
}

struct Lane {
    client: Client,
    statement: Statement,
    bus: Bus,
}

impl Lane {
    async fn run(self, mut steps: mpsc::Receiver<Waiting>) -> Result<()> {
        let (mut group, mut last) = (Vec::new(), 0);
        while steps.recv_many(&mut group, GROUP_MAX).await > 0 {
            let until = Instant::now() + GATHER;
            while last > 1 && group.len() < last {
                let Ok(Some(step)) = timeout_at(until, steps.recv()).await else { break };
                group.push(step);
            }
            last = group.len();
            let (mut landed, told): (Vec<Step>, Vec<_>) = group.drain(..).unzip();
            let bodies: Vec<Vec<u8>> = landed.iter().map(Step::body).collect();
            self.write(&landed, &bodies).await?;
            landed.iter_mut().for_each(|step| step.version += 1);
            self.bus.tell(&landed, bodies.concat()).await?;
            for done in told {
                let _ = done.send(());
            }
        }
        Ok(())
    }

    async fn write(&self, steps: &[Step], bodies: &[Vec<u8>]) -> Result<()> {
        let ids: Vec<Uuid> = steps.iter().map(|step| agent_id(step.agent)).collect();
        let versions: Vec<i64> = steps.iter().map(|step| step.version).collect();
        let runes: Vec<i32> = steps.iter().map(Step::runes).collect();
        let states: Vec<Vec<u8>> = steps.iter().map(Step::state).collect();
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as i64;
        let ended = || steps.iter().filter(|step| step.kind == Kind::End);
        let agents: Vec<Uuid> = ended().map(|step| agent_id(step.agent)).collect();
        let turns: Vec<Uuid> = ended().map(|step| step.turn).collect();
        let pasts: Vec<Vec<u8>> = ended().map(|step| [step.text.as_bytes(), step.past.as_bytes()].concat()).collect();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
            [&ids, &versions, &runes, &states, &bodies, &at, &agents, &turns, &pasts];
        let rows = self.client.query(&self.statement, &values).await?;
        ensure!(
            rows.len() == steps.len(),
            "{} of {} steps found another version",
            steps.len() - rows.len(),
            steps.len()
        );
        Ok(())
    }
}
