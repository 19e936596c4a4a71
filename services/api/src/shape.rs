//! What a JSON object looks like, as data: checked when it comes in, shown in the OpenAPI document.

use instar_core::budget::{Kind as Limit, Limits, ON_BUDGET};
use instar_core::machine::Table;
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) doc: &'static str,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Not blank, so many bytes at the most.
    Text(usize),
    /// May be empty.
    Prose(usize),
    Choice(&'static [&'static str]),
    /// A state of this machine.
    State(&'static Table),
    Bool,
    Integer,
    Time,
    /// An id with this prefix.
    Id(&'static str),
    Object,
    /// An object of limits, and `on_budget`.
    Budget,
    /// An object of texts that are repeated nowhere.
    Secrets,
    /// A list of texts, so many at the most.
    Texts(usize),
    Any,
    Nested(&'static Shape),
    List(&'static Shape),
}

/// A field that must be there.
pub(crate) const fn must(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, kind, required: true, doc }
}

/// A field that may be left out or null.
pub(crate) const fn may(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field { name, kind, required: false, doc }
}

pub(crate) type Wrong = Vec<(String, String)>;

impl Shape {
    /// Every problem at once, each with a JSON Pointer.
    pub(crate) fn check(&self, body: &Map<String, Value>) -> Result<(), Wrong> {
        let mut wrong = Vec::new();
        self.look(body, "", &mut wrong);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The same of an object that may have only some of its fields, and need have none.
    pub(crate) fn some(&self, given: &Map<String, Value>, known: &[&str], at: &str) -> Wrong {
        let mut wrong = Vec::new();
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let shown: String = name.chars().take(80).collect();
            let place = format!("{at}/{}", pointer(&shown));
            match self.fields.iter().find(|field| field.name == name && known.contains(&field.name)) {
                Some(field) => field.kind.look(value, place, &mut wrong),
                None => wrong.push((place, format!("there is no such field; known are: {}", known.join(", ")))),
            }
        }
        wrong
    }

    fn look(&self, body: &Map<String, Value>, at: &str, wrong: &mut Wrong) {
        for name in body.keys().filter(|name| !self.fields.iter().any(|field| field.name == name.as_str())) {
            let known = self.fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let shown: String = name.chars().take(80).collect();
            wrong.push((format!("{at}/{}", pointer(&shown)), format!("there is no such field; known are: {known}")));
        }
        for field in self.fields {
            let place = format!("{at}/{}", field.name);
            match body.get(field.name).filter(|value| !value.is_null()) {
                None if field.required => wrong.push((place, "is needed".into())),
                None => {}
                Some(value) => field.kind.look(value, place, wrong),
            }
        }
    }

    pub(crate) fn schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
        let required: Vec<&str> = self.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
        json!({"type": "object", "properties": properties, "required": required})
    }

    /// Shapes that this one refers to.
    pub(crate) fn inner(&self) -> impl Iterator<Item = &'static Shape> {
        self.fields.iter().filter_map(|field| match field.kind {
            Kind::Nested(shape) | Kind::List(shape) => Some(shape),
            _ => None,
        })
    }
}

impl Field {
    fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if !self.required {
            schema = match schema.get("type").and_then(Value::as_str).map(str::to_owned) {
                Some(kind) if schema.get("enum").is_none() => {
                    schema["type"] = json!([kind, "null"]);
                    schema
                }
                _ => json!({"anyOf": [schema, {"type": "null"}]}),
            };
        }
        schema["description"] = json!(self.doc);
        schema
    }
}

