//! What the transition writer knows of a table: its columns, its status columns and its counter.
//!
//! Taken from the sea-orm entity, so that a column is declared in one place.

use sea_orm::{ActiveModelTrait, ColumnTrait, EntityName, EntityTrait, IdenStatic, Iterable, Value};

/// How a column's value travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Plain,
    Json,
}

#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Type,
}

#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<Column>,
    /// Machines whose state the row holds, with their columns; at most two.
    pub machines: &'static [(&'static str, &'static str)],
    /// A number that commits may add to without knowing its value.
    pub counter: Option<&'static str>,
}

impl Table {
    pub fn of<E: EntityTrait>(
        machines: &'static [(&'static str, &'static str)],
        counter: Option<&'static str>,
    ) -> Table {
        let columns =
            E::Column::iter().map(|c| Column { name: c.as_str(), kind: kind(c.def().get_column_type()) }).collect();
        Table { name: E::default().table_name_static(), columns, machines, counter }
    }

    pub(crate) fn has_epoch(&self) -> bool {
        self.columns.iter().any(|c| c.name == "epoch")
    }

    pub(crate) fn status_column(&self, machine: &str) -> Option<usize> {
        self.machines.iter().position(|(m, _)| *m == machine)
    }

    pub(crate) fn is_reserved(&self, column: &str) -> bool {
        // The writer's own: a status goes through a move, the version counts writes.
        matches!(column, "id" | "session_id" | "version" | "head_seq")
            || self.machines.iter().any(|(_, c)| *c == column)
    }
}

fn kind(column: &sea_orm::ColumnType) -> Type {
    match column {
        sea_orm::ColumnType::Json | sea_orm::ColumnType::JsonBinary => Type::Json,
        _ => Type::Plain,
    }
}

/// The table's name without an allocation; sea-orm's own accessor needs an instance.
trait StaticName {
    fn table_name_static(&self) -> &'static str;
}

impl<E: EntityName> StaticName for E {
    fn table_name_static(&self) -> &'static str {
        self.table_name()
    }
}

/// All columns of a model with their values, for an insert.
pub(crate) fn values<A: ActiveModelTrait>(model: &A) -> Vec<(&'static str, Value)> {
    <A::Entity as EntityTrait>::Column::iter()
        .filter_map(|c| model.get(c).into_value().map(|v| (c.as_str(), v)))
        .collect()
}

/// A value as JSON text would carry it into a row of Postgres.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    use serde_json::Value as J;
    match value {
        Value::Bool(Some(v)) => J::from(*v),
        Value::Int(Some(v)) => J::from(*v),
        Value::BigInt(Some(v)) => J::from(*v),
        Value::String(Some(v)) => J::from(v.as_str()),
        Value::Uuid(Some(v)) => J::from(v.to_string()),
        Value::Json(Some(v)) => (**v).clone(),
        Value::ChronoDateTimeUtc(Some(v)) => J::from(v.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)),
        Value::Bytes(Some(v)) => {
            let mut text = String::with_capacity(2 + v.len() * 2);
            text.push_str("\\x");
            for b in v.iter() {
                text.push_str(&format!("{b:02x}"));
            }
            J::from(text)
        }
        _ => J::Null,
    }
}
