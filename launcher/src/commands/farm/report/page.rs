//! The page: facts, pictures, tables. Nothing is loaded from anywhere.

use super::super::names::Names;
use super::Told;
use super::chart::{self, KINDS};
use super::times::{Clock, Placed, place};
use crate::commands::report::{STYLE, escaped, span, table};
use crate::farm::{Part, words};
use crate::text;
use ckptd_farm::Task;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What this page has more than that about a job.
const MORE_STYLE: &str = ".seam { stroke: var(--soft); stroke-dasharray: 3 3; } .key { display: inline-block; width: .8em; \
    height: .8em; margin: 0 .4em 0 1em; } .kind { white-space: nowrap; }";
/// The longest tasks that are named.
const SLOWEST: usize = 20;
/// The most others that are named.
const MOST_NAMED: usize = 200;
/// The most kinds that are told of.
const MOST_KINDS: usize = 100;

/// The page about a run.
pub fn of_run(told: &Told) -> String {
    let name = escaped(told.folder.name());
    let history = &told.history;
    let clock = Clock::of(&history.parts);
    // Of an older journal it is not known.
    let is_known = history.parts.iter().all(|part| part.slots > 0);
    let most = history.parts.iter().map(|part| part.slots as usize).max().unwrap_or(0);
    let most = if is_known { most } else { usize::MAX };
    let (all, places) = place(&history.spans, &clock, most);
    let slots = if is_known { most } else { places };
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name}</title>\
         <style>{STYLE}{MORE_STYLE}</style></head><body><h1>{name}</h1>\n"
    );
    facts(&mut out, told, &clock, places);
    if !all.is_empty() {
        let _ = write!(
            out,
            "<h2>What ran when</h2>\n{}{}<h2>How many ran at a time</h2>\n{}",
            chart::tasks(&all, places, &clock, &told.names),
            key(told, &clock),
            chart::numbers(&all, slots, &clock)
        );
    }
    kinds(&mut out, &all, &told.names);
    slowest(&mut out, &all, &told.names);
    failed(&mut out, told);
    skipped(&mut out, told);
    let _ = writeln!(
        out,
        "<footer>ckptd {}, {}</footer></body></html>",
        env!("CARGO_PKG_VERSION"),
        text::utc(told.now_ms)
    );
    out
}

/// What the colours mean.
fn key(told: &Told, clock: &Clock) -> String {
    let mut out = "<p>Each lane is one of the tasks that ran at a time. ".to_owned();
    if told.names.is_workflow() {
        for (kind, name) in told.names.kind_names.iter().take(KINDS).enumerate() {
            let _ = write!(
                out,
                r#"<span class="kind"><svg class="key" viewBox="0 0 1 1"><rect class="phase{kind}" width="1" height="1"/></svg>{}</span>"#,
                escaped(name)
            );
        }
        out.push_str(if told.names.kind_names.len() > KINDS {
            " (others in the same colours). "
        } else {
            ". "
        });
    } else {
        out.push_str("Green: ended with status 0. ");
    }
    out.push_str("Red: failed.");
    if clock.seams().next().is_some() {
        out.push_str(
            " Dashed: the run went on; the time between is left out, and so is what tasks did that were ended by it.",
        );
    }
    out.push_str("</p>\n");
    out
}

