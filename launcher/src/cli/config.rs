//! What config takes.

use super::ListArguments;
use clap::Subcommand;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show what is set, and by which file or variable.
    ///
    /// Options stand in /etc/ckptd.toml and, before that, in ~/.config/ckptd.toml, below a line
    /// with their command:
    ///
    ///   dir = "/scratch/jobs"
    ///   [run]
    ///   interval = "5m"
    ///   place = ["node1=2", "node2=4"]
    ///   [slurm.run]
    ///   spare = 1
    ///
    /// Before both hold environment variables such as CKPTD_RUN_INTERVAL=5m, and before all the
    /// command line. What is wrong is refused by the command that it concerns. 'ckptd rsh', help
    /// and demo read none of it.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Examples:
  ckptd config show                     what is set
  ckptd config show run --all           with all options of run that can be set, and their defaults

Exit status: 2 where something is set that can't be."
    )]
    Show {
        /// One command only, such as run or 'slurm run'.
        command: Vec<String>,
        /// Also what is not set.
        #[arg(long)]
        all: bool,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
}
