//! `ckptd verify --rehearse`.

use super::{Context, print, print_json, target};
use crate::EXIT_FAILED;
use crate::cli::{EngineSetting, ListArguments};
use crate::failure::Failure;
use crate::jobs;
use crate::text;
use serde::Serialize;

/// What became of it; the keys stay as they are.
#[derive(Debug, Serialize)]
struct Verdict {
    checkpoint: u64,
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
    if context.cluster_of(name)?.is_some() {
        return Err(Failure::of(
            format!("rehearse the restart of {name}"),
            "jobs of a cluster can't be rehearsed yet; 'ckptd verify' checks the copies that a machine holds",
        ));
    }
    let job = context.state.find_job(name)?;
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
    let verdict = match ckpt_agent::rehearse(job.path(), checkpoint) {
        Ok(rehearsed) => Verdict {
            checkpoint,
            verdict: "restorable",
            reason: None,
            processes: Some(rehearsed.processes),
            took_ms: Some(text::millis(rehearsed.took)),
            warnings: rehearsed.warnings,
        },
        Err(error) => Verdict {
            checkpoint,
            verdict: if error.is_not_rehearsable() { "unknown" } else { "failed" },
            reason: Some(error.to_string()),
            processes: None,
            took_ms: None,
            warnings: Vec::new(),
        },
    };
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
