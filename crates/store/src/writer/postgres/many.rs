//! The statement for any number of commits: set-wise, one round trip, one transaction.
//!
//! Rows are expected, checked, moved and numbered as sets; a commit whose rows don't all match
//! drops out alone. Having waited for a session's row, a statement would still see the session's
//! other rows as they were when it began; it notices by the session's number, which every commit
//! moves, and calls such commits stale instead of deciding on old rows.

use super::Verdict;
use crate::commit::{Found, Op, Sealed, Write};
use crate::entity::session;
use crate::table::{self, Table};
use sea_orm::Value;
use sea_orm::sqlx::postgres::{PgArguments, PgRow};
use sea_orm::sqlx::{self, Arguments, Row};
use std::fmt::Write as _;
use uuid::Uuid;

/// One table's share in a statement; the list of parts is the statement's shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    Change(usize),
    Insert(usize),
    Delete(usize),
}

pub(super) struct Group<'a> {
    pub(super) part: Part,
    /// Columns that any of its changes sets, in the table's order: what the statement writes.
    pub(super) columns: Vec<&'static str>,
    table: &'static Table,
    /// Position of the commit, counted from one, and what it wants.
    writes: Vec<(i32, Uuid, &'a Write)>,
}

pub(super) fn group<'a>(batch: &[&'a Sealed]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (idx, commit) in (1..).zip(batch) {
        for write in &commit.writes {
            let key = std::ptr::from_ref(write.table) as usize;
            let part = match write.op {
                Op::Check | Op::Update { .. } => Part::Change(key),
                Op::Insert { .. } => Part::Insert(key),
                Op::Delete => Part::Delete(key),
            };
            let entry = (idx, commit.session.uuid(), write);
            match groups.iter_mut().find(|g| g.part == part) {
                Some(group) => group.writes.push(entry),
                None => groups.push(Group { part, columns: Vec::new(), table: write.table, writes: vec![entry] }),
            }
        }
    }
    for group in &mut groups {
        let sets = |column: &str| {
            group.writes.iter().any(|(_, _, w)| match &w.op {
                Op::Update { set, add } => {
                    set.iter().any(|(name, _)| *name == column) || (*add != 0 && w.table.counter == Some(column))
                }
                _ => false,
            })
        };
        group.columns = writable(group.table).filter(|c| sets(c)).collect();
    }
    groups.sort_by_key(|g| g.part);
    groups
}

pub(super) fn is_sessions(table: &Table) -> bool {
    std::ptr::eq(table, &*session::TABLE)
}

/// Columns that a change may write, in the order of the statement.
fn writable(table: &Table) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = if is_sessions(table) { &["head_seq", "published_seq", "sealed_seq"] } else { &[] };
    table
        .columns
        .iter()
        .copied()
        .filter(move |c| !matches!(*c, "id" | "session_id" | "created_at" | "version") && !own.contains(c))
}

/// Numbers the parameters as the text is written; `arguments` binds in the same order.
struct Params(usize);

impl Params {
    fn unnest(&mut self, columns: &[(&str, &str)]) -> String {
        let arrays: Vec<String> = columns
            .iter()
            .map(|(_, kind)| {
                self.0 += 1;
                format!("${}::{kind}[]", self.0)
            })
            .collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        format!("unnest({}) AS x({})", arrays.join(", "), names.join(", "))
    }
}

