//! `ckptd verify`.

use super::images::{ClusterJob, Image, Place, holders};
use super::target::Target;
use super::{Context, dmtcp, print, print_json, target};
use crate::EXIT_FAILED;
use crate::cli::{EngineSetting, ListArguments};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::progress::{Bar, Unit};
use crate::text;
use ckpt_agent::look;
use protocol::cluster::look::{Finding, Look};
use serde::Serialize;

/// The verdict on what can't be read here.
const ELSEWHERE: &str = "elsewhere";

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
    /// `whole`, `damaged`, `unfinished` or `unread`; `elsewhere`, and then it was not checked, where it can't be read on this
    /// machine.
    verdict: &'static str,
    reason: Option<String>,
    chunks: u64,
    bytes: u64,
}

/// Exit status 0 where every committed checkpoint is whole.
pub fn perform(context: &Context, wanted: &str, list: ListArguments) -> Result<u8, Failure> {
    let (name, only) = target::split(wanted)?;
    let job = match context.target(name)? {
        Target::Cluster(cluster) => return of_cluster(context, &cluster, name, only, list),
        Target::Own(job) => job,
    };
    if job.record().settings.engine == EngineSetting::Dmtcp {
        return dmtcp::verify(&job, only, list.json);
    }
    let what = format!("verify {}", job.name());
    let listed = ckpt_store::list(job.path()).map_err(|error| Failure::of(&what, error))?;
    let mut verdicts = Vec::new();
    for checkpoint in listed {
        if only.is_none_or(|only| only == checkpoint.number) {
            let finding = with_bar(checkpoint.number, |progress| {
                look::judge(job.path(), &checkpoint, progress)
            });
            verdicts.push(verdict(checkpoint.number, finding));
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
    let mut told = job.ask(cluster, &images, only, Look::Verify, &what)?;
    let mut verdicts = Vec::new();
    for image in &images {
        let finding = match &image.place {
            Place::Here(folder) => with_bar(image.checkpoint, |progress| {
                look::judge_number(folder, image.checkpoint, progress)
            }),
            Place::Closed | Place::Elsewhere => {
                told.remove(&image.key()).unwrap_or(Finding::Missing)
            }
        };
        let verdict = verdict(image.checkpoint, finding);
        let (instance, holders) = (Some(image.instance), image.holders.clone());
        verdicts.push(Verdict { instance, holders, ..verdict });
    }
    let is_elsewhere = |verdict: &Verdict| verdict.verdict == ELSEWHERE;
    if !images.is_empty() && verdicts.iter().all(is_elsewhere) {
        let command = format!("verify {name}");
        return Err(Failure::of(what, ClusterJob::nothing_here(&command, &images)));
    }
    let status = tell(&verdicts, list)?;
    let left = images.into_iter().zip(&verdicts).filter(|(_, verdict)| is_elsewhere(verdict));
    let left: Vec<&Image> = left.map(|(image, _)| image).collect();
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
            (ELSEWHERE, _) => format!(": on {}", verdict.holders.join(", ")),
            (_, Some(reason)) => format!(": {reason}"),
            (_, None) => String::new(),
        };
        print(&format!("checkpoint {}{part}: {}{rest}\n", verdict.checkpoint, verdict.verdict))?;
    }
    let damaged = verdicts.iter().any(|verdict| verdict.verdict == "damaged");
    Ok(if damaged { EXIT_FAILED } else { 0 })
}

fn verdict(checkpoint: u64, finding: Finding) -> Verdict {
    let (mut chunks, mut bytes) = (0, 0);
    let (verdict, reason) = match finding {
        Finding::Whole { chunks: all, bytes: length } => {
            (chunks, bytes) = (all, length);
            ("whole", None)
        }
        Finding::Damaged { reason } => ("damaged", Some(reason)),
        Finding::Unread { reason } => ("unread", Some(reason)),
        Finding::Unfinished => ("unfinished", None),
        Finding::Missing | Finding::Content { .. } => (ELSEWHERE, None),
    };
    let (instance, holders) = (None, Vec::new());
    Verdict { checkpoint, instance, holders, verdict, reason, chunks, bytes }
}

/// Shows on standard error how far it is.
fn with_bar(
    checkpoint: u64,
    read: impl FnOnce(&mut dyn FnMut(ckpt_store::Progress)) -> Finding,
) -> Finding {
    let bar = Bar::new(format!("checkpoint {checkpoint}"), Unit::Chunks, Some(0));
    let finding = read(&mut |progress| bar.set(progress.done, progress.total));
    bar.finish();
    finding
}
