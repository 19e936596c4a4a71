//! A span's place in its trace as W3C `traceparent` text, which is how it crosses the database, the
//! bus and HTTP. Without an exporter no span has a place, and all of this does nothing.

use super::name::attribute::LINK_KIND;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::collections::HashMap;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const HEADER: &str = "traceparent";

/// Why one span points to another across a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    CreatedBy,
    Resumes,
    Retries,
    CausedBy,
}

impl LinkKind {
    pub fn as_str(self) -> &'static str {
        match self {
            LinkKind::CreatedBy => "created_by",
            LinkKind::Resumes => "resumes",
            LinkKind::Retries => "retries",
            LinkKind::CausedBy => "caused_by",
        }
    }
}

/// The text to store or send, so that later work can say that it belongs to `span`.
pub fn traceparent_of(span: &Span) -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(HEADER)
}

/// Makes `span` a child of the one the text names: for young work that did not wait. Only before
/// the span is first entered or asked for its text. False if this is no traceparent or came too late.
pub fn set_parent(span: &Span, traceparent: &str) -> bool {
    remote(traceparent).is_some_and(|parent| span.set_parent(Context::new().with_remote_span_context(parent)).is_ok())
}

/// Points from `span` to the one the text names: for work that waited, was retried or changed hands.
/// False if the text is no traceparent.
pub fn link(span: &Span, traceparent: &str, kind: LinkKind) -> bool {
    let Some(other) = remote(traceparent) else { return false };
    span.add_link_with_attributes(other, vec![KeyValue::new(LINK_KIND, kind.as_str())]);
    true
}

fn remote(traceparent: &str) -> Option<SpanContext> {
    let carrier = HashMap::from([(HEADER.to_owned(), traceparent.trim().to_owned())]);
    // Into an empty context: with the current one, a bad text would silently yield our own span.
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let found = context.span().span_context().clone();
    found.is_valid().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    const STORED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traced(act: impl FnOnce()) {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    }

    #[test]
    fn the_trace_goes_on_through_its_text() {
        traced(|| {
            let first = tracing::info_span!("first");
            let text = traceparent_of(&first).unwrap();
            let second = tracing::info_span!(parent: None, "second");
            assert!(set_parent(&second, &text));
            let parts = |text: String| text.split('-').map(str::to_owned).collect::<Vec<_>>();
            let (first, second) = (parts(text), parts(traceparent_of(&second).unwrap()));
            assert_eq!(first[1], second[1], "same trace");
            assert_ne!(first[2], second[2], "another span");
        });
    }

    #[test]
    fn a_parent_from_another_process_is_kept_exactly() {
        traced(|| {
            let span = tracing::info_span!("child");
            assert!(set_parent(&span, STORED));
            let text = traceparent_of(&span).unwrap();
            assert!(text.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && text.ends_with("-01"), "{text}");
        });
    }

    #[test]
    fn a_link_leaves_the_span_in_its_own_trace() {
        traced(|| {
            let span = tracing::info_span!("resumed");
            assert!(link(&span, STORED, LinkKind::Resumes));
            assert!(!traceparent_of(&span).unwrap().contains("0af7651916cd43dd8448eb211c80319c"));
        });
    }

    #[test]
    fn text_that_is_no_traceparent_is_refused() {
        traced(|| {
            let span = tracing::info_span!("alone").entered();
            for text in ["", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
                assert!(!set_parent(&span, text) && !link(&span, text, LinkKind::CausedBy), "{text}");
            }
        });
    }

    #[test]
    fn without_an_exporter_spans_have_no_place_to_tell() {
        tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            assert_eq!(traceparent_of(&tracing::info_span!("untraced")), None);
        });
    }
}
