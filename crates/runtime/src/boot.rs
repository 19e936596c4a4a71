//! From a configuration to the parts that every service is built on.

use crate::asset::Keeping;
use crate::config::{Config, Role};
use crate::drain::Drain;
use crate::hub::Hub;
use crate::plan::Policy;
use instar_archive::{Archive, ArchiveError, Contents, Options as ArchiveOptions};
use instar_bus::{Bus, BusError, Connection, Namespace, Options as BusOptions, SubjectError};
use instar_core::rune::KINDS;
use instar_store::{Options as StoreOptions, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// How often the database is asked for its time.
const TIME_EVERY: Duration = Duration::from_secs(10);

/// What a service is given.
#[derive(Clone)]
pub struct Context {
    pub config: Arc<Config>,
    pub hub: Hub,
    pub drain: Drain,
}

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("the database: {0}")]
    Store(#[from] StoreError),
    #[error("NATS: {0}")]
    Bus(#[from] BusError),
    #[error("nats.prefix: {0}")]
    Prefix(#[from] SubjectError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{0} is not set")]
    Unset(&'static str),
}

impl Context {
    /// Opens the store and joins the bus. The schema must be there.
    pub async fn open(role: Role, config: Arc<Config>, drain: Drain) -> Result<Context, BootError> {
        let database = &config.database;
        let url = database.url.as_ref().ok_or(BootError::Unset("database.url"))?;
        let store = Store::open(StoreOptions {
            url: url.expose().to_owned(),
            readers_max: database.readers_max,
            writers: database.writers as usize,
            acquire_timeout: Duration::from_millis(database.acquire_timeout_ms),
            round_trip_max: Duration::from_millis(database.round_trip_max_ms),
        })
        .await?;
        keep_time(&store, &drain);
        let bus = join(role, &config).await?;
        let hub = Hub::shared(store, bus).await?.archiving(open_archive(&config)?).planning_by(Policy::of(&config));
        let prices = config.models.iter().filter_map(|model| Some((model.name.clone(), model.price?))).collect();
        let hub = hub.keeping_content(open_contents(&config)?).pricing(prices);
        Ok(Context { hub, config, drain })
    }
}

/// Two clocks drift apart, and one that counts stands still while its machine sleeps.
fn keep_time(store: &Store, drain: &Drain) {
    let (store, ending) = (store.clone(), drain.clone());
    drain.spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = ending.draining() => return,
                () = tokio::time::sleep(TIME_EVERY) => {}
            }
            if let Err(error) = store.now().await {
                tracing::debug!(%error, "the database did not tell the time; it is asked again");
            }
        }
    });
}

fn open_archive(config: &Config) -> Result<Option<Archive>, ArchiveError> {
    let archive = &config.archive;
    let Some(url) = archive.url.clone() else { return Ok(None) };
    // A bucket is reached over TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (endpoint, region) = (archive.endpoint.clone(), archive.region.clone());
    Archive::open(&ArchiveOptions { url, endpoint, region }).map(Some)
}

/// Content of assets is kept beside the archives unless it has a place of its own.
fn open_contents(config: &Config) -> Result<Keeping, ArchiveError> {
    let (assets, archive) = (&config.assets, &config.archive);
    let contents = match assets.url.clone().or_else(|| archive.url.clone()) {
        Some(url) => {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let (endpoint, region) = (archive.endpoint.clone(), archive.region.clone());
            Some(Contents::open(&ArchiveOptions { url, endpoint, region })?)
        }
        None => None,
    };
    let (inline, most) = (assets.inline_bytes_max as usize, assets.bytes_max as usize);
    Ok(Keeping { contents, inline_bytes_max: inline, bytes_max: most })
}

async fn join(role: Role, config: &Config) -> Result<Bus, BootError> {
    let nats = &config.nats;
    let space = Namespace::new(&nats.prefix, KINDS.iter().map(|kind| kind.token))?;
    let options = BusOptions {
        payload_bytes_max: nats.payload_bytes_max as usize,
        publish_within: Duration::from_millis(nats.publish_timeout_ms),
        ..BusOptions::default()
    };
    let Some(url) = &nats.url else { return Ok(Bus::local(space, options)) };
    let connection = Connection {
        within: Duration::from_millis(nats.connect_timeout_ms),
        name: format!("instar-{role}"),
        credentials_file: nats.credentials_file.clone(),
        root_certificate_file: nats.root_certificate_file.clone(),
        certificate_files: nats.certificate_file.clone().zip(nats.key_file.clone()),
        ..Connection::new(url.expose())
    };
    Ok(Bus::connect(space, &connection, options).await?)
}
