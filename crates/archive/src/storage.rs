//! Where objects are kept: a folder, or a bucket that speaks S3.

use crate::error::ArchiveError;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::ops::Range;
use std::sync::Arc;

/// Where to keep archives.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A folder, `file:///folder`, or `s3://bucket/prefix`.
    pub url: String,
    /// Of a server that is not Amazon's, such as `http://minio:9000`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Storage {
    /// A folder is made if there is none. Credentials of a bucket come from the environment, as usual.
    pub fn open(options: &Options) -> Result<Storage, ArchiveError> {
        let unusable = |why: String| ArchiveError::Unusable(why);
        if let Some(rest) = options.url.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let prefix = Path::parse(prefix).map_err(|error| unusable(error.to_string()))?;
            return Ok(Storage { store: bucket_of(bucket, options)?, prefix });
        }
        let folder = options.url.strip_prefix("file://").unwrap_or(&options.url);
        if folder.is_empty() || folder.contains("://") {
            return Err(unusable("must be a folder, file:///folder or s3://bucket/prefix".into()));
        }
        let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::canonicalize(folder));
        let folder = made.map_err(|error| unusable(format!("{folder} cannot be used: {error}")))?;
        let store = LocalFileSystem::new_with_prefix(folder).map_err(|error| unusable(error.to_string()))?;
        Ok(Storage { store: Arc::new(store.with_fsync(true)), prefix: Path::default() })
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    pub(crate) async fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        self.store.put(&self.path(object), PutPayload::from(bytes)).await.map_err(ArchiveError::storage)?;
        Ok(())
    }

    /// `None`: there is no such object, or it does not have these bytes.
    pub(crate) async fn get(&self, object: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, ArchiveError> {
        let (path, range_end) = (self.path(object), range.as_ref().map(|range| range.end));
        let got = match range {
            Some(range) => self.store.get_range(&path, range).await,
            None => match self.store.get(&path).await {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            },
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            // A range that lies behind the end is told of in as many ways as there are stores.
            Err(error) => match (self.store.head(&path).await, range_end) {
                (Err(object_store::Error::NotFound { .. }), _) => Ok(None),
                (Ok(found), Some(end)) if found.size < end => Ok(None),
                _ => Err(ArchiveError::storage(error)),
            },
        }
    }

    /// An object piece by piece. `None`: there is no such object.
    pub(crate) async fn stream(
        &self,
        object: &str,
    ) -> Result<Option<BoxStream<'static, Result<Bytes, ArchiveError>>>, ArchiveError> {
        match self.store.get(&self.path(object)).await {
            Ok(found) => Ok(Some(found.into_stream().map_err(ArchiveError::storage).boxed())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(ArchiveError::storage(error)),
        }
    }

    /// Objects whose name begins with a folder's.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<String>, ArchiveError> {
        let prefix = self.path(folder);
        let found: Vec<_> = self.store.list(Some(&prefix)).try_collect().await.map_err(ArchiveError::storage)?;
        let name = |path: &Path| path.filename().map(|name| format!("{folder}/{name}"));
        Ok(found.iter().filter_map(|meta| name(&meta.location)).collect())
    }

    pub(crate) async fn delete(&self, object: &str) -> Result<(), ArchiveError> {
        match self.store.delete(&self.path(object)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(ArchiveError::storage(error)),
        }
    }
}

#[cfg(feature = "s3")]
fn bucket_of(bucket: &str, options: &Options) -> Result<Arc<dyn ObjectStore>, ArchiveError> {
    let mut builder = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket);
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
    }
    let store = builder.build().map_err(|error| ArchiveError::Unusable(error.to_string()))?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "s3"))]
fn bucket_of(_: &str, _: &Options) -> Result<Arc<dyn ObjectStore>, ArchiveError> {
    Err(ArchiveError::Unusable("this build knows folders only: build it with the feature s3".into()))
}
