//! `ckptd verify --rehearse`.

use super::target::Target;
use super::{Context, print, print_json, target};
use crate::EXIT_FAILED;
use crate::cli::{EngineSetting, ListArguments};
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs;
use crate::tables::printable;
use crate::text;
use protocol::cluster::NodeName;
use protocol::cluster::client::{Answer, Ask};
use protocol::control::RehearsalOutcome;
use serde::Serialize;

/// What became of it; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Verdict {
    checkpoint: u64,
    /// Of a cluster's job: which part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u32>,
    /// Likewise: the machine on which it was rehearsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    /// `restorable`, `failed`, or `unknown` where it can't be rehearsed here.
    verdict: &'static str,
    reason: Option<String>,
    processes: Option<u32>,
    took_ms: Option<u64>,
    /// What the restart would have warned of.
    warnings: Vec<String>,
}

/// Exit status 0 where a restart would succeed.
pub fn perform(context: &Context, wanted: &str, list: ListArguments) -> Result<u8, Failure> {
    let (name, only) = target::split(wanted)?;
    let job = match context.target(name)? {
        Target::Cluster(cluster) => return of_cluster(&cluster, name, only, list),
        Target::Own(job) => job,
    };
    let name = job.name();
    let what = format!("rehearse the restart of {name}");
    if job.record().settings.engine == EngineSetting::Dmtcp {
        return Err(Failure::of(what, "jobs of DMTCP can't be rehearsed"));
    }
    let history = jobs::load(&job)?;
    let record = match only {
        Some(number) => history.record(number),
        None => history.newest(),
    };
    let Some(checkpoint) = record.map(|record| record.checkpoint) else {
        let cause = match only {
            Some(number) => format!("no checkpoint {number} is committed"),
            None => "no checkpoint of it was committed".to_owned(),
        };
        return Err(Failure::of(what, cause));
    };
    let what = format!("{what} from checkpoint {checkpoint}");
    let (outcome, warnings) = match ckpt_engine::rehearse(job.path(), checkpoint) {
        Ok(rehearsed) => {
            let (processes, took_ms) = (rehearsed.processes, text::millis(rehearsed.took));
            (RehearsalOutcome::Restorable { processes, took_ms }, rehearsed.warnings)
        }
        Err(error) if error.is_not_rehearsable() => {
            (RehearsalOutcome::Unknown(error.to_string()), Vec::new())
        }
        Err(error) => (RehearsalOutcome::Failed(error.to_string()), Vec::new()),
    };
    let verdict = Verdict::of(checkpoint, outcome, warnings);
    if list.json {
        print_json(&[&verdict])?;
        return Ok(if verdict.reason.is_none() { 0 } else { EXIT_FAILED });
    }
    for warning in &verdict.warnings {
        eprintln!("ckptd: warning: {warning}");
    }
    match (verdict.reason, verdict.processes, verdict.took_ms) {
        (None, Some(processes), Some(took_ms)) => {
            print(&(text::restorable(checkpoint, processes, took_ms) + "\n"))?;
            Ok(0)
        }
        (reason, ..) => Err(Failure::of(what, reason.unwrap_or_default())),
    }
}

impl Verdict {
    fn of(checkpoint: u64, outcome: RehearsalOutcome, warnings: Vec<String>) -> Self {
        let (verdict, reason, processes, took_ms) = match outcome {
            RehearsalOutcome::Restorable { processes, took_ms } => {
                ("restorable", None, Some(processes), Some(took_ms))
            }
            RehearsalOutcome::Failed(reason) => ("failed", Some(reason), None, None),
            RehearsalOutcome::Unknown(reason) => ("unknown", Some(reason), None, None),
        };
        let (instance, node) = (None, None);
        Self { checkpoint, instance, node, verdict, reason, processes, took_ms, warnings }
    }

    fn line(&self) -> String {
        let Self { checkpoint, verdict, .. } = self;
        let instance = self.instance.map_or(String::new(), |number| format!(", instance {number}"));
        let node = self.node.as_ref().map_or(String::new(), |node| format!(" on {node}"));
        let rest = match (&self.reason, self.processes, self.took_ms) {
            (None, Some(processes), Some(took_ms)) => {
                let count = text::count(processes.into(), "process");
                format!("{count}, {took_ms} ms")
            }
            (reason, ..) => reason.clone().unwrap_or_default(),
        };
        printable(&format!("checkpoint {checkpoint}{instance}{node}: {verdict}: {rest}"))
    }
}

/// Of a cluster's job: each instance on a machine that holds its image. A line for each, as it is known.
fn of_cluster(
    cluster: &Cluster,
    name: &str,
    only: Option<u64>,
    list: ListArguments,
) -> Result<u8, Failure> {
    let what = format!("rehearse the restart of {name}");
    let ask = Ask::Rehearse { job: name.to_owned(), checkpoint: only };
    let mut verdicts = Vec::new();
    cluster.each(&what, &ask, |answer| match answer {
        Answer::Rehearsed { node, instance: told } => {
            let (image, outcome) = (told.image, told.outcome);
            let verdict = Verdict {
                instance: Some(image.instance.0),
                node,
                ..Verdict::of(image.checkpoint, outcome, told.warnings)
            };
            if !list.json {
                for warning in &verdict.warnings {
                    eprintln!("ckptd: warning: {}", printable(warning));
                }
                print(&(verdict.line() + "\n"))?;
            }
            verdicts.push(verdict);
            Ok(true)
        }
        Answer::Done { .. } => Ok(false),
        other => Err(unexpected(&what, &other)),
    })?;
    if list.json {
        print_json(&verdicts)?;
    }
    let restorable = verdicts.iter().all(|verdict| verdict.reason.is_none());
    Ok(if restorable && !verdicts.is_empty() { 0 } else { EXIT_FAILED })
}