impl Kind {
    fn look(&self, value: &Value, place: String, wrong: &mut Wrong) {
        let said = match (self, value) {
            (Kind::Text(_), Value::String(text)) if text.trim().is_empty() => Some("must not be empty".into()),
            (Kind::Text(max) | Kind::Prose(max), Value::String(text)) => {
                (text.len() > *max).then(|| format!("is {} bytes long; the limit is {max}", text.len()))
            }
            (Kind::Text(_) | Kind::Prose(_), _) => Some("must be a text".into()),
            (Kind::Choice(words), Value::String(text)) if words.contains(&text.as_str()) => None,
            (Kind::Choice(words), _) => Some(format!("must be one of: {}", words.join(", "))),
            (Kind::State(table), Value::String(text)) if table.state(text).is_some() => None,
            (Kind::State(table), _) => Some(format!("must be one of: {}", states(table).join(", "))),
            (Kind::Bool, Value::Bool(_)) => None,
            (Kind::Bool, _) => Some("must be true or false".into()),
            (Kind::Integer, Value::Number(n)) if n.is_i64() || n.is_u64() => None,
            (Kind::Integer, _) => Some("must be a whole number".into()),
            (Kind::Time, Value::String(text)) if chrono::DateTime::parse_from_rfc3339(text).is_ok() => None,
            (Kind::Time, _) => Some("must be a time in RFC 3339".into()),
            (Kind::Id(prefix), Value::String(text)) if text.starts_with(&format!("{prefix}_")) => None,
            (Kind::Id(prefix), _) => Some(format!("must be an id that begins with {prefix}_")),
            (Kind::Object, Value::Object(_)) => None,
            (Kind::Object, _) => Some("must be an object".into()),
            (Kind::Budget, Value::Object(limits)) => {
                let found = Limits::parse(limits).err().unwrap_or_default();
                wrong.extend(found.into_iter().map(|(name, said)| (format!("{place}/{}", pointer(&name)), said)));
                None
            }
            (Kind::Budget, _) => Some("must be an object of limits".into()),
            (Kind::Secrets, Value::Object(fields)) if fields.values().all(Value::is_string) => None,
            (Kind::Secrets, _) => Some("must be an object of texts".into()),
            (Kind::Texts(max), Value::Array(items)) if items.len() > *max => {
                Some(format!("has {} entries; the limit is {max}", items.len()))
            }
            (Kind::Texts(_), Value::Array(items)) => {
                for (i, _) in items.iter().enumerate().filter(|(_, item)| !item.is_string()) {
                    wrong.push((format!("{place}/{i}"), "must be a text".into()));
                }
                None
            }
            (Kind::Texts(_), _) => Some("must be a list of texts".into()),
            (Kind::Any, _) => None,
            (Kind::Nested(shape), Value::Object(inner)) => {
                shape.look(inner, &place, wrong);
                None
            }
            (Kind::Nested(_), _) => Some("must be an object".into()),
            (Kind::List(shape), Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    Kind::Nested(shape).look(item, format!("{place}/{i}"), wrong);
                }
                None
            }
            (Kind::List(_), _) => Some("must be a list".into()),
        };
        wrong.extend(said.map(|said| (place, said)));
    }

    fn schema(&self) -> Value {
        match self {
            Kind::Text(max) => json!({"type": "string", "minLength": 1, "maxLength": max}),
            Kind::Prose(max) => json!({"type": "string", "maxLength": max}),
            Kind::Choice(words) => json!({"type": "string", "enum": words}),
            Kind::State(table) => json!({"type": "string", "enum": states(table)}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Integer => json!({"type": "integer"}),
            Kind::Time => json!({"type": "string", "format": "date-time"}),
            Kind::Id(prefix) => json!({"type": "string", "pattern": format!("^{prefix}_[0-9a-f]{{32}}$")}),
            Kind::Object => json!({"type": "object"}),
            Kind::Budget => budget_schema(),
            Kind::Secrets => {
                let secret = json!({"type": "string", "format": "password", "writeOnly": true});
                json!({"type": "object", "additionalProperties": secret})
            }
            Kind::Texts(max) => json!({"type": "array", "items": {"type": "string"}, "maxItems": max}),
            Kind::Any => json!({}),
            Kind::Nested(shape) => json!({"$ref": format!("#/components/schemas/{}", shape.name)}),
            Kind::List(shape) => {
                json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{}", shape.name)}})
            }
        }
    }
}

fn budget_schema() -> Value {
    let limit = |kind: Limit| match kind {
        Limit::Cost => json!({"type": ["string", "integer", "null"]}),
        _ => json!({"type": ["integer", "null"], "minimum": 1}),
    };
    let mut fields: Map<String, Value> =
        Limit::ALL.into_iter().map(|kind| (kind.field().to_owned(), limit(kind))).collect();
    fields.insert(ON_BUDGET.into(), json!({"enum": ["stop", "terminate", null]}));
    json!({"type": "object", "properties": fields, "additionalProperties": false})
}

pub(crate) fn states(table: &Table) -> Vec<&'static str> {
    table.states.iter().map(|state| state.token).collect()
}

/// A token of a JSON Pointer.
fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
