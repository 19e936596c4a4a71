//! pgbench with the same work as one prepared statement per commit.

use super::Figure;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The same rows change in the same way: the turn by compare-and-set, the session's number, one
/// rune with all its columns.
const SCRIPT: &str = r#"
\set n random(0, :sessions - 1)
WITH t AS (
  UPDATE turns SET status = CASE status WHEN 'streaming' THEN 'tool_executing' ELSE 'streaming' END,
    version = version + 1, updated_at = now()
  WHERE id = ('00000000-0003-7000-8000-' || lpad(to_hex(:n::int8), 12, '0'))::uuid
    AND status IN ('streaming', 'tool_executing') AND epoch = 1
  RETURNING id, session_id
), s AS (
  UPDATE sessions SET head_seq = head_seq + 1, updated_at = now()
  WHERE id = ('00000000-0001-7000-8000-' || lpad(to_hex(:n::int8), 12, '0'))::uuid
  RETURNING id, head_seq
)
INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type, actor_id,
  visibility, payload, moves, epoch, traceparent, at_us, hash, command_id)
SELECT s.id, s.head_seq, gen_random_uuid(), 'turn.tool_calls_received', 'trn', t.id, NULL, t.id, 'system', 'test',
  'public', '{"call_ids":[]}', 'T3_streaming>tool_executing', 1, NULL, 1763263380123456,
  '\x9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'::bytea, gen_random_uuid()
FROM s, t;
"#;

pub fn run(pgbench: &Path, url: &str, clients: usize, time: Duration, sessions: usize) -> Result<Figure> {
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(SCRIPT.as_bytes())?;
    let output = Command::new(pgbench)
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={clients}"))
        .arg(format!("--time={}", time.as_secs()))
        .arg(format!("--define=sessions={sessions}"))
        .arg(format!("--file={}", script.path().display()))
        .arg(url)
        .output()
        .context("cannot run pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let number = |label: &str| -> Result<f64> {
        let line = text.lines().find(|l| l.starts_with(label)).with_context(|| format!("no {label} in {text}"))?;
        let figure = line[label.len()..].trim_start_matches([' ', '=']).split(' ').next().unwrap_or_default();
        figure.parse().with_context(|| format!("{line:?} has no number"))
    };
    let mean_us = number("latency average")? * 1e3;
    Ok(Figure { per_second: number("tps")?, p50_us: mean_us, ..Figure::default() })
}
