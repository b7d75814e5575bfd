//! A job that is kept in a store between two allocations.

use super::notice::{self, Notice, Sent, Word};
use crate::cli::RunArguments;
use crate::client::last_checkpoint::LastCheckpoint;
use crate::cluster::Cluster;
use crate::commands::Context;
use crate::commands::store::{Beside, Store, kept};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use protocol::agent::CheckpointNumber;
use protocol::cluster::client::Ask;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long the word of Slurm may take from the agents to here: a job may end at it sooner.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// How a job's run ended.
pub enum End {
    /// As any does.
    Of(kept::End),
    /// By Slurm's word to the job's processes: what is kept of it goes on.
    CutOff(Result<u8, Failure>),
    /// By a last checkpoint that the store has not taken, and there is none from before: the next run would begin anew.
    Unkept(Result<u8, Failure>),
}

impl End {
    /// Whether ckptd has failed.
    pub fn is_failure(&self) -> bool {
        let (Self::Of(kept::End::Of(status)) | Self::CutOff(status) | Self::Unkept(status)) = self
        else {
            return false;
        };
        status.is_err()
    }
}

/// Begins a job, or goes on with what the store has of it. Unless it ends well, a checkpoint of it goes there: the newest; where
/// Slurm told its processes to end, the newest from before that.
pub fn run_from(
    context: &Context,
    store: &Arc<Store>,
    (arguments, interrupts): (RunArguments, Interrupts),
    last: &LastCheckpoint,
    agents_log: PathBuf,
) -> End {
    let watches = |beside: &Arc<Beside>| watch(context, store, beside, agents_log);
    let ran = kept::run_until_end(context, store, (arguments, interrupts), watches);
    let (status, beside, notice) = match ran {
        Ok((kept::End::Of(status), beside, notice)) => (status, beside, notice),
        Ok((end, ..)) | Err(end) => return End::Of(end),
    };
    let has_failed = !matches!(status, Ok(0)) && !last.is_taken();
    let word = notice.finish(if has_failed { ON_ITS_WAY } else { Duration::ZERO });
    // What is on its way there is older than what comes now.
    drop(beside);
    // Programs may catch a signal for something else, and end well soon after.
    let ended_well = |word: &Word| word.sent == Sent::Signal && matches!(status, Ok(0));
    if let Some(Word { kept, .. }) = word.filter(|word| word.is_recent() && !ended_well(word)) {
        if let Err(error) = kept {
            eprintln!("ckptd: {error}");
        }
        if let Ok(0) = status {
            eprintln!(
                "ckptd: the job ended with status 0 when Slurm told it to end: what is kept of it stays"
            );
        }
        return End::CutOff(status);
    }
    let (status, left) = kept::settle(context, store, status, last);
    if matches!(left, kept::Left::Checkpoint | kept::Left::OnlyCheckpoint) {
        eprintln!("ckptd: its checkpoints go with the allocation");
    }
    match left {
        kept::Left::OnlyCheckpoint => End::Unkept(status),
        _ => End::Of(kept::End::Of(status)),
    }
}

/// Keeps the job at once when Slurm tells its processes to end.
fn watch(
    context: &Context,
    store: &Arc<Store>,
    beside: &Arc<Beside>,
    agents_log: PathBuf,
) -> Result<Notice, Failure> {
    let what = format!("keep {}", store.here());
    let cluster = context.cluster()?.ok_or_else(|| Failure::of(&what, "its agent has gone"))?;
    let (store, beside) = (store.clone(), beside.clone());
    Notice::watch(agents_log, move |at_ms| {
        let checkpoint = untouched(&cluster, store.here(), at_ms)?;
        beside.keep_now(checkpoint).map_err(|cause| Failure::of(&what, cause))
    })
}

/// The job's newest checkpoint from before Slurm told its processes to end.
fn untouched(cluster: &Cluster, job: &str, at_ms: u64) -> Result<CheckpointNumber, Failure> {
    let what = format!("keep {job}");
    let status = cluster.listing(&what, &Ask::Status { job: Some(job.to_owned()) })?;
    let listed = status.get("checkpoints").and_then(Value::as_array).into_iter().flatten();
    // Those that the job was rolled back from may have lost their images.
    let listed =
        listed.filter(|record| record.get("state").is_some_and(|state| state == "current"));
    let records = listed.filter_map(|record| protocol::json::of_value(record).ok());
    let cause = "it has no checkpoint from before Slurm told it to end";
    notice::untouched(records, at_ms).ok_or_else(|| Failure::of(&what, cause))
}
