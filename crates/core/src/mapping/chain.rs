//! Whether a hop's steps can work at all, before anybody is asked to approve them.
//!
//! Steps run in order, one at a time: what a step reads must be an input of the hop or come out of an
//! earlier step, and fit.

use super::{Code, Face, Fault, Parameters, Results, Source, Target};
use crate::asset::{Role, Schema};
use crate::id::AssetId;
use serde_json::Value;
use std::collections::BTreeSet;

/// Steps that a hop may have.
pub const STEPS_MAX: usize = 32;
const NAMED_MAX: usize = 8;

/// A step as it is proposed.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub name: &'a str,
    pub tool: Option<&'a str>,
    pub parameters: &'a Parameters,
    pub results: &'a Results,
}

/// An asset that belongs to the hop.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    pub id: AssetId,
    pub name: &'a str,
    pub schema: &'a Schema,
    pub role: Role,
    /// It has a value now.
    pub ready: bool,
    /// Why no step can write it as it is, and what to do about that.
    pub closed: Option<&'a str>,
}

/// Everything that is wrong with the chain; nothing means that it may be approved. `tool` answers for tools
/// that are registered, enabled and fit for a step.
pub fn check(steps: &[Step<'_>], assets: &[Held<'_>], tool: impl Fn(&str) -> Option<Face>) -> Vec<Fault> {
    if steps.is_empty() {
        return vec![Fault::new(Code::NoSteps, "an implementation needs at least one step".into())];
    }
    if steps.len() > STEPS_MAX {
        let why = format!("{} steps are more than a hop may have ({STEPS_MAX}): split the hop", steps.len());
        return vec![Fault::new(Code::TooManySteps, why)];
    }
    let available = assets.iter().filter(|asset| asset.role == Role::Input || asset.ready).map(|asset| asset.id);
    let mut look = Look { assets, available: available.collect(), written: BTreeSet::new(), faults: Vec::new() };
    for (at, step) in steps.iter().enumerate() {
        let label = format!("step {} ({})", at + 1, step.name);
        let before = look.faults.len();
        look.step(step, &label, &tool);
        look.faults[before..].iter_mut().for_each(|fault| fault.step = Some(at + 1));
    }
    for asset in assets.iter().filter(|asset| asset.role == Role::Output && !asset.ready) {
        if !look.written.contains(&asset.id) {
            let why =
                format!("no step writes {} ({}), which the hop promises: map a result to it", asset.name, asset.id);
            look.faults.push(Fault::new(Code::NeverWritten, why));
        }
    }
    look.faults
}

struct Look<'a> {
    assets: &'a [Held<'a>],
    available: BTreeSet<AssetId>,
    written: BTreeSet<AssetId>,
    faults: Vec<Fault>,
}

impl<'a> Look<'a> {
    fn fault(&mut self, code: Code, message: String) {
        self.faults.push(Fault::new(code, message));
    }

    fn step(&mut self, step: &Step<'_>, label: &str, tool: &impl Fn(&str) -> Option<Face>) {
        let face = step.tool.map(|name| (name, tool(name)));
        match &face {
            None => self.fault(Code::NoTool, format!("{label} has no tool: choose one")),
            Some((name, None)) => {
                let why = format!("{label}: there is no tool {name:?} that is registered, enabled and fit for a step");
                self.fault(Code::UnknownTool, why);
            }
            Some((name, Some(face))) => self.declared(step, label, name, face),
        }
        // Whose assets they are and whether they are there does not depend on the tool.
        let face = face.and_then(|(_, face)| face);
        for (name, source) in step.parameters {
            if let Source::Asset(id) = source {
                let wanted = face.as_ref().and_then(|face| face.parameters.get(name));
                self.read(label, name, *id, wanted);
            }
        }
        let mut here = BTreeSet::new();
        for (name, target) in step.results {
            if let Target::Asset(id) = target {
                let made = face.as_ref().and_then(|face| face.results.get(name));
                self.write(label, name, *id, made);
                if !here.insert(*id) {
                    let why = format!("{label} writes two results into {id}: one of them would be lost");
                    self.fault(Code::WrittenTwice, why);
                }
            }
        }
        self.available.extend(here.iter().copied());
        self.written.extend(here);
    }

