//! A line of the results.

use super::line::Line;
use super::tasks::Tasks;
use crate::EXIT_FAILED;
use ckptd_farm::{Entry, Task, Try, Verdict};
use serde_json::{Value, json};

/// The status of a task that took too long, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// That of a task without a file that it should have written.
const NO_OUTPUT: u8 = 1;
/// That of a task that somebody has cancelled: as of one that SIGTERM has ended.
const CANCELLED: u8 = 128 + 15;

/// The line of a result; empty for what is none.
pub fn line_of(line: &Line, tasks: &Tasks) -> String {
    let Line::Ended { at_ms, entry } = line else { return String::new() };
    let (task, mut value) = match entry {
        Entry::Ended(tried) => (tried.task, of_try(tried)),
        Entry::Skipped { task, because } => (*task, skipped(*because, tasks)),
        Entry::Failed(_) | Entry::Reopened | Entry::Retried { .. } => return String::new(),
    };
    let command = tasks.command(task).unwrap_or_default();
    value["task"] = task.0.into();
    value["command"] = String::from_utf8_lossy(&command).into();
    value["ended_at_ms"] = (*at_ms).into();
    if let Some(Ok(step)) = tasks.step(task) {
        value["id"] = step.id.into();
        value["name"] = step.name.into();
    }
    value.to_string() + "\n"
}

/// The line of how a task has ended, and when, as it stands in the results.
pub fn line_of_end(tried: Try, at_ms: u64, tasks: &Tasks) -> String {
    line_of(&Line::Ended { at_ms, entry: Entry::Ended(tried) }, tasks)
}

/// A line for a task that could not be brought back, for whoever is told how each ends; `status` is that of whoever waits.
pub fn line_of_stuck(task: Task, reason: &str, tasks: &Tasks) -> String {
    let command = tasks.command(task).unwrap_or_default();
    let value = json!({
        "task": task.0,
        "command": String::from_utf8_lossy(&command),
        "outcome": "stuck",
        "status": EXIT_FAILED,
        "signal": null,
        "reason": reason,
    });
    value.to_string() + "\n"
}

fn of_try(tried: &Try) -> Value {
    let signal = match tried.verdict {
        Verdict::Signalled(signal) => Some(signal),
        _ => None,
    };
    let number = tried.task.0;
    json!({
        "outcome": outcome(tried.verdict),
        "status": status(tried.verdict),
        "signal": signal,
        "attempt": tried.attempt,
        "restored": tried.restored,
        "seconds": tried.took_ms as f64 / 1000.0,
        "stdout": format!("{number}.out"),
        "stderr": format!("{number}.err"),
    })
}

fn skipped(because: Task, tasks: &Tasks) -> Value {
    let mut value = json!({"outcome": "skipped", "because": because.0});
    if let Some(Ok(id)) = tasks.reason(because) {
        value["because_id"] = id.into();
    }
    value
}

/// The word for how a try has ended, as it stands in results.
pub fn outcome(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Exited(_) => "exited",
        Verdict::Signalled(_) => "signalled",
        Verdict::TimedOut => "timed-out",
        Verdict::WroteTooMuch => "wrote-too-much",
        Verdict::NoOutput => "no-output",
        Verdict::Cancelled => "cancelled",
    }
}

/// The status by which a shell would tell it.
pub fn status(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Exited(status) => status,
        Verdict::Signalled(signal) => 128u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
        Verdict::TimedOut => TIMED_OUT,
        Verdict::WroteTooMuch => 128 + 25,
        Verdict::NoOutput => NO_OUTPUT,
        Verdict::Cancelled => CANCELLED,
    }
}

/// How a try has ended, behind the task's name.
pub fn words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Exited(status) => format!("ended with status {status}"),
        Verdict::Signalled(signal) => format!("was ended by signal {signal}"),
        Verdict::TimedOut => "took too long".to_owned(),
        Verdict::WroteTooMuch => "wrote too much".to_owned(),
        Verdict::NoOutput => "ended without a file that it should have written".to_owned(),
        Verdict::Cancelled => "was cancelled".to_owned(),
    }
}
