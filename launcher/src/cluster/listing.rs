//! Listings of a cluster for people, from their JSON forms. What a newer coordinator adds is left
//! out, what an older one lacks is shown as a dash.

use crate::tables::{printable, rehearsal, table};
use crate::text;
use serde_json::Value;
use std::fmt::Write;

const NONE: &str = "-";

/// Processes that it takes, and whether only in another's place.
fn slots(node: &Value) -> String {
    let is_spare = node.get("spare").and_then(Value::as_bool).unwrap_or(false);
    word(node, "slots") + if is_spare { " spare" } else { "" }
}

/// How a member is, in a word; and whether it is drained, where that word does not say so.
#[must_use]
pub fn node_state(node: &Value) -> String {
    let state = word(node, "state");
    let says_so = matches!(state.as_str(), "draining" | "drained");
    if node["drained"] == true && !says_so { format!("{state}, drained") } else { state }
}

/// A text, number or truth of that key.
#[must_use]
pub fn word(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => printable(text),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(yes)) => (if *yes { "yes" } else { "no" }).to_owned(),
        _ => NONE.to_owned(),
    }
}

/// A number of that key.
#[must_use]
pub fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

/// The list of that key.
#[must_use]
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How long ago the time of that key is.
#[must_use]
pub fn age(value: &Value, key: &str) -> String {
    number(value, key).map_or(NONE.to_owned(), |ms| text::age(ms, text::now_ms()))
}

/// A number of that key with two decimals.
#[must_use]
pub fn decimals(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_f64).map_or(NONE.to_owned(), |number| format!("{number:.2}"))
}

/// A job's command.
#[must_use]
pub fn command(job: &Value) -> String {
    let words: Vec<&str> = list(job, "command").iter().filter_map(Value::as_str).collect();
    printable(&words.join(" "))
}

/// `ckptd nodes`.
#[must_use]
pub fn nodes(value: &Value) -> String {
    let heading =
        ["NODE", "STATE", "SLOTS", "SPEED", "FROM", "CORES", "LOAD", "BATTERY", "RUNS", "HOLDS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for node in value.as_array().map_or(&[][..], Vec::as_slice) {
        rows.push(vec![
            word(node, "name"),
            node_state(node),
            slots(node),
            decimals(node, "speed"),
            word(node, "speed_from"),
            cores(node),
            decimals(node, "load"),
            battery(node),
            words(node, "instances"),
            words(node, "holds"),
        ]);
    }
    let all = value.as_array().map_or(&[][..], Vec::as_slice).iter();
    let attention = all.flat_map(|node| list(node, "attention"));
    let lines = attention.filter_map(Value::as_str).map(attention_line);
    table(&rows) + &lines.collect::<String>()
}

/// What somebody should look after.
fn attention_line(text: &str) -> String {
    format!("{:<12}{}\n", "attention", printable(text))
}

/// The same, of the cluster that a job is of.
fn attention(job: Option<&Value>) -> String {
    let all = job.map_or(&[][..], |job| list(job, "attention"));
    let lines = all.iter().map(|one| attention_line(&word(one, "text")));
    lines.collect()
}

/// Charge, and whether it becomes more.
#[must_use]
pub fn battery(node: &Value) -> String {
    let plus = if node["charging"] == true { " +" } else { "" };
    number(node, "battery").map_or(NONE.to_owned(), |charge| format!("{charge} %{plus}"))
}

/// Cores' worth of time; parts of a core where they are not whole.
fn cores(node: &Value) -> String {
    match node.get("capacity").and_then(Value::as_f64) {
        Some(cores) if (cores - cores.round()).abs() > 0.005 => format!("{cores:.2}"),
        Some(cores) => format!("{cores:.0}"),
        None => word(node, "cores"),
    }
}

/// The texts of a list.
#[must_use]
pub fn words(value: &Value, key: &str) -> String {
    let words: Vec<&str> = list(value, key).iter().filter_map(Value::as_str).collect();
    if words.is_empty() { NONE.to_owned() } else { printable(&words.join(", ")) }
}

