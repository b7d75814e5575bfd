//! The command line of `ckptd slurm`.

use super::RunArguments;
use super::values::time_span;
use clap::{Args, Subcommand};
use std::time::Duration;

/// What to do in an allocation.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Run a job on the nodes of the allocation that this is called in, with checkpoints.
    ///
    /// A coordinator runs here, an agent on each node, started by srun; all end with the job. Nothing has to be installed by
    /// the site but this executable, at the same path on all nodes. A node takes as many processes as the allocation has
    /// tasks there. If a node fails, its processes go on on the others, in an allocation made with '--no-kill'.
    #[command(after_long_help = "\
Example, a script for 'sbatch --no-kill':
  #!/bin/bash
  #SBATCH --nodes=4 --ntasks-per-node=8
  ckptd slurm run --interval 60 mpirun ./simulate

Example, for a job that takes longer than an allocation:
  #!/bin/bash
  #SBATCH --nodes=4 --ntasks-per-node=8 --time=04:00:00
  #SBATCH --signal=B:USR1@300 --requeue --open-mode=append
  exec ckptd slurm run --store $HOME/kept --requeue --name simulate mpirun ./simulate

Exit status: that of the job; 125 where ckptd failed.")]
    Run(Box<SlurmRunArguments>),
    /// Run the agent of a node: what 'ckptd slurm run' has srun start.
    #[command(hide = true)]
    Agent {
        /// Slots of all nodes, in Slurm's order.
        #[arg(long, value_name = "N,...", value_delimiter = ',', required = true)]
        slots: Vec<u32>,
        /// So many nodes, the last ones, are spares.
        #[arg(long, value_name = "N", default_value_t = 0)]
        spare: usize,
    },
    /// End what 'ckptd slurm run' has started, once that is killed.
    #[command(hide = true)]
    Guard,
}

/// Arguments of `ckptd slurm run`.
#[derive(Debug, Args)]
pub struct SlurmRunArguments {
    /// How long agents may take to come up on all nodes: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_span)]
    pub wait: Duration,
    /// Put the batch job into the queue again after that.
    #[arg(long, requires = "store")]
    pub requeue: bool,
    /// The last N nodes of the allocation wait, and hold copies of images. When another one fails, a spare takes its
    /// processes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub spare: usize,
    /// Start COMMAND as N ranks, by the mpirun that is found: the same as 'mpirun -n N COMMAND'.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// The job.
    #[command(flatten)]
    pub run: RunArguments,
}
