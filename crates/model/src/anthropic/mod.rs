//! Anthropic Messages.

mod decode;
mod encode;

pub(crate) use decode::Decoder;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::event::EventStream;
use crate::history::Names;
use crate::http::Http;
use crate::message::Request;
use crate::provider::{About, Provider};

pub(crate) const VERSION: &str = "2023-06-01";
/// The format demands a limit; this one is within reach of every current model.
const MAX_TOKENS: u32 = 8192;

pub(crate) struct Anthropic {
    pub(crate) about: About,
    pub(crate) http: Http,
    pub(crate) profile: Profile,
}

pub(crate) struct Profile {
    pub(crate) model: String,
    pub(crate) max_tokens: u32,
    /// Fields that the configuration adds to every request.
    pub(crate) extra_body: Map<String, Value>,
}

impl Profile {
    pub(crate) fn new(model: String) -> Self {
        Self { model, max_tokens: MAX_TOKENS, extra_body: Map::new() }
    }
}

impl Provider for Anthropic {
    fn about(&self) -> &About {
        &self.about
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<EventStream, ModelError>> {
        Box::pin(async move {
            let caller = request.caller;
            let names = Names::new(&request.tools)?;
            let body = encode::body(request, &self.profile)?;
            self.http.stream(caller, body, || Box::new(Decoder::new(names.clone()))).await
        })
    }
}
