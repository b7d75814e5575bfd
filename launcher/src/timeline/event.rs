//! One trace event, as JSON in one line.
//!
//! The format: "Trace Event Format" of Chrome's trace viewer, JSON array.

use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

/// Fields as members of a JSON object, without its braces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(String);

impl Arguments {
    /// A member whose value is JSON already: a number or a truth value.
    pub fn plain(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        // Writing to a string does not fail.
        let _ = write!(self.0, "{value}");
    }

    /// A member that is text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        quote(value, &mut self.0);
    }

    fn name(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        quote(name, &mut self.0);
        self.0.push(':');
    }
}

fn quote(text: &str, into: &mut String) {
    match serde_json::to_string(text) {
        Ok(quoted) => into.push_str(&quoted),
        // No text fails to be written.
        Err(_) => into.push_str("\"\""),
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A span begins.
    Begin,
    /// The last span that has begun on this thread ends.
    End,
    /// Something happens.
    Instant,
    /// What a process or thread is called.
    Metadata,
}

/// One event of the calling thread.
#[derive(Debug)]
pub struct Line<'a> {
    /// What it is.
    pub phase: Phase,
    /// The name that viewers show; of metadata, the format's word for what it tells.
    pub name: &'a str,
    /// Its fields.
    pub arguments: Arguments,
}

impl Line<'_> {
    /// What this process is called.
    pub fn process(name: &str) -> Self {
        let mut arguments = Arguments::default();
        arguments.text("name", name);
        Self { phase: Phase::Metadata, name: "process_name", arguments }
    }

    /// What the calling thread is called.
    pub fn thread() -> Self {
        let mut arguments = Arguments::default();
        arguments.text(
            "name",
            match std::thread::current().name() {
                // ptrace(2) is tied to it.
                Some("tracer") => "engine",
                Some("main") => "launcher",
                Some(name) => name,
                None => "another",
            },
        );
        Self { phase: Phase::Metadata, name: "thread_name", arguments }
    }

    /// That so many lines are not there.
    pub fn left_out(lines: u64) -> Self {
        let mut arguments = Arguments::default();
        arguments.plain("lines", lines);
        Self { phase: Phase::Instant, name: "left out: not written fast enough", arguments }
    }

    /// The end of the timeline.
    pub fn end() -> Self {
        Self { phase: Phase::Instant, name: "end", arguments: Arguments::default() }
    }

    /// Appends the line, with the comma that makes the next one possible.
    pub fn write(&self, at: Duration, into: &mut Vec<u8>) {
        into.extend_from_slice(self.object(at).as_bytes());
        into.extend_from_slice(b",\n");
    }

    /// Appends the line and the end of the array.
    pub fn write_last(&self, at: Duration, into: &mut Vec<u8>) {
        into.extend_from_slice(self.object(at).as_bytes());
        into.extend_from_slice(b"\n]\n");
    }

    fn object(&self, at: Duration) -> String {
        let phase = match self.phase {
            Phase::Begin => "B",
            Phase::End => "E",
            Phase::Instant => "i",
            Phase::Metadata => "M",
        };
        let (pid, tid) = (std::process::id(), thread_number());
        let (us, ns) = (at.as_micros(), at.as_nanos() % 1000);
        let mut line =
            format!(r#"{{"ph":"{phase}","pid":{pid},"tid":{tid},"ts":{us}.{ns:03},"name":"#);
        quote(self.name, &mut line);
        if self.phase == Phase::Instant {
            // Of the thread.
            line.push_str(r#","s":"t""#);
        }
        if !self.arguments.0.is_empty() {
            line.push_str(r#","args":{"#);
            line.push_str(&self.arguments.0);
            line.push('}');
        }
        line.push('}');
        line
    }
}

/// The calling thread's number, as ps(1) shows it.
fn thread_number() -> i32 {
    thread_local! {
        static NUMBER: Cell<i32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(nix::unistd::gettid().as_raw());
        }
        number.get()
    })
}
