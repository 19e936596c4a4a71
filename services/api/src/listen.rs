//! Connections: small writes go out at once, and one whose reader has stopped reading, or that does not come to the end
//! of a request's head, is closed.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

/// How long a write may make no progress.
const STALL_MAX: Duration = Duration::from_secs(10);
/// How long the head of a request may take: the first from the connection's beginning, others from their first byte.
const HEAD_MAX: Duration = Duration::from_secs(20);
/// Not yet the answer: what it lets the client send belongs to the same request.
const CONTINUE: &[u8] = b"HTTP/1.1 100 ";

pub(crate) struct Listen(pub(crate) TcpListener);

impl Listener for Listen {
    type Io = Watched<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::trace!(%error, "a connection keeps its delay");
        }
        (Watched::new(stream), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Connected<IncomingStream<'_, Listen>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Listen>) -> Self {
        Peer(stream.remote_addr().ip())
    }
}

/// How far the request is that a connection brings.
enum Request {
    /// Its head is on its way. `line`: it has begun, and its last byte ended a line.
    Head {
        begun: bool,
        line: bool,
        late: Pin<Box<Sleep>>,
    },
    Whole,
    Answered,
}

impl Request {
    fn head() -> Request {
        Request::Head { begun: false, line: false, late: Box::pin(tokio::time::sleep(HEAD_MAX)) }
    }

    fn reads(&mut self, bytes: &[u8]) {
        if matches!(self, Request::Answered) && !bytes.is_empty() {
            *self = Request::head();
        }
        for byte in bytes {
            let Request::Head { begun, line, .. } = self else { return };
            match byte {
                b'\n' if *line => *self = Request::Whole,
                // Empty lines before it are no head.
                b'\n' => *line = *begun,
                b'\r' => {}
                _ => (*begun, *line) = (true, false),
            }
        }
    }

    fn writes(&mut self, bytes: &[u8]) {
        if matches!(self, Request::Whole) && !bytes.is_empty() && !bytes.starts_with(CONTINUE) {
            *self = Request::Answered;
        }
    }

    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Request::Head { late, .. } => late.as_mut().poll(context).is_ready(),
            Request::Whole | Request::Answered => false,
        }
    }
}

/// A stream whose writes fail once they have made no progress for a while, and its reads where a head does not end.
pub(crate) struct Watched<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
    request: Request,
}

impl<S: Unpin> Watched<S> {
    fn new(stream: S) -> Watched<S> {
        Watched { stream, stalled: None, request: Request::head() }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_MAX)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader stopped reading"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.request.reads(&buffer.filled()[before..]);
        if poll.is_pending() && self.request.is_late(context) {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the head of a request did not end in time",
            )));
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.request.writes(bytes);
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.request.writes(slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice));
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_write_that_makes_no_progress_fails_and_one_that_does_goes_on() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Watched::new(near);
        near.write_all(b"four").await.unwrap();
        let reader = tokio::spawn(async move {
            tokio::time::sleep(STALL_MAX / 2).await;
            let mut buffer = [0; 4];
            tokio::io::AsyncReadExt::read_exact(&mut far, &mut buffer).await.unwrap();
            far
        });
        near.write_all(b"more").await.unwrap();
        let _far = reader.await.unwrap();
        let failed = near.write_all(b"lost").await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }

    /// What comes of bytes that are sent one a second, without an end.
    async fn trickle(mut near: Watched<tokio::io::DuplexStream>, mut far: tokio::io::DuplexStream) -> io::Result<()> {
        let sender = tokio::spawn(async move {
            while far.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut buffer = [0; 64];
        let begun = tokio::time::Instant::now();
        let ended = loop {
            match near.read(&mut buffer).await {
                Ok(_) if begun.elapsed() > HEAD_MAX * 5 => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        sender.abort();
        ended
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_end_ends_the_connection_and_a_slow_body_does_not() {
        for (said, answered, ends) in [
            ("", false, true),
            ("\r\n\r\n", false, true),
            ("POST / HTTP/1.1\r\nhost: x\r\n", false, true),
            ("POST / HTTP/1.1\r\nhost: x\r\n\r\n", false, false),
            ("POST / HTTP/1.1\nhost: x\n\n", false, false),
            ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", true, true),
        ] {
            let (near, mut far) = tokio::io::duplex(256);
            let mut near = Watched::new(near);
            far.write_all(said.as_bytes()).await.unwrap();
            let mut read = vec![0; said.len()];
            near.read_exact(&mut read).await.unwrap();
            near.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            if answered {
                near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                // A connection at rest may rest.
                tokio::time::sleep(HEAD_MAX * 2).await;
            }
            let ended = trickle(near, far).await;
            assert_eq!(ended.is_err(), ends, "{said:?}: {ended:?}");
        }
        let (near, _far) = tokio::io::duplex(4);
        let failed = Watched::new(near).read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut, "nothing was ever said");
    }
}
