//! Turns: asks the model, commits its call; asks again with the result, commits the end.

use crate::bus::Bus;
use crate::model::Model;
use crate::step::{Kind, Step};
use crate::store::Writer;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use uuid::Uuid;

struct Worker {
    writer: Writer,
    model: Model,
    /// What turns with an open call were told and called.
    open: RefCell<HashMap<Uuid, (String, String)>>,
}

pub(crate) async fn serve() -> Result<()> {
    let bus = Bus::connect().await?;
    let writer = Writer::start(&bus).await?;
    let worker = Rc::new(Worker { writer, model: Model::new()?, open: RefCell::default() });
    bus.hear("worker", |step| {
        let worker = worker.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = worker.go_on(step).await {
                eprintln!("{error:?}");
            }
        });
    })
    .await
}

impl Worker {
    async fn go_on(&self, step: Step) -> Result<()> {
        let next = match step.kind {
            Kind::Message => {
                let answer = self.model.ask(&step.text, None).await?;
                self.open.borrow_mut().insert(step.turn, (step.text, answer.arguments.clone()));
                Step { kind: Kind::Call, call: Uuid::now_v7(), text: answer.arguments, ..step }
            }
            _ => {
                let (told, called) = self.open.borrow_mut().remove(&step.turn).context("a turn that is not open")?;
                let answer = self.model.ask(&told, Some((&called, &step.text))).await?;
                let past = format!("{told}{called}{}", step.text);
                Step { kind: Kind::End, text: answer.said, past, ..step }
            }
        };
        self.writer.commit(next).await
    }
}
