//! The models there are, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::build::{self, Lookup};
use crate::config::{ConfigError, ModelConfig};
use crate::error::ModelError;
use crate::event::EventStream;
use crate::measure::measured;
use crate::message::Request;
use crate::provider::Provider;
use crate::response::{Response, collect};

#[derive(Clone, Default)]
pub struct Models {
    by_name: BTreeMap<String, Arc<dyn Provider>>,
}

impl Models {
    /// Keys come from the environment of the process.
    pub fn from_config(configs: &[ModelConfig]) -> Result<Self, ConfigError> {
        Self::with_environment(configs, &|name| std::env::var(name).ok())
    }

    pub fn with_environment(configs: &[ModelConfig], environment: Lookup<'_>) -> Result<Self, ConfigError> {
        let mut models = Self::default();
        let mut problems = Vec::new();
        let mut credentials = build::Credentials::new();
        for config in configs {
            if models.by_name.contains_key(&config.name) {
                problems.push(format!("model {:?}: there are two of that name", config.name));
            }
            match build::provider(config, environment, &mut credentials) {
                Ok(provider) => models.insert(provider),
                Err(found) => {
                    problems.extend(found.into_iter().map(|problem| format!("model {:?}: {problem}", config.name)));
                }
            }
        }
        if problems.is_empty() { Ok(models) } else { Err(ConfigError { problems }) }
    }

    /// Adds a model under the name it has, in place of one with the same.
    pub fn insert(&mut self, provider: Arc<dyn Provider>) {
        self.by_name.insert(provider.about().name.clone(), provider);
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn get(&self, name: &str) -> Result<&Arc<dyn Provider>, ModelError> {
        self.by_name.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            ModelError::permanent(format!("no model is named {name:?}; known are: {known}")).with_code("unknown_model")
        })
    }

    /// Calls the model that the request names.
    pub async fn stream(&self, request: Request) -> Result<EventStream, ModelError> {
        let provider = self.get(&request.model)?;
        measured(provider, provider.stream(request)).await
    }

    /// The same for those who only want the whole answer.
    pub async fn complete(&self, request: Request) -> Result<Response, ModelError> {
        collect(self.stream(request).await?).await
    }
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.values().map(|provider| provider.about())).finish()
    }
}
