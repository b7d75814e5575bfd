//! Spans for a collector of OpenTelemetry (cargo feature `opentelemetry`): OTLP over HTTP, where the variables that programs
//! have in common for that say so (`OTEL_EXPORTER_OTLP_ENDPOINT`), else nothing at all.
//!
//! - [`Export`]: what one process exports, from its beginning to its end.
//! - `processor`: hands spans to the thread that sends them, which is started only where it may be.
//! - `exporter`: says once, and no more, that they don't arrive.
//! - `client`: requests over HTTP, on that thread.
//!
//! Which processes export: the coordinator, agents, and `ckptd run`, `restart` and `adopt`, which are a job's coordinator and
//! agent where there is no cluster. Not: a job's init and what it forks, which have one thread, no environment of ours, and
//! whose stages the agent's own spans tell; commands that only ask another process.

mod client;
mod exporter;
mod processor;
#[cfg(test)]
mod tests;

use client::{Client, Reason};
use exporter::Exporter;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use processor::Processor;
use std::fmt::Display;
use std::time::Duration;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Registry;

pub use super::exporting::Process;
use super::exporting::{self, Tell};

/// For how long the end of a process waits for its last spans to be sent.
const LAST: Duration = Duration::from_secs(1);

/// What this process exports. Its end sends what is left.
#[derive(Debug)]
pub struct Export {
    provider: SdkTracerProvider,
}

impl Export {
    /// Begins, if that is asked for. `tell`: where it is said that spans don't arrive.
    ///
    /// # Errors
    /// What is wrong with how it is asked for, to be told; a job is not to fail because of it.
    pub fn begin(process: Process, tell: Tell) -> Result<Option<Self>, String> {
        let Some(endpoint) = exporting::endpoint() else { return Ok(None) };
        let begun = Self::to(endpoint, process, tell).map(Some);
        begun.map_err(|reason| format!("no spans are exported: {reason}"))
    }

    fn to(endpoint: String, process: Process, tell: Tell) -> Result<Self, String> {
        let words = |error: &dyn Display| error.to_string();
        let shown = exporting::shown(&endpoint);
        // What the library says of a bad one has all of it.
        let is_right = ["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme));
        if !is_right || reqwest::Url::parse(&endpoint).is_err() {
            return Err(format!("{shown} is no address of a collector"));
        }
        let reason = Reason::default();
        let client = Client::new(reason.clone()).map_err(|error| words(&error))?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_endpoint(&endpoint)
            // A span is not worth a second try: at a process's end that would take its time.
            .with_retry_policy(RetryPolicy::disabled())
            .with_http_client(client)
            .build()
            .map_err(|error| words(&error))?;
        let exporter = Exporter::new(exporter, shown, tell, reason);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(process))
            .with_span_processor(Processor::new(exporter, process))
            .build();
        Ok(Self { provider })
    }

    /// What has spans exported.
    pub fn layer(&self) -> OpenTelemetryLayer<Registry, SdkTracer> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("ckptd"))
            // Each would be some more attributes of every span.
            .with_location(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Whether they arrive, the exporter tells.
        let _ = self.provider.shutdown_with_timeout(LAST);
    }
}

/// Who has made the spans. What the user's own variables say counts more.
fn resource(process: Process) -> Resource {
    let mut own = vec![
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    let node = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    own.extend(node.map(|name| KeyValue::new("host.name", name)));
    let given = Resource::builder().build();
    let known = |key: &opentelemetry::Key| given.get_ref(key).is_some();
    own.retain(|attribute| !known(&attribute.key));
    let resource = Resource::builder().with_attributes(own);
    match exporting::is_service_named() {
        true => resource.build(),
        false => resource.with_service_name(process.service()).build(),
    }
}
