//! A tool that can be called: its spec with the schema compiled once.

use crate::argument::{self, Invalid};
use crate::builtin::Builtin;
use crate::spec::{Kind, Problem, Spec, digest};
use jsonschema::Validator;
use serde::Serialize;
use serde_json::{Value, json};

/// Who wrote the spec, which decides how far it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator's configuration: its URLs may point inside, its commands may run.
    Operator,
    /// A request: its URLs are guarded like a model's, and it may not name a command, since that
    /// would hand the host to whoever holds an API key.
    Api,
}

/// All that a provider may see of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offer {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

#[derive(Debug)]
pub struct Tool {
    spec: Spec,
    origin: Origin,
    hash: String,
    compiled: Compiled,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    schema: Value,
    validator: Validator,
}

impl Tool {
    /// The error has every problem of the spec.
    pub fn new(spec: Spec, origin: Origin) -> Result<Self, Vec<Problem>> {
        let mut spec = spec;
        if let (Kind::Builtin, Some(builtin)) = (spec.kind, Builtin::named(&spec.name)) {
            builtin.complete(&mut spec);
        }
        let mut problems = spec.problems();
        if origin == Origin::Api && spec.kind == Kind::Command {
            let message = "command tools come from the operator's configuration only".to_owned();
            problems.push(Problem { field: "kind".to_owned(), message });
        }
        let compiled = compile(&spec);
        match compiled {
            Ok(compiled) if problems.is_empty() => Ok(Self { hash: spec.definition_hash(), origin, compiled, spec }),
            _ => Err(problems),
        }
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub fn definition_hash(&self) -> &str {
        &self.hash
    }

    /// What an approval of this call is bound to.
    pub fn digest(&self, arguments: &Value) -> String {
        digest(&self.spec, arguments)
    }

    pub fn offer(&self) -> Offer {
        Offer {
            kind: "function",
            name: self.spec.name.clone(),
            description: self.spec.description.clone(),
            parameters: self.compiled.schema.clone(),
        }
    }

    /// Whether the arguments fit; the error is words that a model can act on.
    pub fn validate(&self, arguments: &Value) -> Result<(), Invalid> {
        argument::validate(&self.spec.name, &self.compiled.schema, &self.compiled.validator, arguments)
    }

    /// Reads the text that a provider sent as arguments.
    pub fn parse(&self, text: &str) -> Result<Value, Invalid> {
        let arguments = argument::parse(&self.spec.name, text)?;
        self.validate(&arguments).map(|()| arguments)
    }

    pub(crate) fn with_enabled(&self, enabled: bool) -> Result<Self, Vec<Problem>> {
        Self::new(Spec { enabled, ..self.spec.clone() }, self.origin)
    }
}

/// Compiles the schema; references to other documents are never fetched, so they are an error.
pub(crate) fn compile(spec: &Spec) -> Result<Compiled, String> {
    let schema = match &spec.parameters {
        Value::Null => match (spec.kind, Builtin::named(&spec.name)) {
            (Kind::Builtin, Some(builtin)) => builtin.parameters(),
            _ => json!({"type": "object", "properties": {}}),
        },
        Value::Object(_) => spec.parameters.clone(),
        _ => return Err("must be a JSON Schema object".to_owned()),
    };
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("must describe an object: {\"type\": \"object\", …}".to_owned());
    }
    let schema = close(schema);
    let validator = jsonschema::options().build(&schema).map_err(|error| {
        let place = error.instance_path().as_str();
        let place = if place.is_empty() { "/" } else { place };
        format!("is not a JSON Schema at {place}: {}", argument::cut(&error.to_string()))
    })?;
    Ok(Compiled { schema, validator })
}

/// A schema that lists its properties and says no more means those and no others: a name that the
/// model made up is a mistake to be told, not to be passed on. The model sees the closed schema.
fn close(mut schema: Value) -> Value {
    const OPENS: [&str; 9] = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "if",
        "dependentSchemas",
    ];
    if let Some(fields) = schema.as_object_mut()
        && fields.contains_key("properties")
        && !OPENS.iter().any(|key| fields.contains_key(*key))
    {
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    schema
}
