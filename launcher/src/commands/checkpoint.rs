//! `ckptd checkpoint`.

use super::{Context, clustered, print};
use crate::control::ask_beginning;
use crate::failure::Failure;
use protocol::control::{Reply, Request};

pub fn perform(context: &Context, job: &str) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster_of(job)? {
        return clustered::checkpoint(&cluster, job);
    }
    let job = context.state.find_job(job)?;
    let what = format!("checkpoint {}", job.name());
    // As long as it takes: writing is bounded by its progress, not by a time.
    let begins = || job.is_running().unwrap_or(false);
    let reply = ask_beginning(job.path(), &Request::Checkpoint, None, begins)
        .map_err(|error| Failure::of(&what, error))?;
    match reply {
        Reply::Committed(record) => print(&format!("{}\n", record.checkpoint)),
        Reply::Failed(reason) => Err(Failure::Failed(reason)),
        other => Err(Failure::of(what, format!("unexpected answer {other:?}"))),
    }
}
