//! The exporter, which says once that spans don't arrive: a collector that is away for a week is no reason for more lines.

use super::client::Reason;
use crate::exporting::Tell;
use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub struct Exporter {
    otlp: Otlp,
    endpoint: String,
    tell: Tell,
    reason: Reason,
    has_told: AtomicBool,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not what is in `otlp`: headers may be secret.
        f.debug_struct("Exporter").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Exporter {
    /// `reason`: where the client of `otlp` says why a request came to nothing.
    pub fn new(otlp: Otlp, endpoint: String, tell: Tell, reason: Reason) -> Self {
        Self { otlp, endpoint, tell, reason, has_told: AtomicBool::new(false) }
    }

    fn note(&self, error: &OTelSdkError) {
        if !self.has_told.swap(true, Ordering::Relaxed) {
            let endpoint = &self.endpoint;
            let reason = self.reason.take().unwrap_or_else(|| error.to_string());
            (self.tell)(&format!(
                "spans don't arrive at {endpoint}: {reason}; this is not repeated"
            ));
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let done = self.otlp.export(batch).await;
        done.inspect_err(|error| self.note(error))
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.otlp.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
