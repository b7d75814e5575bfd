//! A line of the results.

use super::line::Line;
use super::tasks::Tasks;
use ckptd_farm::{Entry, Task, Try, Verdict};
use serde_json::{Value, json};

/// The status of a task that took too long, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// That of a task without a file that it should have written.
const NO_OUTPUT: u8 = 1;

/// The line of a result; empty for what is none.
pub fn line_of(line: &Line, tasks: &Tasks) -> String {
    let Line::Ended { at_ms, entry } = line else { return String::new() };
    let (task, mut value) = match entry {
        Entry::Ended(tried) => (tried.task, of_try(tried)),
        Entry::Skipped { task, because } => (*task, skipped(*because, tasks)),
        Entry::Failed(_) | Entry::Reopened => return String::new(),
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

fn of_try(tried: &Try) -> Value {
    let (outcome, signal) = match tried.verdict {
        Verdict::Exited(_) => ("exited", None),
        Verdict::Signalled(signal) => ("signalled", Some(signal)),
        Verdict::TimedOut => ("timed-out", None),
        Verdict::WroteTooMuch => ("wrote-too-much", None),
        Verdict::NoOutput => ("no-output", None),
    };
    let number = tried.task.0;
    json!({
        "outcome": outcome,
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

/// The status by which a shell would tell it.
fn status(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Exited(status) => status,
        Verdict::Signalled(signal) => 128u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
        Verdict::TimedOut => TIMED_OUT,
        Verdict::WroteTooMuch => 128 + 25,
        Verdict::NoOutput => NO_OUTPUT,
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
    }
}
