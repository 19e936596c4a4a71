//! `instar events`: what happened in a session, and with `--follow` what happens.

use crate::describe;
use crate::failure::Failure;
use crate::output::{self, Format};
use clap::Args;
use futures::StreamExt;
use instar_client::{Client, Event, Rune};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    pub(crate) session: String,
    /// Go on until the session is closed
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin after this rune
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) after: i64,
    /// With --follow: also what models and tools say while they say it
    #[arg(long, requires = "follow")]
    pub(crate) deltas: bool,
}

impl Arguments {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        if self.follow { self.follow(client, format).await } else { self.past(client, format).await }
    }

    /// Page by page: a long log is printed while it is read.
    async fn past(self, client: &Client, format: Format) -> Result<(), Failure> {
        let mut next = Some(self.after);
        while let Some(after) = next {
            let page;
            (page, next) = client.rune_page(&self.session, after).await?;
            for rune in &page {
                print(rune, format)?;
            }
        }
        Ok(())
    }

    async fn follow(self, client: &Client, format: Format) -> Result<(), Failure> {
        let mut events = client.events(&self.session, self.after);
        while let Some(event) = events.next().await {
            match event? {
                Event::Rune(rune) => {
                    print(&rune, format)?;
                    // Its last one, but for the archiving.
                    if rune.kind == "session.closed" {
                        return Ok(());
                    }
                }
                Event::Delta(delta) if self.deltas && format == Format::Table => {
                    output::say(&format!("{:>5}  {:<26} {}\n", "", "delta", output::short(&delta.text, 100)))?;
                }
                Event::Delta(delta) if self.deltas => output::document(format, &delta)?,
                Event::Progress(said) if self.deltas && format == Format::Table => {
                    let (name, text) = (said.stream.as_deref().unwrap_or("progress"), output::short(&said.text, 100));
                    output::say(&format!("{:>5}  {name:<26} {text}\n", ""))?;
                }
                Event::Progress(said) if self.deltas => output::document(format, &said)?,
                Event::Delta(_) | Event::Progress(_) => {}
                Event::Gap(gap) => {
                    let from = gap.earliest_available.map_or("later".to_owned(), |seq| format!("at {seq}"));
                    output::note(&format!("what was before is archived; the log goes on {from}"));
                }
            }
        }
        Ok(())
    }
}

fn print(rune: &Rune, format: Format) -> Result<(), Failure> {
    match format {
        Format::Table => {
            let (time, told) = (rune.at.format("%H:%M:%S%.3f"), describe::rune(rune));
            let line = format!("{:>5}  {time}  {:<26} {}  {told}", rune.seq, rune.kind, rune.entity_id);
            output::say(&format!("{}\n", output::clean(line.trim_end())))?;
        }
        Format::Json | Format::Yaml => output::document(format, rune)?,
    }
    Ok(())
}
