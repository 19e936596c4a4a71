//! What a server says without being asked: progress of a call, and that its tools changed. Everything else
//! that it asks for is declined, which is what the empty list of capabilities has told it.

use crate::outcome::Sink;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RoleClient};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

const MESSAGE_BYTES_MAX: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Ears {
    calls: Mutex<HashMap<ProgressToken, Sink>>,
    /// The server says that its tools changed.
    pub(super) changed: Notify,
}

impl Ears {
    /// Passes progress on for as long as what it returns is kept.
    pub(super) fn listen(self: &Arc<Self>, token: ProgressToken, sink: Sink) -> Listening {
        self.calls().insert(token.clone(), sink);
        Listening { ears: self.clone(), token }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ProgressToken, Sink>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Listening {
    ears: Arc<Ears>,
    token: ProgressToken,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ears.calls().remove(&self.token);
    }
}

pub(super) struct Handler(pub(super) Arc<Ears>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("instar", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let sink = self.0.calls().get(&params.progress_token).cloned();
        if let Some(sink) = sink {
            sink.say(words(&params));
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.changed.notify_one();
    }
}

fn words(progress: &ProgressNotificationParam) -> String {
    let far = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{far} {}", &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]),
        None => far,
    }
}
