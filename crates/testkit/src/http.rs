//! Serving routes on a free port of the loopback interface until dropped.
//!
//! It must not know the routes.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) struct Listening {
    url: String,
    task: JoinHandle<()>,
}

impl Listening {
    pub(crate) async fn start(routes: Router) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no port can be bound on 127.0.0.1: is the loopback interface up?")?;
        let url = format!("http://{}", listener.local_addr()?);
        // Small frames must leave at once: measured delays are to be the script's, not the
        // kernel's.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { url, task })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends the connection that is being served without another byte.
///
/// A handler can only return a response; but when its task unwinds, the connection goes with it.
/// This unwinds without a word from the panic hook, since nothing went wrong.
pub(crate) fn cut_connection() -> ! {
    std::panic::resume_unwind(Box::new("connection cut by the script"))
}
