//! Accounts that come back, and calls that waited for one.
//!
//! A hint only: whether an account is free the claim itself judges, and a sweep of the scheduler does the
//! same as this.

use crate::config::AccountConfig;
use crate::hub::Hub;
use instar_core::rune::Rune;
use instar_store::entity::tool_call;
use instar_store::{NewAccount, Store, StoreError};
use serde_json::json;
use std::collections::HashMap;
use uuid::Uuid;

/// Rows that one look takes up at most.
const BATCH: u64 = 500;
/// What may make a holder give its account back.
const RETURNS: [&str; 6] = [
    "agent.drive_stopped",
    "agent.drive_errored",
    "agent.drive_idled",
    "agent.terminated",
    "agent.failed",
    "agent.deleted",
];

impl Hub {
    /// Takes back what agents may no longer keep, and has the runners look at calls that wait for it.
    pub async fn return_accounts(&self) -> Result<(), StoreError> {
        self.store().return_accounts(BATCH).await?;
        for call in self.account_waits().await? {
            self.wake_call_row(&call, true);
        }
        Ok(())
    }

    /// Calls that need not wait for an account any longer: as many as there are accounts for, those first that wait
    /// for longest.
    pub async fn account_waits(&self) -> Result<Vec<tool_call::Model>, StoreError> {
        let (mut told, mut calls): (HashMap<_, u64>, Vec<_>) = (HashMap::new(), Vec::new());
        for waiting in self.store().account_waits(BATCH).await? {
            let told = told.entry((waiting.namespace, waiting.wanted)).or_default();
            if waiting.late || *told < waiting.free {
                *told += u64::from(!waiting.late);
                calls.push(waiting.call);
            }
        }
        Ok(calls)
    }

    /// An account may have come free.
    pub fn accounts_changed(&self) {
        let hub = self.clone();
        tokio::spawn(async move {
            if let Err(error) = hub.return_accounts().await {
                tracing::debug!(%error, "accounts were not taken back now; a sweep will do it");
            }
        });
    }

    pub(crate) fn follow_accounts(&self, runes: &[Rune]) {
        if runes.iter().any(|rune| RETURNS.contains(&rune.kind.as_str())) {
            self.accounts_changed();
        }
    }
}

/// Stores the accounts of the operator's configuration.
pub async fn declare(store: &Store, accounts: &[AccountConfig]) -> Result<(), StoreError> {
    for given in accounts {
        let new = NewAccount {
            id: Uuid::now_v7(),
            namespace: given.namespace.clone(),
            name: given.name.clone(),
            pool: given.pool.clone(),
            username: given.username.clone(),
            sealed: None,
            refs: Some(json!(given.fields)),
            release_on: given.release_on.clone(),
            origin: "config",
        };
        if !store.declare_account(new).await? {
            tracing::warn!(
                account = given.name,
                "a request brought an account of this name: remove it to use this one"
            );
        }
    }
    Ok(())
}