    fn declared(&mut self, step: &Step<'_>, label: &str, tool: &str, face: &Face) {
        for (name, source) in step.parameters {
            match (face.parameters.get(name), source) {
                (None, _) if !face.open => {
                    let known = Face::names(&face.parameters);
                    let why = format!("{label}: {tool} has no parameter {name:?}; it has: {known}");
                    self.fault(Code::UnknownParameter, why);
                }
                (Some(wanted), Source::Literal(value)) => {
                    let left_out = wanted.optional && *value == Value::Null;
                    if let (false, Err(misfits)) = (left_out, wanted.check(value)) {
                        let found: Vec<String> = misfits.iter().map(ToString::to_string).collect();
                        let why = format!("{label}: the literal for {name:?} does not fit: {}", found.join("; "));
                        self.fault(Code::Misfit, why);
                    }
                }
                _ => {}
            }
        }
        for (name, wanted) in face.parameters.iter().filter(|(_, wanted)| !wanted.optional) {
            if !step.parameters.contains_key(name) {
                let why = format!("{label}: {tool} needs the parameter {name:?} ({}): map it", wanted.words());
                self.fault(Code::MissingParameter, why);
            }
        }
        for name in step.results.keys().filter(|name| !face.results.contains_key(*name)) {
            let known = Face::names(&face.results);
            let why = format!("{label}: {tool} has no result {name:?}; it has: {known}");
            self.fault(Code::UnknownResult, why);
        }
    }

    fn read(&mut self, label: &str, parameter: &str, id: AssetId, wanted: Option<&Schema>) {
        let Some(asset) = self.held(label, &format!("parameter {parameter:?}"), id) else { return };
        if !self.available.contains(&id) {
            let there = self.assets.iter().filter(|asset| self.available.contains(&asset.id));
            let there: Vec<&str> = there.map(|asset| asset.name).take(NAMED_MAX).collect();
            let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
            let why = format!(
                "{label}: parameter {parameter:?} reads {} ({id}) before any step has written it; available here: {there}",
                asset.name
            );
            self.fault(Code::NotAvailable, why);
        }
        if let Some(Err(why)) = wanted.map(|wanted| asset.schema.flows_into(wanted)) {
            let why = format!("{label}: {} ({id}) cannot be the parameter {parameter:?}: {why}", asset.name);
            self.fault(Code::Misfit, why);
        }
    }

    fn write(&mut self, label: &str, result: &str, id: AssetId, made: Option<&Schema>) {
        let Some(asset) = self.held(label, &format!("result {result:?}"), id) else { return };
        if let Some(why) = asset.closed {
            let why = format!("{label}: the result {result:?} cannot go into {} ({id}): {why}", asset.name);
            self.fault(Code::NotWritable, why);
        }
        if let Some(Err(why)) = made.map(|made| made.flows_into(asset.schema)) {
            let why = format!("{label}: the result {result:?} cannot become {} ({id}): {why}", asset.name);
            self.fault(Code::Misfit, why);
        }
    }

    fn held(&mut self, label: &str, place: &str, id: AssetId) -> Option<&'a Held<'a>> {
        let found = self.assets.iter().find(|asset| asset.id == id);
        if found.is_none() {
            let known: Vec<String> =
                self.assets.iter().take(NAMED_MAX).map(|asset| format!("{} ({})", asset.name, asset.id)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let why = format!("{label}: {place} names {id}, which is no asset of this hop; its assets: {known}");
            self.fault(Code::ForeignAsset, why);
        }
        found
    }
}
