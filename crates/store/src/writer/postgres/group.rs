//! Writes of a batch that do the same to rows of one table, and how they go into a statement.

use crate::commit::{Op, Sealed, Write};
use crate::entity::session;
use crate::table::{ColumnKind, Table};
use instar_core::rune::{Moved, Rune};
use sea_orm::Value;
use sea_orm::sqlx::Arguments;
use sea_orm::sqlx::error::BoxDynError;
use sea_orm::sqlx::postgres::PgArguments;
use sea_orm::sqlx::types::Json;
use std::fmt::Write as _;
use uuid::Uuid;

/// One table's share in a statement; the list of parts is the statement's shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    Check(usize),
    Change(usize),
    Insert(usize),
    Delete(usize),
    Draw(usize),
}

/// Writes that do the same to rows of one table: the same columns, by the same statement.
pub(super) struct Group<'a> {
    pub(super) part: Part,
    /// Columns that each of its writes sets, in one order.
    pub(super) columns: Vec<&'static str>,
    /// Whether it adds to the table's counter.
    pub(super) adds: bool,
    pub(super) table: &'static Table,
    /// Position of the commit, counted from one, its session, and what it wants.
    pub(super) writes: Vec<(i32, Uuid, &'a Write)>,
}

impl Group<'_> {
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    fn values(&self, at: usize) -> impl Iterator<Item = &Value> {
        self.writes.iter().map(move |(_, _, write)| &values_of(write)[at].1)
    }
}

fn values_of(write: &Write) -> &[(&'static str, Value)] {
    match &write.op {
        Op::Update { set, .. } => set,
        Op::Insert { values } => values,
        Op::Check | Op::Delete | Op::Draw(_) => &[],
    }
}

pub(super) fn group<'a>(batch: &[&'a Sealed]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (idx, commit) in (1..).zip(batch) {
        for write in &commit.writes {
            let key = std::ptr::from_ref(write.table) as usize;
            let (part, adds) = match write.op {
                Op::Check => (Part::Check(key), false),
                Op::Update { add, .. } => (Part::Change(key), add != 0),
                Op::Insert { .. } => (Part::Insert(key), false),
                Op::Delete => (Part::Delete(key), false),
                Op::Draw(_) => (Part::Draw(key), false),
            };
            let values = values_of(write);
            let same = |g: &&mut Group<'_>| {
                g.part == part && g.adds == adds && g.columns.iter().eq(values.iter().map(|(name, _)| name))
            };
            let entry = (idx, commit.session.uuid(), write);
            match groups.iter_mut().find(same) {
                Some(group) => group.writes.push(entry),
                None => {
                    let columns = values.iter().map(|(name, _)| *name).collect();
                    groups.push(Group { part, columns, adds, table: write.table, writes: vec![entry] });
                }
            }
        }
    }
    groups.sort_by(|a, b| (a.part, &a.columns, a.adds).cmp(&(b.part, &b.columns, b.adds)));
    groups
}

pub(super) fn is_sessions(table: &Table) -> bool {
    std::ptr::eq(table, &*session::TABLE)
}

/// Numbers the parameters as the text is written; arguments are bound in the same order.
#[derive(Default)]
pub(super) struct Params(usize);

impl Params {
    pub(super) fn next(&mut self) -> usize {
        self.0 += 1;
        self.0
    }

    /// Arrays as rows of `x`. In the list of what is selected they run in step; as one function of a FROM each would
    /// be put into a store of its own first, which costs more than the rows.
    pub(super) fn unnest(&mut self, columns: &[(String, &str)]) -> String {
        let array = |(name, kind): &(String, &str)| format!("unnest(${}::{kind}[]) AS {name}", self.next());
        let arrays: Vec<String> = columns.iter().map(array).collect();
        format!("(SELECT {}) AS x", arrays.join(", "))
    }
}

pub(super) fn typed(columns: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
}

/// The columns that a group sets, as arrays named by position: a column may be called like one of ours.
fn given(group: &Group<'_>) -> impl Iterator<Item = (String, &'static str)> {
    group.columns.iter().enumerate().map(|(at, column)| (format!("c{at}"), group.table.kind(column).sql()))
}

/// What is given of rows that exist, and the condition under which a row `t` is as expected.
pub(super) fn wanted(group: &Group<'_>) -> (Vec<(String, &'static str)>, String) {
    let mut columns = typed(&[("idx", "int4"), ("session_id", "uuid"), ("id", "uuid"), ("version", "int8")]);
    let mut expected = String::from("(x.version < 0 OR t.version = x.version)");
    for (slot, (_, column)) in group.table.machines.iter().enumerate() {
        columns.push((format!("f{slot}"), "text"));
        let _ = write!(expected, " AND (x.f{slot} = '' OR t.{column} = x.f{slot})");
    }
    if group.table.has_epoch() {
        columns.push(("epoch".into(), "int8"));
        expected.push_str(" AND (x.epoch < 0 OR t.epoch = x.epoch)");
    }
    if group.adds {
        columns.push(("add".into(), "int8"));
    }
    columns.extend(given(group));
    (columns, expected)
}

