//! What a tool takes and gives, in the words of assets.

use crate::asset::{Schema, Type};
use serde_json::Value;
use std::collections::BTreeMap;

/// The result that every tool has: all it said.
pub const WHOLE: &str = "output";

/// A tool as far as mappings depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// By name; the ones that are not `optional` must be mapped.
    pub parameters: BTreeMap<String, Schema>,
    /// Whether it takes parameters that it does not name.
    pub open: bool,
    pub results: BTreeMap<String, Schema>,
}

impl Face {
    /// From the JSON Schemas of its arguments and of what it answers. A tool that declares no results has
    /// one, the whole of its answer; one that does has each field of it besides.
    pub fn of(parameters: &Value, results: &Value) -> Face {
        let named = |declared: &Value| {
            let object = Value::Object(declared.as_object().cloned().unwrap_or_default());
            let fields = Schema::of_json_schema(&with_type(object)).fields;
            fields.into_iter().collect::<BTreeMap<_, _>>()
        };
        let mut made = named(results);
        let whole = if results.is_object() { Schema::of_json_schema(results) } else { Schema::new(Type::Any) };
        made.entry(WHOLE.to_owned()).or_insert(whole);
        // As the arguments are checked: a schema that lists its properties means those and no others.
        let lists = parameters["properties"].is_object();
        let open = match &parameters["additionalProperties"] {
            Value::Bool(open) => *open,
            Value::Null => !lists && parameters.is_object(),
            _ => true,
        };
        Face { parameters: named(parameters), open, results: made }
    }

    pub(super) fn names(of: &BTreeMap<String, Schema>) -> String {
        let names: Vec<&str> = of.keys().map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// A schema with properties describes an object whether it says so or not.
fn with_type(mut declared: Value) -> Value {
    if let Some(fields) = declared.as_object_mut() {
        fields.insert("type".to_owned(), "object".into());
    }
    declared
}
