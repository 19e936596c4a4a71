//! The forms in which missions, hops and steps are proposed, by people and by models alike.

use chrono::{DateTime, Utc};
use instar_core::decide::{GatePolicy, Gates, OnHopFailure};
use instar_core::id::{AgentId, AssetId, StepId};
use instar_store::entity::{asset, hop, mission, tool_step};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Assets that a mission may have, whoever proposes them.
pub const ASSETS_MAX: usize = 200;
/// How often a hop is executed before it counts as given up, where the mission does not say.
pub const HOP_ATTEMPTS: i64 = 3;
/// How often a step is tried in one execution.
pub const STEP_ATTEMPTS: i64 = 3;
const NAME_CHARS_MAX: usize = 200;
const TEXT_CHARS_MAX: usize = 32_000;
const CRITERIA_MAX: usize = 20;
const STEPS_MAX: usize = 32;
const ATTEMPTS_MAX: i64 = 100;

/// Everything that is wrong with a form: where, and what.
pub type Faults = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetForm {
    pub name: String,
    /// In the words of whoever wants it.
    #[serde(default)]
    pub description: Option<String>,
    /// In the words of whoever makes it.
    #[serde(default)]
    pub specification: Option<String>,
    #[serde(rename = "type", default = "string")]
    pub kind: String,
    #[serde(default)]
    pub subtype: Option<String>,
    #[serde(default)]
    pub is_array: bool,
    /// Nested fields, where the type has some.
    #[serde(default)]
    pub schema: Option<Value>,
    #[serde(default)]
    pub example: Option<Value>,
    #[serde(default)]
    pub external_system: Option<String>,
    /// How long a value is good for.
    #[serde(default)]
    pub ttl_ms: Option<i64>,
}

fn string() -> String {
    "string".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissionForm {
    pub name: String,
    pub goal: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub success_criteria: Vec<String>,
    #[serde(default)]
    pub inputs: Vec<AssetForm>,
    pub outputs: Vec<AssetForm>,
    #[serde(default)]
    pub scope: Option<String>,
    #[serde(default)]
    pub metadata: Option<Value>,
}

/// What a person may say about how a mission is run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    pub agent_id: Option<AgentId>,
    pub gates: Gates,
    pub gate_timeout_ms: Option<i64>,
    pub on_hop_failure: OnHopFailure,
    pub hop_attempts_max: Option<i64>,
    pub detached: bool,
}

/// A new revision of a mission's proposal: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissionEdit {
    pub name: Option<String>,
    pub goal: Option<String>,
    pub description: Option<String>,
    pub success_criteria: Option<Vec<String>>,
    pub inputs: Option<Vec<AssetForm>>,
    pub outputs: Option<Vec<AssetForm>>,
    pub scope: Option<String>,
    pub metadata: Option<Value>,
}

/// What a hop makes: an asset that is there, or a new one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputForm {
    pub asset_id: Option<AssetId>,
    pub asset: Option<AssetForm>,
}

/// The plan of a hop; of one that is there, what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HopForm {
    pub name: Option<String>,
    pub description: Option<String>,
    pub goal: Option<String>,
    pub success_criteria: Option<Vec<String>>,
    pub inputs: Option<Vec<AssetId>>,
    pub output: Option<OutputForm>,
    pub is_final: Option<bool>,
    pub rationale: Option<String>,
    pub alternatives: Option<Vec<String>>,
    pub executor: Option<Executor>,
}

/// Who carries a hop out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Tools, one after another.
    Steps,
    /// Agents, who split it among themselves.
    Plan,
}

impl Executor {
    pub const TOKENS: [&str; 2] = [Executor::Steps.token(), Executor::Plan.token()];

    pub const fn token(self) -> &'static str {
        match self {
            Executor::Steps => "steps",
            Executor::Plan => "plan",
        }
    }
}

/// A step of an implementation; `id` names one that is edited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepForm {
    pub id: Option<StepId>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub tool_id: Option<String>,
    pub parameter_mapping: Option<Map<String, Value>>,
    pub result_mapping: Option<Map<String, Value>>,
    pub resource_configs: Option<Value>,
    pub attempts_max: Option<i64>,
}

struct Look(Faults);

impl Look {
    fn text(&mut self, at: &str, text: &str, max: usize) {
        if text.trim().is_empty() {
            self.0.push((at.to_owned(), "must not be empty".into()));
        } else if text.chars().count() > max {
            self.0.push((at.to_owned(), format!("is longer than {max} characters")));
        }
    }

    fn maybe(&mut self, at: &str, text: Option<&str>) {
        if text.is_some_and(|text| text.chars().count() > TEXT_CHARS_MAX) {
            self.0.push((at.to_owned(), format!("is longer than {TEXT_CHARS_MAX} characters")));
        }
    }

