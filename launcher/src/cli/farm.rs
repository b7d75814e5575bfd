//! What farm takes.

use super::ListArguments;
use super::values::{bytes, seconds, time_span};
use ckptd_farm::{Halt, Order};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The farm that is meant where none is named.
pub const USUAL_FARM: &str = "farm";

/// What is done with many tasks.
#[derive(Debug, Subcommand)]
pub enum FarmCommand {
    /// Run many tasks, on this machine or on a cluster, so many at a time, and have each of them end once, whatever happens.
    ///
    /// FILE has a command for the shell in each line; '-' is standard input. Or a command and the values that it is run with,
    /// as of GNU parallel: {} is the value, {1} and {2} those of several lists, {.} is without its extension, {/} without its
    /// folder, {//} its folder, {/.} both without, {#} the task's number; '::::' takes the lines of files as values.
    ///
    /// With --workflow, tasks wait for others, as a file in WfCommons' format says: a task is begun once all that it waits for
    /// have ended with status 0, and is skipped if one of these has failed.
    ///
    /// Standard output, standard error and exit status of each task are kept. A task that runs longer than --checkpoint says
    /// becomes a job of which checkpoints are taken. After Ctrl-C, or when everything was killed, --resume goes on: what has
    /// ended is not run again, and what has a checkpoint goes on from there.
    #[command(after_long_help = "\
Examples:
  ckptd farm run tasks.txt                       a command a line, as many at a time as there are processors
  ckptd farm run --jobs 4 gzip -9 {} ::: *.log
  ckptd farm run ./fit --seed {1} --model {2} ::: 1 2 3 ::: linear cubic
  generate | ckptd farm run --name fits --timeout 2h --retries 1 -
  ckptd farm run --resume fits                   goes on
  ckptd farm run --workflow montage.json --order lifo-hrf

Exit status: 0 where all tasks have ended with status 0; else how many have not, 101 for more than 100; 125 where a task could \
not be brought back, or ckptd itself failed; 128+N after signal N, as 130 after Ctrl-C; 2 for wrong usage.")]
    Run(Box<FarmRunArguments>),
    /// Write a page about a run that a browser shows: which task ran when and for how long, how many at a time, what failed.
    ///
    /// It is one file without scripts, which loads nothing.
    #[command(after_long_help = "\
Examples:
  ckptd farm report tasks-1                      writes tasks-1.html
  ckptd farm report tasks-1 -o - > page.html")]
    Report {
        /// The run.
        run: String,
        /// Where to; '-' is standard output [default: NAME.html].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Submit one task to a farm of this user's, which is begun with the first one, and print its number. There is no daemon to
    /// be started: the farm runs in the background until there has been nothing to do for a minute, and again with the next task.
    ///
    /// The task is PROGRAM with these arguments, in this folder and with this environment, without a shell, a terminal or input.
    /// Once its number is printed, it is on the disk: it ends once, whatever is killed, and goes on from its last checkpoint.
    #[command(after_long_help = "\
Examples:
  ckptd farm submit ./fit --seed 1               prints its number, such as 1
  ckptd farm submit --jobs 4 --timeout 2h -- ./fit --seed 2
  ckptd farm wait 1 && ckptd farm logs 1
  ckptd farm status                              what runs, and what waits
  ckptd farm cancel 2
  ckptd farm stop                                ends the farm, with last checkpoints; 'ckptd farm start' goes on")]
    Submit(SubmitArguments),
    /// Run one task on a farm in place of a command: submit it, pass on what it writes, and end with its exit status. For make and
    /// other programs that run commands by themselves.
    ///
    /// Ctrl-C cancels the task, and so does SIGTERM. After a kill of this command it runs on. Within a task of the same farm, the
    /// command is run as part of that task.
    #[command(after_long_help = "\
Examples:
  ckptd farm exec ./fit --seed 1
  ckptd farm exec --farm build -- sh -c 'sort big > sorted'
  make -j 100 SHELL=ckptd .SHELLFLAGS='farm exec -- /bin/sh -c'")]
    Exec(SubmitArguments),
    /// Start a farm, or change how many of its tasks run at a time. What has ended is not run again; what has a checkpoint goes on
    /// from there.
    #[command(after_long_help = "\
Examples:
  ckptd farm start                               goes on after a stop or a reboot
  ckptd farm start --jobs 8                      eight at a time from now on")]
    Start(StartArguments),
    /// End a farm, with a last checkpoint of each task that runs. The next submit, or 'ckptd farm start', goes on.
    #[command(after_long_help = "\
Examples:
  ckptd farm stop")]
    Stop {
        /// The farm.
        #[arg(default_value = USUAL_FARM)]
        farm: String,
        /// End its tasks at once, without last checkpoints, also where nothing can be recorded.
        #[arg(long)]
        now: bool,
    },
    /// Wait until tasks of a farm have ended.
    #[command(after_long_help = "\
Examples:
  ckptd farm wait 3                              exit status: that of task 3
  ckptd farm wait && echo all right
  ckptd farm wait --each | jq .outcome           a line for each task as it ends
  generate | ckptd farm wait --each --stdin      for those whose numbers are written to it

Exit status: that of the one task; of several, or of all, how many have not ended with status 0, 101 for more than 100; 2 \
for wrong usage; 125 where ckptd itself failed, or a task needs somebody.")]
    Wait(WaitArguments),
    /// End tasks of a farm, or take them out of its queue. One that runs gets SIGTERM, and SIGKILL 5 seconds later.
    #[command(after_long_help = "\
Examples:
  ckptd farm cancel 3 4")]
    Cancel(TasksArguments),
    /// Run tasks of a farm again that have not ended with status 0, or were cancelled.
    #[command(after_long_help = "\
Examples:
  ckptd farm retry 3")]
    Retry(TasksArguments),
    /// Show what a task of a farm has written, in its newest try: to standard output and to standard error what it has written to
    /// each.
    #[command(after_long_help = "\
Examples:
  ckptd farm logs 3
  ckptd farm logs -f 3                           until it has ended")]
    Logs {
        /// The farm.
        #[arg(long, value_name = "NAME", default_value = USUAL_FARM)]
        farm: String,
        /// Go on until the task has ended.
        #[arg(long, short)]
        follow: bool,
        /// The task.
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
        task: u32,
    },
    /// Show how far a run is: of each kind of its tasks how many have ended, and how long they took. A kind is a task's name
    /// in the workflow without a number at the end; plain tasks are of one.
    ///
    /// Of a farm whose tasks are submitted one by one: what runs, what waits, and how many have ended; or how one task is.
    #[command(after_long_help = "\
Examples:
  ckptd farm status tasks-1                      a run
  ckptd farm status                              tasks that were submitted
  ckptd farm status 3                            one of them")]
    Status {
        /// The run, or the farm; or a task's number [default: the farm that --farm names].
        #[arg(value_name = "RUN|ID")]
        run: Option<String>,
        /// The farm of the task [default: farm].
        #[arg(long, value_name = "NAME")]
        farm: Option<String>,
        /// How it is shown.
        #[command(flatten)]
        list: ListArguments,
    },
    /// Make functions known that programs in C call as tasks of a farm, by the library libckptd_farm (GridRPC).
    ///
    /// FILE describes a module of them in a subset of Ninf IDL: arguments of the types char, short, int, long, float, double and
    /// string, IN, OUT or INOUT, and arrays whose sizes are numbers or other arguments. PROGRAM runs them: what --stub writes,
    /// linked with the functions and the library.
    #[command(after_long_help = "\
Examples:
  ckptd farm register --stub pi.idl > pi_server.c
  cc -o pi_server pi_server.c pi_trial.c $(pkg-config --cflags --libs ckptd_farm)
  ckptd farm register pi.idl --program ./pi_server   prints the functions' names, such as pi/pi_trial")]
    Register(RegisterArguments),
    /// List the runs.
    #[command(after_long_help = "\
Examples:
  ckptd farm ls")]
    Ls(ListArguments),
    /// Forget runs, with their results if these lie in the run's own folder; refused while one runs.
    #[command(after_long_help = "\
Examples:
  ckptd farm rm tasks-1")]
    Rm {
        /// The runs.
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<String>,
    },
    /// The process that looks after the one that starts the tasks of a farm.
    #[command(hide = true)]
    Serve {
        /// The farm's folder.
        folder: PathBuf,
    },
    /// The process that looks after a task that runs on a cluster.
    #[command(hide = true)]
    Errand {
        /// What it is told, as JSON.
        order: String,
        /// The task's program and its arguments.
        #[arg(last = true)]
        program: Vec<OsString>,
    },
    /// The process that starts the tasks.
    #[command(hide = true)]
    Work {
        /// The run's folder.
        folder: PathBuf,
        /// How it is run, as JSON.
        settings: String,
        /// The process that looks after this one.
        guard: i32,
        /// The command by which the run goes on.
        resume: String,
        /// Show neither progress nor a summary.
        #[arg(long)]
        quiet: bool,
    },
}

/// Tasks of a farm.
#[derive(Debug, Args)]
pub struct TasksArguments {
    /// The farm.
    #[arg(long, value_name = "NAME", default_value = USUAL_FARM)]
    pub farm: String,
    /// The tasks.
    #[arg(value_name = "ID", required = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub tasks: Vec<u32>,
}

/// What farm submit takes.
#[derive(Debug, Args)]
pub struct SubmitArguments {
    /// The farm: letters, digits, '.', '_' and '-'.
    #[arg(long, value_name = "NAME", default_value = USUAL_FARM)]
    pub farm: String,
    /// With the first task of a farm: how many run at a time [default: the number of processors].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub jobs: Option<u32>,
    /// How long the task may take, such as 90 (seconds) or 2h; then it gets SIGTERM, SIGKILL 5 seconds later, and has failed.
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub timeout: Option<Duration>,
    /// How often the task is tried again if it has failed by itself [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub retries: Option<u32>,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What farm register takes.
#[derive(Debug, Args)]
pub struct RegisterArguments {
    /// The description.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The program that runs the functions.
    #[arg(long, value_name = "PROGRAM", required_unless_present = "stub")]
    pub program: Option<PathBuf>,
    /// Write the main() of such a program in C, and make nothing known.
    #[arg(long, conflicts_with_all = ["program", "folder"])]
    pub stub: bool,
    /// Where they are made known [default: ~/.local/share/ckptd/farm/functions].
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// What farm wait takes.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The farm.
    #[arg(long, value_name = "NAME", default_value = USUAL_FARM)]
    pub farm: String,
    /// Print a line of JSON for each task as it ends, as in results.jsonl.
    #[arg(long)]
    pub each: bool,
    /// Wait for the tasks whose numbers standard input has, one a line, as they come.
    #[arg(long)]
    pub stdin: bool,
    /// Begin the farm again where nobody runs it, as after a kill; not where somebody has stopped it: then wait for its start.
    #[arg(long)]
    pub resume: bool,
    /// The tasks [default: all that there are, or those of --stdin].
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub tasks: Vec<u32>,
}

/// What farm start takes.
#[derive(Debug, Args)]
pub struct StartArguments {
    /// The farm.
    #[arg(value_name = "NAME", default_value = USUAL_FARM)]
    pub farm: String,
    /// How many tasks run at a time [default: the number of processors].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub jobs: Option<u32>,
    /// How old a task is when the first checkpoint is taken of it, and how long it is from one to the next: a time, 'auto' for
    /// 30 seconds and then by what they cost, or 'none' [default: auto].
    #[arg(long, value_name = "TIME", value_parser = CheckpointSetting::from_str)]
    pub checkpoint: Option<CheckpointSetting>,
    /// With a new farm: run its tasks on the machines of the cluster that this one belongs to, each as a job of that.
    #[arg(long)]
    pub cluster: bool,
    /// How long the farm waits in the background where there is nothing to do [default: 60].
    #[arg(long, value_name = "TIME", value_parser = idle_time)]
    pub idle: Option<Duration>,
    /// Leave a farm as it is that 'ckptd farm stop' has ended: for what waits for tasks, and is not to undo that.
    #[arg(long, conflicts_with_all = ["jobs", "checkpoint", "cluster", "idle"])]
    pub unless_stopped: bool,
}

/// The longest time that a farm may wait for tasks, in seconds.
const LONGEST_IDLE: f64 = 366.0 * 86_400.0;

fn idle_time(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        seconds if (0.0..=LONGEST_IDLE).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be a year at most".to_owned()),
    }
}

/// What farm run takes.
#[derive(Debug, Args)]
pub struct FarmRunArguments {
    /// The run's name: letters, digits, '.', '_' and '-' [default: that of FILE, or of the program, and a number].
    #[arg(long, conflicts_with = "resume")]
    pub name: Option<String>,
    /// Go on with a run that has not come to its end: its name, or 'latest'. Options that are given hold from now on.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["tasks", "workflow"])]
    pub resume: Option<String>,
    /// Run the tasks of a workflow, in WfCommons' format 1.5 or 1.6: their commands, what waits for what by parents, children
    /// and files, and which files each has to write.
    #[arg(long, value_name = "FILE", conflicts_with = "tasks")]
    pub workflow: Option<PathBuf>,
    /// With --resume: try all tasks again that have failed, and run those that were skipped for that.
    #[arg(long, requires = "resume")]
    pub retry_failed: bool,
    /// How tasks are run.
    #[command(flatten)]
    pub settings: FarmSettings,
    /// Show no progress and no summary; warnings and failures are still told.
    #[arg(long, short)]
    pub quiet: bool,
    /// A file of commands, or a command and its values.
    // What begins with a hyphen before it is an option, misspelled perhaps, and no program.
    #[arg(
        value_name = "FILE|COMMAND... ::: VALUE...",
        required_unless_present_any = ["resume", "workflow"],
        trailing_var_arg = true
    )]
    pub tasks: Vec<OsString>,
}

