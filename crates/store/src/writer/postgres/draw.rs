//! Draws of a batch on limits, as they go into a statement.
//!
//! Several commits may draw from one row, and a row changes once per statement: so they are added up. Whether a
//! commit still finds room is judged as if all that came before it in the batch had taken theirs and given
//! nothing back; one that finds none only because of those is looked at again when it is known what landed.

use super::group::{Group, Params, typed};
use crate::commit::{Draw, Op, UNUSED};
use sea_orm::sqlx::Arguments;
use sea_orm::sqlx::error::BoxDynError;
use sea_orm::sqlx::postgres::PgArguments;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use uuid::Uuid;

fn draws<'a>(group: &'a Group<'_>) -> impl Iterator<Item = (i32, Uuid, Uuid, Draw)> + 'a {
    group.writes.iter().filter_map(|(idx, session, write)| match write.op {
        Op::Draw(draw) => Some((*idx, *session, write.id, draw)),
        _ => None,
    })
}

/// What a batch takes from one row.
#[derive(Default)]
struct Sum {
    session: Uuid,
    used: i64,
    reserved: i64,
    /// Taken so far, nothing given back.
    taken: i64,
    /// The most that any of its commits needs.
    need: i64,
}

fn sums(group: &Group<'_>) -> BTreeMap<Uuid, Sum> {
    let mut sums: BTreeMap<Uuid, Sum> = BTreeMap::new();
    for (_, session, id, draw) in draws(group) {
        let sum = sums.entry(id).or_default();
        if draw.need > 0 {
            sum.need = sum.need.max(sum.taken.saturating_add(draw.need));
        }
        sum.session = session;
        sum.used += draw.used;
        sum.reserved += draw.reserved;
        sum.taken = sum.taken.saturating_add(draw.taken());
    }
    sums
}

/// All of them at once, as [`bold`](super::bold) takes them: all find room, or the statement fails.
pub(super) fn bold(sql: &mut String, p: &mut Params, k: usize, group: &Group<'_>) {
    let columns = [("id", "uuid"), ("session_id", "uuid"), ("used", "int8"), ("reserved", "int8"), ("need", "int8")];
    let rows = p.unnest(&typed(&columns));
    let _ = write!(
        sql,
        ",\nu{k} AS (UPDATE {} t SET used = t.used + x.used, reserved = t.reserved + x.reserved, version = t.version + 1\n\
           FROM {rows}, wa WHERE t.id = x.id AND t.session_id = x.session_id\n\
           AND (x.need = 0 OR t.cap - t.used - t.reserved >= x.need) AND wa.k >= 0 RETURNING t.id, {} AS n)",
        group.table.name,
        unused("t")
    );
}

/// Binds what [`bold`] asks for and says how many rows it changes.
pub(super) fn bind_bold(a: &mut PgArguments, group: &Group<'_>) -> Result<usize, BoxDynError> {
    let sums = sums(group);
    a.add(sums.keys().copied().collect::<Vec<_>>())?;
    a.add(sums.values().map(|sum| sum.session).collect::<Vec<_>>())?;
    a.add(sums.values().map(|sum| sum.used).collect::<Vec<_>>())?;
    a.add(sums.values().map(|sum| sum.reserved).collect::<Vec<_>>())?;
    a.add(sums.values().map(|sum| sum.need).collect::<Vec<_>>())?;
    Ok(sums.len())
}

/// Which commit drew from which row, counted from zero.
pub(super) fn drawers<'a>(group: &'a Group<'_>) -> impl Iterator<Item = (usize, Uuid)> + 'a {
    draws(group).map(|(idx, _, id, _)| (idx as usize - 1, id))
}

/// Looks at each of them: `ok` unless it does not fit at all, `late` if it does not fit after the others.
pub(super) fn check(sql: &mut String, p: &mut Params, k: usize, group: &Group<'_>) {
    let columns = [
        ("idx", "int4"),
        ("session_id", "uuid"),
        ("id", "uuid"),
        ("used", "int8"),
        ("reserved", "int8"),
        ("need", "int8"),
        ("before", "int8"),
    ];
    let rows = p.unnest(&typed(&columns));
    let room = "t.cap - t.used - t.reserved";
    let _ = write!(
        sql,
        ",\nl{k} AS MATERIALIZED (SELECT x.idx, x.id, t.id IS NOT NULL AS found, '' AS g0, '' AS g1, 0::int8 AS epoch,\n\
           t.version, x.used, x.reserved, t.id IS NOT NULL AND (x.need = 0 OR {room} >= x.need) AS ok,\n\
           coalesce(x.need > 0 AND {room} < x.before + x.need, false) AS late\n\
           FROM {rows} LEFT JOIN {} t ON t.id = x.id AND t.session_id = x.session_id)",
        group.table.name
    );
}

pub(super) fn bind_check(a: &mut PgArguments, group: &Group<'_>) -> Result<(), BoxDynError> {
    let mut taken: BTreeMap<Uuid, i64> = BTreeMap::new();
    let mut before = Vec::with_capacity(group.len());
    for (_, _, id, draw) in draws(group) {
        let sum = taken.entry(id).or_default();
        before.push(*sum);
        *sum = sum.saturating_add(draw.taken());
    }
    a.add(draws(group).map(|d| d.0).collect::<Vec<_>>())?;
    a.add(draws(group).map(|d| d.1).collect::<Vec<_>>())?;
    a.add(draws(group).map(|d| d.2).collect::<Vec<_>>())?;
    a.add(draws(group).map(|d| d.3.used).collect::<Vec<_>>())?;
    a.add(draws(group).map(|d| d.3.reserved).collect::<Vec<_>>())?;
    a.add(draws(group).map(|d| d.3.need).collect::<Vec<_>>())?;
    a.add(before)?;
    Ok(())
}

/// Those of commits that land, added up; and what each commit is told.
pub(super) fn apply(sql: &mut String, k: usize, group: &Group<'_>) {
    let _ = write!(
        sql,
        ",\ns{k} AS (UPDATE {} t SET used = t.used + g.used, reserved = t.reserved + g.reserved, version = t.version + 1\n\
           FROM (SELECT l.id, sum(l.used)::int8 AS used, sum(l.reserved)::int8 AS reserved FROM l{k} l, wa\n\
           WHERE wa.b[l.idx] >= 0 GROUP BY l.id) g WHERE t.id = g.id RETURNING t.id, {} AS n),\n\
         u{k} AS (SELECT l.idx, l.id, s.n AS counter FROM l{k} l JOIN s{k} s ON s.id = l.id)",
        group.table.name,
        unused("t")
    );
}

fn unused(of: &str) -> String {
    UNUSED
        .split(' ')
        .map(|word| if word == "-" { word.to_owned() } else { format!("{of}.{word}") })
        .collect::<Vec<_>>()
        .join(" ")
}
