//! `instar account …`: credentials that agents claim. A secret is read from a file, a variable or standard
//! input, never from the command line, where everybody on the machine could see it.

use super::Extent;
use super::session::changed;
use crate::failure::Failure;
use crate::output::{self, Column, Format};
use clap::Subcommand;
use instar_client::{Account, Client, NewAccount, Query};
use std::collections::BTreeMap;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List accounts and who holds them
    List {
        #[arg(long)]
        pool: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Store an account
    Add {
        name: String,
        /// Accounts that serve the same purpose [default: default]
        #[arg(long)]
        pool: Option<String>,
        /// Who it is for the service behind it; no secret
        #[arg(long)]
        username: Option<String>,
        /// A secret and the file that holds it, - for standard input: password=-; may be repeated
        #[arg(long = "field", value_name = "NAME=FILE", value_parser = pair)]
        fields: Vec<(String, String)>,
        /// A secret and the environment variable that holds it; may be repeated
        #[arg(long = "field-env", value_name = "NAME=VARIABLE", value_parser = pair)]
        variables: Vec<(String, String)>,
        /// When its holder gives it back; may be repeated [default: stop, error, terminate, delete]
        #[arg(long = "release-on", value_parser = ["stop", "error", "terminate", "delete", "idle"])]
        release_on: Vec<String>,
    },
    /// Remove an account
    Remove { account: String },
}

const COLUMNS: &[Column<Account>] = &[
    ("NAME", |a| a.name.clone()),
    ("POOL", |a| a.pool.clone()),
    ("USERNAME", |a| a.username.clone().unwrap_or_default()),
    ("FIELDS", |a| a.fields.join(", ")),
    ("HOLDER", |a| a.holder.clone().unwrap_or_default()),
    ("ID", |a| a.id.clone()),
];

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, place) = text.split_once('=').ok_or("must be NAME=PLACE, such as password=-")?;
    if name.is_empty() || place.is_empty() {
        return Err("must be NAME=PLACE, such as password=-".into());
    }
    Ok((name.to_owned(), place.to_owned()))
}

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        match self {
            Verb::List { pool, extent } => {
                let accounts = extent.read(client, "accounts", Query::new().maybe("pool", pool)).await?;
                output::list(format, &accounts, COLUMNS)?;
            }
            Verb::Add { name, pool, username, fields, variables, release_on } => {
                let fields = read(fields, variables)?;
                let release_on = (!release_on.is_empty()).then_some(release_on);
                let new = NewAccount { name, pool, username, fields, release_on };
                changed(format, &client.create_account(&new).await?, COLUMNS)?;
            }
            Verb::Remove { account } => changed(format, &client.remove_account(&account).await?, COLUMNS)?,
        }
        Ok(())
    }
}

/// Without the line's end that an editor or `echo` adds.
fn read(files: Vec<(String, String)>, variables: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut fields = BTreeMap::new();
    for (name, file) in files {
        let text = match file.as_str() {
            "-" => std::io::read_to_string(std::io::stdin())?,
            file => std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{file} cannot be read: {error}"))?,
        };
        fields.insert(name, text.trim_end_matches(['\r', '\n']).to_owned());
    }
    for (name, variable) in variables {
        let value = std::env::var(&variable);
        let value = value.map_err(|_| anyhow::anyhow!("the environment variable {variable} is not set"))?;
        fields.insert(name, value);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_with_its_place() {
        assert_eq!(pair("password=-").unwrap(), ("password".to_owned(), "-".to_owned()));
        assert_eq!(pair("token=/run/a=b").unwrap().1, "/run/a=b");
        for bad in ["password", "=x", "password="] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }
}