/// How tasks are run; what is not given is as it was, or as it is by default.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct FarmSettings {
    /// How many tasks run at a time [default: the number of processors].
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub jobs: Option<u32>,
    /// How long a task may take, such as 90 (seconds) or 2h; then it gets SIGTERM, SIGKILL 5 seconds later, and has failed. A
    /// task that goes on from a checkpoint has that time again.
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    pub timeout: Option<Duration>,
    /// How often a task is tried again that has failed by itself; when no others are left [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub retries: Option<u32>,
    /// When no more tasks are begun: soon,fail=N once N have failed; those that run come to their ends. With now, they are
    /// ended. Also success=N and done=N [default: never].
    #[arg(long, value_name = "WHEN", value_parser = HaltSetting::from_str)]
    pub halt: Option<HaltSetting>,
    /// Where results are kept: results.jsonl, and N.out and N.err of task N [default: in the run's folder].
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub results: Option<PathBuf>,
    /// How old a task is when the first checkpoint is taken of it, and how long it is from one to the next: a time, 'auto' for
    /// 30 seconds and then by what they cost, or 'none' [default: auto].
    #[arg(long, value_name = "TIME", value_parser = CheckpointSetting::from_str)]
    pub checkpoint: Option<CheckpointSetting>,
    /// How much a task may write to standard output and standard error, such as 512M or 1.5GiB. It is looked at each
    /// second; a task that has written more is ended, and has failed [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub output_limit: Option<u64>,
    /// Of the tasks of a workflow that could begin, which does: fifo, the one that could for the longest time; lifo, the one
    /// that could last, whose files are still in memory; lifo-hrf, the same, but those with the longest way to the end first
    /// where these are no more than run at a time; rank-hrf, likewise, and else all parts of the way get the same time
    /// [default: fifo].
    #[arg(long, value_name = "ORDER", value_parser = Order::from_str)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Run tasks on the machines of the cluster that this one belongs to, as many as these have slots for: each is a job of the
    /// cluster, which moves it when a machine leaves and brings it back when one is lost. Folders and programs have to be there
    /// under the same names on all of them.
    #[arg(long, conflicts_with = "resume")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster: bool,
}

