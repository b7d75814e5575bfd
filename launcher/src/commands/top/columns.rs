//! The tables' columns: what each shows, and what it is sorted by.

use crate::cluster::listing::{self, age, decimals, list, number, word};
use crate::text;
use serde_json::Value;
use std::cmp::Ordering;

/// A column.
pub struct Column {
    /// Above it.
    pub heading: &'static str,
    /// What it shows of an item.
    pub cell: fn(&Value) -> String,
    /// By what items are sorted.
    pub rank: fn(&Value) -> Rank,
    /// Where there is no room for all columns, that with the highest number is left out first; 0: never.
    pub dispensable: u8,
}

/// By what items are sorted: those without come last.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Rank {
    Number(f64),
    Text(String),
    Nothing,
}

impl Rank {
    /// The order of two. Numbers come from JSON, which has no NaN.
    pub fn order(&self, other: &Self) -> Ordering {
        self.partial_cmp(other).unwrap_or(Ordering::Equal)
    }

    fn text(value: &Value, key: &str) -> Self {
        value
            .get(key)
            .and_then(Value::as_str)
            .map_or(Self::Nothing, |t| Self::Text(t.to_lowercase()))
    }

    fn number(value: &Value, key: &str) -> Self {
        value.get(key).and_then(Value::as_f64).map_or(Self::Nothing, Self::Number)
    }

    /// How long ago that was.
    fn age(value: &Value, key: &str) -> Self {
        value.get(key).and_then(Value::as_f64).map_or(Self::Nothing, |at| Self::Number(-at))
    }
}

/// Of members.
pub const NODES: &[Column] = &[
    column("NODE", |n| word(n, "name"), |n| Rank::text(n, "name"), 0),
    column("STATE", listing::node_state, |n| Rank::text(n, "state"), 0),
    column("SLOTS", |n| word(n, "slots"), |n| Rank::number(n, "slots"), 0),
    column("CORES", |n| word(n, "cores"), |n| Rank::number(n, "cores"), 2),
    column("SPEED", |n| decimals(n, "speed"), |n| Rank::number(n, "speed"), 1),
    column("LOAD", |n| decimals(n, "load"), |n| Rank::number(n, "load"), 0),
    column("BATTERY", listing::battery, |n| Rank::number(n, "battery"), 3),
    column("HEARD", heard, |n| Rank::number(n, "heard_ms"), 4),
    column("RUNS", |n| listing::words(n, "instances"), |n| Rank::Number(-runs(n)), 0),
];

/// Of jobs.
pub const JOBS: &[Column] = &[
    column("JOB", |j| word(j, "name"), |j| Rank::text(j, "name"), 0),
    column("STATE", job_state, |j| Rank::text(j, "state"), 0),
    column("AGE", |j| age(j, "started_at_ms"), |j| Rank::age(j, "started_at_ms"), 3),
    column("PROCESSES", |j| word(live(j), "processes"), |j| Rank::number(live(j), "processes"), 2),
    column(
        "CHECKPOINT",
        |j| word(newest(j), "checkpoint"),
        |j| Rank::number(newest(j), "checkpoint"),
        0,
    ),
    column(
        "ITS AGE",
        |j| age(newest(j), "taken_at_ms"),
        |j| Rank::age(newest(j), "taken_at_ms"),
        4,
    ),
    column("PAUSE", pause, |j| Rank::number(newest(j), "pause_us"), 1),
    column("NEXT", next, |j| Rank::number(live(j), "next_checkpoint_ms"), 5),
    column("COMMAND", listing::command, |j| Rank::Text(listing::command(j)), 0),
];

/// Of a job's processes.
pub const PROCESSES: &[Column] = &[
    column("PID", |p| word(p, "pid"), |p| Rank::number(p, "pid"), 0),
    column("PROCESS", |p| word(p, "name"), |p| Rank::text(p, "name"), 0),
    column("NODE", |p| word(p, "node"), |p| Rank::text(p, "node"), 0),
    column("HOME", |p| word(p, "home"), |p| Rank::text(p, "home"), 1),
    column("WHY", |p| word(p, "why"), |p| Rank::text(p, "why"), 0),
];

const fn column(
    heading: &'static str,
    cell: fn(&Value) -> String,
    rank: fn(&Value) -> Rank,
    dispensable: u8,
) -> Column {
    Column { heading, cell, rank, dispensable }
}

fn heard(node: &Value) -> String {
    number(node, "heard_ms").map_or("-".to_owned(), |ms| format!("{} s", ms / 1000))
}

fn runs(node: &Value) -> f64 {
    list(node, "instances").len() as f64
}

fn live(job: &Value) -> &Value {
    job.get("live").unwrap_or(&Value::Null)
}

fn newest(job: &Value) -> &Value {
    list(job, "checkpoints").last().unwrap_or(&Value::Null)
}

fn job_state(job: &Value) -> String {
    match list(live(job), "held") {
        [] => listing::state(job),
        _ => format!("held for {}", listing::words(live(job), "held")),
    }
}

fn pause(job: &Value) -> String {
    number(newest(job), "pause_us").map_or("-".to_owned(), text::micros)
}

fn next(job: &Value) -> String {
    let live = live(job);
    let flight = live.get("in_flight").unwrap_or(&Value::Null);
    match (number(flight, "checkpoint"), number(live, "next_checkpoint_ms")) {
        (Some(checkpoint), _) => format!("{checkpoint}: {}", word(flight, "step")),
        (None, Some(ms)) => format!("in {} s", ms.div_ceil(1000)),
        (None, None) => "-".to_owned(),
    }
}
