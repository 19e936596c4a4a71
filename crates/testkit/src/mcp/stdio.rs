//! One message per line.

use super::{Out, Server};
use anyhow::Result;
use std::io::{BufRead, Write};
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;

pub(super) async fn serve(server: Arc<Server>) -> Result<()> {
    let (out, mut outgoing) = unbounded_channel();
    // A thread of its own for each: pipes block.
    std::thread::spawn(move || {
        let mut stdout = std::io::stdout().lock();
        while let Some(said) = outgoing.blocking_recv() {
            let written = match said {
                Out::Message(message) => writeln!(stdout, "{message}"),
                Out::Raw(text) => writeln!(stdout, "{text}"),
            };
            if written.and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    let (read, mut lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if !line.is_ok_and(|line| read.send(line).is_ok()) {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        if let Ok(message) = serde_json::from_str(&line) {
            tokio::spawn(server.clone().take(message, out.clone()));
        }
    }
    Ok(())
}