fn facts(out: &mut String, told: &Told, clock: &Clock, places: usize) {
    let (record, history) = (told.folder.record(), &told.history);
    let over = history.right as usize + history.failed.len() + history.skipped.len();
    let state = match (told.is_running, over >= record.tasks as usize) {
        (true, _) => "running",
        (false, true) => "ended",
        (false, false) => "interrupted",
    };
    let number = |part: &Part| match part.slots {
        0 => places as u64,
        slots => slots.into(),
    };
    let ran: u64 = history.spans.iter().map(|span| span.to_ms.saturating_sub(span.from_ms)).sum();
    let room: u64 = history
        .parts
        .iter()
        .map(|part| number(part) * part.to_ms.saturating_sub(part.from_ms))
        .sum();
    let mut slots: Vec<String> =
        history.parts.iter().map(|part| number(part).to_string()).collect();
    slots.dedup();
    let mut rows = vec![
        ("state", state.to_owned()),
        ("began", text::utc(record.created_at_ms)),
        ("time in all", span(clock.length())),
        ("tasks", record.tasks.to_string()),
        ("ended with status 0", history.right.to_string()),
        ("failed", history.failed.len().to_string()),
    ];
    if told.names.is_workflow() {
        rows.push(("skipped", history.skipped.len().to_string()));
        rows.push(("order", record.settings.order.unwrap_or_default().to_string()));
    }
    rows.push(("at a time", slots.join(", then ")));
    rows.push(("time of all tasks", span(ran)));
    rows.push((
        "core use",
        match room {
            0 => "-".to_owned(),
            room => format!(
                "{:.1} % (time of all tasks / tasks at a time × time in all)",
                ran as f64 * 100.0 / room as f64
            ),
        },
    ));
    match history.parts.len() {
        0 | 1 => {}
        2 => rows.push(("went on", "once".to_owned())),
        parts => rows.push(("went on", format!("{} times", parts - 1))),
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table(out, &[], &rows);
}

fn took(placed: &Placed) -> u64 {
    placed.span.to_ms.saturating_sub(placed.span.from_ms)
}

fn kinds(out: &mut String, all: &[Placed], names: &Names) {
    if !names.is_workflow() || all.is_empty() {
        return;
    }
    let mut sums: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
    for placed in all {
        let sum = sums.entry(names.kind(placed.span.task)).or_default();
        let took = took(placed);
        *sum = (sum.0 + 1, sum.1 + took, sum.2.max(took));
    }
    out.push_str("<h2>Kinds of tasks</h2>\n");
    let rows: Vec<Vec<String>> = sums
        .iter()
        .take(MOST_KINDS)
        .map(|(kind, (number, sum, most))| {
            let name = names.kind_names.get(*kind).cloned().unwrap_or_default();
            vec![name, number.to_string(), span(*sum), span(sum / number), span(*most)]
        })
        .collect();
    table(out, &["kind", "ran", "time in all", "on average", "at most"], &rows);
    more(out, sums.len(), MOST_KINDS);
}

fn slowest(out: &mut String, all: &[Placed], names: &Names) {
    let mut longest: Vec<&Placed> = all.iter().collect();
    longest.sort_by_key(|placed| (std::cmp::Reverse(took(placed)), placed.span.task));
    longest.truncate(SLOWEST);
    if longest.is_empty() {
        return;
    }
    out.push_str("<h2>The longest</h2>\n");
    let rows: Vec<Vec<String>> = longest
        .iter()
        .map(|placed| {
            let restored = if placed.span.restored { "since its restart" } else { "" };
            let task = placed.span.task;
            vec![task.0.to_string(), names.task(task), span(took(placed)), restored.to_owned()]
        })
        .collect();
    table(out, &["task", "", "time", ""], &rows);
}

fn failed(out: &mut String, told: &Told) {
    let all = &told.history.failed;
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Failed</h2>\n");
    let rows: Vec<Vec<String>> = all
        .iter()
        .take(MOST_NAMED)
        .map(|(task, verdict)| vec![task.0.to_string(), told.names.task(*task), words(*verdict)])
        .collect();
    table(out, &["task", "", "how"], &rows);
    more(out, all.len(), MOST_NAMED);
}

fn skipped(out: &mut String, told: &Told) {
    let all = &told.history.skipped;
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Skipped</h2>\n<p>They wait for a task that has failed, directly or not.</p>\n",
    );
    let name = |task: &Task| format!("{} {}", task.0, told.names.task(*task));
    let rows: Vec<Vec<String>> = all
        .iter()
        .take(MOST_NAMED)
        .map(|(task, because)| vec![task.0.to_string(), told.names.task(*task), name(because)])
        .collect();
    table(out, &["task", "", "since this one failed"], &rows);
    more(out, all.len(), MOST_NAMED);
}

fn more(out: &mut String, number: usize, told: usize) {
    if number > told {
        let _ = writeln!(out, "<p>And {} more.</p>", number - told);
    }
}