pub(super) fn statement(groups: &[Group<'_>]) -> String {
    let mut p = Params(0);
    let mut sql = String::with_capacity(8_192);
    let commits = p.unnest(&[
        ("idx", "int4"),
        ("session_id", "uuid"),
        ("n", "int4"),
        ("fresh", "bool"),
        ("command_id", "uuid"),
        ("epoch", "int8"),
        ("at_us", "int8"),
    ]);
    // `locked` waits for the sessions and reads them as they are then; everything else reads the
    // statement's snapshot, and `stale` is where the two differ.
    let _ = write!(
        sql,
        "WITH c AS MATERIALIZED (SELECT * FROM {commits}),\n\
         locked AS MATERIALIZED (SELECT s.id, s.head_seq FROM sessions s WHERE s.id = ANY($2) ORDER BY s.id FOR UPDATE),\n\
         stale AS MATERIALIZED (SELECT l.id FROM locked l JOIN sessions s ON s.id = l.id WHERE s.head_seq <> l.head_seq),\n\
         cs AS MATERIALIZED (SELECT c.idx, c.session_id, c.n, s.head_seq, s.id IS NOT NULL AS found,\n\
           c.fresh OR (s.id IS NOT NULL AND c.session_id NOT IN (SELECT id FROM stale)) AS ok\n\
           FROM c LEFT JOIN sessions s ON s.id = c.session_id)"
    );
    let mut bad = String::from("SELECT idx FROM cs WHERE NOT ok");
    for (k, group) in groups.iter().enumerate() {
        match group.part {
            Part::Change(_) => check(&mut sql, &mut bad, &mut p, k, group.table),
            Part::Delete(_) => {
                let rows = p.unnest(&[("idx", "int4"), ("session_id", "uuid"), ("id", "uuid")]);
                let _ = write!(
                    sql,
                    ",\nl{k} AS MATERIALIZED (SELECT x.idx, x.id, t.id IS NOT NULL AS found, '' AS g0, '' AS g1,\n\
                       0::int8 AS epoch, 0::int8 AS version, t.id IS NOT NULL AS ok\n\
                       FROM {rows} LEFT JOIN {} t ON t.id = x.id AND t.session_id = x.session_id)",
                    group.table.name
                );
                let _ = write!(bad, " UNION ALL SELECT idx FROM l{k} WHERE NOT ok");
            }
            Part::Insert(_) => {}
        }
    }
    // Per commit the number before its first rune, or -1 where it drops out; as an array, so that
    // everything below finds it by position and not by a join.
    let _ = write!(
        sql,
        ",\nj AS MATERIALIZED (SELECT cs.*, cs.idx NOT IN ({bad}) AS good FROM cs),\n\
         w AS MATERIALIZED (SELECT idx, session_id, n, CASE WHEN good THEN coalesce(head_seq, 0) - n + (sum(CASE WHEN good\n\
           THEN n ELSE 0 END) OVER (PARTITION BY session_id ORDER BY idx)) ELSE -1 END AS base FROM j),\n\
         wa AS MATERIALIZED (SELECT array_agg(base ORDER BY idx) AS b FROM w)"
    );
    for (k, group) in groups.iter().enumerate() {
        match group.part {
            Part::Change(_) => apply(&mut sql, k, group),
            Part::Insert(_) => insert(&mut sql, &mut p, k, group.table),
            Part::Delete(_) => {
                let _ = write!(
                    sql,
                    ",\nd{k} AS (DELETE FROM {} t USING l{k} l, wa WHERE t.id = l.id AND wa.b[l.idx] >= 0)",
                    group.table.name
                );
            }
        }
    }
    finish(&mut sql, &mut p, groups);
    sql
}

fn check(sql: &mut String, bad: &mut String, p: &mut Params, k: usize, table: &Table) {
    let mut columns = vec![
        ("idx", "int4"),
        ("session_id", "uuid"),
        ("id", "uuid"),
        ("version", "int8"),
        ("patch", "text"),
        ("add", "int8"),
    ];
    let mut ok = String::from("(x.version < 0 OR t.version = x.version)");
    let mut got = [String::from("''"), String::from("''")];
    for (slot, (_, column)) in table.machines.iter().enumerate() {
        columns.push((["f0", "f1"][slot], "text"));
        let _ = write!(ok, " AND (x.f{slot} = '' OR t.{column} = x.f{slot})");
        got[slot] = format!("t.{column}");
    }
    let epoch = if table.has_epoch() {
        columns.push(("epoch", "int8"));
        ok.push_str(" AND (x.epoch < 0 OR t.epoch = x.epoch)");
        "t.epoch"
    } else {
        "0::int8"
    };
    let rows = p.unnest(&columns);
    let session = if is_sessions(table) { "id" } else { "session_id" };
    let _ = write!(
        sql,
        ",\nl{k} AS MATERIALIZED (SELECT x.idx, x.id, x.add, t.id IS NOT NULL AS found, {} AS g0, {} AS g1, {epoch} AS epoch,\n\
           t.version, coalesce({ok}, false) AS ok,\n\
           CASE WHEN x.patch <> '' THEN jsonb_populate_record(t, x.patch::jsonb) END AS r, x.patch <> '' AS changes\n\
           FROM {rows} LEFT JOIN {} t ON t.id = x.id AND t.{session} = x.session_id)",
        got[0], got[1], table.name
    );
    let _ = write!(bad, " UNION ALL SELECT idx FROM l{k} WHERE NOT ok");
}

fn apply(sql: &mut String, k: usize, group: &Group<'_>) {
    let table = group.table;
    let mut sets: Vec<String> = group
        .columns
        .iter()
        .copied()
        .map(|c| match table.counter == Some(c) {
            true => format!("{c} = (l.r).{c} + l.add"),
            false => format!("{c} = (l.r).{c}"),
        })
        .collect();
    sets.push("version = t.version + 1".into());
    // The session's own row gets its number in the same update: a row changes once per statement.
    let (head, from) = match is_sessions(table) {
        true => (", head_seq = wa.b[l.idx] + ($3::int4[])[l.idx]", ", wa"),
        false => ("", ", wa"),
    };
    let counter = table.counter.map_or("0::int8".to_string(), |c| format!("t.{c}"));
    let _ = write!(
        sql,
        ",\nu{k} AS (UPDATE {} t SET {}{head} FROM l{k} l{from}\n\
           WHERE t.id = l.id AND l.changes AND wa.b[l.idx] >= 0 RETURNING l.idx, t.id, l.add, {counter} AS counter)",
        table.name,
        sets.join(", ")
    );
}

fn insert(sql: &mut String, p: &mut Params, k: usize, table: &Table) {
    let names: &[&str] = &table.columns;
    let values: Vec<String> = names.iter().map(|c| format!("r.{c}")).collect();
    let rows = p.unnest(&[("idx", "int4"), ("doc", "text")]);
    let _ = write!(
        sql,
        ",\ni{k} AS (INSERT INTO {name} ({}) SELECT {} FROM {rows}, wa,\n\
           LATERAL jsonb_populate_record(NULL::{name}, x.doc::jsonb) r WHERE wa.b[x.idx] >= 0)",
        names.join(", "),
        values.join(", "),
        name = table.name,
    );
}

fn finish(sql: &mut String, p: &mut Params, groups: &[Group<'_>]) {
    let runes = p.unnest(&[
        ("idx", "int4"),
        ("ord", "int4"),
        ("session_id", "uuid"),
        ("id", "uuid"),
        ("kind", "text"),
        ("entity_kind", "text"),
        ("entity_id", "uuid"),
        ("agent_id", "uuid"),
        ("turn_id", "uuid"),
        ("visibility", "text"),
        ("payload", "text"),
        ("moves", "text"),
        ("hash", "bytea"),
        ("actor_type", "text"),
        ("actor_id", "text"),
        ("traceparent", "text"),
    ]);
    p.0 += 1;
    let now = p.0;
    // Sessions that a change of this batch writes already have their number.
    let own = groups.iter().position(|g| matches!(g.part, Part::Change(_)) && is_sessions(g.table));
    let except = own.map(|k| format!(" AND t.id NOT IN (SELECT id FROM l{k} WHERE changes)")).unwrap_or_default();
    // What is the commit's and of fixed width is found by position in its array.
    let _ = write!(
        sql,
        ",\nr AS (INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type,\n\
           actor_id, visibility, payload, moves, epoch, traceparent, at_us, hash, command_id)\n\
           SELECT x.session_id, wa.b[x.idx] + x.ord, x.id, x.kind, x.entity_kind, x.entity_id, x.agent_id, x.turn_id,\n\
           x.actor_type, x.actor_id, x.visibility, x.payload, x.moves, ($6::int8[])[x.idx],\n\
           x.traceparent, ($7::int8[])[x.idx], x.hash, ($5::uuid[])[x.idx]\n\
           FROM {runes}, wa WHERE wa.b[x.idx] >= 0),\n\
         h AS (UPDATE sessions t SET head_seq = w.head, updated_at = ${now}::timestamptz FROM\n\
           (SELECT session_id, max(base + n) AS head FROM w WHERE base >= 0 GROUP BY session_id) w WHERE t.id = w.session_id{except})\n\
         SELECT 0 AS tag, wa.b, 0 AS idx, NULL::uuid AS id, true AS found, '' AS g0, '' AS g1, 0::int8 AS epoch, 0::int8 AS version FROM wa\n\
         UNION ALL SELECT 1, NULL, cs.idx, cs.session_id, cs.found, '', '', 0, 0 FROM cs WHERE NOT cs.ok"
    );
    for (k, group) in groups.iter().enumerate() {
        let tag = 2 + 2 * k;
        if !matches!(group.part, Part::Insert(_)) {
            let _ = write!(
                sql,
                "\nUNION ALL SELECT {tag}, NULL, idx, id, found, g0, g1, epoch, version FROM l{k} WHERE NOT ok"
            );
        }
        if matches!(group.part, Part::Change(_)) && group.table.counter.is_some() {
            let _ = write!(
                sql,
                "\nUNION ALL SELECT {}, NULL, idx, id, true, '', '', 0, counter FROM u{k} WHERE add <> 0",
                tag + 1
            );
        }
    }
}

pub(super) fn arguments(batch: &[&Sealed], groups: &[Group<'_>]) -> Result<PgArguments, sqlx::error::BoxDynError> {
    let mut a = PgArguments::default();
    let n = batch.len();
    a.add((1..=n as i32).collect::<Vec<i32>>())?;
    a.add(batch.iter().map(|c| c.session.uuid()).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes.len() as i32).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.fresh).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.id.uuid()).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes[0].epoch).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes[0].at_us).collect::<Vec<_>>())?;
    for group in groups.iter().filter(|g| !matches!(g.part, Part::Insert(_))) {
        a.add(group.writes.iter().map(|w| w.0).collect::<Vec<_>>())?;
        a.add(group.writes.iter().map(|w| w.1).collect::<Vec<_>>())?;
        a.add(group.writes.iter().map(|w| w.2.id).collect::<Vec<_>>())?;
        if matches!(group.part, Part::Delete(_)) {
            continue;
        }
        a.add(group.writes.iter().map(|w| w.2.expect.version.unwrap_or(-1)).collect::<Vec<_>>())?;
        a.add(group.writes.iter().map(|w| patch(w.2)).collect::<Vec<_>>())?;
        a.add(group.writes.iter().map(|w| added(w.2)).collect::<Vec<_>>())?;
        for slot in 0..group.table.machines.len() {
            a.add(group.writes.iter().map(|w| w.2.expect.states[slot]).collect::<Vec<_>>())?;
        }
        if group.table.has_epoch() {
            a.add(group.writes.iter().map(|w| w.2.expect.epoch.unwrap_or(-1)).collect::<Vec<_>>())?;
        }
    }
    for group in groups.iter().filter(|g| matches!(g.part, Part::Insert(_))) {
        a.add(group.writes.iter().map(|w| w.0).collect::<Vec<_>>())?;
        let heads = group.writes.iter().map(|w| batch[w.0 as usize - 1].runes.len());
        a.add(group.writes.iter().zip(heads).map(|(w, head)| document(w.2, head)).collect::<Vec<_>>())?;
    }
    let runes = || (1..).zip(batch).flat_map(|(idx, c)| (1..).zip(&c.runes).map(move |(ord, r)| (idx, ord, r)));
    a.add(runes().map(|r| r.0).collect::<Vec<i32>>())?;
    a.add(runes().map(|r| r.1).collect::<Vec<i32>>())?;
    a.add(runes().map(|r| r.2.session_id.uuid()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.id.uuid()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.kind.as_str()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.entity.kind.prefix()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.entity.id).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.agent_id.map(|i| i.uuid())).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.turn_id.map(|i| i.uuid())).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.visibility.token()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.payload.get()).collect::<Vec<_>>())?;
    let moves: Vec<String> = runes().map(|r| instar_core::rune::Moved::encode_all(&r.2.moves, r.2.entity)).collect();
    a.add(moves)?;
    a.add(runes().map(|r| &r.2.hash.0[..]).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.actor.by.token()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.actor.id.as_str()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.traceparent.as_deref()).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.at).max().unwrap_or_default())?;
    Ok(a)
}

