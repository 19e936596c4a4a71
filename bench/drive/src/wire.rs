//! HTTP/1.1 on one connection, both ways, with as little work as it takes: the load and the model share the machine
//! with what they measure.
//!
//! It must not know what is said over it.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_BYTES: usize = 16 << 10;

pub struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A request or an answer.
pub struct Message {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

impl Message {
    /// Of an answer.
    pub fn ensure_success(&self) -> Result<()> {
        let said = || format!("{}{}", String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.body));
        ensure!(self.head.get(9) == Some(&b'2'), "refused: {}", said());
        Ok(())
    }
}

pub fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// What a header says, whatever its case.
fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A request with a JSON body, ready to be sent as often as it is wanted. `further`: whole header lines.
pub fn request(method: &str, path: &str, further: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: bench\r\n{further}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One request on a connection of its own; its answer as JSON.
pub async fn json(address: &str, request: &[u8]) -> Result<Value> {
    Ok(serde_json::from_slice(&Line::connect(address).await?.ask(request).await?.body)?)
}

impl Line {
    pub fn new(stream: TcpStream) -> Result<Line> {
        stream.set_nodelay(true)?;
        Ok(Line { stream, unread: Vec::with_capacity(READ_BYTES) })
    }

    pub async fn connect(address: &str) -> Result<Line> {
        Line::new(TcpStream::connect(address).await.with_context(|| format!("nobody listens on {address}"))?)
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// A request and its answer, which must be good.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Message> {
        self.send(request).await?;
        let answer = self.message().await?.context("closed instead of an answer")?;
        answer.ensure_success()?;
        Ok(answer)
    }

    /// `None` when the other side has hung up.
    pub async fn message(&mut self) -> Result<Option<Message>> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let mut body = Vec::new();
        if let Some(length) = header(&head, "content-length") {
            body = self.exactly(length.parse()?).await?;
        } else if header(&head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            while self.chunk(&mut body).await? {}
        }
        Ok(Some(Message { head, body }))
    }

    /// The head alone, of what comes in pieces.
    pub async fn head(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                return Ok(Some(self.unread.drain(..at + 4).collect()));
            }
            if self.more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Adds a chunk of a chunked body; false for the last.
    pub async fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool> {
        let line = loop {
            match find(&self.unread, b"\r\n") {
                Some(at) => break self.unread.drain(..at + 2).collect::<Vec<u8>>(),
                None => ensure!(self.more().await? > 0, "cut off between chunks"),
            }
        };
        let length = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
        let mut chunk = self.exactly(length + 2).await?;
        chunk.truncate(length);
        body.extend_from_slice(&chunk);
        Ok(length > 0)
    }

    async fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>> {
        while self.unread.len() < bytes {
            if self.more().await? == 0 {
                bail!("cut off in a body");
            }
        }
        Ok(self.unread.drain(..bytes).collect())
    }

    async fn more(&mut self) -> Result<usize> {
        self.unread.reserve(READ_BYTES);
        Ok(self.stream.read_buf(&mut self.unread).await?)
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}
