//! The statement for commits whose expectations will hold, as they nearly always do: the rows are changed at
//! once, with the expectations as conditions, and counted. If one is missing the statement ends in an error,
//! nothing is written, and [`many`](super::many) finds out which commit is to blame. So no row is looked up
//! twice.
//!
//! All sessions of the batch are numbered first, in the order of their ids, and everything else hangs on
//! that. A row that somebody else has just changed is judged as it is then: the conditions are evaluated anew
//! on what the other one committed.

use super::Verdict;
use super::draw;
use super::group::{self, Group, Params, Part, RUNE, is_sessions, typed};
use crate::commit::{Op, Sealed, Write};
use sea_orm::sqlx::error::BoxDynError;
use sea_orm::sqlx::postgres::{PgArguments, PgRow};
use sea_orm::sqlx::{self, Arguments, Row};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use uuid::Uuid;

/// What the server's log says of a batch that was too bold.
pub(super) const MISMATCH: &str = "instar: a row was not as expected, the batch is looked at again; base ";

/// Only changes and new rows, and a state that the session must be in: whatever else is merely looked at, or
/// removed, is looked at first.
pub(super) fn fits(commit: &Sealed) -> bool {
    let bold = |w: &Write| match (&w.op, is_sessions(w.table)) {
        (Op::Update { .. } | Op::Insert { .. } | Op::Draw(_), sessions) => !sessions,
        (Op::Check, true) => w.id == commit.session.uuid() && w.expect.epoch.is_none() && w.expect.version.is_none(),
        _ => false,
    };
    !commit.fresh && commit.writes.iter().all(bold)
}

/// The state that the commit's session must be in; empty where any will do.
pub(super) fn session_state(commit: &Sealed) -> &'static str {
    commit.writes.iter().find(|w| is_sessions(w.table)).map_or("", |w| w.expect.states[0])
}

/// The sessions of a batch in order, each with the number of its runes, and where each commit's begin.
pub(super) struct Sessions {
    ids: Vec<Uuid>,
    runes: Vec<i32>,
    states: Vec<&'static str>,
    /// Per commit: position of its session, counted from one, and runes of that session before its own.
    places: Vec<(i32, i32)>,
}