    fn criteria(&mut self, criteria: &[String]) {
        if criteria.len() > CRITERIA_MAX {
            self.0.push(("/success_criteria".into(), format!("has more than {CRITERIA_MAX} entries")));
        }
        criteria
            .iter()
            .enumerate()
            .for_each(|(i, one)| self.text(&format!("/success_criteria/{i}"), one, TEXT_CHARS_MAX));
    }

    fn assets(&mut self, list: &str, assets: &[AssetForm]) {
        if assets.len() > ASSETS_MAX {
            self.0.push((format!("/{list}"), format!("has more than {ASSETS_MAX} assets")));
        }
        for (i, one) in assets.iter().enumerate() {
            self.asset(&format!("/{list}/{i}"), one);
            if assets.iter().take(i).any(|other| other.name == one.name) {
                self.0.push((format!("/{list}/{i}/name"), format!("there are two assets called {:?}", one.name)));
            }
        }
    }

    fn asset(&mut self, at: &str, form: &AssetForm) {
        self.text(&format!("{at}/name"), &form.name, NAME_CHARS_MAX);
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if form.kind.is_empty() || form.kind.len() > 64 || !form.kind.chars().all(word) {
            let why = "must be string, number, boolean, object, file, markdown, config or a word of your domain";
            self.0.push((format!("{at}/type"), why.into()));
        }
        if form.schema.as_ref().is_some_and(|schema| !schema.is_object()) {
            self.0.push((format!("{at}/schema"), "must be an object".into()));
        }
        if form.ttl_ms.is_some_and(|ttl| ttl < 1) {
            self.0.push((format!("{at}/ttl_ms"), "must be at least 1".into()));
        }
    }

    fn done(self) -> Result<(), Faults> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

impl MissionForm {
    pub fn check(&self) -> Result<(), Faults> {
        let mut look = Look(Vec::new());
        look.text("/name", &self.name, NAME_CHARS_MAX);
        look.text("/goal", &self.goal, TEXT_CHARS_MAX);
        look.maybe("/description", self.description.as_deref());
        look.maybe("/scope", self.scope.as_deref());
        look.criteria(&self.success_criteria);
        look.assets("inputs", &self.inputs);
        look.assets("outputs", &self.outputs);
        if self.outputs.is_empty() {
            look.0.push(("/outputs".into(), "a mission promises at least one output".into()));
        }
        look.done()
    }

