//! A fresh store per test, on either backend.

use anyhow::Result;
use instar_store::{Options, Store};
use tempfile::TempDir;

/// A store and what must outlive it.
pub struct Stage {
    pub store: Store,
    pub url: String,
    _folder: Option<TempDir>,
}

pub async fn postgres() -> Result<Stage> {
    let url = instar_testkit::postgres::shared().await?;
    open(url, None).await
}

pub async fn sqlite() -> Result<Stage> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("instar.db").display());
    open(url, Some(folder)).await
}

async fn open(url: String, folder: Option<TempDir>) -> Result<Stage> {
    Store::migrate(&url).await?;
    let store = Store::open(Options::new(&url)).await?;
    Ok(Stage { store, url, _folder: folder })
}

/// Makes two tests of one body, one per backend.
#[macro_export]
macro_rules! on_both {
    ($($(#[$attr:meta])* $name:ident;)+) => {
        mod on_sqlite {$(
            $(#[$attr])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::stage::sqlite().await?).await
            }
        )+}
        mod on_postgres {$(
            $(#[$attr])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::stage::postgres().await?).await
            }
        )+}
    };
}

/// A bus with subjects of its own: in process beside SQLite, the shared NATS beside Postgres.
pub async fn bus(stage: &Stage) -> Result<instar_bus::Bus> {
    let prefix = format!("t{}", uuid::Uuid::now_v7().simple());
    let kinds = instar_core::rune::KINDS.iter().map(|k| k.token);
    let space = instar_bus::Namespace::new(&prefix, kinds)?;
    // Each test has streams of its own, and a server promises all of them their room.
    let room = 16 << 20;
    let streams = instar_bus::topology::StreamLimits {
        transition_bytes_max: room,
        work_bytes_max: room,
        dead_bytes_max: room,
        ..Default::default()
    };
    let options = instar_bus::Options { streams, ..Default::default() };
    if !stage.store.is_postgres() {
        return Ok(instar_bus::Bus::local(space, options));
    }
    let server = instar_bus::Connection::new(instar_testkit::nats::shared().await?);
    Ok(instar_bus::Bus::connect(space, &server, options).await?)
}

/// A bus that nobody else is on.
pub fn deaf() -> Result<instar_bus::Bus> {
    let space = instar_bus::Namespace::new("deaf", instar_core::rune::KINDS.iter().map(|k| k.token))?;
    Ok(instar_bus::Bus::local(space, instar_bus::Options::default()))
}
