//! The command line.
//!
//! - `archives`: what export and import take.
//! - `config`: what config takes.
//! - `demo`: the parts of the demonstration.
//! - `examples`: command lines in files for other programs.
//! - `farm`: what farm takes.
//! - `jobs`: what run and restart take, and the settings of jobs.
//! - `listings`: what the commands that list and show take.
//! - `members`: what the commands about a cluster's members take.
//! - `store`: where a job is kept between two runs.
//! - `values`: addresses, times and the like, as people write them.

mod archives;
#[cfg(feature = "configuration")]
mod config;
#[cfg(feature = "demo")]
mod demo;
pub mod elsewhere;
#[cfg(test)]
mod examples;
mod farm;
mod flowing;
mod jobs;
mod listings;
mod members;
mod slurm;
mod store;
mod values;

pub use archives::{ExportArguments, ImportArguments, RecipientArguments};
#[cfg(feature = "configuration")]
pub use config::ConfigCommand;
#[cfg(feature = "demo")]
pub use demo::DemoPart;
pub use farm::{
    CheckpointSetting, FarmCommand, FarmRunArguments, FarmSettings, HaltSetting, RegisterArguments,
    StartArguments, SubmitArguments, USUAL_FARM, WaitArguments,
};
pub use flowing::flowing;
pub use jobs::{
    AdoptArguments, DaemonsSetting, EngineSetting, ExternalSetting, FileArguments, IntervalSetting,
    JobOptions, Placement, RestartArguments, RunArguments, THEN_EXIT,
};
pub use listings::{InspectArguments, ListArguments, LogsArguments, RmArguments};
pub use members::{
    AgentArguments, AuditArguments, CoordinatorArguments, LoginArguments, LogoutArguments,
    MemberRole, TokenArguments,
};
#[cfg(feature = "http")]
pub use members::{PageArguments, PageRole};
pub use slurm::{SlurmCommand, SlurmRunArguments};
pub use store::StoreArguments;

use crate::hooks::Calling;
use clap::{Parser, Subcommand};
use protocol::cluster::NodeName;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps an unmodified job running: takes a checkpoint every 30 seconds, and brings the job back
/// after a crash.
#[derive(Debug, Parser)]
#[command(name = "ckptd", version, max_term_width = 100, arg_required_else_help = true)]
#[cfg_attr(feature = "manual", command(disable_help_subcommand = true))]
#[command(after_long_help = "\
Examples:
  ckptd demo                            see a job survive the loss of a machine, in half a minute
  ckptd run mpirun -np 4 ./nqueens 15   run a job, with a checkpoint every 30 seconds
  ckptd status                          how the jobs are
  ckptd restart latest                  go on from the newest checkpoint, after a crash

A cluster, so that a job outlives machines:
  ckptd coordinator                     on one machine
  ckptd token                           there; prints TOKEN
  ckptd agent --join-file FILE          on every machine that is to run jobs; FILE holds TOKEN
  ckptd run mpirun -np 6 ./nqueens 16   on any of them

JOB is the name of a job, the beginning of its id, or 'latest'.