    pub(crate) fn row(&self, session: Uuid, terms: &Terms, author: &str, at: DateTime<Utc>) -> mission::Model {
        mission::Model {
            id: Uuid::now_v7(),
            session_id: session,
            agent_id: terms.agent_id.map(AgentId::uuid),
            author: author.to_owned(),
            gates: json!(terms.gates),
            gate_timeout_ms: terms.gate_timeout_ms,
            on_hop_failure: terms.on_hop_failure.token().into(),
            hop_attempts_max: terms.hop_attempts_max.unwrap_or(HOP_ATTEMPTS),
            detached: terms.detached,
            reset_of: None,
            traceparent: None,
            created_at: at,
            status: "AWAITING_APPROVAL".into(),
            epoch: 0,
            version: 0,
            revision: 1,
            name: self.name.clone(),
            description: self.description.clone(),
            goal: self.goal.clone(),
            success_criteria: json!(self.success_criteria),
            scope: self.scope.clone(),
            metadata: self.metadata.clone(),
            current_hop_id: None,
            hops: 0,
            awaits: "person".into(),
            asked: 0,
            asked_turn_id: None,
            question: None,
            feedback: None,
            attention: None,
            gate_due_at: None,
            failure: None,
            reset_to: None,
            updated_at: at,
            ended_at: None,
        }
    }
}

impl Terms {
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = Vec::new();
        if self.gate_timeout_ms.is_some_and(|ms| ms < 1) {
            faults.push(("/gate_timeout_ms".into(), "must be at least 1".into()));
        }
        if self.gate_timeout_ms.is_none() {
            let timed = self.gates.named().into_iter().filter(|(_, policy)| *policy == GatePolicy::Timed);
            let timed: Vec<&str> = timed.map(|(name, _)| name).collect();
            if !timed.is_empty() {
                let why = format!(
                    "is missing: gate {} is timed, say after how long people are reminded of it, or make it manual",
                    timed.join(", ")
                );
                faults.push(("/gate_timeout_ms".into(), why));
            }
        }
        if self.hop_attempts_max.is_some_and(|n| !(1..=ATTEMPTS_MAX).contains(&n)) {
            faults.push(("/hop_attempts_max".into(), format!("must be 1 to {ATTEMPTS_MAX}")));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

impl MissionEdit {
    pub fn check(&self) -> Result<(), Faults> {
        let mut look = Look(Vec::new());
        self.name.iter().for_each(|text| look.text("/name", text, NAME_CHARS_MAX));
        self.goal.iter().for_each(|text| look.text("/goal", text, TEXT_CHARS_MAX));
        look.maybe("/description", self.description.as_deref());
        self.success_criteria.iter().for_each(|criteria| look.criteria(criteria));
        self.inputs.iter().for_each(|assets| look.assets("inputs", assets));
        self.outputs.iter().for_each(|assets| look.assets("outputs", assets));
        if self.outputs.as_ref().is_some_and(Vec::is_empty) {
            look.0.push(("/outputs".into(), "a mission promises at least one output".into()));
        }
        look.done()
    }

    pub(crate) fn apply(&self, row: &mut mission::Model) {
        put(&mut row.name, &self.name);
        put(&mut row.goal, &self.goal);
        put_some(&mut row.description, &self.description);
        put_some(&mut row.scope, &self.scope);
        put_some(&mut row.metadata, &self.metadata);
        if let Some(criteria) = &self.success_criteria {
            row.success_criteria = json!(criteria);
        }
    }
}

impl From<MissionForm> for MissionEdit {
    fn from(form: MissionForm) -> MissionEdit {
        MissionEdit {
            name: Some(form.name),
            goal: Some(form.goal),
            description: form.description,
            success_criteria: Some(form.success_criteria),
            inputs: Some(form.inputs),
            outputs: Some(form.outputs),
            scope: form.scope,
            metadata: form.metadata,
        }
    }
}

impl HopForm {
    /// `whole`: a plan that is there for the first time must say everything that it needs.
    pub fn check(&self, whole: bool) -> Result<(), Faults> {
        let mut look = Look(Vec::new());
        match &self.name {
            Some(name) => look.text("/name", name, NAME_CHARS_MAX),
            None if whole => look.0.push(("/name".into(), "is missing".into())),
            None => {}
        }
        for (at, text) in [("/description", &self.description), ("/goal", &self.goal), ("/rationale", &self.rationale)]
        {
            look.maybe(at, text.as_deref());
        }
        self.success_criteria.iter().for_each(|criteria| look.criteria(criteria));
        match &self.output {
            Some(OutputForm { asset_id: None, asset: Some(asset) }) => look.asset("/output/asset", asset),
            Some(OutputForm { asset_id: Some(_), asset: None }) => {}
            Some(_) => look.0.push(("/output".into(), "give either asset_id or asset".into())),
            None if whole => look.0.push(("/output".into(), "is missing: give asset_id or asset".into())),
            None => {}
        }
        look.done()
    }

    pub(crate) fn apply(&self, row: &mut hop::Model) {
        put(&mut row.name, &self.name);
        put_some(&mut row.description, &self.description);
        put_some(&mut row.goal, &self.goal);
        put_some(&mut row.rationale, &self.rationale);
        if let Some(criteria) = &self.success_criteria {
            row.success_criteria = json!(criteria);
        }
        if let Some(alternatives) = &self.alternatives {
            row.alternatives = Some(json!(alternatives));
        }
        if let Some(inputs) = &self.inputs {
            row.inputs = json!(inputs);
        }
        put(&mut row.is_final, &self.is_final);
        if let Some(executor) = self.executor {
            row.executor = executor.token().into();
        }
    }
}

impl StepForm {
    pub fn check_all(steps: &[StepForm], whole: bool) -> Result<(), Faults> {
        let mut look = Look(Vec::new());
        if steps.is_empty() || steps.len() > STEPS_MAX {
            look.0.push(("/steps".into(), format!("must be 1 to {STEPS_MAX} steps")));
        }
        for (i, step) in steps.iter().enumerate() {
            if whole && step.tool_id.is_none() {
                look.0.push((format!("/steps/{i}/tool_id"), "is missing".into()));
            }
            step.name.iter().for_each(|name| look.text(&format!("/steps/{i}/name"), name, NAME_CHARS_MAX));
            look.maybe(&format!("/steps/{i}/description"), step.description.as_deref());
            let empty = |given: &Value| given.is_null() || given.as_object().is_some_and(Map::is_empty);
            if step.resource_configs.as_ref().is_some_and(|given| !empty(given)) {
                let why = "tools take what they need as parameters: map it as a literal in parameter_mapping";
                look.0.push((format!("/steps/{i}/resource_configs"), why.into()));
            }
            if step.attempts_max.is_some_and(|n| !(1..=ATTEMPTS_MAX).contains(&n)) {
                look.0.push((format!("/steps/{i}/attempts_max"), format!("must be 1 to {ATTEMPTS_MAX}")));
            }
        }
        look.done()
    }

    pub(crate) fn row(&self, hop: &hop::Model, sequence: i64, at: DateTime<Utc>) -> tool_step::Model {
        let mapping = |given: &Option<Map<String, Value>>| Value::Object(given.clone().unwrap_or_default());
        tool_step::Model {
            id: Uuid::now_v7(),
            session_id: hop.session_id,
            mission_id: hop.mission_id,
            hop_id: hop.id,
            sequence,
            attempts_max: self.attempts_max.unwrap_or(STEP_ATTEMPTS),
            traceparent: hop.traceparent.clone(),
            created_at: at,
            status: "READY_TO_EXECUTE".into(),
            epoch: 0,
            version: 0,
            name: self.name.clone().or(self.tool_id.clone()).unwrap_or_default(),
            description: self.description.clone(),
            tool: self.tool_id.clone(),
            parameter_mapping: mapping(&self.parameter_mapping),
            result_mapping: mapping(&self.result_mapping),
            resource_configs: self.resource_configs.clone(),
            attempts: 0,
            call_id: None,
            next_at: None,
            validation_errors: None,
            result: None,
            error: None,
            started_at: None,
            updated_at: at,
            ended_at: None,
        }
    }

    pub(crate) fn apply(&self, row: &mut tool_step::Model) {
        put(&mut row.name, &self.name);
        put_some(&mut row.description, &self.description);
        put_some(&mut row.tool, &self.tool_id);
        put_some(&mut row.resource_configs, &self.resource_configs);
        put(&mut row.attempts_max, &self.attempts_max);
        if let Some(mapping) = &self.parameter_mapping {
            row.parameter_mapping = Value::Object(mapping.clone());
        }
        if let Some(mapping) = &self.result_mapping {
            row.result_mapping = Value::Object(mapping.clone());
        }
    }
}

/// Where an asset belongs.
pub(crate) struct Place<'a> {
    pub(crate) session: Uuid,
    pub(crate) mission: Uuid,
    pub(crate) hop: Option<Uuid>,
    pub(crate) role: &'static str,
    pub(crate) author: &'a str,
}

/// Puts the ids of scratch values in place of the names by which a proposal's mappings call them.
pub fn name_scratch(steps: &mut [StepForm], scratch: &[asset::Model]) {
    let mappings = steps.iter_mut().flat_map(|step| [&mut step.parameter_mapping, &mut step.result_mapping]);
    for entry in mappings.flatten().flat_map(|mapping| mapping.values_mut()) {
        let keys = ["state_asset_id", "asset_id", "state_asset"];
        let Some(named) = keys.into_iter().find(|key| entry.get(*key).is_some()) else { continue };
        if let Some(row) = scratch.iter().find(|row| entry[named].as_str() == Some(&row.name)) {
            entry[named] = json!(AssetId::from(row.id));
        }
    }
}

impl AssetForm {
    /// Everything that is wrong with a list of them.
    pub fn check_all(list: &str, forms: &[AssetForm]) -> Result<(), Faults> {
        let mut look = Look(Vec::new());
        look.assets(list, forms);
        look.done()
    }

