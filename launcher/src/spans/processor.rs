//! Hands spans to the thread that sends them, and never waits for it: what it can't take is left out.
//!
//! An agent that begins enters namespaces, tries what the kernel offers in forked children, and gives up capabilities, each
//! of which asks for a process with one thread. So it starts no thread for spans before there are others anyway: the first
//! span that a thread other than the main one ends is the first that counts.

use super::Process;
use super::exporter::Exporter;
use nix::unistd::{getpid, gettid};
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfig, BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The most spans that wait to be sent.
const MOST_WAITING: u64 = 1 << 14;
/// The longest that they do, in milliseconds.
const LONGEST_DELAY: u64 = 3_600_000;

#[derive(Debug)]
pub struct Processor {
    process: Process,
    /// Until the thread is started.
    exporter: Mutex<Option<Exporter>>,
    resource: Resource,
    batches: OnceLock<BatchSpanProcessor>,
}

impl Processor {
    pub fn new(exporter: Exporter, process: Process) -> Self {
        Self {
            process,
            exporter: Mutex::new(Some(exporter)),
            resource: Resource::builder_empty().build(),
            batches: OnceLock::new(),
        }
    }

    /// What has the thread, which is started by the first that needs it.
    fn batches(&self) -> Option<&BatchSpanProcessor> {
        if let Some(batches) = self.batches.get() {
            return Some(batches);
        }
        // Of a forked child its only thread is the main one, too.
        if self.process.may_have_to_be_alone() && gettid() == getpid() {
            return None;
        }
        let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(exporter) = exporter {
            let build =
                || BatchSpanProcessor::builder(exporter).with_batch_config(config()).build();
            // It panics where the kernel gives no thread, on the thread that ends a span: that of a checkpoint.
            if let Ok(mut batches) = catch_unwind(AssertUnwindSafe(build)) {
                batches.set_resource(&self.resource);
                let _ = self.batches.set(batches);
            }
        }
        self.batches.get()
    }
}

/// The user's, within bounds: the library takes memory for the whole queue at once, and asks again and again without a delay.
fn config() -> BatchConfig {
    let given = |name: &str| std::env::var(name).ok()?.trim().parse::<u64>().ok();
    let mut config = BatchConfigBuilder::default();
    if let Some(size) = given("OTEL_BSP_MAX_QUEUE_SIZE") {
        config = config.with_max_queue_size(size.clamp(1, MOST_WAITING) as usize);
    }
    if let Some(delay) = given("OTEL_BSP_SCHEDULE_DELAY") {
        config = config.with_scheduled_delay(Duration::from_millis(delay.clamp(10, LONGEST_DELAY)));
    }
    config.build()
}

impl SpanProcessor for Processor {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if let Some(batches) = self.batches() {
            batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.get().map_or(Ok(()), SpanProcessor::force_flush)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.get().map_or(Ok(()), |batches| batches.shutdown_with_timeout(timeout))
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
    }
}
