//! The span of the time that a worker holds a turn: one piece of work, never open while the turn waits.
//!
//! Its context goes into the turn's row with the commit before a wait, so that whoever goes on can point to it.

use crate::held::Held;
use crate::turn::Ending;
use crate::worker::Worker;
use instar_core::budget::Kind;
use instar_core::rune::payload::Usage;
use instar_model::attribute::{
    ERROR_TYPE, PROVIDER_NAME, RESPONSE_FINISH_REASONS, USAGE_INPUT_TOKENS, USAGE_OUTPUT_TOKENS,
};
use instar_runtime::flow;
use instar_runtime::telemetry::{self, LinkKind};
use tracing::Span;
use tracing::field::Empty;

pub(crate) struct Segment {
    span: Span,
    used: Usage,
    /// Somebody died with the turn, and this is the next one.
    pub(crate) retries: bool,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment { span: Span::none(), used: Usage::default(), retries: false }
    }
}

impl Held {
    /// From the moment somebody works on it, which may be before the commit that records it lands.
    pub(crate) fn span(&mut self, worker: &Worker) -> Span {
        if self.segment.span.is_none() {
            self.segment.span = begin(self, worker);
            let before = self.turn.segment.take();
            let link = if self.segment.retries { LinkKind::Retries } else { LinkKind::Resumes };
            if let Some(before) = before {
                telemetry::link(&self.segment.span, &before, link);
            }
            self.turn.segment = telemetry::traceparent_of(&self.segment.span);
        }
        self.segment.span.clone()
    }

    /// What a provider call of this segment used.
    pub(crate) fn spent(&mut self, used: Usage) {
        let sum = &mut self.segment.used;
        (sum.input_tokens, sum.output_tokens) =
            (sum.input_tokens + used.input_tokens, sum.output_tokens + used.output_tokens);
        self.segment.span.record(USAGE_INPUT_TOKENS, sum.input_tokens);
        self.segment.span.record(USAGE_OUTPUT_TOKENS, sum.output_tokens);
    }

    pub(crate) fn ended(&self, ending: &Ending) {
        match ending {
            Ending::Complete(spoken) => {
                let finish = spoken.finish.as_deref().unwrap_or("stop");
                self.segment.span.record(RESPONSE_FINISH_REASONS, finish);
            }
            Ending::Failed { kind, .. } => {
                self.segment.span.record(ERROR_TYPE, *kind);
                self.segment.span.record("otel.status_code", "ERROR");
            }
            Ending::GivenUp(_) => {
                self.segment.span.record(ERROR_TYPE, "worker_lost");
                self.segment.span.record("otel.status_code", "ERROR");
            }
            Ending::ByLimit | Ending::Interrupted { .. } => {}
        }
    }
}

fn begin(held: &Held, worker: &Worker) -> Span {
    let began = i64::from(held.turn.status == "queued");
    let provider = worker.models.get(&held.agent.model).ok().map(|model| model.about().provider);
    let span = tracing::info_span!(
        parent: None,
        "invoke_agent",
        otel.name = format!("invoke_agent {}", held.agent.name),
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        { PROVIDER_NAME } = provider,
        gen_ai.agent.id = %held.agent_id(),
        gen_ai.agent.name = held.agent.name,
        gen_ai.request.model = held.agent.model,
        gen_ai.conversation.id = %held.session_id(),
        instar.turn.id = %held.turn_id(),
        instar.worker.id = %worker.id,
        instar.attempt = held.turn.attempts + began,
        instar.budget.reserved_tokens = reserved_tokens(held),
        { RESPONSE_FINISH_REASONS } = Empty,
        { USAGE_INPUT_TOKENS } = Empty,
        { USAGE_OUTPUT_TOKENS } = Empty,
        { ERROR_TYPE } = Empty,
    );
    if let Some(trace) = &held.turn.traceparent {
        telemetry::set_parent(&span, trace);
    }
    span
}

fn reserved_tokens(held: &Held) -> Option<i64> {
    let made = flow::reserved(&held.turn)?;
    made.lines.iter().filter(|line| line.kind == Kind::Tokens).map(|line| line.n).max()
}
