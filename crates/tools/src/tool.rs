//! A tool that can be called: its spec with the schema compiled once.

use crate::argument::{self, Invalid};
use crate::builtin::Builtin;
use crate::native::Native;
use crate::secret;
use crate::spec::{Kind, Problem, Spec, digest};
use instar_core::mapping::Face;
use jsonschema::Validator;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Who wrote the spec, which decides how far it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator's configuration: its URLs may point inside, its commands may run.
    Operator,
    /// A request: its URLs are guarded like a model's, and it may not name a command, since that
    /// would hand the host to whoever holds an API key.
    Api,
    /// An MCP server of the operator's configuration: it says what the tool is called and takes, and no more.
    Server,
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
    compiled: Arc<Compiled>,
    unavailable: Option<String>,
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
        if let (Kind::Native, Some(native)) = (spec.kind, Native::named(&spec.name)) {
            native.complete(&mut spec);
        }
        let mut problems = spec.problems();
        if origin == Origin::Api && matches!(spec.kind, Kind::Command | Kind::Native) {
            let kind = if spec.kind == Kind::Command { "command" } else { "native" };
            let message = format!("{kind} tools come from the operator's configuration only");
            problems.push(Problem { field: "kind".to_owned(), message });
        }
        if (origin == Origin::Server) != (spec.kind == Kind::Mcp) {
            let message = "mcp tools come from the servers of [[mcp_servers]], and nothing else does".to_owned();
            problems.push(Problem { field: "kind".to_owned(), message });
        }
        let refers = |(_, value): (String, &str)| secret::references(value).is_ok_and(|found| !found.is_empty());
        if origin == Origin::Api && (spec.referring().any(refers) || !spec.secret_arguments.is_empty()) {
            // Else whoever may register a tool could have every secret sent to a server of theirs.
            let message = "secrets are for tools of the operator's configuration only".to_owned();
            problems.push(Problem { field: "secret".to_owned(), message });
        }
        let compiled = compile(&spec);
        match compiled {
            Ok(compiled) if problems.is_empty() => {
                let (hash, compiled) = (spec.definition_hash(), Arc::new(compiled));
                Ok(Self { hash, origin, compiled, spec, unavailable: None })
            }
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
        digest(&self.hash, arguments)
    }

    /// Whether a call with these arguments needs the account of the agent that makes it.
    pub fn needs_account(&self, arguments: &Value) -> bool {
        let refers = |(_, value): (String, &str)| {
            secret::references(value).is_ok_and(|found| found.iter().any(secret::Reference::is_accounts))
        };
        let given =
            |name: &String| arguments.get(name).and_then(Value::as_str).is_some_and(secret::is_account_reference);
        self.spec.secret_arguments.iter().any(given) || self.spec.referring().any(refers)
    }

    pub fn offer(&self) -> Offer {
        Offer {
            kind: "function",
            name: self.spec.name.clone(),
            description: self.spec.description.clone(),
            parameters: self.compiled.schema.clone(),
        }
    }

    /// What it takes and gives, for the mappings of steps.
    pub fn face(&self) -> Face {
        Face::of(&self.compiled.schema, &self.spec.results)
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

    /// Why it cannot be called now, although there is such a tool.
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// The same tool, which can be called or not.
    pub fn standing(&self, unavailable: Option<String>) -> Self {
        let (spec, hash, compiled) = (self.spec.clone(), self.hash.clone(), self.compiled.clone());
        Self { spec, origin: self.origin, hash, compiled, unavailable }
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
