//! `ckptd status`.

use super::summary::JobSummary;
use super::{Context, clustered, print, print_json};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::tables::{printable, rehearsal, table};
use crate::text;
use coordinator::CommittedState;
use std::fmt::Write;

pub fn perform(
    context: &Context,
    wanted: Option<&str>,
    list: ListArguments,
) -> Result<(), Failure> {
    let cluster = match wanted {
        Some(wanted) => context.cluster_of(wanted)?,
        None => context.cluster()?,
    };
    if let Some(cluster) = cluster {
        return clustered::status(&cluster, wanted, list);
    }
    let mut summaries = Vec::new();
    if let Some(wanted) = wanted {
        summaries.push(JobSummary::of(&context.state.find_job(wanted)?)?);
    } else {
        let complain = |error| eprintln!("ckptd: warning: failed to {error}");
        let mut jobs = context.state.jobs(complain)?;
        let latest = jobs.pop();
        for job in jobs {
            if job.is_running()? {
                summaries.push(JobSummary::of(&job)?);
            }
        }
        if let Some(latest) = latest {
            if summaries.is_empty() || latest.is_running()? {
                summaries.push(JobSummary::of(&latest)?);
            }
        }
    }
    if list.json {
        return match (wanted, summaries.as_slice()) {
            (Some(_), [one]) => print_json(one),
            _ => print_json(&summaries),
        };
    }
    if summaries.is_empty() {
        return print("no jobs\n");
    }
    let now = text::now_ms();
    let texts: Vec<String> = summaries.iter().map(|job| describe(job, now)).collect();
    print(&texts.join("\n"))
}

/// A job's lines and its table of checkpoints, at a time in milliseconds since 1970 UTC.
pub(super) fn describe(job: &JobSummary, now: u64) -> String {
    let mut out = String::new();
    // Writing to a String never fails.
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<12}{value}");
    };
    line(
        "job",
        if job.name == job.id { job.id.clone() } else { format!("{} ({})", job.name, job.id) },
    );
    line("command", printable(&job.command.join(" ")));
    line("state", job.state_text());
    if let Some(started) = job.started_at_ms {
        let from = job.restored_from.map(|from| format!(", from checkpoint {from}"));
        line("started", format!("{} ago{}", text::age(started, now), from.unwrap_or_default()));
    }
    if let Some(live) = &job.live {
        if let Some(processes) = live.processes {
            line("processes", processes.to_string());
        }
        line(
            "next",
            match (&live.in_flight, live.next_checkpoint_ms) {
                (Some(flight), _) => {
                    format!("checkpoint {} is in flight: {}", flight.checkpoint, flight.step)
                }
                (None, Some(ms)) => format!("checkpoint in {} s", ms.div_ceil(1000)),
                (None, None) => "checkpoint on demand".to_owned(),
            },
        );
        if let Some(rehearsed) = &live.rehearsal {
            line("rehearsal", rehearsal(rehearsed));
        }
        if live.ending {
            line("ending", "yes".to_owned());
        }
    }
    line("log", job.log.clone());
    if let Some(abandoned) = &job.last_abandoned {
        let reason = printable(&abandoned.reason);
        line("abandoned", format!("checkpoint {}: {reason}", abandoned.checkpoint));
    }
    if job.checkpoints.is_empty() {
        line("checkpoints", "none".to_owned());
        return out;
    }
    let heading = ["CHECKPOINT", "AGE", "PROCESSES", "SIZE", "STORED", "PAUSE", "COPIES", "STATE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for checkpoint in &job.checkpoints {
        let record = &checkpoint.record;
        let state = match (checkpoint.state, record.degraded) {
            (CommittedState::Superseded, _) => "superseded",
            (CommittedState::Current, true) => "degraded",
            (CommittedState::Current, false) => "committed",
        };
        rows.push(vec![
            record.checkpoint.to_string(),
            text::age(record.taken_at_ms, now),
            record.summary.processes.to_string(),
            text::size(record.summary.bytes),
            text::size(record.summary.stored_bytes),
            text::micros(record.pause_us),
            record.copies.to_string(),
            state.to_owned(),
        ]);
    }
    out + &table(&rows)
}
