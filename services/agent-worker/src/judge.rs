//! A call as the model made it, judged by registry and policy.

use chrono::Duration;
use instar_core::decide::{Call, Effect, Mode, gate};
use instar_core::id::CallId;
use instar_core::machine::tool_call::Event;
use instar_core::rune::payload::ResultStatus;
use instar_model::{Arguments, ToolCall};
use instar_runtime::flow::{Asked, Verdict};
use instar_store::PAYLOAD_BYTES_MAX;
use instar_store::clock;
use instar_store::entity::agent;
use instar_tools::{Registry, Tool};
use serde_json::{Value, json};
use std::sync::Arc;

/// Arguments beyond this are not recorded, and so not run: a rune holds twice that at the most.
const ARGUMENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 2;
/// What is kept of arguments that do not run.
const QUOTE_BYTES_MAX: usize = 4 << 10;
/// A name that is longer is no tool's.
const NAME_CHARS_MAX: usize = 200;

/// Tools that no longer exist are left out: an agent can chat without them. `granted`: those that the turn brings.
pub(crate) fn tools(registry: &Registry, agent: &agent::Model, granted: &[&str]) -> Vec<Arc<Tool>> {
    let names = agent.tools();
    if names.is_empty() && granted.is_empty() {
        return Vec::new();
    }
    let (mut tools, bad) = registry.offered(&names);
    if !bad.is_empty() {
        tracing::warn!(agent = %instar_core::id::AgentId::from(agent.id), ?bad, "tools are missing");
    }
    tools.extend(granted.iter().filter_map(|name| registry.get(name)));
    tools
}

pub(crate) fn judge(
    registry: &Registry,
    agent: &agent::Model,
    granted: &[&str],
    call: &ToolCall,
    approval_timeout: Option<Duration>,
) -> Asked {
    let id = CallId::from(uuid::Uuid::now_v7());
    let asked = |arguments: Value, digest: String, effect: Effect, verdict: Verdict| Asked {
        id,
        provider_call_id: Some(call.id.clone()).filter(|id| !id.is_empty()),
        name: call.name.chars().take(NAME_CHARS_MAX).collect(),
        arguments,
        digest,
        effect: effect.token(),
        verdict,
    };
    let refuse = |arguments: Value, why: String| {
        let verdict = Verdict::Refused { status: ResultStatus::Error, why };
        asked(arguments, String::new(), Effect::AtMostOnce, verdict)
    };
    let name = meant(registry, &call.name);
    let brought = registry.get(&name).filter(|_| granted.contains(&&*name));
    let tool = match brought.map_or_else(|| registry.look_up(&name, &agent.tools()), Ok) {
        Ok(tool) => tool,
        Err(unknown) => return refuse(as_sent(call), unknown.to_string()),
    };
    let Some(text) = call.arguments.json() else {
        let why = call.arguments.problem().unwrap_or_else(|| "the arguments are not a JSON object".into());
        return refuse(as_sent(call), why);
    };
    if text.len() > ARGUMENT_BYTES_MAX {
        let why = format!("the arguments are {} bytes long; the limit is {ARGUMENT_BYTES_MAX}", text.len());
        return refuse(as_sent(call), why);
    }
    let arguments = match tool.parse(text) {
        Ok(arguments) => arguments,
        Err(invalid) => return refuse(as_sent(call), invalid.to_string()),
    };
    let (spec, digest) = (tool.spec(), tool.digest(&arguments));
    let outside = agent.outside(&arguments);
    let gated = gate(Call {
        valid: true,
        outside_sandbox: outside.is_some(),
        side_effects: spec.side_effects,
        spec: spec.requires_approval,
        policy_override: agent.approval_of(&spec.name),
        mode: mode(agent),
    });
    let verdict = match gated.event {
        Event::NoApprovalNeeded => Verdict::Free,
        Event::AutoApproved => Verdict::Approved,
        Event::RequiresApproval => {
            Verdict::Ask { reason: gated.reason.into(), expires_at: approval_timeout.map(|wait| clock::now() + wait) }
        }
        Event::SandboxViolation => {
            let why = outside.map_or_else(|| gated.reason.into(), |why| format!("not run: {why}"));
            Verdict::Refused { status: ResultStatus::SandboxViolation, why }
        }
        Event::PolicyDenied => Verdict::Refused { status: ResultStatus::Denied, why: gated.reason.into() },
        _ => Verdict::Refused { status: ResultStatus::Error, why: gated.reason.into() },
    };
    asked(arguments, digest, spec.effect(), verdict)
}

/// A tool that is not there now was not offered, so that its name comes as the provider was once told it.
fn meant(registry: &Registry, name: &str) -> String {
    let away =
        |tool: &&Arc<Tool>| tool.unavailable().is_some() && instar_model::history::wire_name(tool.name()) == name;
    match registry.get(name) {
        Some(_) => name.to_owned(),
        None => registry.list().iter().find(away).map_or(name, |tool| tool.name()).to_owned(),
    }
}

/// The arguments as the model wrote them: an object, or the text that is none. The beginning of long
/// ones: nobody will run them.
fn as_sent(call: &ToolCall) -> Value {
    let text = match &call.arguments {
        Arguments::Invalid { text, .. } => text.as_str(),
        Arguments::Json(_) => call.arguments.json().unwrap_or_default(),
    };
    if text.len() > QUOTE_BYTES_MAX {
        return json!({"bytes": text.len(), "begins": &text[..text.floor_char_boundary(QUOTE_BYTES_MAX)]});
    }
    match &call.arguments {
        Arguments::Json(_) => call.arguments.value().unwrap_or_else(|| Value::Object(Default::default())),
        Arguments::Invalid { text, .. } => Value::String(text.clone()),
    }
}

fn mode(agent: &agent::Model) -> Mode {
    // What does not say what it allows allows least.
    match agent.config.get("approval_mode") {
        None | Some(Value::Null) => Mode::default(),
        Some(mode) => serde_json::from_value(mode.clone()).unwrap_or(Mode::ReadOnly),
    }
}
