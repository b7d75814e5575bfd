//! Spans and events of `tracing` as lines of a timeline.

use super::Shared;
use super::event::{Arguments, Line, Phase};
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// Writes each entering and leaving of a span, and each event, on the thread on which it happens.
#[derive(Debug)]
pub struct ChromeLayer(Arc<Shared>);

thread_local! {
    /// The timeline that has this thread's name, by its address.
    static NAMED_FOR: Cell<usize> = const { Cell::new(0) };
}

impl ChromeLayer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    fn push(&self, line: &Line<'_>) {
        let own = Arc::as_ptr(&self.0) as usize;
        if NAMED_FOR.replace(own) != own {
            self.0.push(&Line::thread());
        }
        self.0.push(line);
    }
}

/// A span's fields: those that it begins with, and those that became known since, which its end tells.
#[derive(Debug, Default)]
struct Fields {
    first: Arguments,
    later: Arguments,
}

/// The span that is told of: the registry forgets it only after all layers have heard of its end.
fn known<'a, S: Subscriber + for<'l> LookupSpan<'l>>(
    context: &'a Context<'_, S>,
    id: &Id,
) -> SpanRef<'a, S> {
    context.span(id).expect("the registry knows a span that it tells of")
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ChromeLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = known(&context, id);
        let mut fields = Fields::default();
        attributes.record(&mut Collect(&mut fields.first, None));
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = known(&context, id);
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(&mut Collect(&mut fields.later, None));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = known(&context, id);
        let first = span.extensions().get::<Fields>().map(|fields| fields.first.clone());
        let (phase, name) = (Phase::Begin, span.name());
        self.push(&Line { phase, name, arguments: first.unwrap_or_default() });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let span = known(&context, id);
        let later = span.extensions().get::<Fields>().map(|fields| fields.later.clone());
        let (phase, name) = (Phase::End, span.name());
        self.push(&Line { phase, name, arguments: later.unwrap_or_default() });
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let (mut arguments, mut message) = (Arguments::default(), String::new());
        event.record(&mut Collect(&mut arguments, Some(&mut message)));
        let name = if message.is_empty() { event.metadata().name() } else { &message };
        self.push(&Line { phase: Phase::Instant, name, arguments });
    }
}

/// Collects fields; the message of an event apart from them.
struct Collect<'a>(&'a mut Arguments, Option<&'a mut String>);

impl Visit for Collect<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.plain(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.plain(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.plain(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match &mut self.1 {
            Some(message) if field.name() == "message" => **message = text,
            _ => self.0.text(field.name(), &text),
        }
    }
}
