//! How long calls take, under the names of the conventions for generative AI.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::{Stream, StreamExt};

use crate::attribute::{self, metric, operation};
use crate::error::ModelError;
use crate::event::{Event, EventStream};
use crate::provider::Provider;

/// A call under way; one that is dropped before its end was called off.
struct Call {
    provider: Arc<dyn Provider>,
    began: Instant,
    over: bool,
}

impl Call {
    fn over(&mut self, error: Option<&'static str>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.record(metric::OPERATION_DURATION, error);
    }

    fn record(&self, name: &'static str, error: Option<&'static str>) {
        let about = self.provider.about();
        let mut labels = vec![
            metrics::Label::from_static_parts(attribute::OPERATION_NAME, operation::CHAT),
            metrics::Label::from_static_parts(attribute::PROVIDER_NAME, about.provider),
            metrics::Label::new(attribute::REQUEST_MODEL, about.model.clone()),
        ];
        labels.extend(error.map(|error| metrics::Label::from_static_parts(attribute::ERROR_TYPE, error)));
        metrics::histogram!(name, labels).record(self.began.elapsed().as_secs_f64());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.over(Some("cancelled"));
    }
}

struct Measured {
    events: EventStream,
    call: Call,
}

impl Stream for Measured {
    type Item = Result<Event, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.events.poll_next_unpin(cx);
        match &next {
            Poll::Ready(Some(Ok(Event::Done { .. }))) => self.call.over(None),
            Poll::Ready(Some(Err(error))) => self.call.over(Some(error.class.as_str())),
            Poll::Ready(Some(Ok(_)) | None) | Poll::Pending => {}
        }
        next
    }
}

/// `open` of this provider, measured up to the first piece of the answer and up to its end. What is known of the first
/// piece is also said by the span that is current.
pub(crate) async fn measured(
    provider: &Arc<dyn Provider>,
    open: impl Future<Output = Result<EventStream, ModelError>>,
) -> Result<EventStream, ModelError> {
    let mut call = Call { provider: provider.clone(), began: Instant::now(), over: false };
    match open.await {
        Ok(events) => {
            call.record(metric::TIME_TO_FIRST_CHUNK, None);
            let first_s = call.began.elapsed().as_secs_f64();
            tracing::Span::current().record(attribute::RESPONSE_TIME_TO_FIRST_CHUNK, first_s);
            Ok(Measured { events, call }.boxed())
        }
        Err(error) => {
            call.over(Some(error.class.as_str()));
            Err(error)
        }
    }
}
