//! The type of an asset's value: whether a value fits it, and whether one type may flow into another.
//!
//! Tools declare JSON Schema, assets declare this; [`Schema::of_json_schema`] brings the first into the
//! words of the second. What cannot be known before there is a value is let through here and checked when
//! the value is there.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// How deep fields may be nested.
pub const DEPTH_MAX: usize = 8;
/// Fields of a schema altogether.
pub const FIELDS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
const MISFITS_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    String,
    Number,
    Boolean,
    /// A string, a number or a boolean.
    Primitive,
    Object,
    /// Bytes of any kind; a text where they are UTF-8.
    File,
    DatabaseEntity,
    Markdown,
    Config,
    /// Whatever comes.
    Any,
    /// A word of the mission's own domain, such as `newsletter`: a string or an object.
    Domain(String),
}

const NAMED: [(Type, &str); 10] = [
    (Type::String, "string"),
    (Type::Number, "number"),
    (Type::Boolean, "boolean"),
    (Type::Primitive, "primitive"),
    (Type::Object, "object"),
    (Type::File, "file"),
    (Type::DatabaseEntity, "database_entity"),
    (Type::Markdown, "markdown"),
    (Type::Config, "config"),
    (Type::Any, "any"),
];

impl Type {
    pub fn token(&self) -> &str {
        match self {
            Type::Domain(name) => name,
            other => NAMED.iter().find(|(kind, _)| kind == other).map_or("any", |(_, token)| token),
        }
    }

    /// `None`: neither a type of ours nor a word that could name one of a domain.
    pub fn parse(token: &str) -> Option<Type> {
        let named = NAMED.iter().find(|(_, name)| *name == token).map(|(kind, _)| kind.clone());
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let word = token.len() <= NAME_BYTES_MAX
            && token.starts_with(|c: char| c.is_ascii_lowercase())
            && token.bytes().all(letters);
        named.or_else(|| word.then(|| Type::Domain(token.to_owned())))
    }

    fn is_text(&self) -> bool {
        matches!(self, Type::String | Type::Markdown | Type::File)
    }

    fn is_object(&self) -> bool {
        matches!(self, Type::Object | Type::Config | Type::DatabaseEntity)
    }
}

impl Serialize for Type {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.token())
    }
}

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Type, D::Error> {
        let token = String::deserialize(d)?;
        Type::parse(&token).ok_or_else(|| {
            let known: Vec<&str> = NAMED.iter().map(|(_, name)| *name).collect();
            serde::de::Error::custom(format!(
                "{token:?} is no type: use {} or a word of your own in lower-case letters, digits and _",
                known.join(", ")
            ))
        })
    }
}

fn no(flag: &bool) -> bool {
    !flag
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    #[serde(rename = "type")]
    pub kind: Type,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A list of such values.
    #[serde(default, skip_serializing_if = "no")]
    pub is_array: bool,
    /// As a field: it may be missing or null.
    #[serde(default, skip_serializing_if = "no")]
    pub optional: bool,
    /// Of an object; further ones are allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Schema>,
}

/// A value, or a part of it, that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct Misfit {
    /// JSON pointer; `/` for the whole.
    pub place: String,
    pub expected: String,
    pub found: &'static str,
}

impl Schema {
    pub fn new(kind: Type) -> Schema {
        Schema { kind, description: None, is_array: false, optional: false, fields: BTreeMap::new() }
    }

    pub fn array(mut self) -> Schema {
        self.is_array = true;
        self
    }

    pub fn field(mut self, name: &str, schema: Schema) -> Schema {
        self.fields.insert(name.to_owned(), schema);
        self
    }

    /// Reads what a proposal says; the error is a sentence for whoever wrote it.
    pub fn parse(value: &Value) -> Result<Schema, String> {
        let schema: Schema = serde_json::from_value(value.clone()).map_err(|error| format!("the schema: {error}"))?;
        let mut left = FIELDS_MAX;
        schema.sound("", 1, &mut left).map(|()| schema)
    }

    /// Of an asset whose row keeps type and number beside the rest. `declared` is a schema of ours, or a JSON
    /// Schema whose properties are the fields.
    pub fn of_asset(kind: &str, is_array: bool, declared: &Value) -> Schema {
        let fields = Schema::parse(declared).unwrap_or_else(|_| Schema::of_json_schema(declared)).fields;
        let kind = Type::parse(kind).unwrap_or(Type::Any);
        let structured = kind.is_object() || matches!(kind, Type::Domain(_));
        Schema { is_array, fields: if structured { fields } else { BTreeMap::new() }, ..Schema::new(kind) }
    }

