//! The names of spans, attributes and metrics, all in one place: dashboards and alert rules are
//! written against them. GenAI, messaging and resource names follow the OpenTelemetry conventions
//! (GenAI as of semantic-conventions-genai, 2026); ours begin with `instar.`.
//!
//! There is no name for a prompt, a tool's arguments or its output: content stays in the database.

/// Span names; what varies within one name goes into attributes.
pub mod span {
    /// One lease segment of a turn.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// One call of a model.
    pub const CHAT: &str = "chat";
    /// One attempt of a tool call.
    pub const EXECUTE_TOOL: &str = "execute_tool";
    /// One planning step.
    pub const PLAN: &str = "plan";
    /// A message handled by a consumer.
    pub const PROCESS: &str = "process";
    /// Messages sent to the bus.
    pub const PUBLISH: &str = "publish";
    /// A command and its cascades carried out.
    pub const ACT: &str = "act";
    /// A request to the API.
    pub const REQUEST: &str = "request";
}

/// Attribute names.
pub mod attribute {
    pub const SERVICE_NAME: &str = "service.name";
    pub const SERVICE_VERSION: &str = "service.version";
    pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
    pub const ERROR_TYPE: &str = "error.type";

    pub const OPERATION: &str = "gen_ai.operation.name";
    pub const PROVIDER: &str = "gen_ai.provider.name";
    pub const AGENT_ID: &str = "gen_ai.agent.id";
    pub const AGENT_NAME: &str = "gen_ai.agent.name";
    pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// Cached tokens included, whatever the provider counts.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";

    pub const MESSAGING_SYSTEM: &str = "messaging.system";
    pub const MESSAGING_OPERATION: &str = "messaging.operation.type";
    /// Never the subject itself: it holds ids.
    pub const DESTINATION_TEMPLATE: &str = "messaging.destination.template";
    pub const MESSAGE_ID: &str = "messaging.message.id";

    /// Groups traces in the backends that look for it; the same value as the conversation.
    pub const SESSION_ID: &str = "session.id";
    pub const TURN_ID: &str = "instar.turn.id";
    pub const WORKER_ID: &str = "instar.worker.id";
    pub const ATTEMPT: &str = "instar.attempt";
    pub const MACHINE: &str = "instar.machine";
    pub const EVENT: &str = "instar.event";
    pub const LINK_KIND: &str = "instar.link.kind";
}

/// Metric names. Durations are in seconds. Labels are few and low in number: never an id.
pub mod metric {
    pub const CHAT_DURATION: &str = "gen_ai.client.operation.duration";
    pub const TOKEN_USAGE: &str = "gen_ai.client.token.usage";
    pub const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.operation.time_to_first_chunk";
    pub const EXECUTE_TOOL_DURATION: &str = "gen_ai.execute_tool.duration";
    pub const HTTP_DURATION: &str = "instar.http.request.duration";

    /// From ready to claimed: the first thing to alert on.
    pub const SCHEDULE_TO_START: &str = "instar.turn.schedule_to_start.duration";
    pub const TURN_DURATION: &str = "instar.turn.duration";
    pub const TURNS: &str = "instar.turns";
    pub const TASKS: &str = "instar.runtime.tasks";
    pub const TURN_ACTIVE: &str = "instar.turn.active";
    pub const TURN_QUEUED: &str = "instar.turn.queued";
    pub const CALL_ACTIVE: &str = "instar.tool_call.active";
    pub const CALLS: &str = "instar.tool_calls";
    pub const SLOT_LIMIT: &str = "instar.worker.slot.limit";
    pub const COMMIT_DURATION: &str = "instar.commit.duration";
    pub const TRANSITIONS: &str = "instar.transitions";
    pub const LEASE_EXPIRATIONS: &str = "instar.lease.expirations";
    pub const REDELIVERIES: &str = "instar.bus.redeliveries";
    pub const PUBLISH_LAG: &str = "instar.publish.lag";
    pub const PUBLISH_PENDING: &str = "instar.publish.pending";
    pub const REPUBLISHED: &str = "instar.publish.repeated";
    pub const APPROVAL_PENDING: &str = "instar.approval.pending";
    pub const BUDGET_EXHAUSTED: &str = "instar.budget.exhausted";
    pub const RETRIES: &str = "instar.model.retries";
    pub const CIRCUIT_OPEN: &str = "instar.llm.circuit.open";
}
