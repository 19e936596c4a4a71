//! Spans on their way out: OTLP over HTTP, by the blocking client on a thread of its own.
//!
//! The async client would panic on that thread (it has no Tokio reactor) and lose every span
//! without a word; a test asserts that one arrives.

use super::TelemetryError;
use super::name::attribute;
use crate::config::TelemetryConfig;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

const PATH: &str = "/v1/traces";
/// All crates of the workspace have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `None` when nobody said where spans should go.
pub(super) fn provider(service: &str, config: &TelemetryConfig) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    let endpoint = config.otlp_endpoint.as_deref().map(traces_url);
    if disabled(variable) || (endpoint.is_none() && !named(variable)) {
        return Ok(None);
    }
    let mut exporter = SpanExporter::builder().with_http();
    if let Some(endpoint) = endpoint {
        exporter = exporter.with_endpoint(endpoint);
    }
    let exporter = exporter.build().map_err(|error| TelemetryError::Exporter(error.to_string()))?;
    let mut provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource(service));
    if let Some(ratio) = config.sample_ratio {
        // Whoever began a trace decides for all of it.
        provider = provider.with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))));
    }
    Ok(Some(provider.build()))
}

/// What the environment says (`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`) goes before what we
/// know, as everybody who operates OpenTelemetry expects.
fn resource(service: &str) -> Resource {
    let told = Resource::builder().build();
    let given =
        |key: &'static str| told.get(&key.into()).filter(|value| !value.as_str().starts_with("unknown_service"));
    let ours = [
        (attribute::SERVICE_NAME, format!("instar-{service}")),
        (attribute::SERVICE_VERSION, VERSION.to_owned()),
        (attribute::SERVICE_INSTANCE_ID, uuid::Uuid::now_v7().to_string()),
    ];
    let missing = ours.into_iter().filter(|(key, _)| given(key).is_none());
    Resource::builder().with_attributes(missing.map(|(key, value)| KeyValue::new(key, value))).build()
}

/// In code the full path must be given; only the environment variable gets it appended.
fn traces_url(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with(PATH) { endpoint.to_owned() } else { format!("{endpoint}{PATH}") }
}

/// The SDK does not look at these two itself.
fn disabled(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is = |name: &str, value: &str| variable(name).is_some_and(|v| v.trim().eq_ignore_ascii_case(value));
    is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
}

fn named(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .iter()
        .any(|name| variable(name).is_some_and(|value| !value.trim().is_empty()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_gets_the_path_of_traces_once() {
        for given in ["http://a:4318", "http://a:4318/", "http://a:4318/v1/traces", "http://a:4318/v1/traces/"] {
            assert_eq!(traces_url(given), "http://a:4318/v1/traces");
        }
        assert_eq!(traces_url("https://a/otlp/"), "https://a/otlp/v1/traces");
    }

    #[test]
    fn the_environment_can_name_an_endpoint_and_switch_export_off() {
        let only =
            |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        assert!(named(only("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318")));
        assert!(named(only("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:4318/x")));
        assert!(!named(only("OTEL_EXPORTER_OTLP_ENDPOINT", " ")));
        assert!(disabled(only("OTEL_SDK_DISABLED", "TRUE")) && disabled(only("OTEL_TRACES_EXPORTER", "none")));
        assert!(!disabled(only("OTEL_TRACES_EXPORTER", "otlp")));
    }

    #[test]
    fn the_resource_says_which_process_this_is() {
        let resource = resource("api");
        let value = |key: &'static str| resource.get(&key.into()).map(|value| value.to_string());
        assert_eq!(value(attribute::SERVICE_VERSION).as_deref(), Some(VERSION));
        assert!(value(attribute::SERVICE_INSTANCE_ID).is_some_and(|id| id.len() == 36));
        if variable("OTEL_SERVICE_NAME").is_none() && variable("OTEL_RESOURCE_ATTRIBUTES").is_none() {
            assert_eq!(value(attribute::SERVICE_NAME).as_deref(), Some("instar-api"));
        }
    }
}
