//! What the transition writer knows of a table: its columns, its status columns and its counter.
//!
//! Taken from the sea-orm entity, so that a column is declared in one place. Also the one form in
//! which values are stored, whichever path of the writer they take.

use sea_orm::{ActiveModelTrait, ColumnTrait, ColumnType, EntityTrait, IdenStatic, Iterable, Value};

/// The types that columns of the store have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Bool,
    Int,
    BigInt,
    Text,
    Uuid,
    Json,
    Time,
    Bytes,
}

impl ColumnKind {
    fn of(column: &ColumnType) -> ColumnKind {
        match column {
            ColumnType::Boolean => ColumnKind::Bool,
            ColumnType::Integer => ColumnKind::Int,
            ColumnType::BigInteger => ColumnKind::BigInt,
            ColumnType::Uuid => ColumnKind::Uuid,
            ColumnType::Json | ColumnType::JsonBinary => ColumnKind::Json,
            ColumnType::TimestampWithTimeZone => ColumnKind::Time,
            ColumnType::Binary(_) | ColumnType::VarBinary(_) | ColumnType::Blob => ColumnKind::Bytes,
            _ => ColumnKind::Text,
        }
    }

    /// Its name in PostgreSQL.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            ColumnKind::Bool => "bool",
            ColumnKind::Int => "int4",
            ColumnKind::BigInt => "int8",
            ColumnKind::Text => "text",
            ColumnKind::Uuid => "uuid",
            ColumnKind::Json => "jsonb",
            ColumnKind::Time => "timestamptz",
            ColumnKind::Bytes => "bytea",
        }
    }
}

#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<&'static str>,
    kinds: Vec<ColumnKind>,
    /// Machines whose state the row holds, with their columns; at most two.
    pub machines: &'static [(&'static str, &'static str)],
    /// A number that commits may add to without knowing its value.
    pub counter: Option<&'static str>,
    /// Its rows are limits, with columns `cap`, `used` and `reserved`, from which commits may draw.
    pub meter: bool,
}

impl Table {
    pub fn of<E: EntityTrait>(
        machines: &'static [(&'static str, &'static str)],
        counter: Option<&'static str>,
    ) -> Table {
        let columns = E::Column::iter().map(|c| c.as_str()).collect();
        let kinds = E::Column::iter().map(|c| ColumnKind::of(c.def().get_column_type())).collect();
        Table { name: E::default().table_name(), columns, kinds, machines, counter, meter: false }
    }

    pub fn metered(self) -> Table {
        Table { meter: true, ..self }
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.contains(&column)
    }

    pub(crate) fn kind(&self, column: &str) -> ColumnKind {
        let at = self.columns.iter().position(|name| *name == column);
        at.map_or(ColumnKind::Text, |at| self.kinds[at])
    }

    pub(crate) fn has_epoch(&self) -> bool {
        self.has("epoch")
    }

    pub(crate) fn status_column(&self, machine: &str) -> Option<usize> {
        self.machines.iter().position(|(m, _)| *m == machine)
    }

    pub(crate) fn is_reserved(&self, column: &str) -> bool {
        // The writer's own: a status goes through a move, the version counts writes, times are the
        // commit's, and how far a log is published or sealed is noted beside the commits.
        let own =
            ["id", "session_id", "version", "head_seq", "published_seq", "sealed_seq", "created_at", "updated_at"];
        own.contains(&column) || self.machines.iter().any(|(_, c)| *c == column)
    }
}

/// All columns of a model with their values, for an insert.
pub(crate) fn values<A: ActiveModelTrait>(model: &A) -> Vec<(&'static str, Value)> {
    <A::Entity as EntityTrait>::Column::iter()
        .filter_map(|c| model.get(c).into_value().map(|v| (c.as_str(), v)))
        .collect()
}

/// A value in the one form that every path of the writer stores alike. `None`: no column of the
/// store has this type.
pub(crate) fn normal(value: Value) -> Option<Value> {
    Some(match value {
        // A text of PostgreSQL cannot hold it, and a tool that prints it must not lose its result.
        Value::String(Some(text)) if text.contains('\0') => Value::from(text.replace('\0', "\u{fffd}")),
        // JSON's null and the column's would be told apart on one path and not on another.
        Value::Json(Some(json)) if json.is_null() => Value::Json(None),
        Value::Json(Some(mut json)) => {
            without_nul(&mut json);
            Value::Json(Some(json))
        }
        Value::Bool(_)
        | Value::Int(_)
        | Value::BigInt(_)
        | Value::String(_)
        | Value::Uuid(_)
        | Value::Json(_)
        | Value::ChronoDateTimeUtc(_)
        | Value::Bytes(_) => value,
        _ => return None,
    })
}

fn without_nul(json: &mut serde_json::Value) {
    use serde_json::Value as J;
    match json {
        J::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        J::Array(items) => items.iter_mut().for_each(without_nul),
        J::Object(map) => {
            if map.keys().any(|k| k.contains('\0')) {
                *map = std::mem::take(map).into_iter().map(|(k, v)| (k.replace('\0', "\u{fffd}"), v)).collect();
            }
            map.values_mut().for_each(without_nul);
        }
        _ => {}
    }
}

/// Roughly what a value weighs on its way to the database.
pub(crate) fn weight(value: &Value) -> usize {
    fn json(value: &serde_json::Value) -> usize {
        use serde_json::Value as J;
        match value {
            J::String(text) => text.len() + 2,
            J::Array(items) => items.iter().map(|v| json(v) + 1).sum::<usize>() + 2,
            J::Object(map) => map.iter().map(|(k, v)| k.len() + json(v) + 4).sum::<usize>() + 2,
            _ => 8,
        }
    }
    match value {
        Value::String(Some(text)) => text.len(),
        Value::Bytes(Some(bytes)) => bytes.len(),
        Value::Json(Some(value)) => json(value),
        _ => 8,
    }
}