    fn sound(&self, place: &str, depth: usize, left: &mut usize) -> Result<(), String> {
        let here = if place.is_empty() { "the schema" } else { place };
        if depth > DEPTH_MAX {
            return Err(format!("{here} is nested deeper than {DEPTH_MAX} fields"));
        }
        if !self.fields.is_empty() && !self.kind.is_object() && !matches!(self.kind, Type::Domain(_)) {
            return Err(format!("{here} is {}, which has no fields: make it an object or drop them", self.words()));
        }
        for (name, field) in &self.fields {
            *left = left.checked_sub(1).ok_or(format!("the schema has more than {FIELDS_MAX} fields"))?;
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(format!("a field of {here} needs a name of 1 to {NAME_BYTES_MAX} bytes"));
            }
            field.sound(&format!("{place}/{name}"), depth + 1, left)?;
        }
        Ok(())
    }

    /// Whether content may be shown to those who only look.
    pub fn is_secret(&self) -> bool {
        self.kind == Type::Domain("credential".to_owned())
    }

    /// `a list of string`, `newsletter`.
    pub fn words(&self) -> String {
        if self.is_array { format!("a list of {}", self.kind.token()) } else { self.kind.token().to_owned() }
    }

    /// The JSON Schema of a tool's parameter or result in our words. `x-asset-type` names a type of a domain.
    pub fn of_json_schema(declared: &Value) -> Schema {
        Schema::declared(declared, DEPTH_MAX)
    }

    fn declared(declared: &Value, depth: usize) -> Schema {
        let named = declared["x-asset-type"].as_str().and_then(Type::parse);
        let kind = declared["type"].as_str().unwrap_or_default();
        if kind == "array" {
            let items = Schema::declared(&declared["items"], depth.saturating_sub(1));
            // A list of lists has no word here.
            let items = if items.is_array { Schema::new(Type::Any) } else { items };
            return Schema { kind: named.unwrap_or(items.kind), is_array: true, ..items };
        }
        let mut schema = Schema::new(named.unwrap_or(match kind {
            "string" => Type::String,
            "number" | "integer" => Type::Number,
            "boolean" => Type::Boolean,
            "object" => Type::Object,
            _ => Type::Any,
        }));
        if let (Some(fields), true) = (declared["properties"].as_object(), kind == "object" && depth > 1) {
            let required: Vec<&str> =
                declared["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for (name, field) in fields.iter().take(FIELDS_MAX) {
                let optional = !required.contains(&name.as_str());
                let field = Schema { optional, ..Schema::declared(field, depth - 1) };
                schema.fields.insert(name.clone(), field);
            }
        }
        schema
    }

    /// Whether a value of this type may flow into that one. Equal types do, a string or an object becomes
    /// whatever a domain calls it, and what is kept as a text or an object may be read as one; the sentence
    /// says what does not fit.
    pub fn flows_into(&self, into: &Schema) -> Result<(), String> {
        self.flows("", into)
    }

    fn flows(&self, place: &str, into: &Schema) -> Result<(), String> {
        let takes_all = into.kind == Type::Any && (!into.is_array || self.is_array);
        if takes_all || (self.kind == Type::Any && !self.is_array) {
            return Ok(());
        }
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        if self.is_array != into.is_array || !kinds_flow(&self.kind, &into.kind) {
            return Err(format!("{} does not fit {}{at}", self.words(), into.words()));
        }
        // Nothing is known of the fields of a value that does not declare any.
        if self.fields.is_empty() {
            return Ok(());
        }
        for (name, wanted) in &into.fields {
            let place = format!("{place}/{name}");
            match self.fields.get(name) {
                Some(field) => field.flows(&place, wanted)?,
                None if wanted.optional => {}
                None => return Err(format!("there is no {place}, which must be {}", wanted.words())),
            }
        }
        Ok(())
    }

    /// Whether a value is of this type; the error has the first places where it is not.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Misfit>> {
        let mut misfits = Vec::new();
        self.look(value, &mut String::new(), &mut misfits);
        if misfits.is_empty() { Ok(()) } else { Err(misfits) }
    }

    fn look(&self, value: &Value, place: &mut String, misfits: &mut Vec<Misfit>) {
        if misfits.len() >= MISFITS_MAX {
            return;
        }
        let mut miss = |place: &str, expected: String| {
            let place = if place.is_empty() { "/".to_owned() } else { place.to_owned() };
            misfits.push(Misfit { place, expected, found: kind_of(value) });
        };
        if !self.is_array {
            match (shape_fits(&self.kind, value), value) {
                (false, _) => miss(place, self.words()),
                (true, Value::Object(given)) => self.look_at_fields(given, place, misfits),
                (true, _) if !self.fields.is_empty() => miss(place, format!("{} with fields", self.words())),
                _ => {}
            }
            return;
        }
        let Value::Array(items) = value else { return miss(place, self.words()) };
        let one = Schema { is_array: false, ..self.clone() };
        for (at, item) in items.iter().enumerate() {
            let length = place.len();
            place.push_str(&format!("/{at}"));
            one.look(item, place, misfits);
            place.truncate(length);
        }
    }

    fn look_at_fields(&self, given: &serde_json::Map<String, Value>, place: &mut String, misfits: &mut Vec<Misfit>) {
        for (name, field) in &self.fields {
            let length = place.len();
            place.push('/');
            place.push_str(name);
            match given.get(name) {
                None | Some(Value::Null) if field.optional => {}
                found => field.look(found.unwrap_or(&Value::Null), place, misfits),
            }
            place.truncate(length);
        }
    }
}

fn kinds_flow(from: &Type, into: &Type) -> bool {
    use Type::*;
    match (from, into) {
        (a, b) if a == b => true,
        (_, Any) | (Any, _) => true,
        (String | Object, Domain(_)) => true,
        // What a domain's value is, a string or an object, shows when it is read.
        (Domain(_), String | Object) => true,
        (String, other) | (other, String) if other.is_text() => true,
        (Object, other) | (other, Object) if other.is_object() => true,
        (String | Number | Boolean, Primitive) => true,
        _ => false,
    }
}

fn shape_fits(kind: &Type, value: &Value) -> bool {
    match kind {
        Type::Any => !value.is_null(),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::Primitive => value.is_string() || value.is_number() || value.is_boolean(),
        Type::Domain(_) => value.is_string() || value.is_object(),
        text if text.is_text() => value.is_string(),
        _ => value.is_object(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
