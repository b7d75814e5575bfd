//! What the commands that list and show take.

use super::values::{moment, time_span};
use clap::Args;
use std::time::Duration;

/// What inspect takes.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// The job, and the checkpoint if not its newest.
    #[arg(value_name = "JOB[@N]")]
    pub job: String,
    /// Show threads, mappings and descriptors of this process; may be repeated.
    #[arg(long, value_name = "PID")]
    pub process: Vec<i32>,
    /// Show them of all processes.
    #[arg(long, short)]
    pub verbose: bool,
    /// How it is printed.
    #[command(flatten)]
    pub list: ListArguments,
}

/// What logs takes.
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// The job.
    #[arg(default_value = "latest")]
    pub job: String,
    /// Go on with what it writes, until it ends.
    #[arg(short, long)]
    pub follow: bool,
    /// Leave out what is older than that, such as 5m or 2h, or 2026-11-28T15:04:05Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<u64>,
    /// Only what this rank of an MPI job has written. Its launcher must have been told to tag each line, as 'mpirun
    /// --tag-output' of Open MPI does and 'mpiexec -prepend-rank' of MPICH and Intel MPI.
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Before each line: when it was written (UTC), and by what: the job's standard output or its terminal (out), its
    /// standard error (err), or ckptd. -: that is not known. ~: about then; so are old lines of a long log.
    #[arg(long)]
    pub time: bool,
}

/// What rm takes.
#[derive(Debug, Args)]
pub struct RmArguments {
    /// The jobs.
    #[arg(required_unless_present = "ended")]
    pub jobs: Vec<String>,
    /// All of your jobs that have ended by themselves, as 'ckptd ls' shows it; those that were stopped or interrupted, or that a
    /// signal has ended, stay, to be restarted. Prints the names of those that are gone.
    #[arg(long, conflicts_with = "jobs")]
    pub ended: bool,
    /// Of these, only those that ended so long ago, such as 12h or 7d.
    #[arg(long, value_name = "TIME", requires = "ended", conflicts_with = "jobs", value_parser = time_span)]
    pub older: Option<Duration>,
    /// Those of all users of the cluster: for operators.
    #[arg(long, requires = "ended", conflicts_with = "jobs")]
    pub all_users: bool,
}

/// How a listing is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct ListArguments {
    /// Print JSON, with keys that stay.
    #[arg(long)]
    pub json: bool,
}
