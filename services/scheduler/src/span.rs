//! What the scheduler does on behalf of a turn, a call or a session, in the trace of whoever began that.

use crate::Desk;
use instar_core::id::{CallId, SessionId, TurnId};
use instar_runtime::{Ready, telemetry};
use instar_store::entity::{timer, tool_call, turn};
use tracing::Span;
use tracing::field::Empty;
use uuid::Uuid;

fn of(what: &'static str, reason: &str, session: Uuid, trace: Option<&str>) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "schedule",
        otel.name = format!("{what} {reason}"),
        instar.schedule.reason = reason,
        gen_ai.conversation.id = %SessionId::from(session),
        instar.turn.id = Empty,
        gen_ai.tool.call.id = Empty,
    );
    if let Some(trace) = trace {
        telemetry::set_parent(&span, trace);
    }
    span
}

/// A turn that somebody is told of.
fn of_turn(what: &'static str, reason: &str, turn: &turn::Model) -> Span {
    let span = of(what, reason, turn.session_id, turn.traceparent.as_deref());
    span.record("instar.turn.id", tracing::field::display(TurnId::from(turn.id)));
    span
}

fn of_call(what: &'static str, reason: &str, call: &tool_call::Model) -> Span {
    let span = of(what, reason, call.session_id, call.traceparent.as_deref());
    span.record("gen_ai.tool.call.id", tracing::field::display(CallId::from(call.id)));
    if let Some(turn) = call.turn_id {
        span.record("instar.turn.id", tracing::field::display(TurnId::from(turn)));
    }
    span
}

/// A timer that rings for a call.
pub(crate) fn rings(timer: &timer::Model, call: &tool_call::Model) -> Span {
    of_call("timer", &timer.kind, call)
}

/// A call that its runner left behind.
pub(crate) fn left(call: &tool_call::Model) -> Span {
    of_call("take_over", "runner_lost", call)
}

impl Desk {
    /// Tells workers of a turn, by itself (`what` is why the scheduler looks at it at all).
    pub(crate) fn tell_turn(&self, what: &'static str, reason: &'static str, turn: &turn::Model, owner: Option<Uuid>) {
        of_turn(what, reason, turn).in_scope(|| {
            self.hub.wake_turn(Ready::of(turn, reason), owner, turn.traceparent.as_deref());
        });
    }

    /// The same of a call, to runners.
    pub(crate) fn tell_call(&self, what: &'static str, reason: &str, call: &tool_call::Model) {
        of_call(what, reason, call).in_scope(|| self.hub.wake_call_row(call, true));
    }
}
