//! A connection to a server that has said what it offers.

use super::confided::Confided;
use super::handler::Ears;
use super::lost::Lost;
use crate::outcome::Sink;
use crate::runner::{Flight, Invocation};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, ClientRequest,
    PaginatedRequestParams, RequestId, RequestMetaObject, ServerResult, SubscriptionFilter, Tool,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError, Subscription};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;

/// What a server knows a call by: the same for every attempt.
const IDEMPOTENCY_KEY: &str = "instar/idempotency_key";
const ATTEMPT: &str = "instar/attempt";
/// A list in more parts than this has no end.
const PAGES_MAX: usize = 1_000;

pub(super) struct Session {
    peer: Peer<RoleClient>,
    pub(super) ears: Arc<Ears>,
    pub(super) confided: Arc<Confided>,
    /// Hashes by the tools' names as the server has them.
    offers: RwLock<HashMap<String, String>>,
    /// Somebody found it of no use.
    pub(super) given_up: CancellationToken,
}

impl Session {
    pub(super) fn new(peer: Peer<RoleClient>, ears: Arc<Ears>, confided: Arc<Confided>) -> Session {
        Session { peer, ears, confided, offers: RwLock::default(), given_up: CancellationToken::new() }
    }

    pub(super) fn protocol(&self) -> String {
        self.peer.peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// Name and version, as the server calls itself.
    pub(super) fn about(&self) -> Option<String> {
        let own = self.peer.peer_info()?.server_info.clone()?;
        let mut about = format!("{} {}", own.name, own.version);
        self.confided.now().text(&mut about);
        Some(about.chars().take(100).collect())
    }

    pub(super) fn set_offers(&self, offers: HashMap<String, String>) {
        *self.offers.write().unwrap_or_else(PoisonError::into_inner) = offers;
    }

    pub(super) fn hash_of(&self, tool: &str) -> Option<String> {
        self.offers.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    /// Everything the server lists, or why that cannot be had.
    pub(super) async fn list(&self, most: usize) -> Result<Vec<Tool>, String> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        if self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
            return Ok(tools);
        }
        for _ in 0..PAGES_MAX {
            let mut page = PaginatedRequestParams::default();
            page.cursor = cursor;
            let page = self.peer.list_tools(Some(page)).await.map_err(|error| format!("its tools: {error}"))?;
            tools.extend(page.tools);
            if tools.len() > most {
                return Err(format!("mcp_limit_exceeded: it lists more than {most} tools; see tools_max and allow"));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err("mcp_limit_exceeded: its list of tools does not end".to_owned())
    }

    /// The modern way to be told of changes; servers of the other era tell by themselves.
    pub(super) async fn subscribe(&self) -> Option<Subscription> {
        let info = self.peer.peer_info()?;
        let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if !tells || info.protocol_version.has_initialize() {
            return None;
        }
        let wanted = SubscriptionFilter::builder().tools_list_changed().build();
        match self.peer.listen(wanted).await {
            Ok(subscription) => Some(subscription),
            Err(error) => {
                tracing::debug!(%error, "an MCP server does not tell of changes; it is asked from time to time");
                None
            }
        }
    }

    /// Dropping the future tells the server that nobody waits any more.
    pub(super) async fn call(
        &self,
        call: &Invocation,
        tool: &str,
        arguments: &Value,
        sink: &Sink,
        flight: &Flight,
    ) -> Result<CallToolResponse, Lost> {
        let mut meta = RequestMetaObject::new();
        meta.0.0.insert(IDEMPOTENCY_KEY.to_owned(), call.call_id.to_string().into());
        meta.0.0.insert(ATTEMPT.to_owned(), call.attempt.into());
        if let Some(trace) = &call.traceparent {
            meta.0.set_traceparent(trace.clone());
        }
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let sent = self.peer.send_request_with_option(request, options).await;
        let handle = sent.map_err(|_| Lost::unsent())?;
        flight.begin();
        let _listening = self.ears.listen(handle.progress_token.clone(), sink.clone());
        let mut abandoned = Abandoned { peer: self.peer.clone(), id: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        abandoned.id = None;
        match answer {
            Ok(ServerResult::CallToolResult(result)) => Ok(CallToolResponse::Complete(result)),
            Ok(ServerResult::InputRequiredResult(result)) => Ok(CallToolResponse::InputRequired(result)),
            Ok(ServerResult::CreateTaskResult(result)) => Ok(CallToolResponse::Task(result)),
            Ok(_) => Err(Lost::of(&ServiceError::UnexpectedResponse)),
            Err(error) => Err(Lost::of(&error)),
        }
    }
}

/// A request whose answer nobody waits for any more is called off.
struct Abandoned {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (peer, Ok(runtime)) = (self.peer.clone(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), Some("nobody waits for it any more".to_owned()));
            let _ = peer.notify_cancelled(params).await;
        });
    }
}
