//! `instar export`: the runelog of a session as JSON lines, as it was served, and the seals over it.

use crate::failure::Failure;
use crate::log::SealLine;
use crate::output;
use clap::Args;
use instar_client::Client;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    pub(crate) session: String,
    /// Where to; standard output if absent
    pub(crate) file: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self, client: &Client) -> Result<(), Failure> {
        match &self.file {
            None => write(client, &self.session, std::io::stdout()).await.map(drop),
            Some(file) => {
                // A file of that name is a whole log or none.
                let partial = beside(file);
                let count = write(client, &self.session, File::create(&partial)?).await;
                let count = match count {
                    Ok(count) => count,
                    Err(failure) => {
                        let _ = std::fs::remove_file(&partial);
                        return Err(failure);
                    }
                };
                std::fs::rename(&partial, file)?;
                output::note(&format!("{count} runes in {}", file.display()));
                Ok(())
            }
        }
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

async fn write(client: &Client, session: &str, to: impl Write) -> Result<usize, Failure> {
    // Before the runes: a seal must not cover what is not written here.
    let seals = client.seals(session).await?;
    let (mut to, mut count, mut next) = (BufWriter::new(to), 0, Some(0));
    while let Some(after) = next {
        let page;
        (page, next) = client.rune_page(session, after).await?;
        for rune in &page {
            serde_json::to_writer(&mut to, rune)?;
            to.write_all(b"\n")?;
        }
        count += page.len();
    }
    for seal in seals {
        serde_json::to_writer(&mut to, &SealLine { seal })?;
        to.write_all(b"\n")?;
    }
    to.flush()?;
    Ok(count)
}
