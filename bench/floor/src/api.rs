//! `POST /agents/{number}/messages`: commits the message, answers when its turn is over.

use crate::bus::Bus;
use crate::setting;
use crate::step::{Kind, Step};
use crate::store::Writer;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use uuid::Uuid;

#[derive(Deserialize)]
struct Sent {
    content: String,
}

struct Api {
    writer: Writer,
    /// Of each agent's row, as its last end told.
    versions: RefCell<HashMap<usize, i64>>,
    waiting: RefCell<HashMap<Uuid, oneshot::Sender<Step>>>,
}

pub(crate) async fn serve() -> Result<()> {
    let bus = Bus::connect().await?;
    let writer = Writer::start(&bus).await?;
    let api = Rc::new(Api { writer, versions: RefCell::default(), waiting: RefCell::default() });
    let listener = TcpListener::bind(setting("LISTEN")?).await?;
    tokio::task::spawn_local(accept(listener, api.clone()));
    bus.hear("api", |end| {
        api.versions.borrow_mut().insert(end.agent, end.version);
        if let Some(waiting) = api.waiting.borrow_mut().remove(&end.turn) {
            let _ = waiting.send(end);
        }
    })
    .await
}

async fn accept(listener: TcpListener, api: Rc<Api>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let api = api.clone();
        tokio::task::spawn_local(async move {
            let answer = service_fn(move |request| answer(api.clone(), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(api: Rc<Api>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let agent = request.uri().path().split('/').nth(2).context("an agent")?.parse()?;
    let sent: Sent = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let (turn, version) = (Uuid::now_v7(), api.versions.borrow().get(&agent).copied().unwrap_or(0));
    let (over, end) = oneshot::channel();
    api.waiting.borrow_mut().insert(turn, over);
    let step =
        Step { kind: Kind::Message, agent, turn, call: Uuid::nil(), version, text: sent.content, past: String::new() };
    api.writer.commit(step).await?;
    let end = end.await?;
    let body = format!(
        "{{\"turn_id\":\"trn_{turn}\",\"version\":{},\"status\":\"completed\",\"output\":{:?}}}",
        end.version, end.text
    );
    Ok(Response::builder().header("content-type", "application/json").body(Full::from(body))?)
}
