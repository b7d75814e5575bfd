//! `ckptd checkpoint`.

use super::{Context, clustered, print};
use crate::client::launcher::ask_beginning;
use crate::cluster::unexpected;
use crate::failure::Failure;
use protocol::cluster::client::{Answer, Ask};

pub fn perform(context: &Context, job: &str) -> Result<(), Failure> {
    if let Some(cluster) = context.cluster_of(job)? {
        return clustered::checkpoint(&cluster, job);
    }
    let job = context.state.find_job(job)?;
    let what = format!("checkpoint {}", job.name());
    // As long as it takes: writing is bounded by its progress, not by a time.
    let begins = || job.is_running().unwrap_or(false);
    let ask = Ask::Checkpoint { job: job.id().to_owned() };
    let answer =
        ask_beginning(job.path(), &ask, None, begins).map_err(|error| Failure::of(&what, error))?;
    match answer {
        Answer::Committed { record } => print(&format!("{}\n", record.checkpoint)),
        Answer::Failed { reason, .. } => Err(Failure::Failed(reason)),
        other => Err(unexpected(&what, &other)),
    }
}
