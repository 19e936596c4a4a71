//! What every adapter offers.

use futures::future::BoxFuture;

use crate::error::ModelError;
use crate::event::EventStream;
use crate::message::Request;
use instar_core::budget::Price;

/// A configured model of some provider.
pub trait Provider: Send + Sync {
    fn about(&self) -> &About;

    /// Starts a call. Returns when the first piece of the answer is there, so that this is also the
    /// moment to measure; dropping the future or the stream ends the call. Any history will do: it is
    /// repaired for the provider on its way.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<EventStream, ModelError>>;
}

/// What it is called, and how much it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name in the configuration.
    pub name: String,
    /// `gen_ai.provider.name`.
    pub provider: &'static str,
    /// `gen_ai.request.model`.
    pub model: String,
    /// Tokens that it can read and write, and write, in one call, as configured.
    pub context_window: Option<u32>,
    pub max_tokens: Option<u32>,
    /// As configured.
    pub price: Option<Price>,
    pub server_address: Option<String>,
    pub server_port: Option<u16>,
}
