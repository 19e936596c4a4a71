//! What a session says once for the missions that its agents propose and the plans that its hops make. A mistake in
//! it would only show when the first of them is run in another way than was meant.

use super::mission::NEW_MISSION;
use super::plan::{self, NEW_PLAN};
use crate::call::Call;
use crate::shape::{Shape, Wrong};
use instar_runtime::mission::Terms;
use instar_runtime::plan::HOP_TERMS;
use serde_json::{Map, Value};

/// Who has a mission is up to whoever proposes it.
const MISSION_TERMS: [&str; 5] = ["gates", "gate_timeout_ms", "on_hop_failure", "hop_attempts_max", "detached"];

/// Every problem of a session's configuration, with where it is.
pub(crate) fn problems(call: &Call, config: &Value) -> Wrong {
    let mut wrong = read(config, "missions", &NEW_MISSION, &MISSION_TERMS, |given| {
        let terms = serde_json::from_value::<Terms>(Value::Object(given));
        terms.map(|terms| terms.check().err().unwrap_or_default())
    });
    wrong.extend(read(config, "plans", &NEW_PLAN, &HOP_TERMS, |given| plan::problems_of_terms(call, given)));
    wrong
}

/// First the shape of the terms, then what it does not show.
fn read(
    config: &Value,
    name: &str,
    shape: &'static Shape,
    known: &[&str],
    check: impl FnOnce(Map<String, Value>) -> Result<Wrong, serde_json::Error>,
) -> Wrong {
    let at = format!("/config/{name}");
    let given = match config.get(name) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Object(given)) => given,
        Some(_) => return vec![(at, "must be an object".into())],
    };
    let wrong = shape.some(given, known, &at);
    if !wrong.is_empty() {
        return wrong;
    }
    match check(given.iter().filter(|(_, value)| !value.is_null()).map(|(n, v)| (n.clone(), v.clone())).collect()) {
        Ok(found) => found.into_iter().map(|(place, said)| (format!("{at}{place}"), said)).collect(),
        Err(no) => vec![(at, no.to_string())],
    }
}
