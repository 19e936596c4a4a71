//! The least that listening to a model costs: every stream is read and parsed, and that is all.

use crate::model::{HEAD, Model, read};
use anyhow::Result;
use std::rc::Rc;
use tokio::task::JoinSet;

pub(crate) async fn run(streams: usize) -> Result<()> {
    let model = Rc::new(Model::new()?);
    let mut readers = JoinSet::new();
    for _ in 0..streams {
        let model = model.clone();
        readers.spawn_local(async move {
            let mut bytes = 0;
            let answer = model.open(format!("{HEAD},{{\"role\":\"user\",\"content\":\"talk\"}}]}}")).await?;
            read(answer, |delta| bytes += delta.content.as_ref().map_or(0, String::len)).await?;
            anyhow::Ok(bytes)
        });
    }
    println!("ready");
    let mut bytes = 0;
    while let Some(read) = readers.join_next().await {
        bytes += read??;
    }
    println!("{bytes} bytes");
    Ok(())
}