impl FarmSettings {
    /// These, but what others say.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            jobs: other.jobs.or(self.jobs),
            timeout: other.timeout.or(self.timeout),
            retries: other.retries.or(self.retries),
            halt: other.halt.or(self.halt),
            results: other.results.or(self.results),
            checkpoint: other.checkpoint.or(self.checkpoint),
            output_limit: other.output_limit.or(self.output_limit),
            order: other.order.or(self.order),
            cluster: other.cluster || self.cluster,
        }
    }
}

/// When all are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HaltSetting {
    /// Never.
    Never,
    /// Then.
    When(Halt),
}

impl FromStr for HaltSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            text => {
                text.parse().map(Self::When).map_err(|error: ckptd_farm::Bad| error.to_string())
            }
        }
    }
}

impl TryFrom<String> for HaltSetting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HaltSetting> for String {
    fn from(setting: HaltSetting) -> Self {
        match setting {
            HaltSetting::Never => "never".to_owned(),
            HaltSetting::When(halt) => halt.to_string(),
        }
    }
}

/// Of what checkpoints are taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CheckpointSetting {
    /// Of what is older than 30 seconds, then by what they cost.
    Auto,
    /// Of nothing.
    None,
    /// So many seconds.
    Seconds(f64),
}

impl CheckpointSetting {
    /// How old a task is at the first one.
    #[must_use]
    pub fn age(self) -> Option<Duration> {
        match self {
            Self::Auto => Some(Duration::from_secs(30)),
            Self::None => None,
            // In range: the setting is checked where it is read.
            Self::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
        }
    }

