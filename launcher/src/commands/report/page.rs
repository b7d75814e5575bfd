//! The page: facts, pictures, tables. Nothing is loaded from anywhere.

use super::phases;
use super::picture::{escaped, recovery, span, whole};
use crate::cluster::listing::{command, list, number, state, word};
use crate::text;
use serde_json::Value;
use std::fmt::Write;

/// How pages look.
pub const STYLE: &str = include_str!("style.css");

/// The page about a job, as its status tells it at `now`, in milliseconds since 1970.
pub fn of_job(job: &Value, now: u64) -> String {
    let ended = number(job, "over_at_ms").or_else(|| {
        let end = job.get("end").filter(|end| !end.is_null())?;
        number(end, "at_ms")
    });
    let end = ended.unwrap_or_else(|| last_known(job).unwrap_or(now));
    let name = escaped(&word(job, "name"));
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name}</title>\
         <style>{STYLE}</style></head><body><h1>{name}</h1>\n"
    );
    facts(&mut out, job, end);
    let _ = write!(
        out,
        "<h2>The whole time</h2>\n{}<p>Green: the job ran. Red: it stood, or was on its way back. Grey: not known, since it was \
         restarted after that. Dots: checkpoints that are kept. Point at a part for its name.</p>\n",
        whole(job, end)
    );
    recoveries(&mut out, job);
    checkpoints(&mut out, job);
    places(&mut out, job);
    let _ = writeln!(
        out,
        "<footer>ckptd {}, {}</footer></body></html>",
        env!("CARGO_PKG_VERSION"),
        text::utc(now)
    );
    out
}

/// Of a job that nobody saw the end of: when it was last known to run. `None`: it runs.
fn last_known(job: &Value) -> Option<u64> {
    if word(job, "state") != "interrupted" {
        return None;
    }
    let committed =
        list(job, "checkpoints").iter().filter_map(|one| number(one, "committed_at_ms"));
    committed.chain(number(job, "started_at_ms")).max()
}

fn facts(out: &mut String, job: &Value, end: u64) {
    let began = number(job, "created_at_ms").or_else(|| number(job, "started_at_ms"));
    let took = began.map_or_else(|| "-".to_owned(), |began| span(end.saturating_sub(began)));
    let stood: u64 = list(job, "rollbacks").iter().map(|one| stood(one, end)).sum();
    let rows = [
        ("job", word(job, "id")),
        ("command", command(job)),
        ("state", state(job)),
        ("began", began.map_or_else(|| "-".to_owned(), text::utc)),
        ("time in all", took),
        ("recoveries and moves", format!("{}, {}", list(job, "rollbacks").len(), span(stood))),
    ];
    table(out, &[], &rows.map(|(label, value)| vec![label.to_owned(), value]));
}

/// How long a job has stood for a recovery.
fn stood(rollback: &Value, end: u64) -> u64 {
    let began = phases::began(rollback).unwrap_or(end);
    phases::ended(rollback).unwrap_or(end).saturating_sub(began)
}

fn recoveries(out: &mut String, job: &Value) {
    let all = list(job, "rollbacks");
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Recoveries and moves</h2>\n");
    for (at, rollback) in all.iter().enumerate() {
        let _ = write!(out, "<h3>{}</h3>\n<p>{}</p>\n", at + 1, escaped(&told(rollback)));
        out.push_str(&recovery(rollback));
        let rows: Vec<Vec<String>> = phases::of(rollback)
            .iter()
            .map(|(phase, from, to)| {
                vec![phase.name.to_owned(), span(to - from), phase.about.to_owned()]
            })
            .collect();
        table(out, &["phase", "time", ""], &rows);
        let moves: Vec<Vec<String>> = list(rollback, "moves")
            .iter()
            .map(|one| ["process", "pid", "from", "to"].map(|key| word(one, key)).to_vec())
            .collect();
        if !moves.is_empty() {
            out.push_str("<details><summary>who moved where</summary>");
            table(out, &["process", "number", "from", "to"], &moves);
            out.push_str("</details>\n");
        }
    }
}

