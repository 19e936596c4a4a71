//! Whether the steps of a hop fit together, with the hop and its assets as they are.

use crate::snapshot::{Missions, asset_ids, closed};
use instar_core::asset::{Role, Schema};
use instar_core::id::AssetId;
use instar_core::mapping::{self, Face, Held};
use instar_store::entity::{asset, hop, tool_step};

/// Everything that is wrong with these steps, in words. What a hop has finished already is not among them. `face`
/// answers for tools that a step may run.
pub fn chain(
    rows: &Missions,
    hop: &hop::Model,
    steps: &[tool_step::Model],
    face: impl Fn(&str) -> Option<Face>,
) -> Vec<String> {
    faults(rows, hop, steps, face).into_iter().map(|(_, why)| why).collect()
}

/// The same with the place in the list of the step that it is about, if it is about one.
pub(super) fn faults(
    rows: &Missions,
    hop: &hop::Model,
    steps: &[tool_step::Model],
    face: impl Fn(&str) -> Option<Face>,
) -> Vec<(Option<usize>, String)> {
    let of = |list: &serde_json::Value, role: Role| {
        let found = asset_ids(list).into_iter().filter_map(|id| rows.assets.get(&id));
        found.map(|row| (row, schema(row), role)).collect::<Vec<_>>()
    };
    let own = rows.assets.values().filter(|row| row.scope == "hop" && row.hop_id == Some(hop.id));
    let own = own.map(|row| (row, schema(row), Role::Intermediate)).collect();
    let held = [of(&hop.inputs, Role::Input), of(&hop.outputs, Role::Output), own].concat();
    let held: Vec<Held<'_>> = held
        .iter()
        .map(|(row, schema, role)| Held {
            id: AssetId::from(row.id),
            name: &row.name,
            schema,
            role: *role,
            ready: row.status == "READY",
            closed: closed(&row.status),
        })
        .collect();
    let (mut read, mut wrong) = (Vec::new(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        match (mapping::parameters(&step.parameter_mapping), mapping::results(&step.result_mapping)) {
            (Ok(parameters), Ok(results)) => read.push((parameters, results)),
            (parameters, results) => {
                let said = parameters.err().into_iter().chain(results.err()).flatten();
                wrong.extend(said.map(|fault| (Some(at), format!("step {}: {fault}", at + 1))));
            }
        }
    }
    if !wrong.is_empty() {
        return wrong;
    }
    let chain: Vec<mapping::Step<'_>> = steps
        .iter()
        .zip(&read)
        .map(|(step, (parameters, results))| mapping::Step {
            name: &step.name,
            tool: step.tool.as_deref(),
            parameters,
            results,
        })
        .collect();
    let found = mapping::check(&chain, &held, face).into_iter();
    found.map(|fault| (fault.step.map(|number| number - 1), fault.to_string())).collect()
}

fn schema(row: &asset::Model) -> Schema {
    Schema::of_asset(&row.kind, row.is_array, &row.schema)
}
