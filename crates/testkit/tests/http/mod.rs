//! A client that shows the bytes of a response as they came, and how the response ended.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// Whether the body ended as HTTP says it must.
    pub(crate) complete: bool,
}

impl Response {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Posts and reads until the response or the connection ends; `patience` bounds the silence.
pub(crate) async fn post(url: &str, headers: &[(&str, &str)], body: &str, patience: Duration) -> Result<Response> {
    let rest = url.strip_prefix("http://").context("only http")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut stream = TcpStream::connect(host).await?;
    let mut request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
    let mut seen = Vec::new();
    let mut part = vec![0; 65536];
    loop {
        // A silence or a reset ends the reading: what came before is what the test looks at.
        match tokio::time::timeout(patience, stream.read(&mut part)).await {
            Ok(Ok(0)) | Ok(Err(_)) | Err(_) => break,
            Ok(Ok(count)) => seen.extend_from_slice(&part[..count]),
        }
    }
    let text = String::from_utf8(seen)?;
    let (head, raw) = text.split_once("\r\n\r\n").context("the connection ended without an answer")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    let (body, complete) =
        if head.to_lowercase().contains("transfer-encoding: chunked") { unchunk(raw) } else { (raw.to_owned(), true) };
    Ok(Response { status, head: head.to_lowercase(), body, complete })
}

fn unchunk(mut raw: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, rest)) = raw.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(..size) else { break };
        body.push_str(chunk);
        raw = rest.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}