fn added(write: &Write) -> i64 {
    match &write.op {
        Op::Update { add, .. } => *add,
        _ => 0,
    }
}

fn patch(write: &Write) -> String {
    match &write.op {
        Op::Update { set, .. } => object(set),
        _ => String::new(),
    }
}

/// A new row as JSON; a new session already has the number of its last rune.
fn document(write: &Write, head: usize) -> String {
    let Op::Insert { values } = &write.op else { return String::new() };
    if !is_sessions(write.table) {
        return object(values);
    }
    let mut values = values.clone();
    values.retain(|(name, _)| *name != "head_seq");
    values.push(("head_seq", Value::from(head as i64)));
    object(&values)
}

fn object(values: &[(&'static str, Value)]) -> String {
    let map: serde_json::Map<String, serde_json::Value> =
        values.iter().map(|(name, v)| ((*name).to_owned(), table::json(v))).collect();
    serde_json::Value::Object(map).to_string()
}

pub(super) fn verdicts(batch: &[&Sealed], groups: &[Group<'_>], rows: &[PgRow]) -> Result<Vec<Verdict>, sqlx::Error> {
    let mut bases: Vec<i64> = Vec::new();
    let mut found: Vec<Option<Verdict>> = (0..batch.len()).map(|_| None).collect();
    let mut counters: Vec<Vec<(Uuid, i64)>> = (0..batch.len()).map(|_| Vec::new()).collect();
    for row in rows {
        let tag: i32 = row.try_get("tag")?;
        if tag == 0 {
            bases = row.try_get("b")?;
            continue;
        }
        let at = row.try_get::<i32, _>("idx")? as usize - 1;
        let id: Uuid = row.try_get("id")?;
        let exists: bool = row.try_get("found")?;
        match tag {
            1 if exists => found[at] = Some(Verdict::Stale),
            1 => found[at] = Some(Verdict::Absent { table: session::TABLE.name, id }),
            tag if tag % 2 == 1 => counters[at].push((id, row.try_get("version")?)),
            tag => {
                // A stale session's rows were read too early to be believed.
                if matches!(found[at], Some(Verdict::Stale)) {
                    continue;
                }
                let table = groups[(tag as usize - 2) / 2].table;
                if !exists {
                    found[at] = Some(Verdict::Absent { table: table.name, id });
                    continue;
                }
                let states = [row.try_get::<String, _>("g0")?, row.try_get::<String, _>("g1")?];
                let states = states.into_iter().take(table.machines.len()).collect();
                let here = Found {
                    table: table.name,
                    id,
                    states,
                    epoch: row.try_get("epoch")?,
                    version: row.try_get("version")?,
                };
                match &mut found[at] {
                    Some(Verdict::Found(list)) => list.push(here),
                    Some(_) => {}
                    empty => *empty = Some(Verdict::Found(vec![here])),
                }
            }
        }
    }
    Ok(found
        .into_iter()
        .zip(counters)
        .enumerate()
        .map(|(at, (found, counters))| match found {
            Some(verdict) => verdict,
            None => Verdict::Moved { base: bases.get(at).copied().unwrap_or(-1), counters },
        })
        .collect())
}
