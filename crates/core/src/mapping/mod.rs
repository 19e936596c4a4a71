//! How a step's parameters come from assets and its results go into them.
//!
//! Pure: what tools declare and which assets a hop has is given. Everything found wrong is a [`Fault`] in
//! words that whoever wrote the mapping, person or model, can act on.

mod chain;
mod face;
mod resolve;

pub use chain::{Held, STEPS_MAX, Step, check};
pub use face::{Face, WHOLE};
pub use resolve::{REFERENCE, Written, arguments, outputs, reference};

use crate::id::AssetId;
use crate::vocabulary::canonical_mapping;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Where a parameter comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Asset(AssetId),
    Literal(Value),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Asset(AssetId),
    Discard,
}

pub type Parameters = BTreeMap<String, Source>;
pub type Results = BTreeMap<String, Target>;

/// What is wrong, as a word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    BadMapping,
    NoSteps,
    TooManySteps,
    NoTool,
    UnknownTool,
    UnknownParameter,
    MissingParameter,
    ForeignAsset,
    NotAvailable,
    UnknownResult,
    WrittenTwice,
    NotWritable,
    Misfit,
    NeverWritten,
    MissingResult,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Fault {
    pub code: Code,
    /// The step by its place in the chain, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    pub message: String,
}

impl Fault {
    fn new(code: Code, message: String) -> Fault {
        Fault { code, step: None, message }
    }
}

fn bad(message: String) -> Fault {
    Fault::new(Code::BadMapping, message)
}

/// Reads a parameter mapping as it is proposed and stored.
pub fn parameters(mapping: &Value) -> Result<Parameters, Vec<Fault>> {
    read(mapping, "parameter", |name, kind, fields| match kind {
        "asset_field" => asset(name, fields).map(Source::Asset),
        "literal" => {
            let value = fields.get("value").ok_or_else(|| bad(format!("{name}: a literal needs a `value`")))?;
            if value.get(REFERENCE).is_some() {
                let why = format!("{name}: a literal cannot have the key {REFERENCE}: map the asset with asset_field");
                return Err(bad(why));
            }
            Ok(Source::Literal(value.clone()))
        }
        other => Err(bad(format!("{name}: {other:?} is no way to get a value: use asset_field or literal"))),
    })
}

/// Reads a result mapping as it is proposed and stored.
pub fn results(mapping: &Value) -> Result<Results, Vec<Fault>> {
    read(mapping, "result", |name, kind, fields| match kind {
        "asset_field" => asset(name, fields).map(Target::Asset),
        "discard" => Ok(Target::Discard),
        other => Err(bad(format!("{name}: {other:?} is no place for a result: use asset_field or discard"))),
    })
}

/// The two mappings as they are stored and shown.
pub fn parameters_json(parameters: &Parameters) -> Value {
    let one = |source: &Source| match source {
        Source::Asset(id) => json!({"type": "asset_field", "state_asset_id": id}),
        Source::Literal(value) => json!({"type": "literal", "value": value}),
    };
    parameters.iter().map(|(name, source)| (name.clone(), one(source))).collect()
}

pub fn results_json(results: &Results) -> Value {
    let one = |target: &Target| match target {
        Target::Asset(id) => json!({"type": "asset_field", "state_asset_id": id}),
        Target::Discard => json!({"type": "discard"}),
    };
    results.iter().map(|(name, target)| (name.clone(), one(target))).collect()
}

/// The assets that a step reads, each once.
pub fn inputs(parameters: &Parameters) -> Vec<AssetId> {
    let assets = parameters.values().filter_map(|source| match source {
        Source::Asset(id) => Some(*id),
        Source::Literal(_) => None,
    });
    assets.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// The assets that a step writes, each once.
pub fn written(results: &Results) -> Vec<AssetId> {
    let assets = results.values().filter_map(|target| match target {
        Target::Asset(id) => Some(*id),
        Target::Discard => None,
    });
    assets.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

fn read<T>(
    mapping: &Value,
    what: &str,
    one: impl Fn(&str, &str, &serde_json::Map<String, Value>) -> Result<T, Fault>,
) -> Result<BTreeMap<String, T>, Vec<Fault>> {
    let entries = match mapping {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(entries) => entries,
        _ => return Err(vec![bad(format!("the {what} mapping must be an object, {what} by {what}"))]),
    };
    let (mut read, mut faults) = (BTreeMap::new(), Vec::new());
    for (name, entry) in entries {
        let place = format!("{what} {name:?}");
        let fields = entry.as_object();
        let kind = fields.and_then(|fields| fields.get("type")).and_then(Value::as_str);
        let found = match (fields, kind) {
            (Some(fields), Some(kind)) => one(&place, canonical_mapping(kind), fields),
            _ => Err(bad(format!("{place}: must be an object with a `type`"))),
        };
        match found {
            Ok(value) => drop(read.insert(name.clone(), value)),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(read) } else { Err(faults) }
}

fn asset(name: &str, fields: &serde_json::Map<String, Value>) -> Result<AssetId, Fault> {
    let given = ["state_asset_id", "asset_id", "state_asset"].iter().find_map(|key| fields.get(*key));
    let given = given.and_then(Value::as_str).ok_or_else(|| bad(format!("{name}: needs a `state_asset_id`")))?;
    given.parse().map_err(|error| bad(format!("{name}: {given:?} is no asset: {error}")))
}

#[cfg(test)]
mod tests;
