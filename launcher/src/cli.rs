//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::cluster::NodeName;
use protocol::launch::External;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Keeps an unmodified job running: takes a checkpoint every 30 seconds, and brings the job back
/// after a crash.
#[derive(Debug, Parser)]
#[command(name = "ckptd", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_long_help = "\
Examples:
  ckptd run mpirun -np 4 ./nqueens 15   run a job, with a checkpoint every 30 seconds
  ckptd status                          how the jobs are
  ckptd restart latest                  go on from the newest checkpoint, after a crash

A cluster, so that a job outlives machines:
  ckptd coordinator                     on one machine
  ckptd token                           there; prints TOKEN
  ckptd agent --join TOKEN              on every machine that is to run jobs
  ckptd run mpirun -np 6 ./nqueens 16   on any of them

JOB is the name of a job, the beginning of its id, or 'latest'.

Exit status: that of the job for run and restart (128+N where signal N ended it); 2 for wrong
usage; 125 where ckptd itself failed.")]
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

If COMMAND is Open MPI's mpirun, these variables are set for it unless you set them: \
OMPI_MCA_btl=self,tcp PMIX_MCA_gds=hash OMPI_MCA_mpi_preconnect_mpi=1 \
OMPI_MCA_hwloc_base_binding_policy=none, so that its ranks can be separated. \
'--placement node' leaves shared memory on.")]
    Run(RunArguments),
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
  ckptd restart fold --checkpoint 6     an older one; newer ones stay until the next commit")]
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
    /// Check every hash of every checkpoint of a job.
    Verify {
        /// The job, and the checkpoint if not all.
        #[arg(value_name = "JOB[@N]")]
        job: String,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Make room: remove unfinished checkpoints of jobs that don't run, and what nothing needs.
    Gc {
        /// One job only.
        job: Option<String>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Forget jobs, with their checkpoints and logs; refused while one runs.
    Rm {
        /// The jobs.
        #[arg(required = true)]
        jobs: Vec<String>,
    },
    /// Show a job that runs on the cluster: output, input and exit status, as if run here.
    #[command(after_long_help = "\
What the job wrote before is in its log. A hangup (SIGHUP) leaves the job running; Ctrl-C goes
to it; Ctrl-Z suspends only this command.")]
    Attach {
        /// The job.
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
    /// Join this machine to the cluster, and run jobs of it.
    ///
    /// The token is used once: afterwards the machine has a certificate, kept in DIR, and
    /// the same command, with the same token, starts the agent again. An agent that is killed and
    /// started again takes its jobs over.
    #[command(after_long_help = "\
Examples:
  ckptd agent --join ckptd1.eyJhIjpb... --name desk --slots 4")]
    Agent(AgentArguments),
    /// List the members of the cluster: state, slots, speed, load, battery, what they hold.
    Nodes {
        /// Turn this member out: its certificate is worth nothing from now on.
        #[arg(long, value_name = "NODE")]
        remove: Option<NodeName>,
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Announce that a machine is about to go; returns when it is free to.
    Leave {
        /// The member [default: this machine].
        node: Option<NodeName>,
    },
    /// Run a command on a node of the job that this is called in: what mpirun calls instead of ssh.
    Rsh {
        /// The node.
        node: String,
        /// The command, for the shell there.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Tell what this machine can do, and what each missing feature costs.
    ///
    /// Exit status 0 where jobs can be run, checkpointed and restarted here, 1 where they can't.
    Doctor {
        /// How it is printed.
        #[command(flatten)]
        list: ListArguments,
    },
}

/// What coordinator takes.
#[derive(Debug, Args)]
pub struct CoordinatorArguments {
    /// Where it listens for agents, ADDRESS or ADDRESS:PORT.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7070", value_parser = listen_address)]
    pub listen: SocketAddr,
    /// Where it keeps what it knows [default: the folder 'coordinator' in DIR].
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Seconds from the last word of a machine to its being declared gone [default: 10].
    #[arg(long, value_name = "SECONDS")]
    pub grace: Option<f64>,
    /// Carry on for a coordinator whose machine is lost, from the copy of its log that an agent of
    /// this machine or of another has. DIR is the agent's.
    #[arg(long)]
    pub recover: bool,
    /// Speak DMTCP's protocol too.
    #[arg(long, value_name = "PORT", hide = true)]
    pub dmtcp_port: Option<u16>,
}

/// What token takes.
#[derive(Debug, Args)]
pub struct TokenArguments {
    /// How many machines may join with it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub uses: u32,
    /// How long it is good for: a number with s, m, h or d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_span)]
    pub valid: Duration,
    /// The coordinator's folder, where it was given one.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// What agent takes.
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// The token that 'ckptd token' printed [default: this machine has joined before].
    #[arg(long, value_name = "TOKEN")]
    pub join: Option<String>,
    /// The machine's name in the cluster [default: its host name].
    #[arg(long)]
    pub name: Option<NodeName>,
    /// Processes of jobs that it takes [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: Option<u32>,
    /// Relative speed of one core, 1 a common one [default: measured].
    #[arg(long, value_name = "X")]
    pub speed: Option<f64>,
    /// Run jobs of root as root.
    #[arg(long)]
    pub allow_root: bool,
    /// Address at which other agents reach it [default: that of its connection to the coordinator].
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
}

/// An address with or without a port.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let default = protocol::transport::DEFAULT_PORT;
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, default).into());
    }
    let port = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
    port.map(|port| (Ipv4Addr::UNSPECIFIED, port).into())
        .ok_or_else(|| "neither ADDRESS nor ADDRESS:PORT".to_owned())
}

