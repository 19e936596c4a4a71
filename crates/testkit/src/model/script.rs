//! The script that chooses the reply to each request.
//!
//! It must not know how replies are sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::{Refusal, Reply, Request};

type Choose = dyn Fn(&Request) -> Reply + Send + Sync;

/// Replies in order of arrival, then a function of the request.
#[derive(Clone)]
pub struct Script {
    queue: Arc<Mutex<VecDeque<Reply>>>,
    then: Arc<Choose>,
}

impl Script {
    /// These replies, one per request; whatever comes later is refused as invalid, so that nobody
    /// retries it.
    pub fn replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let then = |_: &Request| Reply::refused(Refusal::Invalid("the script has no further replies".to_owned()));
        let queue = Arc::new(Mutex::new(replies.into_iter().collect()));
        Self { queue, then: Arc::new(then) }
    }

    /// A reply that depends on the request: right when many agents call at once.
    pub fn function(choose: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::replies([]).then(choose)
    }

    /// What follows the replies in order.
    pub fn then(mut self, choose: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        self.then = Arc::new(choose);
        self
    }

    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let next = self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or_else(|| (self.then)(request))
    }
}

/// One turn with one tool: calls `echo` with the last text of the user, then repeats what the tool
/// said.
impl Default for Script {
    fn default() -> Self {
        Self::function(|request| match request.tool_results().as_slice() {
            [] => Reply::call("echo", json!({ "text": request.user_text() })),
            results => {
                let said: Vec<&str> = results.iter().map(|result| result.content.as_str()).collect();
                Reply::text(format!("The tool said: {}", said.join(" ")))
            }
        })
    }
}
