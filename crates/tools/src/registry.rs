//! The tools there are.

use crate::builtin::Builtin;
use crate::native::Native;
use crate::pattern::{NotAPattern, Pattern};
use crate::spec::{Kind, Problem, Spec};
use crate::tool::{Origin, Tool};
use instar_core::decide::Chosen;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
#[error("{}; you may call: {}", .reason.as_ref().map_or_else(
    || format!("there is no tool {name:?}"), |why| format!("{name} cannot be called now: {why}")), list(.allowed))]
pub struct Unknown {
    pub name: String,
    pub allowed: Vec<String>,
    /// Why not, if there is such a tool.
    pub reason: Option<String>,
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
    discovered: RwLock<Discovered>,
}

/// By which what was read last is told from what is there now.
pub type Edition = [i64; 7];

/// What is known of MCP servers besides their tools.
#[derive(Debug, Default)]
struct Discovered {
    edition: Option<Edition>,
    /// Configured here, heard of or not.
    servers: BTreeSet<String>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// The tools that come with the house: built-in and native ones.
    pub fn with_builtins() -> Self {
        let specs = Builtin::ALL.into_iter().map(Builtin::spec).chain(Native::ALL.into_iter().map(Native::spec));
        let tools = specs.filter_map(|spec| Tool::new(spec, Origin::Operator).ok());
        let tools = tools.map(|tool| (tool.name().to_owned(), Arc::new(tool))).collect();
        Self { tools: RwLock::new(tools), ..Self::default() }
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
            return Err(Unknown { name: name.to_owned(), allowed: tools.keys().cloned().collect(), reason: None });
        };
        tools.insert(name.to_owned(), tool.clone());
        Ok(tool)
    }

    /// Servers whose tools may come later: until one of a server's is known, an agent may be given any.
    pub fn expect_servers(&self, names: impl IntoIterator<Item = String>) {
        self.discovered.write().unwrap_or_else(PoisonError::into_inner).servers.extend(names);
    }

    /// Of what is known besides the configuration: who has read a later one puts it in its place.
    pub fn edition(&self) -> Option<Edition> {
        self.discovered.read().unwrap_or_else(PoisonError::into_inner).edition
    }

    /// Puts what MCP servers offer, and what was registered by requests, in place of what was known before. Says
    /// which of them cannot be had because another tool has the name, or one that is too like it.
    pub fn set_discovered(&self, edition: Edition, offered: impl IntoIterator<Item = Arc<Tool>>) -> Vec<Refused> {
        // Whoever makes them may look at what is here.
        let offered: Vec<_> = offered.into_iter().filter(|tool| tool.origin() != Origin::Operator).collect();
        let (mut refused, mut tools) = (Vec::new(), self.write());
        self.discovered.write().unwrap_or_else(PoisonError::into_inner).edition = Some(edition);
        tools.retain(|_, tool| tool.origin() == Origin::Operator);
        let mut taken: BTreeMap<String, String> = tools.keys().map(|name| (fold(name), name.clone())).collect();
        for tool in offered {
            let name = tool.name().to_owned();
            if tools.len() >= TOOLS_MAX {
                refused.push(Refused::Full);
                break;
            }
            match taken.get(&fold(&name)) {
                Some(other) if *other == name => refused.push(Refused::Taken { name }),
                Some(other) => refused.push(Refused::Alike { name, other: other.clone() }),
                None => {
                    taken.insert(fold(&name), name.clone());
                    tools.insert(name, tool);
                }
            }
        }
        refused
    }

    /// Also tools that are switched off.
    pub fn get(&self, name: &str) -> Option<Arc<Tool>> {
        self.read().get(name).cloned()
    }

    /// A tool that a mission's step may run: switched on, and none of those that act for an agent in its turn.
    pub fn for_step(&self, name: &str) -> Option<Arc<Tool>> {
        self.get(name).filter(|tool| tool.spec().enabled && tool.spec().kind != Kind::Native)
    }

    /// Those of an agent's list that a step may run, in order of name; also ones that cannot be called now.
    pub fn for_steps_of(&self, names: &[String]) -> Vec<Arc<Tool>> {
        let (patterns, tools) = (patterns(names).0, self.read());
        let meant = |name: &&String| patterns.iter().any(|pattern| pattern.matches(name));
        let meant: Vec<String> = tools.keys().filter(meant).cloned().collect();
        drop(tools);
        meant.iter().filter_map(|name| self.for_step(name)).collect()
    }

    /// What a step's call takes from its tool.
    pub fn chosen(&self, name: &str, arguments: &Value) -> Option<Chosen> {
        let tool = self.for_step(name)?;
        let (effect, approval) = (tool.spec().effect(), tool.spec().requires_approval);
        Some(Chosen { effect, approval, digest: tool.digest(arguments) })
    }

    /// By name, also those switched off.
    pub fn list(&self) -> Vec<Arc<Tool>> {
        self.read().values().cloned().collect()
    }

    /// What an agent's list of names comes to, in order of name, without those that cannot be called now. A
    /// pattern may match nothing yet; a plain name must be a tool. Every bad name is in the error.
    pub fn allowed(&self, names: &[String]) -> Result<Vec<Arc<Tool>>, Vec<String>> {
        let (patterns, mut bad) = patterns(names);
        let tools = self.read();
        for pattern in &patterns {
            let Pattern::Exact(name) = pattern else { continue };
            if !tools.contains_key(name) && !self.may_come(name, &tools) {
                bad.push(format!("there is no tool {name:?}"));
            } else if is_report(name) {
                bad.push(format!("{name} is given by the work that it is for: leave it out"));
            }
        }
        if !bad.is_empty() {
            return Err(bad);
        }
        Ok(select(&tools, &patterns))
    }

    /// A tool of a server that has not been heard yet.
    fn may_come(&self, name: &str, tools: &BTreeMap<String, Arc<Tool>>) -> bool {
        let Some((server, _)) = name.split_once('.') else { return false };
        let known = self.discovered.read().unwrap_or_else(PoisonError::into_inner);
        let below = format!("{server}.");
        known.servers.contains(server)
            && !tools.range(below.clone()..).next().is_some_and(|(first, _)| first.starts_with(&below))
    }

    /// The same without the names that are no tools, which are told as well: an agent can do without.
    pub fn offered(&self, names: &[String]) -> (Vec<Arc<Tool>>, Vec<String>) {
        match self.allowed(names) {
            Ok(tools) => (tools, Vec::new()),
            Err(bad) => {
                let known = |name: &&String| (self.get(name).is_some() && !is_report(name)) || name.contains('*');
                let known: Vec<String> = names.iter().filter(known).cloned().collect();
                (self.allowed(&known).unwrap_or_default(), bad)
            }
        }
    }

    /// The tool a model asked for, if it is among those the agent may use and switched on.
    pub fn look_up(&self, name: &str, names: &[String]) -> Result<Arc<Tool>, Unknown> {
        let (patterns, _) = patterns(names);
        let tools = self.read();
        let allowed = select(&tools, &patterns);
        let found = allowed.iter().find(|tool| tool.name() == name).cloned();
        let meant = || tools.get(name).filter(|tool| patterns.iter().any(|p| p.matches(tool.name())));
        found.ok_or_else(|| Unknown {
            name: name.chars().take(80).collect(),
            allowed: allowed.iter().map(|tool| tool.name().to_owned()).collect(),
            reason: meant().and_then(|tool| tool.unavailable()).map(str::to_owned),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<Tool>>> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_report(name: &str) -> bool {
    Native::named(name).is_some_and(Native::is_given)
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
    // A native tool must be named: nobody who wrote `*` before there were any has asked for it.
    let meant = |tool: &Tool, p: &Pattern| {
        let named = tool.spec().kind != Kind::Native || matches!(p, Pattern::Exact(_));
        p.matches(tool.name()) && named && !is_report(tool.name())
    };
    let ready = |tool: &Tool| tool.spec().enabled && tool.unavailable().is_none();
    let chosen = |tool: &&Arc<Tool>| ready(tool) && patterns.iter().any(|p| meant(tool, p));
    tools.values().filter(chosen).cloned().collect()
}

/// Providers take no dots, so that `clock.now` may reach them as `clock_now`.
fn fold(name: &str) -> String {
    name.replace(['.', '-'], "_").to_ascii_lowercase()
}
