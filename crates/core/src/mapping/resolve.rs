//! A step's arguments from pinned versions, and the values of its results.
//!
//! A call's row holds references to content, not content: each names a version, which is written once, so that an
//! approval is bound to the very bytes. Whoever runs the call puts the whole value in their place.

use super::{Code, Fault, Parameters, Results, Source, Target, WHOLE};
use crate::asset::Schema;
use crate::asset::content::Content;
use crate::asset::lineage::Version;
use crate::id::AssetId;
use serde_json::{Map, Value, json};

/// The key by which an argument refers to an asset's content.
pub const REFERENCE: &str = "$asset";

/// A result on its way into an asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub asset: AssetId,
    /// The result that it comes from.
    pub result: String,
    pub content: Content,
}

/// The arguments of a step's call; `pin` says which version of an asset it reads. All assets without one are told.
pub fn arguments(parameters: &Parameters, pin: impl Fn(AssetId) -> Option<i64>) -> Result<Value, Vec<Fault>> {
    let (mut arguments, mut faults) = (Map::new(), Vec::new());
    for (name, source) in parameters {
        match source {
            Source::Literal(value) => drop(arguments.insert(name.clone(), value.clone())),
            Source::Asset(id) => match pin(*id) {
                Some(version) => drop(arguments.insert(name.clone(), json!({REFERENCE: id, "version": version}))),
                None => {
                    let why = format!("parameter {name:?} needs {id}, which has no value: provide one");
                    faults.push(Fault::new(Code::NotAvailable, why));
                }
            },
        }
    }
    if faults.is_empty() { Ok(Value::Object(arguments)) } else { Err(faults) }
}

/// The version that an argument refers to, if it is a reference.
pub fn reference(argument: &Value) -> Option<Version> {
    let asset_id = argument.get(REFERENCE)?.as_str()?.parse().ok()?;
    Some(Version { asset_id, version: argument.get("version")?.as_i64()? })
}

/// What a call's output writes into which asset. A mapped result that is missing or does not fit is an
/// error: a step that wrote nothing must not count as done.
pub fn outputs<'a>(
    results: &Results,
    output: &Value,
    schema: impl Fn(AssetId) -> Option<&'a Schema>,
) -> Result<Vec<Written>, Vec<Fault>> {
    let (mut written, mut faults) = (Vec::new(), Vec::new());
    for (name, target) in results {
        let Target::Asset(id) = target else { continue };
        // A field by that name goes before the whole.
        let found = match output.get(name) {
            Some(field) => Some(field),
            None if name == WHOLE => Some(output),
            None => None,
        };
        let Some(value) = found.filter(|value| !value.is_null()) else {
            let why = format!("the tool's answer has no result {name:?}, which {id} waits for");
            faults.push(Fault::new(Code::MissingResult, why));
            continue;
        };
        let Some(schema) = schema(*id) else {
            faults.push(Fault::new(Code::ForeignAsset, format!("result {name:?} goes to {id}, which is gone")));
            continue;
        };
        match schema.check(value) {
            Ok(()) => written.push(Written { asset: *id, result: name.clone(), content: Content::of(schema, value) }),
            Err(misfits) => {
                let found: Vec<String> = misfits.iter().map(ToString::to_string).collect();
                let why = format!("the result {name:?} does not fit {id}: {}", found.join("; "));
                faults.push(Fault::new(Code::Misfit, why));
            }
        }
    }
    if faults.is_empty() { Ok(written) } else { Err(faults) }
}
