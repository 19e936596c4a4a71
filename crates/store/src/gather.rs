//! Reads that are asked for at the same moment share a query.
//!
//! One query is under way at a time; what is asked for meanwhile goes with the next. Somebody who asks
//! alone waits for nobody.

use crate::error::StoreError;
use std::collections::HashMap;
use std::hash::Hash;
use tokio::sync::{mpsc, oneshot};

/// Keys in one query.
const KEYS_MAX: usize = 256;
/// Questions that may wait.
const WAITING_MAX: usize = 8_192;

type Reply<V> = oneshot::Sender<Result<Option<V>, StoreError>>;

pub(crate) struct Gather<K, V>(mpsc::Sender<(K, Reply<V>)>);

impl<K, V> Clone for Gather<K, V> {
    fn clone(&self) -> Self {
        Gather(self.0.clone())
    }
}

impl<K, V> Gather<K, V>
where
    K: Copy + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// `query` answers for those of the keys that exist.
    pub(crate) fn start<F, Fut>(query: F) -> Gather<K, V>
    where
        F: Fn(Vec<K>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<HashMap<K, V>, StoreError>> + Send,
    {
        let (sender, mut asked) = mpsc::channel::<(K, Reply<V>)>(WAITING_MAX);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while asked.recv_many(&mut batch, KEYS_MAX).await > 0 {
                let mut keys: Vec<K> = batch.iter().map(|(key, _)| *key).collect();
                keys.dedup();
                let found = query(keys).await;
                for (key, reply) in batch.drain(..) {
                    let answer = match &found {
                        Ok(found) => Ok(found.get(&key).cloned()),
                        Err(error) => Err(error.again()),
                    };
                    // Whoever went away does not want to know.
                    drop(reply.send(answer));
                }
            }
        });
        Gather(sender)
    }

    /// `None`: there is no such thing.
    pub(crate) async fn get(&self, key: K) -> Result<Option<V>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::Unavailable("the store is closed".into());
        self.0.send((key, reply)).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}
