//! Whether the database answers and has the schema.

use instar_runtime::config::Config;
use instar_store::{Options, Store};
use std::path::Path;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn check(config: &Config, folder: &Path) -> Result<String, String> {
    let kept = || format!("sqlite://{}", folder.join("instar.db").display());
    let url = config.database.url.as_ref().map_or_else(kept, |url| url.expose().to_owned());
    let kind = url.split(':').next().unwrap_or_default().to_owned();
    // Opening it would make it.
    if let Some(file) = url.strip_prefix("sqlite://")
        && !Path::new(file.split('?').next().unwrap_or_default()).exists()
    {
        return Ok("sqlite, not there yet: the first start or `instar migrate` makes it".into());
    }
    let options = Options { acquire_timeout: WITHIN, ..Options::new(url) };
    match tokio::time::timeout(WITHIN * 2, probe(options)).await {
        Ok(Ok(())) => Ok(format!("{kind} answers and has the schema")),
        Ok(Err(why)) => Err(why),
        Err(_) => Err("no answer: start it, or correct database.url".into()),
    }
}

async fn probe(options: Options) -> Result<(), String> {
    let store = Store::open(options).await.map_err(|error| error.to_string())?;
    schema(&store).await
}

/// Whether the schema is this version's: a service that starts with another would only fail later, over and over.
pub(crate) async fn schema(store: &Store) -> Result<(), String> {
    store.fits().await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_runtime::config::Secret;

    #[tokio::test]
    async fn a_database_is_judged_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let missing = check(&Config::default(), folder.path()).await.unwrap();
        assert!(missing.contains("not there yet"), "{missing}");
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
        let mut config = Config::default();
        let file = folder.path().join("other.db");
        std::fs::write(&file, "").unwrap();
        config.database.url = Secret::new(format!("sqlite://{}", file.display()));
        let empty = check(&config, folder.path()).await.unwrap_err();
        assert!(empty.contains("instar migrate"), "{empty}");
        Store::migrate(config.database.url.as_ref().unwrap().expose()).await.unwrap();
        assert_eq!(check(&config, folder.path()).await.unwrap(), "sqlite answers and has the schema");
    }
}