/// `ckptd ls`.
#[must_use]
pub fn jobs(value: &Value) -> String {
    let heading = ["NAME", "STATE", "AGE", "CHECKPOINT", "ITS AGE", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let all = value.as_array().map_or(&[][..], Vec::as_slice);
    // An operator sees several users' jobs, which may have the same name.
    let same = |job: &Value| all.iter().filter(|other| other["name"] == job["name"]).count();
    for job in all {
        let newest = list(job, "checkpoints").last();
        rows.push(vec![
            if same(job) > 1 { word(job, "id") } else { word(job, "name") },
            state(job),
            age(job, "created_at_ms"),
            newest.map_or("none".to_owned(), |newest| word(newest, "checkpoint")),
            newest.map_or(String::new(), |newest| age(newest, "taken_at_ms")),
            command(job),
        ]);
    }
    table(&rows)
}

/// A job's state in a few words.
#[must_use]
pub fn state(job: &Value) -> String {
    let status = job.get("end").and_then(|end| end.get("status"));
    let end = status.and_then(|status| protocol::json::of_value(status).ok());
    match (word(job, "state"), end) {
        (state, Some(protocol::agent::ExitKind::Exited(status))) if state == "ended" => {
            format!("ended ({status})")
        }
        (state, Some(protocol::agent::ExitKind::Signalled(signal))) if state == "ended" => {
            format!("ended (signal {signal})")
        }
        (state, _) => state,
    }
}

/// `ckptd status`, for one job or several. `around`: what is known of the cluster, where it has no job.
#[must_use]
pub fn status(value: &Value, around: Option<&Value>) -> String {
    match value {
        Value::Array(jobs) if jobs.is_empty() => {
            let drained = around.map(|around| words(around, "drained"));
            let drained = drained.filter(|drained| drained != NONE);
            let drained = drained.map(|drained| format!("{:<12}{drained}\n", "drained"));
            attention(around) + "no jobs\n" + &drained.unwrap_or_default()
        }
        Value::Array(jobs) => {
            attention(jobs.first()) + &jobs.iter().map(job).collect::<Vec<_>>().join("\n")
        }
        one => attention(Some(one)) + &job(one),
    }
}

fn job(value: &Value) -> String {
    let mut out = String::new();
    // Writing to a String never fails.
    let mut line = |label: &str, value: String| {
        if value != NONE {
            let _ = writeln!(out, "{label:<12}{value}");
        }
    };
    let (id, name) = (word(value, "id"), word(value, "name"));
    line("job", if id == name { id } else { format!("{name} ({id})") });
    line("command", command(value));
    line("state", state(value));
    let from = number(value, "restored_from").map(|from| format!(", from checkpoint {from}"));
    if number(value, "started_at_ms").is_some() {
        line("started", format!("{} ago{}", age(value, "started_at_ms"), from.unwrap_or_default()));
    }
    let live = value.get("live").unwrap_or(&Value::Null);
    let flight = live.get("in_flight").unwrap_or(&Value::Null);
    line(
        "next",
        match (number(flight, "checkpoint"), number(live, "next_checkpoint_ms")) {
            (Some(checkpoint), _) => {
                format!("checkpoint {checkpoint} is in flight: {}", word(flight, "step"))
            }
            (None, Some(ms)) => format!("checkpoint in {} s", ms.div_ceil(1000)),
            (None, None) if live.is_object() => "checkpoint on demand".to_owned(),
            (None, None) => NONE.to_owned(),
        },
    );
    let rehearsed = live.get("rehearsal").cloned().unwrap_or(Value::Null);
    if let Ok(rehearsed) = protocol::json::of_value(&rehearsed) {
        line("rehearsal", rehearsal(&rehearsed));
    }
    let is_move = |record: &&Value| {
        matches!(word(record, "reason").as_str(), "leave" | "drain" | "join" | "speed" | "address")
    };
    let all = list(value, "rollbacks");
    let moves = all.iter().filter(is_move).count();
    for (label, count) in [("rollbacks", all.len() - moves), ("moves", moves)] {
        if count > 0 {
            line(label, count.to_string());
        }
    }
    line("drained", words(value, "drained"));
    line("newcomers", word(value, "newcomers"));
    line("speeds", word(value, "speeds"));
    line("work", word(value, "work"));
    line("failure", word(value, "failure"));
    // The file is on the coordinator's machine.
    line("log", format!("ckptd logs {name}"));
    if let Some(abandoned) = value.get("last_abandoned").filter(|found| !found.is_null()) {
        let (checkpoint, reason) = (word(abandoned, "checkpoint"), word(abandoned, "reason"));
        line("abandoned", format!("checkpoint {checkpoint}: {reason}"));
    }
    out + &processes(list(value, "processes")) + &checkpoints(list(value, "checkpoints"))
}

/// Who is where and why.
fn processes(processes: &[Value]) -> String {
    let heading = ["PID", "PROCESS", "WORK", "NODE", "HOME", "WHY"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for process in processes {
        let mut row = ["pid", "name", "work", "node", "home", "why"].map(|key| word(process, key));
        row[2] = decimals(process, "work");
        rows.push(row.to_vec());
    }
    if rows.len() > 1 { table(&rows) } else { String::new() }
}

fn checkpoints(checkpoints: &[Value]) -> String {
    if checkpoints.is_empty() {
        return "checkpoints none\n".to_owned();
    }
    let heading = ["CHECKPOINT", "AGE", "PROCESSES", "SIZE", "STORED", "PAUSE", "COPIES", "STATE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for checkpoint in checkpoints {
        let summary = checkpoint.get("summary").unwrap_or(&Value::Null);
        let size = |key| number(summary, key).map_or(NONE.to_owned(), text::size);
        let degraded = checkpoint.get("degraded").and_then(Value::as_bool).unwrap_or(false);
        let state = match word(checkpoint, "state").as_str() {
            "superseded" => "superseded",
            _ if degraded => "degraded",
            _ => "committed",
        };
        rows.push(vec![
            word(checkpoint, "checkpoint"),
            age(checkpoint, "taken_at_ms"),
            word(summary, "processes"),
            size("bytes"),
            size("stored_bytes"),
            number(checkpoint, "pause_us").map_or(NONE.to_owned(), text::micros),
            word(checkpoint, "copies"),
            state.to_owned(),
        ]);
    }
    table(&rows)
}
