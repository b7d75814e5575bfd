//! `ckptd ls`.

use super::summary::{JobSummary, printable, table};
use super::{Context, clustered, dmtcp, print, print_json};
use crate::cli::{EngineSetting, ListArguments};
use crate::failure::Failure;
use crate::jobs::JobFolder;
use crate::text;

pub fn perform(context: &Context, list: ListArguments) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster()? {
        clustered::ls(&cluster, list)?;
        // Those that DMTCP runs here are no jobs of the cluster's nodes.
        let is_dmtcp = |job: &JobFolder| job.record().settings.engine == EngineSetting::Dmtcp;
        if !list.json {
            return own(context, list, true, is_dmtcp);
        }
        // They have not the fields of the cluster's jobs.
        let count = context.state.jobs(|_| {})?.iter().filter(|job| is_dmtcp(job)).count();
        if count > 0 {
            eprintln!(
                "ckptd: warning: {} of DMTCP on this machine not in the list: 'ckptd status NAME --json' tells \
                 of one, 'ckptd ls' names them",
                text::count(count as u64, "job")
            );
        }
        return Ok(());
    }
    own(context, list, false, |_| true)
}

/// Lists jobs of this machine; `quiet`: says nothing where there are none.
fn own(
    context: &Context,
    list: ListArguments,
    quiet: bool,
    shown: impl Fn(&JobFolder) -> bool,
) -> Result<(), Failure> {
    let complain = |error| eprintln!("ckptd: warning: failed to {error}");
    let mut jobs = Vec::new();
    for job in context.state.jobs(complain)?.into_iter().filter(shown) {
        if let Some(text) = dmtcp::unkept(&job) {
            eprintln!("ckptd: warning: {text}");
        }
        match JobSummary::of(&job) {
            Ok(summary) => jobs.push(summary),
            Err(error) => complain(error),
        }
    }
    if list.json {
        return print_json(&jobs);
    }
    if jobs.is_empty() && quiet {
        return Ok(());
    }
    let now = text::now_ms();
    let heading = ["NAME", "STATE", "AGE", "CHECKPOINT", "ITS AGE", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for job in &jobs {
        let newest = job.checkpoints.last();
        rows.push(vec![
            job.name.clone(),
            job.state_text(),
            text::age(job.created_at_ms, now),
            newest.map_or("none".to_owned(), |newest| newest.record.checkpoint.to_string()),
            newest.map_or(String::new(), |newest| text::age(newest.record.taken_at_ms, now)),
            printable(&job.command.join(" ")),
        ]);
    }
    print(&table(&rows))
}
