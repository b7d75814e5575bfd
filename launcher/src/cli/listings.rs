//! What the commands that list and show take.

use clap::Args;

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

/// How a listing is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct ListArguments {
    /// Print JSON, with keys that stay.
    #[arg(long)]
    pub json: bool,
}