pub(super) fn bind_wanted(a: &mut PgArguments, group: &Group<'_>) -> Result<(), BoxDynError> {
    a.add(group.writes.iter().map(|w| w.0).collect::<Vec<_>>())?;
    a.add(group.writes.iter().map(|w| w.1).collect::<Vec<_>>())?;
    a.add(group.writes.iter().map(|w| w.2.id).collect::<Vec<_>>())?;
    a.add(group.writes.iter().map(|w| w.2.expect.version.unwrap_or(-1)).collect::<Vec<_>>())?;
    for slot in 0..group.table.machines.len() {
        a.add(group.writes.iter().map(|w| w.2.expect.states[slot]).collect::<Vec<_>>())?;
    }
    if group.table.has_epoch() {
        a.add(group.writes.iter().map(|w| w.2.expect.epoch.unwrap_or(-1)).collect::<Vec<_>>())?;
    }
    if group.adds {
        a.add(group.writes.iter().map(|w| added(w.2)).collect::<Vec<_>>())?;
    }
    columns(a, group)
}

/// What a change sets, taken from `from`.
pub(super) fn sets(group: &Group<'_>, from: &str) -> String {
    let mut sets: Vec<String> = group.columns.iter().enumerate().map(|(at, c)| format!("{c} = {from}.c{at}")).collect();
    sets.push("version = t.version + 1".into());
    if let Some(counter) = group.table.counter.filter(|_| group.adds) {
        sets.push(format!("{counter} = t.{counter} + {from}.add"));
    }
    sets.join(", ")
}

/// New rows, of those commits that meet the condition.
pub(super) fn insert(sql: &mut String, p: &mut Params, k: usize, group: &Group<'_>, condition: &str) {
    let mut columns = typed(&[("idx", "int4")]);
    columns.extend(given(group));
    let rows = p.unnest(&columns);
    // A new session starts at the number of its commit's last rune.
    let own = |column: &str| is_sessions(group.table) && column == "head_seq";
    let value = |(at, column): (usize, &&str)| match own(column) {
        true => "($3::int4[])[x.idx]".to_owned(),
        false => format!("x.c{at}"),
    };
    let values: Vec<String> = group.columns.iter().enumerate().map(value).collect();
    let _ = write!(
        sql,
        ",\ni{k} AS (INSERT INTO {} ({}) SELECT {} FROM {rows}, wa WHERE {condition})",
        group.table.name,
        group.columns.join(", "),
        values.join(", "),
    );
}

pub(super) fn bind_insert(a: &mut PgArguments, group: &Group<'_>) -> Result<(), BoxDynError> {
    a.add(group.writes.iter().map(|w| w.0).collect::<Vec<_>>())?;
    columns(a, group)
}

/// Binds an array per column that the group sets.
fn columns(a: &mut PgArguments, group: &Group<'_>) -> Result<(), BoxDynError> {
    for (at, column) in group.columns.iter().enumerate() {
        let kind = group.table.kind(column);
        let odd = |value: &Value| format!("{}.{column} cannot hold {value:?}", group.table.name);
        macro_rules! array {
            ($variant:ident, $value:ident => $read:expr) => {{
                let read = |value| match value {
                    &Value::$variant(ref $value) => Ok($read),
                    other => Err(odd(other)),
                };
                a.add(group.values(at).map(read).collect::<Result<Vec<_>, _>>()?)?
            }};
        }
        match kind {
            ColumnKind::Bool => array!(Bool, v => *v),
            ColumnKind::Int => array!(Int, v => *v),
            ColumnKind::BigInt => array!(BigInt, v => *v),
            ColumnKind::Text => array!(String, v => v.as_deref()),
            ColumnKind::Uuid => array!(Uuid, v => *v),
            ColumnKind::Json => array!(Json, v => v.as_deref().map(Json)),
            ColumnKind::Time => array!(ChronoDateTimeUtc, v => *v),
            ColumnKind::Bytes => array!(Bytes, v => v.as_deref()),
        }
    }
    Ok(())
}

/// What a rune says of itself, in the order of [`RUNE`].
pub(super) fn bind_runes<'a, I>(a: &mut PgArguments, runes: impl Fn() -> I) -> Result<(), BoxDynError>
where
    I: Iterator<Item = &'a Rune>,
{
    a.add(runes().map(|r| r.id.uuid()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.kind.as_str()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.entity.kind.prefix()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.entity.id).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.agent_id.map(|i| i.uuid())).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.turn_id.map(|i| i.uuid())).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.visibility.token()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.payload.get()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| Moved::encode_all(&r.moves, r.entity)).collect::<Vec<_>>())?;
    a.add(runes().map(|r| &r.hash.0[..]).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.actor.by.token()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.actor.id.as_str()).collect::<Vec<_>>())?;
    a.add(runes().map(|r| r.traceparent.as_deref()).collect::<Vec<_>>())?;
    Ok(())
}

pub(super) const RUNE: [(&str, &str); 13] = [
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
];

fn added(write: &Write) -> i64 {
    match &write.op {
        Op::Update { add, .. } => *add,
        _ => 0,
    }
}