Exit status: that of the job for run and restart (128+N where signal N ended it); 2 for wrong
usage; 125 where ckptd itself failed; 126 and 127 where the job's program can't be executed, or is
not there.")]
pub struct Cli {
    /// Where jobs are kept [default: $CKPTD_DIR, else ~/.local/state/ckptd]. Where an agent runs
    /// with the same folder, or with none given, jobs are those of its cluster.
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job in the foreground, with checkpoints.
    ///
    /// Standard input, output and error behave as without ckptd. All output is kept in the job's
    /// log too. Ctrl-C ends the job in order, and says how to resume it. If ckptd is killed, the
    /// job dies with it, and its last committed checkpoint stands.
    #[command(after_long_help = "\
Examples:
  ckptd run mpirun -np 4 ./nqueens 15
  ckptd run --interval 300 --name fold -- ./fold --steps 1000000
  ckptd run --interval 0 ./simulate     checkpoints only by 'ckptd checkpoint'
  ckptd run --on 'lost=mail -s \"a node is lost\" me' --on ended=./tell.sh ./simulate

If COMMAND launches MPI jobs, variables are set for it unless you set them, so that its ranks can be separated: \
'ckptd doctor --mpi' lists them. '--placement node' leaves shared memory on, '--group N' leaves it on within groups of N \
ranks.

Exit status: that of the job, 128+N where signal N ended it; 2 for wrong usage; 125 where ckptd itself failed; 126 where \
COMMAND can't be executed, 127 where it is not there.")]
    Run(RunArguments),
    /// Run a job in an allocation of Slurm.
    #[command(subcommand)]
    Slurm(SlurmCommand),
    /// Make a job of a process that runs already, with all that descend from it, and take checkpoints of it.
    ///
    /// It keeps its terminal, its session and its parent, and its output stays where it was. Ctrl-C, or the end of ckptd,
    /// leaves it to itself; 'ckptd stop' ends it. Once it has ended, 'ckptd restart' brings it back as a job like any
    /// other, in namespaces of its own where the machine has them, with its input and output here.
    #[command(after_long_help = "\
Examples:
  ckptd adopt $(pgrep -n simulate)      with a checkpoint every 30 seconds
  ckptd adopt --interval 0 4711         checkpoints only by 'ckptd checkpoint'

Exit status: that of the job, if it ends; 0 after Ctrl-C; 125 where the kernel does not tell how it ended (before Linux \
6.15).")]
    Adopt(AdoptArguments),
    /// Run many tasks, on this machine or on a cluster, of which none is lost.
    #[command(subcommand)]
    Farm(FarmCommand),
    /// Take a checkpoint now; prints its number once it is committed.
    #[command(after_long_help = "\
Examples:
  ckptd checkpoint latest
  N=$(ckptd checkpoint fold)            the number, for a script")]
    Checkpoint {
        /// The running job.
        job: String,
    },
    /// Go on from a committed checkpoint, in the foreground like run.
    ///
    /// The job's log is put back to its length at the checkpoint; what it had more is kept beside
    /// it. Refused while the job runs. A job that has ended by itself with status 0 is only
    /// restarted with --checkpoint or --force.
    #[command(after_long_help = "\
Examples:
  ckptd restart latest
  ckptd restart fold --checkpoint 6     an older one; newer ones stay until the next commit

Exit status: that of the job, 128+N where signal N ended it; 2 for wrong usage; 125 where ckptd itself failed.")]
    Restart(RestartArguments),
    /// End a running job.
    #[command(after_long_help = "\
The job gets SIGTERM, and SIGKILL if it has not ended 10 seconds later.

Examples:
  ckptd stop fold
  ckptd stop fold --checkpoint          with a last checkpoint to go on from")]
    Stop {
        /// The running job.
        job: String,
        /// Take a last checkpoint first; if that fails, the job runs on.
        #[arg(long)]
        checkpoint: bool,
    },
    /// List the jobs.
    #[command(after_long_help = "\
Examples:
  ckptd ls
  ckptd ls --json | jq -r '.[].name'    for a script")]
    Ls(ListArguments),
    /// Tell how jobs are: processes, checkpoints, their age, size and pause.
    #[command(after_long_help = "\
Examples:
  ckptd status                          every job that runs, else the latest
  ckptd status fold --json")]
    Status {
        /// The job.
        job: Option<String>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Show what a checkpoint holds: processes, threads, mappings, descriptors, connections.
    #[command(after_long_help = "\
Examples:
  ckptd inspect latest                  the newest checkpoint of the newest job
  ckptd inspect fold --process 7        threads, mappings and descriptors of process 7
  ckptd inspect fold@6 --json")]
    Inspect(InspectArguments),
    /// Check every hash of every checkpoint of a job, or rehearse its restart.
    #[command(after_long_help = "\
Examples:
  ckptd verify fold                     every hash of every checkpoint
  ckptd verify fold@12                  of one
  ckptd verify --rehearse fold          a restart, rehearsed")]
    Verify {
        /// The job, and the checkpoint if not all.
        #[arg(value_name = "JOB[@N]")]
        job: String,
        /// Rehearse a restart from the newest checkpoint, or from N: restore it into namespaces of its own until every
        /// process is complete, let none run, and take it down again.
        ///
        /// The job may run meanwhile, and comes to know nothing of it: what a restart writes stays in memory, its ports
        /// are taken in a network of its own, and connections to outside stay away. All that the checkpoint holds is in
        /// memory for that time, beside the job. Exit status 125, and what the restart would have told, where it would
        /// fail. On a cluster each part of the job is rehearsed on a machine that holds its image, with stand-ins for its
        /// connections to the others, and has a line of its own.
        #[arg(long)]
        rehearse: bool,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Make room: remove unfinished checkpoints of jobs that don't run, and what nothing needs.
    #[command(after_long_help = "\
Examples:
  ckptd gc                              of all jobs that don't run
  ckptd gc fold")]
    Gc {
        /// One job only.
        job: Option<String>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Write a committed checkpoint into one archive, for another machine.
    ///
    /// It holds what this checkpoint needs, and no more, and the job's log. It is as secret as the memory
    /// of the job, and open to you alone. With --recipient it is encrypted in the format of age for those
    /// who have the secret key, and for nobody else.
    #[command(after_long_help = "\
Examples:
  ckptd export latest job.tar.zst
  ckptd export fold@6 fold-6.tar.zst
  ckptd export fold - | ssh desk ckptd import -
  ckptd export --recipients-file ~/.ssh/id_ed25519.pub fold fold.tar.zst.age")]
    Export(ExportArguments),
    /// Take a checkpoint from an archive; prints the name of the job that it becomes.
    ///
    /// Every hash is checked before the job can be seen. What runs after a restart is what is in the
    /// archive: import only what you would run. A job of a cluster becomes one of the cluster that this machine belongs
    /// to, or of this machine if it has one part alone and there is no cluster; a job of one machine is one of this
    /// machine, also where that belongs to a cluster.
    #[command(after_long_help = "\
Examples:
  ckptd import job.tar.zst
  ckptd restart $(ckptd import --name again job.tar.zst)
  ckptd import --identity ~/.ssh/id_ed25519 fold.tar.zst.age")]
    Import(ImportArguments),
    /// Forget jobs, with their checkpoints and logs; refused while one runs.
    #[command(after_long_help = "\
Examples:
  ckptd rm fold
  ckptd rm --ended --older 7d           what has ended by itself, a week ago or before
  ckptd rm --ended --older 30d --all-users
                                        the same of all users of a cluster, for operators")]
    Rm(RmArguments),
    /// Print what a job has written, while it runs or after its end.
    ///
    /// Its output and errors stand in the order in which they came, with lines of ckptd's own in brackets. A restart
    /// puts the log back to its length at the checkpoint.
    #[command(after_long_help = "\
Examples:
  ckptd logs -f fold
  ckptd logs --since 5m --time fold     what it wrote in the last five minutes, and when
  ckptd logs --rank 3 fold              of a job that was run by 'mpirun --tag-output'")]
    Logs(LogsArguments),
    /// Write a page about a job: its whole time, its checkpoints, and each recovery by its phases.
    ///
    /// One file, to be opened in a browser, to be sent to somebody or kept: nothing is loaded from anywhere. The job may
    /// run, or have ended.
    #[command(after_long_help = "\
Examples:
  ckptd report fold                     writes fold.html here
  ckptd report latest report.html
  ckptd report fold - | mail -s fold somebody")]
    Report {
        /// The job.
        job: String,
        /// Where it is written; '-': to standard output [default: NAME.html].
        #[arg(value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Show a job that runs: output, input and exit status, as if run here.
    ///
    /// A job without a cluster that has no terminal reads its input only where it was started.
    #[command(after_long_help = "\
Examples:
  ckptd attach fold
  ckptd logs fold && ckptd attach fold  with what it wrote before

What the job wrote before is in its log. A hangup (SIGHUP) leaves the job running, and so does Ctrl-\\ d; Ctrl-Z suspends
only this command. Ctrl-C goes to a job that has a terminal, as all its keys; else it ends the job, and Ctrl-\\ sends it
SIGQUIT, at a terminal only when it is said again.

Exit status: that of the job, 128+N where signal N ended it; 0 after Ctrl-\\ d, 129 after a hangup; 2 for wrong usage; 125 \
where ckptd itself failed.")]
    Attach {
        /// The job.
        #[arg(default_value = "latest")]
        job: String,
    },
    /// Run the coordinator of a cluster.
    ///
    /// It decides, and runs no job itself. Ended and started again with the same folder it carries
    /// on; jobs run on without it for as long as the grace time, then stand still until it is back.
    #[command(after_long_help = "\
Examples:
  ckptd coordinator
  ckptd coordinator --listen 10.0.0.1:7070 --state /var/lib/ckptd --grace 5
  ckptd coordinator --recover           on a machine that holds images, once the one is lost")]
    Coordinator(CoordinatorArguments),
    /// Make a token with which machines join the cluster; on the coordinator's machine.
    #[command(after_long_help = "\
Examples:
  ckptd token                           for one machine, good for an hour
  ckptd token --uses 20 --valid 1d      for twenty, good for a day")]
    Token(TokenArguments),
    /// Print an address that shows the coordinator's page to one browser, or make a token for it; on the coordinator's
    /// machine, as its user.
    ///
    /// The address is good once, for ten minutes: the browser gets a cookie for it. A token is good until it is taken back,
    /// for people at the page and, as a bearer token, for programs. The page is that of 'ckptd coordinator --http'.
    #[cfg(feature = "http")]
    #[command(after_long_help = "\
Examples:
  ckptd page                            open what it prints, which nobody else should see before
  ssh head ckptd page                   with ssh -L 7071:127.0.0.1:7071 head, from another machine
  ckptd page --add alice --user alice   a token for somebody who sees her own jobs
  ckptd page --add prometheus --role metrics
  ckptd page --remove alice")]
    Page(PageArguments),
    /// Show who ordered what of the cluster, for operators: on the coordinator's machine, or a member of --role operator.
    ///
    /// Each line of that log has the hash of the one before. Exit status 125 where a line does not follow: somebody
    /// has changed the log.
    #[command(after_long_help = "\
Examples:
  ckptd audit
  ckptd audit --json | jq '.[] | select(.event.order.user == \"alice\")'
  ckptd audit --contains HASH           fails if the log was written anew since HASH was noted")]
    Audit(AuditArguments),
    /// Prove by an SSH key of your own who you are, on a machine whose word the cluster does not take.
    ///
    /// From then on the cluster obeys this account on this machine as that user, until the time is over or 'ckptd
    /// logout'. It gives what the user may, never what an operator may. Root of this machine can use it as well.
    #[command(after_long_help = "\
Examples:
  ckptd login --add-key ~/.ssh/id_ed25519.pub   once, where the cluster knows you
  ckptd login --user alice              on a machine that does not speak for you; ssh-keygen signs
  ckptd login --status                  who is logged in, and until when")]
    Login(Box<LoginArguments>),
    /// End what 'ckptd login' began on this machine.
    #[command(after_long_help = "\
Examples:
  ckptd logout")]
    Logout(LogoutArguments),
    /// Join this machine to the cluster, and run jobs of it.
    ///
    /// The token is used once: afterwards the machine has a certificate, kept in DIR, and
    /// the same command, with the same token, starts the agent again. An agent that is killed and
    /// started again takes its jobs over.
    #[command(after_long_help = "\
Examples:
  ckptd agent --join-file token --name desk --slots 4
  ssh head ckptd token | ckptd agent --join-file -")]
    Agent(AgentArguments),
    /// List the members of the cluster: state, slots, speed, load, battery, what they hold.
    #[command(after_long_help = "\
Examples:
  ckptd nodes
  ckptd nodes --remove phone2            expel a member that is lost or was taken
  ckptd nodes --standby b                b may take the coordinator's place")]
    Nodes {
        /// Turn this member out: its certificate is worth nothing from now on.
        #[arg(long, value_name = "NODE")]
        remove: Option<NodeName>,
        /// Make this member a standby: it gets the cluster's key, and can carry on for a coordinator whose machine is lost.
        /// Once there is a standby, other members do not get the key any more.
        #[arg(long, value_name = "NODE", conflicts_with = "remove")]
        standby: Option<NodeName>,
        /// This member is no standby any more.
        #[arg(long, value_name = "NODE", conflicts_with_all = ["remove", "standby"])]
        no_standby: Option<NodeName>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Show nodes, jobs, processes, checkpoints and moves, live; q ends it.
    ///
    /// Where standard output is no terminal, it is printed once. With NO_COLOR in the environment it has no colours.
    #[command(after_long_help = "\
Examples:
  ckptd top
  ckptd top > picture.txt               printed once

Keys:
  up, down, k, j, Home, End   select another job, process or node
  Tab                         on to the next table
  s, r                        sort by the next column; from the last to the first
  /                           show what has a text in it alone; Esc shows all again
  Enter, d                    all about what is selected; Esc leads back
  c                           take a checkpoint of the job now
  l                           in the table of nodes: this one is about to go, as 'ckptd leave'; asks first
  q, Esc                      end")]
    Top {
        /// How often it is looked at, such as 1s or 1m.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::time_span)]
        every: Duration,
    },
    /// Announce that a machine is about to go; returns when it is free to.
    #[command(after_long_help = "\
Examples:
  ckptd leave                           on the machine that is about to go, for its shutdown
  ckptd leave node3                     from another one")]
    Leave {
        /// The member [default: this machine].
        node: Option<NodeName>,
    },
    /// Have a member run nothing, for its maintenance; it stays a member and keeps its images. For operators.
    ///
    /// What runs there stops for a checkpoint and goes on elsewhere, and nothing new is started there, until 'ckptd
    /// uncordon'; restarts of the machine or of the coordinator change nothing of that. Returns when nothing runs there any
    /// more. A job that has nowhere to go runs on, and moves as soon as it can.
    #[command(after_long_help = "\
Examples:
  ckptd drain node3                     then: apt upgrade, reboot
  ckptd uncordon node3")]
    Drain {
        /// The member.
        node: NodeName,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
    },
    /// Have a member that was drained take processes again. For operators.
    #[command(after_long_help = "\
Examples:
  ckptd uncordon node3                  after its maintenance")]
    Uncordon {
        /// The member.
        node: NodeName,
    },
    /// Run a command on a node of the job that this is called in: what mpirun calls instead of ssh.
    #[command(after_long_help = "\
Examples:
  mpirun --mca plm_rsh_agent 'ckptd rsh' ...    where a launcher is to be told by hand

Exit status: that of the command, as ssh has it; 255 where it can't be run there.")]
    Rsh {
        /// The node.
        node: String,
        /// The command, for the shell there.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// What '--output' does for a job of a cluster, in a process of its own.
    #[command(hide = true)]
    CopyOutput {
        /// The cluster's socket.
        socket: PathBuf,
        /// The job's id.
        job: String,
        /// What the file on standard output is called.
        file: PathBuf,
    },
    /// Show on this machine alone how a job survives the loss of a machine, in half a minute.
    ///
    /// Three machines are made of namespaces, each with processes and a network of its own, and joined to a cluster. A job
    /// runs on all three, a checkpoint is taken, and one machine is killed with all that runs there. Nothing but this
    /// executable is needed: no MPI, and no root where the kernel allows user namespaces. Nothing outside of the namespaces
    /// is changed, and nothing is left, also after Ctrl-C.
    #[cfg(feature = "demo")]
    #[command(after_long_help = "\
Example:
  ckptd demo

Exit status: 0 if the job came to the right answer; 128+N after signal N; 125 where this machine does not allow it, with \
what is missing, or where anything went wrong.")]
    Demo,
    /// What the demonstration consists of.
    #[cfg(feature = "demo")]
    #[command(hide = true, subcommand)]
    DemoPart(DemoPart),
    /// Explain a command or a topic; without either, list them.
    ///
    /// Topics are pages of the manual. Where standard output is a terminal they are shown by $PAGER, else printed.
    #[cfg(feature = "manual")]
    #[command(after_long_help = "\
Examples:
  ckptd help                            the commands and the topics
  ckptd help run                        the options of a command, as 'ckptd run --help'
  ckptd help troubleshooting            a topic")]
    Help {
        /// The command, such as run or 'slurm run', or the topic.
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
    /// What '--on' does, in a process of its own.
    #[command(hide = true)]
    CallCommands(Calling),
    /// What '--on' does where a server is told, in a process of its own.
    #[cfg(feature = "webhooks")]
    #[command(hide = true)]
    SendEvent,
    /// Print the completions of a shell.
    #[cfg(feature = "manual")]
    #[command(after_long_help = "\
Examples:
  ckptd completions bash > /etc/bash_completion.d/ckptd
  ckptd completions zsh > /usr/share/zsh/vendor-completions/_ckptd
  ckptd completions fish > ~/.config/fish/completions/ckptd.fish")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[cfg(feature = "manual")]
    #[command(after_long_help = "\
Example:
  ckptd man /usr/local/share/man/man1")]
    Man {
        /// The folder; it is made if it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Show what options are where the command line does not say.
    #[cfg(feature = "configuration")]
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tell what this machine can do, and what each missing feature costs.
    ///
    /// Exit status 0 where jobs can be run, checkpointed and restarted here, 1 where they can't; with '--mpi', 1 where ckptd
    /// does not know the run time.
    #[command(after_long_help = "\
Examples:
  ckptd doctor
  ckptd doctor --mpi                    of the 'mpirun' that would be found
  ckptd doctor --mpi ~/venv/bin/mpiexec")]
    Doctor {
        /// The engine that is asked about.
        #[arg(long, value_enum, default_value_t = EngineSetting::Native)]
        engine: EngineSetting,
        /// Tell instead which run time of MPI a launcher belongs to, and what its ranks will be told.
        #[arg(long, value_name = "LAUNCHER", num_args = 0..=1, default_missing_value = "mpirun", conflicts_with = "engine")]
        mpi: Option<OsString>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(arguments: &[&str]) -> RunArguments {
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Run(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_holds() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_end_at_the_command() {
        let parsed = run(&["ckptd", "run", "--interval", "5", "mpirun", "-np", "4", "--name", "x"]);
        assert_eq!(parsed.options.interval, Some(IntervalSetting::Seconds(5.0)));
        assert_eq!(parsed.name, None);
        assert_eq!(parsed.command, ["mpirun", "-np", "4", "--name", "x"]);
        let parsed = run(&["ckptd", "run", "--", "ls", "--", "-l"]);
        assert_eq!(parsed.command, ["ls", "--", "-l"]);
        assert_eq!(run(&["ckptd", "run", "--", "-strange", "-l"]).command, ["-strange", "-l"]);
        assert_eq!(
            run(&["ckptd", "run", "ls", "--no-such", "-q"]).command,
            ["ls", "--no-such", "-q"]
        );
        let parsed = run(&["ckptd", "run", "--dir", "/x", "sh", "--dir", "/y"]);
        assert_eq!(parsed.command, ["sh", "--dir", "/y"]);
    }

    #[test]
    fn wrong_usage_has_status_2() {
        for arguments in [
            &["ckptd"][..],
            &["ckptd", "run"],
            &["ckptd", "fly"],
            &["ckptd", "run", "--interval", "-1", "ls"],
            &["ckptd", "run", "--interval", "nan", "ls"],
            &["ckptd", "run", "--keep", "0", "ls"],
            &["ckptd", "restart"],
            &["ckptd", "adopt"],
            &["ckptd", "adopt", "1x"],
            &["ckptd", "adopt", "0"],
            &["ckptd", "rm"],
            &["ckptd", "rm", "--ended", "fold"],
            &["ckptd", "rm", "--older", "7d"],
            &["ckptd", "rm", "--older", "7d", "fold"],
            &["ckptd", "rm", "--ended", "--older", "soon"],
            &["ckptd", "logs", "--since", "yesterday", "fold"],
            &["ckptd", "logs", "--rank", "-1", "fold"],
            &["ckptd", "token", "--uses", "0"],
            &["ckptd", "login", "--for", "8d"],
            &["ckptd", "login", "--keys", "--status"],
            &["ckptd", "login", "--user", "a:b"],
            &["ckptd", "token", "--valid", "1x"],
            &["ckptd", "coordinator", "--listen", "somewhere"],
            &["ckptd", "agent", "--name", "Desk_1"],
            &["ckptd", "run", "--place", "a=x", "ls"],
            &["ckptd", "rsh", "node1"],
            &["ckptd", "drain"],
            &["ckptd", "uncordon", "--no-wait", "node1"],
            &["ckptd", "run", "--quiet", "--verbose", "ls"],
            &["ckptd", "run", "--intreval", "5", "sleep", "1"],
            &["ckptd", "run", "-x", "sleep", "1"],
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
        assert_eq!(Cli::try_parse_from(["ckptd", "run", "--help"]).unwrap_err().exit_code(), 0);
    }
}
