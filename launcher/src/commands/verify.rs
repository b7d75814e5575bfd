//! `ckptd verify`.

use super::{Context, dmtcp, print, print_json, target};
use crate::EXIT_FAILED;
use crate::cli::{EngineSetting, ListArguments};
use crate::failure::Failure;
use crate::text;
use ckpt_agent::store::{self, CheckpointState};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// The verdict on a checkpoint; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Verdict {
    checkpoint: u64,
    /// `whole`, `damaged` or `unfinished`.
    verdict: &'static str,
    reason: Option<String>,
    chunks: u64,
    bytes: u64,
}

/// Exit status 0 where every committed checkpoint is whole.
pub fn perform(context: &Context, wanted: &str, list: ListArguments) -> Result<u8, Failure> {
    let (job, only) = target::find(context, wanted)?;
    if job.record().settings.engine == EngineSetting::Dmtcp {
        return dmtcp::verify(&job, only, list.json);
    }
    let what = format!("verify {}", job.name());
    let listed = store::list(job.path()).map_err(|error| Failure::of(&what, error))?;
    let mut verdicts = Vec::new();
    for checkpoint in listed {
        if only.is_none_or(|only| only == checkpoint.number) {
            verdicts.push(judge(job.path(), &checkpoint));
        }
    }
    if let (Some(only), true) = (only, verdicts.is_empty()) {
        return Err(Failure::of(what, format!("there is no checkpoint {only}")));
    }
    if list.json {
        print_json(&verdicts)?;
    } else if verdicts.is_empty() {
        print("no checkpoints\n")?;
    }
    for verdict in &verdicts {
        if !list.json {
            let reason =
                verdict.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            let size = text::size(verdict.bytes);
            let checked = format!("{}, {size}", text::count(verdict.chunks, "chunk"));
            let rest = if verdict.verdict == "whole" { format!(": {checked}") } else { reason };
            print(&format!("checkpoint {}: {}{rest}\n", verdict.checkpoint, verdict.verdict))?;
        }
    }
    let damaged = verdicts.iter().any(|verdict| verdict.verdict == "damaged");
    Ok(if damaged { EXIT_FAILED } else { 0 })
}

fn judge(job_dir: &std::path::Path, checkpoint: &store::CheckpointSummary) -> Verdict {
    let number = checkpoint.number;
    let verdict =
        |verdict, reason| Verdict { checkpoint: number, verdict, reason, chunks: 0, bytes: 0 };
    match &checkpoint.state {
        CheckpointState::Incomplete => return verdict("unfinished", None),
        CheckpointState::Damaged(damage) => return verdict("damaged", Some(damage.to_string())),
        CheckpointState::Committed(_) => {}
    }
    // Drawn on standard error, and only where that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} chunks {eta}") {
        bar.set_style(style);
    }
    bar.set_message(format!("checkpoint {number}"));
    let report = store::verify(job_dir, number, |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    match report {
        Ok(report) => {
            Verdict { chunks: report.chunks, bytes: report.bytes, ..verdict("whole", None) }
        }
        Err(damage) => verdict("damaged", Some(damage.to_string())),
    }
}