impl Sessions {
    /// `None` if two commits want one session in different states.
    pub(super) fn of(batch: &[&Sealed]) -> Option<Sessions> {
        let mut sessions: BTreeMap<Uuid, (i32, &'static str)> = BTreeMap::new();
        let mut before = Vec::with_capacity(batch.len());
        for commit in batch {
            let (runes, state) = sessions.entry(commit.session.uuid()).or_default();
            before.push(*runes);
            *runes += commit.runes.len() as i32;
            match session_state(commit) {
                "" => {}
                wanted if state.is_empty() || *state == wanted => *state = wanted,
                _ => return None,
            }
        }
        let ids: Vec<Uuid> = sessions.keys().copied().collect();
        let place = |c: &&Sealed| ids.binary_search(&c.session.uuid()).map_or(0, |at| at as i32 + 1);
        let places = batch.iter().map(place).zip(before).collect();
        let (runes, states) = sessions.into_values().unzip();
        Some(Sessions { ids, runes, states, places })
    }
}

pub(super) fn statement(groups: &[Group<'_>]) -> String {
    let mut p = Params::default();
    let mut sql = String::with_capacity(4_096);
    let sessions = p.unnest(&typed(&[("ord", "int4"), ("id", "uuid"), ("n", "int4"), ("state", "text")]));
    let now = p.next();
    let _ = write!(
        sql,
        "WITH h AS (UPDATE sessions s SET head_seq = s.head_seq + x.n, updated_at = ${now}::timestamptz\n\
           FROM {sessions} WHERE s.id = x.id AND (x.state = '' OR s.status = x.state) RETURNING x.ord, s.head_seq - x.n AS base),\n\
         wa AS MATERIALIZED (SELECT array_agg(base ORDER BY ord) AS b, count(*) AS k FROM h)"
    );
    let mut good = format!("wa.k = ${}::int8", p.next());
    let mut told = String::new();
    for (k, group) in groups.iter().enumerate() {
        match group.part {
            Part::Change(_) => {
                change(&mut sql, &mut p, k, group);
                let _ = write!(good, " AND (SELECT count(*) FROM u{k}) = ${}::int8", p.next());
                if group.adds {
                    for (column, name) in [("idx", "i"), ("id", "d"), ("n", "n")] {
                        let _ = write!(told, ", (SELECT array_agg({column}) FROM u{k}) AS {name}{k}");
                    }
                }
            }
            Part::Draw(_) => {
                draw::bold(&mut sql, &mut p, k, group);
                let _ = write!(good, " AND (SELECT count(*) FROM u{k}) = ${}::int8", p.next());
                for (column, name) in [("id", "d"), ("n", "n")] {
                    let _ = write!(told, ", (SELECT array_agg({column} ORDER BY id) FROM u{k}) AS {name}{k}");
                }
            }
            Part::Check(_) | Part::Delete(_) => {}
            Part::Insert(_) => group::insert(&mut sql, &mut p, k, group, "wa.k >= 0"),
        }
    }
    let mut columns = typed(&[("ses", "int4"), ("ord", "int4")]);
    columns.extend(typed(&RUNE));
    columns.extend(typed(&[("epoch", "int8"), ("at_us", "int8"), ("command_id", "uuid")]));
    let runes = p.unnest(&columns);
    let _ = write!(
        sql,
        ",\nr AS (INSERT INTO runes (session_id, seq, id, kind, entity_kind, entity_id, agent_id, turn_id, actor_type,\n\
           actor_id, visibility, payload, moves, epoch, traceparent, at_us, hash, command_id)\n\
           SELECT ($2::uuid[])[x.ses], wa.b[x.ses] + x.ord, x.id, x.kind, x.entity_kind, x.entity_id, x.agent_id, x.turn_id,\n\
           x.actor_type, x.actor_id, x.visibility, x.payload, x.moves, x.epoch, x.traceparent, x.at_us, x.hash, x.command_id\n\
           FROM {runes}, wa)\n\
         SELECT wa.b, CASE WHEN {good} THEN true ELSE ('{MISMATCH}' || wa.k)::bool END AS good{told} FROM wa"
    );
    sql
}

fn change(sql: &mut String, p: &mut Params, k: usize, group: &Group<'_>) {
    let (columns, expected) = group::wanted(group);
    let rows = p.unnest(&columns);
    let sets = group::sets(group, "x");
    let counter = group.table.counter.filter(|_| group.adds);
    let told = counter.map_or("1".to_owned(), |counter| format!("x.idx, t.id, t.{counter} AS n"));
    let _ = write!(
        sql,
        ",\nu{k} AS (UPDATE {} t SET {sets} FROM {rows}, wa\n\
           WHERE t.id = x.id AND t.session_id = x.session_id AND {expected} AND wa.k >= 0 RETURNING {told})",
        group.table.name
    );
}

pub(super) fn arguments(
    batch: &[&Sealed],
    groups: &[Group<'_>],
    sessions: &Sessions,
) -> Result<PgArguments, BoxDynError> {
    let mut a = PgArguments::default();
    a.add((1..=sessions.ids.len() as i32).collect::<Vec<i32>>())?;
    a.add(&sessions.ids)?;
    a.add(&sessions.runes)?;
    a.add(&sessions.states)?;
    a.add(batch.iter().map(|c| c.at).max().unwrap_or_default())?;
    a.add(sessions.ids.len() as i64)?;
    for group in groups {
        match group.part {
            Part::Change(_) => {
                group::bind_wanted(&mut a, group)?;
                a.add(group.len() as i64)?;
            }
            Part::Draw(_) => {
                let rows = draw::bind_bold(&mut a, group)?;
                a.add(rows as i64)?;
            }
            Part::Check(_) | Part::Delete(_) => {}
            Part::Insert(_) => group::bind_insert(&mut a, group)?,
        }
    }
    let runes = || {
        let commits = batch.iter().zip(&sessions.places);
        commits.flat_map(|(c, (ses, before))| (1..).zip(&c.runes).map(move |(ord, r)| (*ses, before + ord, r)))
    };
    a.add(runes().map(|r| r.0).collect::<Vec<i32>>())?;
    a.add(runes().map(|r| r.1).collect::<Vec<i32>>())?;
    group::bind_runes(&mut a, || runes().map(|r| r.2))?;
    a.add(runes().map(|r| r.2.epoch).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.at_us).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.2.command_id.uuid()).collect::<Vec<_>>())?;
    Ok(a)
}

pub(super) fn verdicts(groups: &[Group<'_>], sessions: &Sessions, rows: &[PgRow]) -> Result<Vec<Verdict>, sqlx::Error> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let bases: Vec<i64> = row.try_get("b")?;
    let mut counters: Vec<Vec<(Uuid, i64)>> = sessions.places.iter().map(|_| Vec::new()).collect();
    for (k, _) in groups.iter().enumerate().filter(|(_, group)| group.adds) {
        let commits: Vec<i32> = row.try_get(format!("i{k}").as_str())?;
        let ids: Vec<Uuid> = row.try_get(format!("d{k}").as_str())?;
        let n: Vec<i64> = row.try_get(format!("n{k}").as_str())?;
        for ((commit, id), n) in commits.into_iter().zip(ids).zip(n) {
            counters[commit as usize - 1].push((id, n));
        }
    }
    for (k, group) in groups.iter().enumerate().filter(|(_, group)| matches!(group.part, Part::Draw(_))) {
        let ids: Vec<Uuid> = row.try_get(format!("d{k}").as_str())?;
        let n: Vec<i64> = row.try_get(format!("n{k}").as_str())?;
        let left: HashMap<Uuid, i64> = ids.into_iter().zip(n).collect();
        for (commit, id) in draw::drawers(group) {
            counters[commit].extend(left.get(&id).map(|n| (id, *n)));
        }
    }
    let moved = |((ses, before), counters): (&(i32, i32), _)| Verdict::Moved {
        base: bases.get(*ses as usize - 1).copied().unwrap_or_default() + i64::from(*before),
        counters,
    };
    Ok(sessions.places.iter().zip(counters).map(moved).collect())
}