/// A time as people write it: 90, 90s, 15m, 1h, 2d.
fn time_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((index, last)) if last.is_ascii_alphabetic() => text.split_at(index),
        _ => (text, "s"),
    };
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("the unit must be s, m, h or d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "not a number with s, m, h or d".to_owned())?;
    match number.checked_mul(seconds) {
        Some(seconds @ 1..=31_536_000) => Ok(Duration::from_secs(seconds)),
        _ => Err("must be between a second and a year".to_owned()),
    }
}

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

/// What run takes.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The job's name: letters, digits, '.', '_' and '-' [default: the program's name and a
    /// number].
    #[arg(long)]
    pub name: Option<String>,
    /// On a cluster: return once the job runs, and print its name.
    #[arg(long)]
    pub detach: bool,
    /// How the job is kept.
    #[command(flatten)]
    pub options: JobOptions,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// What restart takes.
#[derive(Debug, Args)]
pub struct RestartArguments {
    /// The job.
    pub job: String,
    /// The checkpoint to go on from [default: the newest committed one].
    #[arg(long, value_name = "N")]
    pub checkpoint: Option<u64>,
    /// Restart although files have changed since, or the job has ended by itself.
    #[arg(long)]
    pub force: bool,
    /// On a cluster: return once the job runs, and print its name.
    #[arg(long)]
    pub detach: bool,
    /// How the job is kept.
    #[command(flatten)]
    pub options: JobOptions,
}

/// What run and restart share. For restart, the default is what the job was run with.
#[derive(Debug, Clone, Default, Args)]
pub struct JobOptions {
    /// Seconds between checkpoints, 'auto' to follow their cost, 0 for only on demand [default:
    /// 30].
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<IntervalSetting>,
    /// Committed checkpoints kept [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub keep: Option<u32>,
    /// Places in which an image is durable, its own included [default: 2, 1 without a
    /// cluster].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub copies: Option<u32>,
    /// Connections to outside of the job: restored as reset and said, or refused at checkpoint
    /// time [default: warn].
    #[arg(long, value_enum)]
    pub external: Option<ExternalSetting>,
    /// What may be moved: single processes, or all processes of a node together, with shared
    /// memory between them [default: process].
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// On a cluster: how many rollbacks in a row without a new checkpoint are too many [default:
    /// 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub max_restarts: Option<u32>,
    /// On a cluster: pins numbers of processes to nodes, for measuring.
    #[arg(long, value_name = "NODE=N", value_delimiter = ',', value_parser = pinned)]
    pub place: Vec<(NodeName, u32)>,
    /// On a cluster: a lost node's MPI daemons are restored on another node like any process, or their
    /// ranks fall back to the daemon of the node where they are [default: restore].
    #[arg(long, value_enum)]
    pub daemons: Option<DaemonsSetting>,
    /// Leave connections that are made after a move alone. (They are not rewired yet either way.)
    #[arg(long)]
    pub no_rewire_connect: bool,
    /// What takes the checkpoints. (DMTCP's processes are not driven yet.)
    #[arg(long, value_enum, default_value_t = EngineSetting::Native, value_parser = engine())]
    pub engine: EngineSetting,
    /// Tell of each checkpoint on standard error, even where that is no terminal.
    #[arg(long, short)]
    pub verbose: bool,
    /// Tell of no checkpoint; warnings and failures are still told.
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// Seconds between checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "serde_json::Value")]
pub enum IntervalSetting {
    /// By what checkpoints cost.
    Auto,
    /// So many; 0 for only on demand.
    Seconds(f64),
}

impl FromStr for IntervalSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse()
            .map_err(|_| "neither a number of seconds nor 'auto'".to_owned())
            .and_then(seconds)
    }
}

