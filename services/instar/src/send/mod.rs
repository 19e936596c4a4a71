//! `instar send`: a message to an agent, and its answer as it comes.
//!
//! The answer goes to standard output, everything else to standard error, so that a script reads
//! the answer alone.

mod answer;
mod follow;

use crate::failure::{FAILED, Failure};
use crate::noun::content;
use crate::output::{self, Format};
use clap::{Args, ValueEnum};
use follow::{End, Follow};
use futures::StreamExt;
use instar_client::{Agent, Broadcast, Client, Mode, Sent};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    pub(crate) agent: String,
    /// The message, or - for standard input
    pub(crate) text: String,
    /// What becomes of a turn under way
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Way,
    /// Do not wait for the answer
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Answer when it is over
    #[default]
    Queue,
    /// Take the place of its rest
    Steer,
    /// End it and answer
    Interrupt,
}

/// `instar broadcast`
#[derive(Debug, Args)]
pub(crate) struct Everybody {
    pub(crate) session: String,
    /// The message, or - for standard input
    pub(crate) text: String,
    /// Only for those who hear it now: agents made later get no message of it
    #[arg(long)]
    pub(crate) once: bool,
    /// From when on nobody is told of it any more, such as 2030-01-31T12:00:00Z
    #[arg(long)]
    pub(crate) expires_at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Arguments {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<ExitCode, Failure> {
        let content = content(&self.text)?;
        let agent = client.agent(&self.agent).await?;
        // Read before the message is sent: nothing of the answer can come before this.
        let before = client.session(&agent.session_id).await?.head_seq;
        let mode = match self.mode {
            Way::Queue => Mode::Queue,
            Way::Steer => Mode::Steer,
            Way::Interrupt => Mode::Interrupt,
        };
        let sent = client.send_message(&self.agent, &content, mode).await?;
        if self.no_wait {
            output::one(format, &sent)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (turn, end) = follow(client, &agent, &sent, before, format == Format::Table).await?;
        if format != Format::Table {
            output::one(format, &client.turn(&turn).await?)?;
        }
        Ok(match end {
            End::Completed => ExitCode::SUCCESS,
            End::Failed => ExitCode::from(FAILED),
        })
    }
}

async fn follow(
    client: &Client,
    agent: &Agent,
    sent: &Sent,
    before: i64,
    aloud: bool,
) -> Result<(String, End), Failure> {
    let mut follow = Follow::new(&agent.id, sent, aloud);
    let mut events = client.events(&agent.session_id, before);
    while let Some(event) = events.next().await {
        if follow.wants_turn(event.as_ref().ok()) {
            let messages = client.messages(&agent.id, &Default::default()).await?.data;
            let mine = messages.into_iter().find(|message| message.id == sent.message_id);
            follow.adopt(mine.and_then(|message| message.turn_id));
        }
        if let Some(end) = follow.hear(event?)? {
            return Ok((follow.turn().unwrap_or_default().to_owned(), end));
        }
    }
    Err(Failure::new(FAILED, "the server ended the stream before the turn ended"))
}

impl Everybody {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let (standing, expires_at) = (Some(!self.once), self.expires_at);
        let broadcast = Broadcast { content: content(&self.text)?, standing, expires_at };
        Ok(output::one(format, &client.broadcast(&self.session, &broadcast).await?)?)
    }
}
