//! `instar import`: an exported log of a closed session becomes an archived session here.

use crate::failure::{FAILED, Failure};
use crate::log::Log;
use crate::output::{self, Format};
use clap::Args;
use instar_archive::Segment;
use instar_client::Client;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file of JSON lines as `instar export` writes it (- for standard input)
    pub(crate) file: String,
}

impl Arguments {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let log = Log::of_file(&self.file)?;
        let wrong = |error: instar_archive::ArchiveError| Failure::new(FAILED, error.to_string());
        let Some(first) = log.runes.first() else { return Err(Failure::new(FAILED, "there is no rune in it")) };
        let mut segment = Segment::new(first.session_id);
        for rune in &log.runes {
            segment.push(rune).map_err(wrong)?;
        }
        for seal in &log.seals {
            segment.seal(*seal);
        }
        let session = client.import_session(segment.finish().map_err(wrong)?).await?;
        output::note(&format!("{} runes of session {}", log.runes.len(), session.id));
        Ok(output::one(format, &session)?)
    }
}
