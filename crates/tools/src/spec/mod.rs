//! What a tool is: the operator's or the API's words, with every default filled in.

mod check;

use crate::canonical;
use instar_core::decide::{Approval, Effect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub use check::Problem;
pub use instar_core::context::SnapshotKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Builtin,
    /// Acts on the store; run by the tool-runner itself.
    Native,
    Http,
    Command,
    /// Of an MCP server of the operator's configuration; nobody writes such a spec by hand.
    Mcp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

/// What a command tool sees of the caller's workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    #[default]
    None,
    Read,
    Write,
}

/// What a tool is at its MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    pub server: String,
    /// As the server calls it; the tool's own name can be another.
    pub tool: String,
    /// Of the definition as the server gave it: a server that gives another one is not asked.
    pub hash: String,
}

/// Fields at their default stay out of the text, so that a field added later does not change the
/// hash of every tool there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub kind: Kind,
    /// JSON Schema of the arguments; null takes the built-in's own, or no arguments at all.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub parameters: Value,
    /// JSON Schema of the answer, an object; its properties are the results that a mission's step can keep. Null:
    /// the answer has one result, the whole of it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub results: Value,
    #[serde(default = "yes")]
    pub side_effects: bool,
    /// The same idempotency key has one effect, however often it is sent.
    #[serde(default)]
    pub idempotent: bool,
    #[serde(default)]
    pub requires_approval: Approval,
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    #[serde(default = "max_output_bytes")]
    pub max_output_bytes: usize,
    /// Absent: whether it has no side effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_safe: Option<bool>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_key: Option<SnapshotKey>,

    /// http: the arguments are the JSON body, for GET the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Here, in the URL's path or query, in `body` and in `environment` a value may contain references such
    /// as `secret://account/token`, which are looked up when the call is made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Fields that are added to the body; the model neither sees nor sets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub body: BTreeMap<String, String>,
    /// Arguments, texts by their names, that the model may give as `secret://account/FIELD`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_arguments: Vec<String>,

    /// command: the argument vector. No shell reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Names of variables that the command gets from the runner's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Further variables, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Whether the command may open internet sockets.
    #[serde(default, skip_serializing_if = "no")]
    pub network: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub workspace: Workspace,

    /// mcp: where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Remote>,
}

const fn yes() -> bool {
    true
}
const fn no(value: &bool) -> bool {
    !*value
}
const fn timeout_ms() -> u64 {
    120_000
}
const fn max_output_bytes() -> usize {
    100_000
}
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Spec {
    /// A spec with every default, to be filled by struct update.
    pub fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            kind,
            parameters: Value::Null,
            results: Value::Null,
            side_effects: true,
            idempotent: false,
            requires_approval: Approval::Inherit,
            timeout_ms: timeout_ms(),
            max_output_bytes: max_output_bytes(),
            parallel_safe: None,
            enabled: true,
            snapshot_key: None,
            method: None,
            url: None,
            headers: BTreeMap::new(),
            body: BTreeMap::new(),
            secret_arguments: Vec::new(),
            command: Vec::new(),
            env: Vec::new(),
            environment: BTreeMap::new(),
            network: false,
            workspace: Workspace::None,
            mcp: None,
        }
    }

    /// Values that may contain references, each with its place.
    pub(crate) fn referring(&self) -> impl Iterator<Item = (String, &str)> {
        fn of<'a>(field: &'a str, map: &'a BTreeMap<String, String>) -> impl Iterator<Item = (String, &'a str)> {
            map.iter().map(move |(name, value)| (format!("{field}.{name}"), value.as_str()))
        }
        let url = self.url.iter().map(|url| ("url".to_owned(), url.as_str()));
        let maps = [("headers", &self.headers), ("body", &self.body), ("environment", &self.environment)];
        url.chain(maps.into_iter().flat_map(|(field, map)| of(field, map)))
    }

    pub const fn effect(&self) -> Effect {
        Effect::of_spec(self.side_effects, self.idempotent)
    }

    pub fn parallel_safe(&self) -> bool {
        self.parallel_safe.unwrap_or(!self.side_effects)
    }

    /// Tools named `get_…` are snapshots unless their spec says otherwise.
    pub fn snapshot_key(&self) -> Option<SnapshotKey> {
        let last = self.name.rsplit('.').next().unwrap_or_default();
        let key = self.snapshot_key.or_else(|| last.starts_with("get_").then_some(SnapshotKey::Name));
        key.filter(|key| *key != SnapshotKey::None)
    }

    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Every problem at once; none means that the tool can be registered.
    pub fn problems(&self) -> Vec<Problem> {
        check::problems(self)
    }

    /// Hash of what the tool does. Switching a tool off and on leaves it as it was.
    pub fn definition_hash(&self) -> String {
        let mut definition = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = definition.as_object_mut() {
            fields.remove("enabled");
        }
        canonical::sha256("instar.tool.v1", &[canonical::text(&definition).as_bytes()])
    }
}