/// In a sentence.
fn told(rollback: &Value) -> String {
    let node = match rollback.get("node") {
        Some(Value::String(node)) => node.clone(),
        _ => "a node".to_owned(),
    };
    let why = match word(rollback, "reason").as_str() {
        "lost" => format!("{node} was lost"),
        "leave" => format!("{node} left as announced"),
        "drain" => format!("{node} was drained"),
        "join" => format!("{node} joined and took a share"),
        "speed" => "shares were adapted to the nodes' speeds".to_owned(),
        "broken" => "a part of the job was broken".to_owned(),
        "again" => "the recovery before failed, and began again".to_owned(),
        "recovered" => "the coordinator was back, and nodes were missing".to_owned(),
        "restart" => "the job was restarted".to_owned(),
        other => other.to_owned(),
    };
    match number(rollback, "checkpoint") {
        Some(checkpoint) => format!("{why}; the job went on from checkpoint {checkpoint}."),
        None => format!("{why}; the job began anew."),
    }
}

fn checkpoints(out: &mut String, job: &Value) {
    let all = list(job, "checkpoints");
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Checkpoints that are kept</h2>\n");
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let summary = one.get("summary").unwrap_or(&Value::Null);
            let size = |key| number(summary, key).map_or_else(|| "-".to_owned(), text::size);
            vec![
                word(one, "checkpoint"),
                number(one, "committed_at_ms").map_or_else(|| "-".to_owned(), text::utc),
                size("bytes"),
                size("stored_bytes"),
                number(one, "pause_us").map_or_else(|| "-".to_owned(), text::micros),
                word(one, "copies"),
            ]
        })
        .collect();
    table(out, &["checkpoint", "committed", "size", "stored", "pause", "copies"], &rows);
}

fn places(out: &mut String, job: &Value) {
    let all = list(job, "processes");
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Where processes are</h2>\n");
    let keys = ["name", "pid", "node", "home", "why"];
    let rows: Vec<Vec<String>> =
        all.iter().map(|one| keys.map(|key| word(one, key)).to_vec()).collect();
    table(out, &["process", "number", "node", "began on", "why"], &rows);
}

/// A table.
pub fn table(out: &mut String, heading: &[&str], rows: &[Vec<String>]) {
    out.push_str("<table>");
    if !heading.is_empty() {
        let cells = heading.iter().map(|cell| format!("<th>{}</th>", escaped(cell)));
        let _ = write!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    for row in rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
        let _ = write!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::cluster::entry::{Move, RollbackRecord};
    use serde_json::json;

    /// Made of what the coordinator writes, so that no key is read that nobody writes.
    fn job() -> Value {
        let at = 1_700_000_000_000;
        let rollback = RollbackRecord {
            reason: "lost".into(),
            node: Some("c".parse().unwrap()),
            checkpoint: Some(3),
            lost_at_ms: at + 60_000,
            declared_ms: at + 62_000,
            planned_ms: Some(at + 62_050),
            images_ms: Some(at + 62_300),
            rewired_ms: Some(at + 62_300),
            restored_ms: Some(at + 62_900),
            running_ms: Some(at + 62_920),
            moves: vec![Move {
                process: "nqueens".into(),
                pid: 7,
                from: "c".parse().unwrap(),
                to: "a".parse().unwrap(),
            }],
            ..RollbackRecord::default()
        };
        json!({"id": "fold-1", "name": "fold<1>", "command": ["mpirun", "<script>"], "state": "running",
            "created_at_ms": at, "started_at_ms": at + 62_920, "starts": 2, "rollbacks": [rollback], "processes": [],
            "checkpoints": [{"checkpoint": 4, "committed_at_ms": at + 90_000, "pause_us": 2100, "copies": 2,
                "summary": {"bytes": 1 << 20, "stored_bytes": 4096}}]})
    }

    #[test]
    fn a_page_tells_of_a_loss() {
        let page = of_job(&job(), 1_700_000_100_000);
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!("report", page.replace(STYLE, "..."));
        });
    }

    #[test]
    fn nothing_comes_from_elsewhere_and_nothing_of_a_job_is_markup() {
        let page = of_job(&job(), 1_700_000_100_000);
        assert!(!page.contains("<script") && !page.contains("http") && !page.contains("fold<1>"));
        assert!(page.len() < 20_000, "{}", page.len());
    }

    #[test]
    fn a_job_of_which_nothing_is_known_yet_has_a_page() {
        assert!(of_job(&json!({"name": "x"}), 5).ends_with("</html>\n"));
    }
}
