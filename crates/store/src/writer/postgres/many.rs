//! The statement for any number of commits: set-wise, one round trip, one transaction.
//!
//! Rows are expected, checked, moved and numbered as sets; a commit whose rows don't all match
//! drops out alone. Having waited for a session's row, a statement would still see the session's
//! other rows as they were when it began; it notices by the session's number, which every commit
//! moves, and calls such commits stale instead of deciding on old rows.

use super::Verdict;
use super::draw;
use super::group::{
    Group, Params, Part, RUNE, bind_insert, bind_runes, bind_wanted, insert, is_sessions, sets, typed, wanted,
};
use crate::commit::{Found, Sealed};
use crate::entity::session;
use sea_orm::sqlx::error::BoxDynError;
use sea_orm::sqlx::postgres::{PgArguments, PgRow};
use sea_orm::sqlx::{self, Arguments, Row};
use std::fmt::Write as _;
use uuid::Uuid;

pub(super) fn statement(groups: &[Group<'_>], fresh: bool) -> String {
    let mut p = Params::default();
    let mut sql = String::with_capacity(8_192);
    let commits = p.unnest(&typed(&[
        ("idx", "int4"),
        ("session_id", "uuid"),
        ("n", "int4"),
        ("command_id", "uuid"),
        ("epoch", "int8"),
        ("at_us", "int8"),
    ]));
    let now = p.next();
    let from = match fresh {
        true => format!("0::int8 AS head_seq FROM {commits}"),
        false => format!("s.head_seq FROM {commits} LEFT JOIN sessions s ON s.id = x.session_id"),
    };
    let _ = write!(sql, "WITH c AS MATERIALIZED (SELECT x.idx, x.session_id, x.n, {from})");
    let mut bad = Vec::new();
    for (k, group) in groups.iter().enumerate() {
        match group.part {
            Part::Insert(_) => {}
            Part::Draw(_) => {
                draw::check(&mut sql, &mut p, k, group);
                bad.push(format!("SELECT idx FROM l{k} WHERE NOT ok OR late"));
            }
            Part::Check(_) | Part::Change(_) | Part::Delete(_) => {
                check(&mut sql, &mut p, k, group);
                bad.push(format!("SELECT idx FROM l{k} WHERE NOT ok"));
            }
        }
    }
    let bad = if bad.is_empty() { String::new() } else { format!(" AND idx NOT IN ({})", bad.join(" UNION ALL ")) };
    // A commit's runes come after those of the earlier ones of its session that land.
    let _ = write!(
        sql,
        ",\nw AS MATERIALIZED (SELECT j.*, sum(CASE WHEN good THEN n ELSE 0 END) OVER (PARTITION BY session_id ORDER BY idx)\n\
           AS upto FROM (SELECT c.*, head_seq IS NOT NULL{bad} AS good FROM c) j)"
    );
    head(&mut sql, now, groups, fresh);
    // Per commit the number before its first rune, or -1 where it drops out; as an array, so that
    // everything below finds it by position and not by a join.
    sql.push_str(
        ",\nwa AS MATERIALIZED (SELECT array_agg(CASE WHEN good AND session_id IN (SELECT id FROM h)\n\
           THEN head_seq + upto - n ELSE -1 END ORDER BY idx) AS b FROM w)",
    );
    for (k, group) in groups.iter().enumerate() {
        match group.part {
            Part::Check(_) => {}
            Part::Change(_) if is_sessions(group.table) => {}
            Part::Change(_) => apply(&mut sql, k, group),
            Part::Draw(_) => draw::apply(&mut sql, k, group),
            Part::Insert(_) => insert(&mut sql, &mut p, k, group, "wa.b[x.idx] >= 0"),
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

/// The sessions' numbers move only if they are still those of the statement's snapshot: having waited
/// for a session's row, everything else that was read of it would be old. A change of the session's own
/// row goes with it, since a row changes once per statement.
fn head(sql: &mut String, now: usize, groups: &[Group<'_>], fresh: bool) {
    if fresh {
        sql.push_str(",\nh AS MATERIALIZED (SELECT session_id AS id FROM w WHERE good)");
        return;
    }
    let own = groups.iter().position(|g| matches!(g.part, Part::Change(_)) && is_sessions(g.table));
    let (mut sets, mut from, mut same) = (String::new(), String::new(), String::new());
    if let Some(k) = own {
        let others = groups[k].columns.iter().enumerate().filter(|(_, column)| **column != "updated_at");
        for (at, column) in others {
            let _ = write!(sets, ", {column} = l.c{at}");
        }
        sets.push_str(", version = s.version + 1");
        from = format!(", l{k} l");
        same = " AND l.id = s.id".into();
    }
    let _ = write!(
        sql,
        ",\nh AS (UPDATE sessions s SET head_seq = g.head + g.total, updated_at = ${now}::timestamptz{sets} FROM\n\
           (SELECT session_id, max(head_seq) AS head, max(upto) AS total FROM w WHERE good GROUP BY session_id\n\
           ORDER BY session_id) g{from} WHERE s.id = g.session_id AND s.head_seq = g.head{same} RETURNING s.id)"
    );
}

fn check(sql: &mut String, p: &mut Params, k: usize, group: &Group<'_>) {
    let table = group.table;
    let (columns, expected) = wanted(group);
    let kept = columns.iter().map(|(name, _)| name).filter(|name| *name == "add" || name.starts_with('c'));
    let kept: String = kept.map(|name| format!(", x.{name}")).collect();
    let state = |slot: usize| table.machines.get(slot).map_or("''".to_owned(), |(_, column)| format!("t.{column}"));
    let epoch = if table.has_epoch() { "t.epoch" } else { "0::int8" };
    let rows = p.unnest(&columns);
    let session = if is_sessions(table) { "id" } else { "session_id" };
    let _ = write!(
        sql,
        ",\nl{k} AS MATERIALIZED (SELECT x.idx, x.id, t.id IS NOT NULL AS found, {} AS g0, {} AS g1, {epoch} AS epoch,\n\
           t.version, t.id IS NOT NULL AND coalesce({expected}, false) AS ok{kept}\n\
           FROM {rows} LEFT JOIN {} t ON t.id = x.id AND t.{session} = x.session_id)",
        state(0),
        state(1),
        table.name
    );
}

fn apply(sql: &mut String, k: usize, group: &Group<'_>) {
    let counter = group.table.counter.filter(|_| group.adds);
    let told = counter.map_or(String::new(), |counter| format!(" RETURNING l.idx, t.id, t.{counter} AS counter"));
    let _ = write!(
        sql,
        ",\nu{k} AS (UPDATE {} t SET {} FROM l{k} l, wa WHERE t.id = l.id AND wa.b[l.idx] >= 0{told})",
        group.table.name,
        sets(group, "l")
    );
}

fn finish(sql: &mut String, p: &mut Params, groups: &[Group<'_>]) {
    let mut columns = typed(&[("idx", "int4"), ("ord", "int4")]);
    columns.extend(typed(&RUNE));
    let runes = p.unnest(&columns);
    // What is the commit's and of fixed width is found by position in its array.
    let _ = write!(
        sql,
        ",\nr AS (INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type,\n\
           actor_id, visibility, payload, moves, epoch, traceparent, at_us, hash, command_id)\n\
           SELECT ($2::uuid[])[x.idx], wa.b[x.idx] + x.ord, x.id, x.kind, x.entity_kind, x.entity_id, x.agent_id, x.turn_id,\n\
           x.actor_type, x.actor_id, x.visibility, x.payload, x.moves, ($5::int8[])[x.idx],\n\
           x.traceparent, ($6::int8[])[x.idx], x.hash, ($4::uuid[])[x.idx]\n\
           FROM {runes}, wa WHERE wa.b[x.idx] >= 0)\n\
         SELECT 0 AS tag, wa.b, 0 AS idx, NULL::uuid AS id, true AS found, '' AS g0, '' AS g1, 0::int8 AS epoch, 0::int8 AS version FROM wa\n\
         UNION ALL SELECT 1, NULL, idx, session_id, false, '', '', 0, 0 FROM c WHERE head_seq IS NULL"
    );
    for (k, group) in groups.iter().enumerate() {
        let tag = 2 + 2 * k;
        if !matches!(group.part, Part::Insert(_)) {
            let _ = write!(
                sql,
                "\nUNION ALL SELECT {tag}, NULL, idx, id, found, g0, g1, epoch, version FROM l{k} WHERE NOT ok"
            );
        }
        if matches!(group.part, Part::Draw(_)) || (matches!(group.part, Part::Change(_)) && group.adds) {
            let _ = write!(sql, "\nUNION ALL SELECT {}, NULL, idx, id, true, '', '', 0, counter FROM u{k}", tag + 1);
        }
    }
}

pub(super) fn arguments(batch: &[&Sealed], groups: &[Group<'_>]) -> Result<PgArguments, BoxDynError> {
    let mut a = PgArguments::default();
    a.add((1..=batch.len() as i32).collect::<Vec<i32>>())?;
    a.add(batch.iter().map(|c| c.session.uuid()).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes.len() as i32).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.id.uuid()).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes[0].epoch).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.runes[0].at_us).collect::<Vec<_>>())?;
    a.add(batch.iter().map(|c| c.at).max().unwrap_or_default())?;
    for group in groups.iter().filter(|g| !matches!(g.part, Part::Insert(_))) {
        match group.part {
            Part::Draw(_) => draw::bind_check(&mut a, group)?,
            _ => bind_wanted(&mut a, group)?,
        }
    }
    for group in groups.iter().filter(|g| matches!(g.part, Part::Insert(_))) {
        bind_insert(&mut a, group)?;
    }
    let runes = || (1..).zip(batch).flat_map(|(idx, c)| (1..).zip(&c.runes).map(move |(ord, r)| (idx, ord, r)));
    a.add(runes().map(|r| r.0).collect::<Vec<i32>>())?;
    a.add(runes().map(|r| r.1).collect::<Vec<i32>>())?;
    bind_runes(&mut a, || runes().map(|r| r.2))?;
    Ok(a)
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
            1 => found[at] = Some(Verdict::Absent { table: session::TABLE.name, id }),
            tag if tag % 2 == 1 => counters[at].push((id, row.try_get("version")?)),
            tag => {
                let table = groups[(tag as usize - 2) / 2].table;
                if !exists {
                    // Of several the one that the commit names first.
                    let place = |id: Uuid| batch[at].writes.iter().position(|w| w.id == id);
                    let earlier = match &found[at] {
                        Some(Verdict::Absent { id: known, .. }) => place(*known) < place(id),
                        _ => false,
                    };
                    if !earlier {
                        found[at] = Some(Verdict::Absent { table: table.name, id });
                    }
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
        .map(|(at, (found, counters))| match (found, bases.get(at)) {
            (Some(verdict), _) => verdict,
            (None, Some(&base)) if base >= 0 => Verdict::Moved { base, counters },
            // Its rows were as expected, but its session's number had moved on, or others of its batch may have
            // taken what was left of a limit.
            (None, _) => Verdict::Stale,
        })
        .collect())
}