    pub(crate) fn row(&self, place: &Place<'_>, at: DateTime<Utc>) -> asset::Model {
        let mut row = asset::Model {
            id: Uuid::now_v7(),
            session_id: place.session,
            mission_id: place.mission,
            hop_id: place.hop,
            scope: "mission".into(),
            author: place.author.to_owned(),
            traceparent: None,
            created_at: at,
            status: "AWAITING_APPROVAL".into(),
            epoch: 0,
            version: 0,
            revision: 1,
            role: place.role.to_owned(),
            name: String::new(),
            description: None,
            kind: String::new(),
            subtype: None,
            is_array: false,
            schema: json!({}),
            metadata: None,
            content_version: 0,
            promoted_version: None,
            step_id: None,
            summary: None,
            error: None,
            ttl_ms: None,
            expires_at: None,
            updated_at: at,
            ended_at: None,
        };
        self.apply(&mut row);
        row
    }

    pub(crate) fn apply(&self, row: &mut asset::Model) {
        row.name.clone_from(&self.name);
        row.description.clone_from(&self.description);
        row.kind.clone_from(&self.kind);
        row.subtype.clone_from(&self.subtype);
        row.is_array = self.is_array;
        row.schema = self.schema.clone().unwrap_or_else(|| json!({}));
        row.ttl_ms = self.ttl_ms;
        let about = json!({
            "specification": self.specification, "example": self.example, "external_system": self.external_system,
        });
        let known = about.as_object().is_some_and(|about| about.values().any(|value| !value.is_null()));
        row.metadata = known.then_some(about);
    }
}

fn put<T: Clone>(to: &mut T, given: &Option<T>) {
    if let Some(given) = given {
        to.clone_from(given);
    }
}

fn put_some<T: Clone>(to: &mut Option<T>, given: &Option<T>) {
    if given.is_some() {
        to.clone_from(given);
    }
}