fn seconds(value: f64) -> Result<IntervalSetting, String> {
    // A year, so that the sum with any time stays in range.
    if value == 0.0 || (0.05..=31_536_000.0).contains(&value) {
        Ok(IntervalSetting::Seconds(value))
    } else {
        Err("must be 0, or between 0.05 and 31536000 seconds".to_owned())
    }
}

impl TryFrom<serde_json::Value> for IntervalSetting {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        match (&value, value.as_f64()) {
            (serde_json::Value::String(text), _) if text == "auto" => Ok(Self::Auto),
            (_, Some(number)) => seconds(number),
            _ => Err("interval is neither a number of seconds nor \"auto\"".to_owned()),
        }
    }
}

impl From<IntervalSetting> for serde_json::Value {
    fn from(setting: IntervalSetting) -> Self {
        match setting {
            IntervalSetting::Auto => "auto".into(),
            IntervalSetting::Seconds(seconds) => seconds.into(),
        }
    }
}

/// What takes the checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineSetting {
    /// ckptd's own engine.
    #[default]
    Native,
}

/// Accepts only what is built, and says so of the other.
fn engine() -> impl clap::builder::TypedValueParser<Value = EngineSetting> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(["native", "dmtcp"]).try_map(|name| {
        match name.as_str() {
            "native" => Ok(EngineSetting::Native),
            _ => Err("'dmtcp' is not built yet: leave --engine out"),
        }
    })
}

/// What becomes of a lost node's MPI daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DaemonsSetting {
    /// They are restored.
    Restore,
    /// Orphans turn to the daemon where they are.
    Fallback,
}

/// A node and a number.
fn pinned(text: &str) -> Result<(NodeName, u32), String> {
    let (node, number) = text.split_once('=').ok_or("not of the form NODE=N")?;
    let node = node.parse().map_err(|error: protocol::cluster::NameError| error.to_string())?;
    Ok((node, number.parse().map_err(|_| format!("{number:?} is not a number"))?))
}

/// What may be moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Single processes.
    #[default]
    Process,
    /// A logical node as one.
    Node,
}

/// What is done about connections to outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExternalSetting {
    /// Restored as reset, and said.
    Warn,
    /// Refused at checkpoint time.
    Fail,
}

impl From<ExternalSetting> for External {
    fn from(setting: ExternalSetting) -> External {
        match setting {
            ExternalSetting::Warn => External::Warn,
            ExternalSetting::Fail => External::Fail,
        }
    }
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
            &["ckptd", "rm"],
            &["ckptd", "token", "--uses", "0"],
            &["ckptd", "token", "--valid", "1w"],
            &["ckptd", "coordinator", "--listen", "somewhere"],
            &["ckptd", "agent", "--name", "Desk_1"],
            &["ckptd", "run", "--place", "a=x", "ls"],
            &["ckptd", "rsh", "node1"],
            &["ckptd", "run", "--quiet", "--verbose", "ls"],
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
        assert_eq!(Cli::try_parse_from(["ckptd", "run", "--help"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn addresses_and_times_are_read_as_people_write_them() {
        for (text, address) in [
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("10.0.0.1", "10.0.0.1:7070"),
            ("::1", "[::1]:7070"),
            (":99", "0.0.0.0:99"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), address);
        }
        for (text, seconds) in [("90", 90), ("2m", 120), ("1h", 3600), ("1d", 86_400)] {
            assert_eq!(time_span(text).unwrap(), Duration::from_secs(seconds));
        }
        assert!(time_span("0s").is_err());
        assert!(time_span("99999999999999999999d").is_err());
        let parsed = run(&["ckptd", "run", "--place", "a=1,b=2", "ls"]);
        assert_eq!(parsed.options.place.len(), 2);
    }

    #[test]
    fn intervals_survive_json() {
        for setting in [IntervalSetting::Auto, IntervalSetting::Seconds(0.5)] {
            let text = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<IntervalSetting>(&text).unwrap(), setting);
        }
        assert!(serde_json::from_str::<IntervalSetting>("-3").is_err());
        assert!(serde_json::from_str::<IntervalSetting>("\"soon\"").is_err());
    }
}
