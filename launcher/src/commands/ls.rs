//! `ckptd ls`.

use super::summary::{JobSummary, printable, table};
use super::{Context, clustered, print, print_json};
use crate::cli::ListArguments;
use crate::failure::Failure;
use crate::text;

pub fn perform(context: &Context, list: ListArguments) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster()? {
        return clustered::ls(&cluster, list);
    }
    let complain = |error| eprintln!("ckptd: warning: failed to {error}");
    let mut jobs = Vec::new();
    for job in context.state.jobs(complain)? {
        match JobSummary::of(&job) {
            Ok(summary) => jobs.push(summary),
            Err(error) => complain(error),
        }
    }
    if list.json {
        return print_json(&jobs);
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
