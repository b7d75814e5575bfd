//! `ckptd ls`.

use super::summary::JobSummary;
use super::{Context, clustered, dmtcp, print, print_json};
use crate::cli::{EngineSetting, ListArguments};
use crate::cluster::listing;
use crate::failure::Failure;
use crate::jobs::JobFolder;
use crate::tables::{printable, table};
use crate::text;
use serde::Serialize;
use serde_json::Value;

pub fn perform(context: &Context, list: ListArguments) -> Result<(), Failure> {
    let Some(cluster) = context.cluster()? else {
        let jobs = summaries(context, |_| true)?;
        return if list.json {
            print_json(&jobs)
        } else {
            print(&of_machine(&jobs, text::now_ms()))
        };
    };
    let listed = clustered::jobs(&cluster)?;
    // Those that DMTCP runs are kept by the coordinator's machine, not in the cluster's log.
    let is_dmtcp = |job: &JobFolder| job.record().settings.engine == EngineSetting::Dmtcp;
    let dmtcp = summaries(context, is_dmtcp).unwrap_or_else(|error| {
        // It may be the agent's alone, and the cluster has answered.
        eprintln!("ckptd: warning: jobs that DMTCP runs on this machine are not listed: {error}");
        Vec::new()
    });
    if list.json {
        return print_json(&one_list(listed, &dmtcp)?);
    }
    print(&listing::jobs(&listed))?;
    if dmtcp.is_empty() { Ok(()) } else { print(&of_machine(&dmtcp, text::now_ms())) }
}

/// The cluster's jobs, then those of this machine: they have no nodes, instances or processes.
fn one_list(listed: Value, own: &[impl Serialize]) -> Result<Value, Failure> {
    let of_cluster = match listed {
        Value::Array(jobs) => jobs,
        other => vec![other],
    };
    let own = own.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let own = own.map_err(|error| Failure::of("list the jobs", error))?;
    Ok(Value::Array(of_cluster.into_iter().chain(own).collect()))
}

/// Jobs of this machine.
fn summaries(
    context: &Context,
    shown: impl Fn(&JobFolder) -> bool,
) -> Result<Vec<JobSummary>, Failure> {
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
    Ok(jobs)
}

/// The table of this machine's jobs, at a time in milliseconds since 1970 UTC.
pub(super) fn of_machine(jobs: &[JobSummary], now: u64) -> String {
    let heading = ["NAME", "STATE", "AGE", "CHECKPOINT", "ITS AGE", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for job in jobs {
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
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_of_both_begins_with_the_clusters_jobs() {
        let listed = json!([{"name": "fold"}, {"name": "tide"}]);
        let none: [Value; 0] = [];
        assert_eq!(one_list(listed.clone(), &none).unwrap(), listed);
        let own = [json!({"name": "worker", "engine": "dmtcp"})];
        let both = json!([{"name": "fold"}, {"name": "tide"}, own[0]]);
        assert_eq!(one_list(listed, &own).unwrap(), both);
    }
}
