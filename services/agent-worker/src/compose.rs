//! What the provider is sent, in its words: rows are read, instructions filled in, and what was sent is noted
//! in the turn's row for whoever asks later.

use crate::held::Held;
use crate::purse;
use crate::summarise::Scope;
use crate::worker::Worker;
use instar_core::context::{Budget, Composed, Said, Stage, digest, json_bytes, tokens_of};
use instar_model::{Arguments, Assistant, Message, ProviderBlock, Request, ToolCall, ToolSpec, attribute};
use instar_runtime::context::{self, Facts, Frozen, Rows, Sent, Setting};
use instar_runtime::plan::Work;
use instar_tools::Tool;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// A request, and how it came about.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) statistics: instar_core::context::Statistics,
    pub(crate) fit: instar_core::context::Fit,
    /// Something that was said before the turn had to be left out, or will soon be beyond the window of messages: what
    /// a summary is to stand for.
    pub(crate) crowded: Option<Scope>,
    /// All of it in tokens, by estimate.
    pub(crate) tokens: u64,
}

/// The context of the turn's next provider call. `all`: these tools are all that the agent has.
pub(crate) fn prepare(worker: &Worker, held: &mut Held, tools: &[Arc<Tool>], all: bool, facts: &Facts) -> Prepared {
    let about = worker.models.get(&held.agent.model).ok().map(|model| model.about());
    let offered = tools.iter().map(|tool| offer(tool)).collect::<Vec<_>>();
    let tools_bytes = offered.iter().map(|t| t.name.len() + t.description.len() + json_bytes(&t.parameters)).sum();
    let (limit, answer) = about.map_or((None, None), |about| (about.context_window, about.max_tokens));
    let window = worker.config.history_messages_max as usize;
    let snapshot = |name: &str| worker.tools.get(name).and_then(|tool| tool.spec().snapshot_key());
    let setting = Setting { facts, snapshot: &snapshot, budget: Budget::of(limit, answer, tools_bytes), window };
    let answers = held.turn.iterations;
    let rows = Rows {
        agent: &held.agent,
        turn: &held.turn,
        messages: &held.transcript,
        calls: &held.calls,
        earlier: &held.earlier,
        answers,
    };
    let composed = context::compose(rows, &setting);
    let full = context::window(held.turn.id, &held.transcript, window).len() >= window;
    let sent = Sent {
        number: u64::try_from(answers + 1).unwrap_or(1),
        words: digest(&composed),
        tools: context::tools_digest(&held.agent.model, tools.iter().map(|tool| tool.definition_hash())),
        facts,
        fit: composed.fit,
        window: full.then_some(window as u64),
        offered: (!all).then(|| tools.iter().map(|tool| tool.name().to_owned()).collect()),
    };
    let mut request = request(&composed, &held.agent.model, offered);
    request.caller = Some(held.agent_id());
    request.max_tokens = purse::answer_max(worker, held);
    let crowded = match composed.fit.dropped > 0 {
        true => Some(Scope::All),
        false => falls_out(worker, held, window).then_some(Scope::Older),
    };
    let Composed { statistics, fit, .. } = composed;
    let mut frozen = Frozen::of(&held.turn);
    frozen.note(sent);
    frozen.write(&mut held.turn);
    let tokens = fit.tokens + tokens_of(tools_bytes);
    Prepared { request, statistics, fit, crowded, tokens }
}

/// Whether more was said than a call may see, and not all of that has its summary. Who works on a plan sees only what
/// belongs to its task.
fn falls_out(worker: &Worker, held: &Held, window: usize) -> bool {
    worker.config.history_summaries
        && held.transcript.len() > window
        && Work::of(&held.turn).is_none()
        && context::uncovered(&held.turn, &held.transcript).len() > window
}

pub(crate) fn measure(span: &tracing::Span, prepared: &Prepared) {
    if span.is_disabled() {
        return;
    }
    let Stage { messages, content_bytes, reasoning_bytes, tool_calls, .. } = prepared.statistics.sent;
    span.record(attribute::CONTEXT_MESSAGES, messages);
    span.record(attribute::CONTEXT_CONTENT_BYTES, content_bytes);
    span.record(attribute::CONTEXT_REASONING_BYTES, reasoning_bytes);
    span.record(attribute::CONTEXT_TOOL_CALLS, tool_calls);
    span.record(attribute::CONTEXT_TOKENS, prepared.fit.tokens);
    span.record(attribute::CONTEXT_LEFT_OUT, prepared.fit.dropped + prepared.fit.shortened);
    let stages = serde_json::to_string(&prepared.statistics).unwrap_or_default();
    span.record(attribute::CONTEXT_STAGES, stages.as_str());
}

pub(crate) fn request(composed: &Composed<'_>, model: &str, tools: Vec<ToolSpec>) -> Request {
    Request {
        model: model.to_owned(),
        system: composed.system.as_deref().map(str::to_owned),
        messages: composed.messages.iter().map(|message| said(&message.said)).collect(),
        tools,
        ..Request::default()
    }
}

/// About as many bytes as describe a tool to the model.
pub(crate) fn offered(tool: &Tool) -> usize {
    let offer = tool.offer();
    offer.name.len() + offer.description.len() + json_bytes(&offer.parameters)
}

fn offer(tool: &Tool) -> ToolSpec {
    let offer = tool.offer();
    ToolSpec { name: offer.name, description: offer.description, parameters: offer.parameters }
}

fn said(said: &Said<'_>) -> Message {
    match said {
        Said::User { text } => Message::user(text.as_ref()),
        Said::Tool(outcome) if outcome.is_error => {
            Message::failure(outcome.call_id.to_string(), outcome.content.as_ref())
        }
        Said::Tool(outcome) => Message::result(outcome.call_id.to_string(), outcome.content.as_ref()),
        Said::Assistant(assistant) => Message::Assistant(Assistant {
            text: assistant.text.to_string(),
            reasoning: String::new(),
            tool_calls: assistant.calls.iter().map(call).collect(),
            // A block that cannot be read is none that the provider wants back.
            provider_blocks: assistant
                .blocks
                .iter()
                .filter_map(|b| ProviderBlock::deserialize(b.as_ref()).ok())
                .collect(),
        }),
    }
}

fn call(call: &instar_core::context::Call<'_>) -> ToolCall {
    let arguments = match call.arguments.as_ref() {
        Value::Object(map) => Arguments::from_map(map),
        // Arguments that were not an object were refused; the model sees its own text.
        other => Arguments::from_text(other.as_str().unwrap_or_default()),
    };
    ToolCall { id: call.id.to_string(), name: call.name.to_string(), arguments }
}

#[cfg(test)]
mod tests;
