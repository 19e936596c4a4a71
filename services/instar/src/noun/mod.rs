//! `instar <noun> <verb>`: one file per noun, each a list of verbs and what they ask of the API.

pub(crate) mod account;
pub(crate) mod agent;
pub(crate) mod asset;
pub(crate) mod catalog;
pub(crate) mod hop;
pub(crate) mod mission;
pub(crate) mod plan;
pub(crate) mod session;
pub(crate) mod step;
pub(crate) mod tool;
pub(crate) mod turn;

use crate::failure::Failure;
use clap::Args;
use instar_client::{Client, Query};
use serde::de::DeserializeOwned;

/// How much of a list.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Extent {
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

impl Extent {
    pub(crate) async fn read<T: DeserializeOwned>(
        self,
        client: &Client,
        noun: &str,
        query: Query,
    ) -> Result<Vec<T>, Failure> {
        Ok(client.every(&["v1", noun], query, self.limit as usize).await?)
    }
}

/// The text itself, or standard input for `-`.
pub(crate) fn content(text: &str) -> Result<String, Failure> {
    match text {
        "-" => Ok(std::io::read_to_string(std::io::stdin())?),
        text => Ok(text.to_owned()),
    }
}
