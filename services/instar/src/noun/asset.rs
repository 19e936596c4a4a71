//! `instar asset …`

use super::Extent;
use super::session::changed;
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short};
use clap::{Args, Subcommand};
use instar_client::{Asset, Client, Query};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List assets
    List {
        #[arg(long)]
        mission: Option<String>,
        #[arg(long)]
        hop: Option<String>,
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        status: Option<String>,
        /// input, output or intermediate
        #[arg(long)]
        role: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show an asset
    Get { asset: String },
    /// Add an asset to a mission; with a value it is ready at once
    Create {
        mission: String,
        #[arg(long)]
        name: String,
        #[arg(long, default_value = "input")]
        role: String,
        #[arg(long = "type", default_value = "string")]
        kind: String,
        #[arg(long)]
        description: Option<String>,
        /// Its value, as JSON
        #[arg(long, value_parser = json)]
        value: Option<Value>,
        /// How long a version is good for
        #[arg(long)]
        ttl_ms: Option<i64>,
    },
    /// Give an asset its value: as JSON, from a file, or from standard input
    Provide {
        asset: String,
        #[command(flatten)]
        given: Given,
    },
    /// Write the content of an asset to standard output
    Content {
        asset: String,
        /// Of which version; the newest
        #[arg(long)]
        number: Option<i64>,
    },
    /// List the versions of an asset, newest first
    Versions { asset: String },
    /// Show what a version was made from
    Lineage {
        asset: String,
        /// Of which version; the newest
        #[arg(long)]
        number: Option<i64>,
        /// What was made from it instead
        #[arg(long)]
        down: bool,
    },
    /// Change a proposed asset
    Edit {
        asset: String,
        /// The revision that it is made from
        #[arg(long)]
        revision: i64,
        /// The fields that change, as JSON
        #[arg(value_parser = json)]
        changes: Value,
    },
    /// Accept a proposed asset
    Accept(Why),
    /// Turn a proposed asset down
    Reject(Why),
    /// Have a new version made
    Reprocess(Why),
    /// Stop waiting for a version that is being made
    Cancel(Why),
    /// Open an asset that failed again
    Fix(Why),
    /// Bring an expired asset back
    Refresh(Why),
    /// Remove an asset
    Delete { asset: String },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Given {
    /// The value, as JSON
    #[arg(long, value_parser = json)]
    value: Option<Value>,
    /// A file with the content, or - for standard input
    #[arg(long)]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    asset: String,
    #[arg(long)]
    reason: Option<String>,
}

const COLUMNS: &[Column<Asset>] = &[
    ("ID", |a| a.id.clone()),
    ("NAME", |a| a.name.clone()),
    ("ROLE", |a| a.role.clone()),
    ("TYPE", |a| a.kind.clone()),
    ("STATUS", |a| a.status.clone()),
    ("VERSION", |a| a.version.to_string()),
    ("SUMMARY", |a| short(a.summary.as_deref().unwrap_or_default(), 50)),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let act = |why: Why, verb: &'static str| async move {
            client.act_on_asset(&why.asset, verb, why.reason.as_deref()).await
        };
        let asset = match self {
            Verb::List { mission, hop, session, status, role, extent } => {
                let query = Query::new().maybe("mission", mission).maybe("hop", hop).maybe("session", session);
                let query = query.maybe("status", status).maybe("role", role);
                let assets: Vec<Asset> = extent.read(client, "assets", query).await?;
                return Ok(output::list(format, &assets, COLUMNS)?);
            }
            Verb::Get { asset } => return Ok(output::one(format, &client.asset(&asset).await?)?),
            Verb::Create { mission, name, role, kind, description, value, ttl_ms } => {
                let asset = serde_json::json!({"name": name, "role": role, "type": kind,
                    "description": description, "value": value, "ttl_ms": ttl_ms});
                client.create_asset(&mission, &asset).await?
            }
            Verb::Provide { asset, given } => match given.content()? {
                Ok(value) => client.provide_value(&asset, &value).await?,
                Err((content, kind)) => client.provide_asset(&asset, content, kind).await?,
            },
            Verb::Content { asset, number } => {
                let content = client.asset_content(&asset, number).await?;
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(&content)?;
                return Ok(stdout.flush()?);
            }
            Verb::Versions { asset } => {
                let versions = client.asset_versions(&asset, &Query::new()).await?;
                return Ok(output::value(format, &serde_json::json!(versions.data))?);
            }
            Verb::Lineage { asset, number, down } => {
                return Ok(output::value(format, &client.asset_lineage(&asset, number, down).await?)?);
            }
            Verb::Edit { asset, revision, mut changes } => {
                if !changes.is_object() {
                    return Err(Failure::usage("the changes are a JSON object".to_owned()));
                }
                changes["revision"] = serde_json::json!(revision);
                client.edit_asset(&asset, &changes).await?
            }
            Verb::Accept(why) => act(why, "accept").await?,
            Verb::Reject(why) => act(why, "reject").await?,
            Verb::Reprocess(why) => act(why, "reprocess").await?,
            Verb::Cancel(why) => act(why, "cancel").await?,
            Verb::Fix(why) => act(why, "fix").await?,
            Verb::Refresh(why) => act(why, "refresh").await?,
            Verb::Delete { asset } => client.delete_asset(&asset).await?,
        };
        Ok(changed(format, &asset, COLUMNS)?)
    }
}

/// Content as it is, with its media type.
type Content = (Vec<u8>, &'static str);

impl Given {
    /// The value, or content with its type.
    fn content(self) -> Result<Result<Value, Content>, Failure> {
        let Some(path) = self.file else { return Ok(Ok(self.value.unwrap_or_default())) };
        let mut content = Vec::new();
        if path.as_os_str() == "-" {
            std::io::stdin().lock().read_to_end(&mut content)?;
        } else {
            content = std::fs::read(&path)?;
        }
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => "text/markdown; charset=utf-8",
            // Content that is JSON; `{"value": …}` is said as application/json.
            Some("json") => "application/vnd.instar.value+json",
            _ if std::str::from_utf8(&content).is_ok() => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        };
        Ok(Err((content, kind)))
    }
}