    /// As 'ckptd adopt --interval' takes it.
    #[must_use]
    pub fn interval(self) -> String {
        match self {
            Self::Auto | Self::None => "auto".to_owned(),
            Self::Seconds(seconds) => seconds.to_string(),
        }
    }
}

impl FromStr for CheckpointSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        match seconds(text).map_err(|error| format!("{error}, nor 'auto' or 'none'"))? {
            seconds if seconds >= 0.05 => Ok(Self::Seconds(seconds)),
            _ => Err("must be 0.05 seconds at least, 'auto' or 'none'".to_owned()),
        }
    }
}

impl TryFrom<String> for CheckpointSetting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CheckpointSetting> for String {
    fn from(setting: CheckpointSetting) -> Self {
        match setting {
            CheckpointSetting::Auto => "auto".to_owned(),
            CheckpointSetting::None => "none".to_owned(),
            CheckpointSetting::Seconds(seconds) => seconds.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_json_and_later_ones_hold() {
        let first = FarmSettings {
            jobs: Some(3),
            timeout: Some(Duration::from_secs(90)),
            halt: "soon,fail=3".parse().ok(),
            checkpoint: Some(CheckpointSetting::Seconds(0.5)),
            ..FarmSettings::default()
        };
        let text = serde_json::to_string(&first).unwrap();
        let read: FarmSettings = protocol::json::read(text.as_bytes()).unwrap();
        assert_eq!(read, first);
        let later = FarmSettings { jobs: Some(5), ..FarmSettings::default() };
        assert_eq!(read.with(later), FarmSettings { jobs: Some(5), ..first });
    }
}
