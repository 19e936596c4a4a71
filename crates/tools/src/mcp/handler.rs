//! What a server says without being asked: progress of a call, and that its tools changed. Everything else
//! that it asks for is declined, which is what the empty list of capabilities has told it.

use super::confided::Confided;
use crate::outcome::Sink;
use instar_core::secret::Redactor;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RoleClient};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

const MESSAGE_BYTES_MAX: usize = 4 << 10;

pub(super) struct Ears {
    confided: Arc<Confided>,
    calls: Mutex<HashMap<ProgressToken, Sink>>,
    /// The server says that its tools changed.
    pub(super) changed: Notify,
}

impl Ears {
    pub(super) fn new(confided: Arc<Confided>) -> Ears {
        Ears { confided, calls: Mutex::default(), changed: Notify::new() }
    }

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
            // With what it was told since the call began, by whatever call.
            sink.say(words(&params, &self.0.confided.now()), None);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.changed.notify_one();
    }
}

fn words(progress: &ProgressNotificationParam, redactor: &Redactor) -> String {
    let far = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => {
            // Before it is cut: half a secret would not be known.
            let mut message = message.to_owned();
            redactor.text(&mut message);
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            format!("{far} {message}")
        }
        None => far,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::secret::Secret;

    #[test]
    fn progress_is_cleaned_before_it_is_cut_and_of_what_was_told_by_now() {
        let confided = Arc::new(Confided::new());
        let ears = Ears::new(confided.clone());
        confided.add(&Arc::new(Redactor::new([&Secret::new("told-in-the-meantime").unwrap()]))).unwrap();
        let mut params = ProgressNotificationParam::new(ProgressToken(rmcp::model::NumberOrString::Number(1)), 1.0);
        params.message = Some(format!("{} told-in-the-meantime", "x".repeat(MESSAGE_BYTES_MAX - 12)));
        let said = words(&params, &ears.confided.now());
        assert!(!said.contains("told") && said.len() <= MESSAGE_BYTES_MAX + 2, "{said}");
    }
}
