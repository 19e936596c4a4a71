//! The tools there are.

use crate::builtin::Builtin;
use crate::pattern::{NotAPattern, Pattern};
use crate::spec::{Problem, Spec};
use crate::tool::{Origin, Tool};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const TOOLS_MAX: usize = 10_000;
const NAMED_MAX: usize = 50;

/// Why a tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("tool {name}: {}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid { name: String, problems: Vec<Problem> },
    /// The same name with another definition could take over what was approved for the first one.
    #[error("there is a tool {name} with another definition; remove it first or choose another name")]
    Taken { name: String },
    #[error("{name} is too like {other}: a person or a provider could take one for the other; choose another name")]
    Alike { name: String, other: String },
    #[error("there are {TOOLS_MAX} tools already; remove some first")]
    Full,
}

/// A name that the caller may not call, with those it may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {name:?}; you may call: {}", list(.allowed))]
pub struct Unknown {
    pub name: String,
    pub allowed: Vec<String>,
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match (shown.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (_, 0) => shown,
        (_, more) => format!("{shown} and {more} more"),
    }
}

#[derive(Debug, Default)]
pub struct Registry {
    tools: RwLock<BTreeMap<String, Arc<Tool>>>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_builtins() -> Self {
        let tools = Builtin::ALL.into_iter().filter_map(|builtin| Tool::new(builtin.spec(), Origin::Operator).ok());
        let tools = tools.map(|tool| (tool.name().to_owned(), Arc::new(tool))).collect();
        Self { tools: RwLock::new(tools) }
    }

    /// The same definition once more is no news; another one under a known name is refused.
    pub fn register(&self, spec: Spec, origin: Origin) -> Result<Arc<Tool>, Refused> {
        let name = spec.name.clone();
        let tool = Tool::new(spec, origin)
            .map_err(|problems| Refused::Invalid { name: name.chars().take(80).collect(), problems })?;
        let mut tools = self.write();
        if let Some(known) = tools.get(&name) {
            let same = known.definition_hash() == tool.definition_hash() && known.origin() == origin;
            return if same { Ok(known.clone()) } else { Err(Refused::Taken { name }) };
        }
        if let Some(other) = tools.keys().find(|other| fold(other) == fold(&name)) {
            return Err(Refused::Alike { name, other: other.clone() });
        }
        if tools.len() >= TOOLS_MAX {
            return Err(Refused::Full);
        }
        let tool = Arc::new(tool);
        tools.insert(name, tool.clone());
        Ok(tool)
    }

    pub fn unregister(&self, name: &str) -> Option<Arc<Tool>> {
        self.write().remove(name)
    }

    /// Switches a tool on or off. Calls that are under way go on.
    pub fn set_enabled(&self, name: &str, enabled: bool) -> Result<Arc<Tool>, Unknown> {
        let mut tools = self.write();
        let switched = tools.get(name).and_then(|tool| tool.with_enabled(enabled).ok()).map(Arc::new);
        let Some(tool) = switched else {
            return Err(Unknown { name: name.to_owned(), allowed: tools.keys().cloned().collect() });
        };
        tools.insert(name.to_owned(), tool.clone());
        Ok(tool)
    }

    /// Also tools that are switched off.
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        self.read().get(name).cloned()
    }

    /// By name, also those switched off.
    pub fn list(&self) -> Vec<Arc<Tool>> {
        self.read().values().cloned().collect()
    }

    /// What an agent's list of names comes to, in order of name, without those switched off. A
    /// pattern may match nothing yet; a plain name must be a tool. Every bad name is in the error.
    pub fn allowed(&self, names: &[String]) -> Result<Vec<Arc<Tool>>, Vec<String>> {
        let (patterns, mut bad) = patterns(names);
        let tools = self.read();
        for pattern in &patterns {
            if let Pattern::Exact(name) = pattern
                && !tools.contains_key(name)
            {
                bad.push(format!("there is no tool {name:?}"));
            }
        }
        if !bad.is_empty() {
            return Err(bad);
        }
        Ok(select(&tools, &patterns))
    }

    /// The tool a model asked for, if it is among those the agent may use and switched on.
    pub fn look_up(&self, name: &str, names: &[String]) -> Result<Arc<Tool>, Unknown> {
        let (patterns, _) = patterns(names);
        let allowed = select(&self.read(), &patterns);
        let found = allowed.iter().find(|tool| tool.name() == name).cloned();
        found.ok_or_else(|| Unknown {
            name: name.chars().take(80).collect(),
            allowed: allowed.iter().map(|tool| tool.name().to_owned()).collect(),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn patterns(names: &[String]) -> (Vec<Pattern>, Vec<String>) {
    let (mut patterns, mut bad) = (Vec::new(), Vec::new());
    for name in names {
        match name.parse::<Pattern>() {
            Ok(pattern) => patterns.push(pattern),
            Err(error @ NotAPattern(_)) => bad.push(error.to_string()),
        }
    }
    (patterns, bad)
}

fn select(tools: &BTreeMap<String, Arc<Tool>>, patterns: &[Pattern]) -> Vec<Arc<Tool>> {
    let chosen = |tool: &&Arc<Tool>| tool.spec().enabled && patterns.iter().any(|p| p.matches(tool.name()));
    tools.values().filter(chosen).cloned().collect()
}

/// Providers take no dots, so that `clock.now` may reach them as `clock_now`.
fn fold(name: &str) -> String {
    name.replace(['.', '-'], "_").to_ascii_lowercase()
}
