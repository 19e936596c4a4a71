//! Names of the OpenTelemetry conventions for generative AI (`semantic-conventions-genai`, all of
//! development status, read in autumn 2026), and the span of a model call.
//!
//! Never prompts or answers: what was said is in the runelog.

use tracing::Span;
use tracing::field::Empty;

use crate::error::ModelError;
use crate::message::Request;
use crate::provider::About;
use crate::response::Response;

pub const OPERATION_NAME: &str = "gen_ai.operation.name";
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub const AGENT_ID: &str = "gen_ai.agent.id";
pub const AGENT_NAME: &str = "gen_ai.agent.name";
pub const AGENT_VERSION: &str = "gen_ai.agent.version";
pub const AGENT_DESCRIPTION: &str = "gen_ai.agent.description";
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub const REQUEST_STREAM: &str = "gen_ai.request.stream";
pub const RESPONSE_ID: &str = "gen_ai.response.id";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub const RESPONSE_TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const USAGE_CACHE_READ_INPUT_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const USAGE_CACHE_CREATION_INPUT_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub const USAGE_REASONING_OUTPUT_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub const TOOL_NAME: &str = "gen_ai.tool.name";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const TOOL_DESCRIPTION: &str = "gen_ai.tool.description";
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub const TOKEN_TYPE: &str = "gen_ai.token.type";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
/// Ours: how large the context of the call is, as sent and at the stages of its making.
pub const CONTEXT_MESSAGES: &str = "instar.context.messages";
pub const CONTEXT_CONTENT_BYTES: &str = "instar.context.content_bytes";
pub const CONTEXT_REASONING_BYTES: &str = "instar.context.reasoning_bytes";
pub const CONTEXT_TOOL_CALLS: &str = "instar.context.tool_calls";
pub const CONTEXT_TOKENS: &str = "instar.context.estimated_tokens";
pub const CONTEXT_LEFT_OUT: &str = "instar.context.left_out";
/// JSON: the three stages, with messages per role and source.
pub const CONTEXT_STAGES: &str = "instar.context.stages";
pub const ERROR_TYPE: &str = "error.type";

/// Values of [`OPERATION_NAME`].
pub mod operation {
    pub const CHAT: &str = "chat";
    pub const INVOKE_AGENT: &str = "invoke_agent";
    pub const EXECUTE_TOOL: &str = "execute_tool";
    pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
    pub const PLAN: &str = "plan";
}

/// Histograms of a client of models, with their units.
pub mod metric {
    /// Seconds.
    pub const OPERATION_DURATION: &str = "gen_ai.client.operation.duration";
    /// Tokens; [`super::TOKEN_TYPE`] is `input` or `output`.
    pub const TOKEN_USAGE: &str = "gen_ai.client.token.usage";
    /// Seconds.
    pub const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.operation.time_to_first_chunk";
    /// Seconds.
    pub const TIME_PER_OUTPUT_CHUNK: &str = "gen_ai.client.operation.time_per_output_chunk";
}

/// The span `chat {model}` of one call, retries included. What is known only later is filled in by
/// [`succeeded`] or [`failed`].
pub fn chat_span(about: &About, request: &Request) -> Span {
    tracing::info_span!(
        "chat",
        otel.name = format!("{} {}", operation::CHAT, about.model),
        otel.kind = "client",
        otel.status_code = Empty,
        { OPERATION_NAME } = operation::CHAT,
        { PROVIDER_NAME } = about.provider,
        { REQUEST_MODEL } = about.model,
        { REQUEST_STREAM } = true,
        { REQUEST_MAX_TOKENS } = request.max_tokens,
        { REQUEST_TEMPERATURE } = request.temperature.map(f64::from),
        { SERVER_ADDRESS } = about.server_address,
        { SERVER_PORT } = about.server_port,
        { RESPONSE_ID } = Empty,
        { RESPONSE_MODEL } = Empty,
        { RESPONSE_FINISH_REASONS } = Empty,
        { RESPONSE_TIME_TO_FIRST_CHUNK } = Empty,
        { USAGE_INPUT_TOKENS } = Empty,
        { USAGE_OUTPUT_TOKENS } = Empty,
        { USAGE_CACHE_READ_INPUT_TOKENS } = Empty,
        { USAGE_CACHE_CREATION_INPUT_TOKENS } = Empty,
        { USAGE_REASONING_OUTPUT_TOKENS } = Empty,
        { CONTEXT_MESSAGES } = Empty,
        { CONTEXT_CONTENT_BYTES } = Empty,
        { CONTEXT_REASONING_BYTES } = Empty,
        { CONTEXT_TOOL_CALLS } = Empty,
        { CONTEXT_TOKENS } = Empty,
        { CONTEXT_LEFT_OUT } = Empty,
        { CONTEXT_STAGES } = Empty,
        { ERROR_TYPE } = Empty,
    )
}

pub fn succeeded(span: &Span, response: &Response) {
    span.record(RESPONSE_ID, response.id.as_str());
    span.record(RESPONSE_MODEL, response.model.as_str());
    span.record(RESPONSE_FINISH_REASONS, response.finish.as_str());
    if let Some(usage) = response.usage {
        span.record(USAGE_INPUT_TOKENS, usage.input_tokens);
        span.record(USAGE_OUTPUT_TOKENS, usage.output_tokens);
        span.record(USAGE_CACHE_READ_INPUT_TOKENS, usage.cache_read_input_tokens);
        span.record(USAGE_CACHE_CREATION_INPUT_TOKENS, usage.cache_creation_input_tokens);
        span.record(USAGE_REASONING_OUTPUT_TOKENS, usage.reasoning_output_tokens);
    }
}

/// The class is few-valued, as `error.type` must be; the provider's words are not.
pub fn failed(span: &Span, error: &ModelError) {
    span.record(ERROR_TYPE, error.class.as_str());
    span.record("otel.status_code", "ERROR");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_what_is_recorded_later() {
        let about = About {
            name: "m".to_owned(),
            provider: "openai",
            model: "gpt".to_owned(),
            context_window: None,
            max_tokens: None,
            price: None,
            server_address: Some("a".to_owned()),
            server_port: Some(443),
        };
        let names: Vec<&str> = tracing::subscriber::with_default(Everything, || {
            let span = chat_span(&about, &Request::default());
            failed(&span, &ModelError::transient("x"));
            span.metadata().map(|meta| meta.fields().iter().map(|field| field.name()).collect()).unwrap_or_default()
        });
        for name in [PROVIDER_NAME, REQUEST_MODEL, OPERATION_NAME, USAGE_INPUT_TOKENS, ERROR_TYPE, SERVER_PORT] {
            assert!(names.contains(&name), "{name} not in {names:?}");
        }
    }

    struct Everything;

    impl tracing::Subscriber for Everything {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {}

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }
}
