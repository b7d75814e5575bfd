//! `ckptd gc`.

use super::target::Target;
use super::{Context, print, print_json};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::jobs::{self, JobError, JobFolder};
use crate::progress::{Bar, Unit};
use crate::text;
use serde::Serialize;

/// What was removed of a job; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Made {
    job: String,
    checkpoints: Vec<u64>,
    packs: usize,
    bytes: u64,
}

pub fn perform(
    context: &Context,
    wanted: Option<&str>,
    list: ListArguments,
) -> Result<(), Failure> {
    let jobs = match wanted {
        Some(wanted) => match context.target(wanted)? {
            Target::Own(job) => vec![job],
            Target::Cluster(_) => {
                return Err(Failure::of(
                    format!("make room in {wanted}"),
                    "it is no job of this machine; a cluster makes its own room at each commit",
                ));
            }
        },
        None => context.state.jobs(|error| eprintln!("ckptd: warning: failed to {error}"))?,
    };
    if wanted.is_none() {
        jobs::sweep(&context.state)?;
    }
    let mut all = Vec::new();
    let bar = Bar::new("jobs looked through".to_owned(), Unit::Jobs, None);
    for job in &jobs {
        bar.set(all.len() as u64, jobs.len() as u64);
        match collect(job) {
            Ok(made) => all.push(made),
            // A running job makes its own room at each commit.
            Err(Failure::Failed(_)) if wanted.is_none() && job.is_running()? => {}
            Err(failure) => return Err(failure),
        }
    }
    bar.finish();
    if list.json {
        return print_json(&all);
    }
    let bytes = all.iter().map(|made| made.bytes).sum();
    let checkpoints: usize = all.iter().map(|made| made.checkpoints.len()).sum();
    print(&format!(
        "freed {} of {}: {}\n",
        text::size(bytes),
        text::count(all.len() as u64, "job"),
        text::count(checkpoints as u64, "checkpoint"),
    ))
}

fn collect(job: &JobFolder) -> Result<Made, Failure> {
    let _lock = job.lock().map_err(|error| match error {
        JobError::Running { .. } => Failure::of(
            format!("make room in {}", job.name()),
            "it is running, and makes its own room at each commit",
        ),
        other => other.into(),
    })?;
    // All that the log calls committed stays: only what no commit refers to is removed.
    let keep: Vec<u64> =
        jobs::load(job)?.committed().map(|(record, _)| record.checkpoint).collect();
    let collected = ckpt_store::collect(job.path(), &keep)
        .map_err(|error| Failure::of(format!("make room in {}", job.name()), error))?;
    Ok(Made {
        job: job.id().to_owned(),
        checkpoints: collected.checkpoints,
        packs: collected.packs.len(),
        bytes: collected.bytes,
    })
}
