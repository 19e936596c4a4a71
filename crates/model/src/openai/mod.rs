//! OpenAI Chat Completions, and the servers that say they speak it (Ollama, vLLM and many more).

mod decode;
mod encode;

pub(crate) use decode::Decoder;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::config::Kind;
use crate::error::ModelError;
use crate::event::EventStream;
use crate::history::Names;
use crate::http::Http;
use crate::message::Request;
use crate::provider::{About, Provider};

pub(crate) struct OpenAi {
    pub(crate) about: About,
    pub(crate) http: Http,
    pub(crate) profile: Profile,
}

/// What a request to this server looks like.
pub(crate) struct Profile {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u32>,
    /// Fields that the configuration adds to every request.
    pub(crate) extra_body: Map<String, Value>,
    /// OpenAI's own service has fields that imitators refuse, and refuses one that they need.
    pub(crate) genuine: bool,
    /// Ollama silently cuts a long prompt; only the count of tokens gives it away.
    pub(crate) cuts_prompts: bool,
}

impl Profile {
    pub(crate) fn new(kind: Kind, host: &str, model: String) -> Self {
        let genuine = host.ends_with("openai.com") || host.ends_with("azure.com");
        let cuts_prompts = kind == Kind::Ollama;
        Self { model, max_tokens: None, extra_body: Map::new(), genuine, cuts_prompts }
    }
}

impl Provider for OpenAi {
    fn about(&self) -> &About {
        &self.about
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<EventStream, ModelError>> {
        Box::pin(async move {
            let caller = request.caller;
            let names = Names::new(&request.tools)?;
            let body = encode::body(request, &self.profile);
            // Four bytes to a token; a prompt a third as long as that has been cut.
            let expected = self.profile.cuts_prompts.then_some(body.len() as u64 / 4);
            self.http.stream(caller, body, || Box::new(Decoder::new(names.clone(), expected))).await
        })
    }
}