/// What an approval is bound to: the definition of this hash with these arguments and no other.
pub fn digest(definition_hash: &str, arguments: &Value) -> String {
    canonical::sha256("instar.call.v1", &[definition_hash.as_bytes(), canonical::text(arguments).as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn charge() -> Spec {
        serde_json::from_value(json!({
            "name": "charge", "kind": "http", "method": "POST", "url": "http://billing.internal/charge",
            "parameters": {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
        }))
        .unwrap()
    }

    #[test]
    fn what_the_configuration_leaves_out_has_the_documented_default() {
        let spec = charge();
        assert!(spec.problems().is_empty(), "{:?}", spec.problems());
        assert_eq!(spec.effect(), Effect::AtMostOnce);
        assert_eq!((spec.timeout_ms, spec.max_output_bytes), (120_000, 100_000));
        assert_eq!(spec.requires_approval, Approval::Inherit);
        assert!(spec.enabled && !spec.parallel_safe() && spec.snapshot_key().is_none());
        assert!(Spec { side_effects: false, ..charge() }.parallel_safe());
        assert_eq!(Spec { idempotent: true, ..charge() }.effect(), Effect::Idempotent);
        let get = Spec { name: "bank.get_rate".into(), ..charge() };
        assert_eq!(get.snapshot_key(), Some(SnapshotKey::Name));
        assert_eq!(Spec { snapshot_key: Some(SnapshotKey::None), ..get }.snapshot_key(), None);
        assert_eq!(serde_json::to_value(SnapshotKey::NameAndArguments).unwrap(), "name+arguments");
    }

    #[test]
    fn a_spec_reads_back_what_it_writes_and_refuses_a_key_it_does_not_know() {
        let text = serde_json::to_string(&charge()).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), charge());
        let odd = json!({"name": "x", "kind": "http", "url": "http://h/", "timeout": 5});
        assert!(serde_json::from_value::<Spec>(odd).unwrap_err().to_string().contains("timeout"));
    }

    #[test]
    fn the_definition_hash_is_pinned_and_follows_everything_but_the_switch() {
        let hash = charge().definition_hash();
        assert_eq!(hash, "6785a91cb353e2684681d22f973add847643eadd20f54fa5962104eb50d8b554");
        assert_eq!(Spec { enabled: false, ..charge() }.definition_hash(), hash);
        let others = [
            Spec { description: "x".into(), ..charge() },
            Spec { url: Some("http://billing.internal/other".into()), ..charge() },
            Spec { timeout_ms: 1, ..charge() },
            Spec { idempotent: true, ..charge() },
            Spec { requires_approval: Approval::Always, ..charge() },
            Spec { parameters: json!({"type": "object"}), ..charge() },
        ];
        for other in others {
            assert_ne!(other.definition_hash(), hash, "{other:?}");
        }
    }

    #[test]
    fn an_approval_is_bound_to_definition_and_arguments_but_not_to_their_spelling() {
        let spec = charge();
        let bound = digest(&spec.definition_hash(), &json!({"cents": 5, "to": "a"}));
        let spelled: Value = serde_json::from_str(r#"{"to":"\u0061","cents":5.0}"#).unwrap();
        assert_eq!(digest(&spec.definition_hash(), &spelled), bound);
        assert_ne!(digest(&spec.definition_hash(), &json!({"cents": 6, "to": "a"})), bound);
        let other = Spec { description: "x".into(), ..charge() }.definition_hash();
        assert_ne!(digest(&other, &json!({"cents": 5, "to": "a"})), bound);
    }
}
