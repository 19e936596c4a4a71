//! What a first token costs, and what a long history does.

use anyhow::{Context, Result};
use futures::StreamExt;
use instar_client::{Event, Mode};
use instar_core::id::{AgentId, SessionId};
use instar_store::Store;
use instar_tests::fleet::Fleet;
use instar_tests::load;
use sea_orm::{ConnectionTrait, DbBackend, Statement, Value};
use std::time::{Duration, Instant};

const SAMPLES: usize = 200;
const TURNS: usize = 100;

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

/// Time to the first token over calling the mock directly.
pub(crate) async fn first_token(fleet: &Fleet, model: &str, agent: &str) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/v1/chat/completions", model);
    let body =
        serde_json::json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "say hi"}]});
    let mut direct = Vec::new();
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        let mut answer = http.post(&url).json(&body).send().await?.bytes_stream();
        answer.next().await.context("no byte")??;
        direct.push(begun.elapsed().as_secs_f64() * 1e3);
        while answer.next().await.is_some() {}
    }
    let session = fleet.client.agent(agent).await?.session_id;
    let head = fleet.client.session(&session).await?.head_seq;
    let mut events = fleet.client.events(&session, head);
    let mut through = Vec::new();
    for n in 0..SAMPLES {
        let begun = Instant::now();
        let sent = fleet.client.send_message(agent, &format!("say {n}"), Mode::Queue).await?;
        let turn = sent.turn_id.context("no turn")?;
        let mut first = None;
        loop {
            let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await?.context("no event")??;
            match event {
                Event::Delta(delta) if delta.turn_id == turn => {
                    first.get_or_insert(begun.elapsed().as_secs_f64() * 1e3);
                }
                Event::Rune(rune) if rune.kind == "turn.completed" && rune.turn_id.as_deref() == Some(&turn) => break,
                _ => {}
            }
        }
        through.extend(first);
    }
    let (direct, through) = (sorted(direct), sorted(through));
    println!(
        "time to first token, 1 agent: direct p50 {:.2} ms, through Instar p50 {:.2} ms p99 {:.2} ms, added p50 {:.2} ms ({} samples)",
        percentile(&direct, 0.5),
        percentile(&through, 0.5),
        percentile(&through, 0.99),
        percentile(&through, 0.5) - percentile(&direct, 0.5),
        through.len()
    );
    Ok(())
}

/// The same turn at three lengths of history, taken in turn so that drift hits all alike.
pub(crate) async fn cost(fleet: &Fleet, store: &Store) -> Result<()> {
    let lengths = [10i64, 1_000, 100_000];
    let mut agents = Vec::new();
    for length in lengths {
        let (session, mut own) = fleet.agents(1, &["echo"]).await?;
        let agent = own.pop().context("no agent")?;
        fill(store, session.parse()?, agent.parse()?, length).await?;
        agents.push(agent);
    }
    store.db().execute_unprepared("VACUUM ANALYZE").await?;
    let mut times = vec![Vec::new(); lengths.len()];
    for n in 0..TURNS {
        for (agent, times) in agents.iter().zip(&mut times) {
            let turn = load::turn(&fleet.client, agent, &format!("echo {n}")).await?;
            if n >= TURNS / 10 {
                times.push((turn.ended - turn.began).as_secs_f64() * 1e3);
            }
        }
    }
    let medians: Vec<f64> = times.into_iter().map(|t| percentile(&sorted(t), 0.5)).collect();
    for (length, median) in lengths.iter().zip(&medians) {
        println!("history of {length} runes: p50 {median:.2} ms, {:.2} of that at 10", median / medians[0]);
    }
    Ok(())
}

/// Turns, messages, calls and runes as that many runes of history have them.
async fn fill(store: &Store, session: SessionId, agent: AgentId, runes: i64) -> Result<()> {
    let ids: [Value; 3] = [session.uuid().into(), agent.uuid().into(), (runes / 10).into()];
    let run = |sql: &str, values: Vec<Value>| {
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        async move { store.db().execute_raw(statement).await }
    };
    // Ids older than any that are made from now on, in order.
    let id = "('00000000-' || lpad(to_hex(n), 4, '0') || '-7' || $K || '-8000-' || substr(md5($2::text), 1, 12))::uuid";
    let id = |kind: &str| id.replace("$K", &format!("'{kind}'"));
    run(
        &format!(
            "INSERT INTO turns (id, session_id, agent_id, status, epoch, version, cause, attempts, iterations, open_calls, \
             input, output, usage, created_at, updated_at, ended_at) SELECT {}, $1, $2, 'completed', 1, 5, 'user', 1, 2, 0, \
             '{{}}', 'said', '{{}}', now(), now(), now() FROM generate_series(1, $3::int) n",
            id("001")
        ),
        ids.to_vec(),
    )
    .await?;
    for (kind, role) in [("002", "user"), ("003", "assistant")] {
        run(
            &format!(
                "INSERT INTO messages (id, session_id, agent_id, turn_id, version, role, source, mode, content, created_at) \
                 SELECT {}, $1, $2, {}, 0, '{role}', 'direct', 'queue', 'words that were said in turn ' || n, now() \
                 FROM generate_series(1, $3::int) n",
                id(kind),
                id("001")
            ),
            ids.to_vec(),
        )
        .await?;
    }
    run(
        "INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type, actor_id, \
         visibility, payload, moves, epoch, traceparent, at_us, hash, command_id) \
         SELECT $1, s.head_seq + n, gen_random_uuid(), 'turn.usage', 'trn', gen_random_uuid(), $2, gen_random_uuid(), \
         'system', 'bench', 'public', '{\"input_tokens\":1,\"output_tokens\":1}', '', 1, NULL, 1763263380123456, \
         '\\x9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'::bytea, gen_random_uuid() \
         FROM sessions s, generate_series(1, $3::int) n WHERE s.id = $1",
        vec![session.uuid().into(), agent.uuid().into(), runes.into()],
    )
    .await?;
    let mark = "UPDATE sessions SET head_seq = head_seq + $2, published_seq = head_seq + $2, sealed_seq = head_seq + $2 WHERE id = $1";
    run(mark, vec![session.uuid().into(), runes.into()]).await?;
    Ok(())
}
