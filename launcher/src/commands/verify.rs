//! `ckptd verify`.

use super::images::{ClusterJob, Image, Place, holders};
use super::{Context, dmtcp, print, print_json, target};
use crate::EXIT_FAILED;
use crate::cli::{EngineSetting, ListArguments};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::text;
use ckpt_agent::store::{self, CheckpointState};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// The verdict on a checkpoint; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Verdict {
    checkpoint: u64,
    /// Of a cluster's job: whose part of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u64>,
    /// Likewise: the machines that hold it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    holders: Vec<String>,
    /// `whole`, `damaged` or `unfinished`; `elsewhere`, and then it was not checked, where it can't be read on this
    /// machine.
    verdict: &'static str,
    reason: Option<String>,
    chunks: u64,
    bytes: u64,
}

/// Exit status 0 where every committed checkpoint is whole.
pub fn perform(context: &Context, wanted: &str, list: ListArguments) -> Result<u8, Failure> {
    let (name, only) = target::split(wanted)?;
    if let Some(cluster) = context.cluster_of(name)? {
        return of_cluster(context, &cluster, name, only, list);
    }
    let job = context.state.find_job(name)?;
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
    tell(&verdicts, list)
}

/// Of the images of a cluster's job, those that can be read on this machine; of all others it says where they are.
fn of_cluster(
    context: &Context,
    cluster: &Cluster,
    name: &str,
    only: Option<u64>,
    list: ListArguments,
) -> Result<u8, Failure> {
    let what = format!("verify {name}");
    let job = ClusterJob::find(context, cluster, name, &what)?;
    let wanted = |image: &&Image| only.is_none_or(|only| only == image.checkpoint);
    let images: Vec<&Image> = job.images.iter().filter(wanted).collect();
    if let (Some(only), true) = (only, images.is_empty()) {
        return Err(Failure::of(what, format!("there is no checkpoint {only}")));
    }
    let is_elsewhere = |image: &Image| !matches!(image.place, Place::Here(_));
    if !images.is_empty() && images.iter().all(|image| is_elsewhere(image)) {
        return Err(Failure::of(what, job.nothing_here(&format!("verify {name}"), &images)));
    }
    let mut verdicts = Vec::new();
    for image in &images {
        let verdict = match &image.place {
            Place::Here(folder) => judge_image(folder, image.checkpoint),
            Place::Closed | Place::Elsewhere => unread(image.checkpoint, "elsewhere", None),
        };
        let (instance, holders) = (Some(image.instance), image.holders.clone());
        verdicts.push(Verdict { instance, holders, ..verdict });
    }
    let status = tell(&verdicts, list)?;
    let left: Vec<&Image> = images.into_iter().filter(|image| is_elsewhere(image)).collect();
    if !left.is_empty() {
        let count = text::count(left.len() as u64, "image");
        let holders = holders(left.into_iter());
        eprintln!(
            "ckptd: {count} can't be read here, and was not checked: run 'ckptd verify {name}' on {holders}, with \
             the --dir of the agent there"
        );
    }
    Ok(status)
}

fn judge_image(folder: &std::path::Path, checkpoint: u64) -> Verdict {
    match store::list(folder) {
        Err(damage) => unread(checkpoint, "damaged", Some(damage.to_string())),
        Ok(listed) => match listed.iter().find(|found| found.number == checkpoint) {
            Some(found) => judge(folder, found),
            // Removed meanwhile.
            None => unread(checkpoint, "elsewhere", None),
        },
    }
}

/// Prints them; the exit status.
fn tell(verdicts: &[Verdict], list: ListArguments) -> Result<u8, Failure> {
    if list.json {
        print_json(&verdicts)?;
    } else if verdicts.is_empty() {
        print("no checkpoints\n")?;
    }
    for verdict in verdicts.iter().filter(|_| !list.json) {
        let part = verdict.instance.map_or(String::new(), |number| format!(", instance {number}"));
        let rest = match (verdict.verdict, &verdict.reason) {
            ("whole", _) => {
                let chunks = text::count(verdict.chunks, "chunk");
                format!(": {chunks}, {}", text::size(verdict.bytes))
            }
            ("elsewhere", _) => format!(": on {}", verdict.holders.join(", ")),
            (_, Some(reason)) => format!(": {reason}"),
            (_, None) => String::new(),
        };
        print(&format!("checkpoint {}{part}: {}{rest}\n", verdict.checkpoint, verdict.verdict))?;
    }
    let damaged = verdicts.iter().any(|verdict| verdict.verdict == "damaged");
    Ok(if damaged { EXIT_FAILED } else { 0 })
}

fn unread(checkpoint: u64, verdict: &'static str, reason: Option<String>) -> Verdict {
    Verdict {
        checkpoint,
        instance: None,
        holders: Vec::new(),
        verdict,
        reason,
        chunks: 0,
        bytes: 0,
    }
}

fn judge(job_dir: &std::path::Path, checkpoint: &store::CheckpointSummary) -> Verdict {
    let number = checkpoint.number;
    let verdict = |verdict, reason| unread(number, verdict, reason);
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
