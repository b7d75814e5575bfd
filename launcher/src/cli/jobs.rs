//! What run and restart take, and the settings of jobs.

use super::StoreArguments;
use super::values::{baseline, bytes, pinned, signal};
use crate::client::commits::OnCommit;
use crate::client::last_checkpoint::LastCheckpoint;
use crate::client::resume::ComesBack;
use crate::hooks::Hook;
use crate::interrupts::Held;
use clap::{Args, ValueEnum};
use protocol::cluster::NodeName;
use protocol::cluster::baseline::Baseline;
use protocol::cluster::settings::Trust;
use protocol::launch::{External, FileCheck, Kept};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// The exit status of a command that has taken a last checkpoint, unless another is wanted.
pub const THEN_EXIT: u8 = 85;

/// What run takes.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The job's name: letters, digits, '.', '_' and '-' [default: the program's name and a
    /// number].
    #[arg(long)]
    pub name: Option<String>,
    /// Return once the job runs, and print its name.
    ///
    /// Its output is in its log: 'ckptd logs -f' shows it, 'ckptd attach' goes to it.
    #[arg(long)]
    pub detach: bool,
    /// Run it on this machine alone, whether this belongs to a cluster or not.
    #[arg(long, conflicts_with_all = ["group", "store"])]
    pub local: bool,
    /// Hold the C library to what x86-64, x86-64-v2, -v3 or -v4 means, so that the job's processes can move between
    /// machines of different age.
    ///
    /// Programs that look at the processor by themselves are not held by it.
    #[arg(long, value_name = "NAME", value_parser = baseline)]
    pub cpu_baseline: Option<Baseline>,
    /// On a cluster: ranks keep shared memory with the others of their group, which are N ranks of a node, and move
    /// together with these. Groups move one by one.
    ///
    /// The launcher, whose hosts must not be named, finds each node as several hosts of N slots, such as node1, node1--2 and
    /// node1--3; if N does not divide a node's slots, the last one has fewer.
    #[arg(long, value_name = "N")]
    pub group: Option<NonZeroU32>,
    /// What of the file system is the job's.
    #[command(flatten)]
    pub files: FileArguments,
    /// Where it is kept between two runs.
    #[command(flatten)]
    pub store: StoreArguments,
    /// How the job is kept.
    #[command(flatten)]
    pub options: JobOptions,
    /// The program and its arguments.
    // What begins with a hyphen before it is an option, misspelled perhaps, and no program.
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What of the file system goes back with a job.
#[derive(Debug, Default, Args)]
pub struct FileArguments {
    /// A folder whose whole content goes back with the job, open or not; files made in it since the checkpoint are
    /// removed at a restart.
    ///
    /// The folder that the job finds in $TMPDIR is made for it, and always is one.
    #[arg(long, value_name = "DIR")]
    pub session: Vec<PathBuf>,
    /// How many bytes of files an image may hold, such as 512M or 1.5GiB [default: 1G].
    ///
    /// They are those of the folders above, and files elsewhere that are written in place. What does not fit stays as it
    /// is at a restart, and is named at each checkpoint.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub files_limit: Option<u64>,
    /// By what a restart tells that a file has changed which the job only reads and which is not in the image: by its
    /// size, also by the time of its modification, or by its content [default: mtime].
    ///
    /// For the content, each version of such a file is read once, while the job stands still if it is open.
    #[arg(long, value_enum)]
    pub file_check: Option<FileCheckSetting>,
}

/// Why a folder can't be a job's.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It is no folder, or all of them.
    #[error("{} can't be a session directory", .0.display())]
    Unfit(PathBuf),
    /// It can't be found.
    #[error("the session directory {}: {source}", path.display())]
    Lost {
        /// As it was given.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl FileArguments {
    /// With folders by their absolute names, without links.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn kept(&self) -> Result<Kept, SessionError> {
        let folder = |path: &PathBuf| match path.canonicalize() {
            Ok(folder) if folder.is_dir() && folder.parent().is_some() => Ok(folder),
            Ok(_) => Err(SessionError::Unfit(path.clone())),
            Err(source) => Err(SessionError::Lost { path: path.clone(), source }),
        };
        let folders = self.session.iter().map(folder).collect::<Result<_, _>>()?;
        Ok(Kept {
            folders,
            temporary: None,
            files_limit: self.files_limit,
            file_check: self.file_check.map_or_else(FileCheck::default, FileCheck::from),
            host_name: None,
        })
    }
}

/// What adopt takes.
#[derive(Debug, Args)]
pub struct AdoptArguments {
    /// The job's name: letters, digits, '.', '_' and '-' [default: the program's name and a
    /// number].
    #[arg(long)]
    pub name: Option<String>,
    /// What of the file system is the job's.
    #[command(flatten)]
    pub files: FileArguments,
    /// How the job is kept.
    #[command(flatten)]
    pub options: JobOptions,
    /// The process.
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
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
    /// By what changed files are told, if not as the job was run. What the content was is known of checkpoints of jobs that
    /// were run with 'hash' alone; otherwise that is as 'mtime'.
    #[arg(long, value_enum)]
    pub file_check: Option<FileCheckSetting>,
    /// Return once the job runs, and print its name.
    #[arg(long)]
    pub detach: bool,
    /// How the job is kept.
    #[command(flatten)]
    pub options: JobOptions,
}

/// What run and restart share. For restart, the default is what the job was run with.
#[derive(Debug, Clone, Default, Args)]
pub struct JobOptions {
    /// Time between checkpoints, such as 30 (seconds) or 5m, 'auto' to follow their cost, 0 for only on demand [default: 30].
    #[arg(long, value_name = "TIME")]
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
    /// Rehearse a restart after every N-th checkpoint, 0 for never, and say at once where it would fail [default: 0].
    ///
    /// It is done as 'ckptd verify --rehearse' does it, at low priority, while the job runs on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rehearse: Option<u32>,
    /// What may be moved: single processes, or all processes of a node together, with shared
    /// memory between them [default: process].
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// On a cluster: on whose machines the job and its images may be: where the agent runs as you, also where it runs as
    /// root, or also where another user shares the machine, who could read them [default: root].
    #[arg(long, value_enum)]
    pub trust: Option<TrustSetting>,
    /// On a cluster: what the job's processes send each other by TCP and UDP goes encrypted from machine to machine, and the
    /// job is only on machines whose agents were started with this option.
    #[arg(long)]
    pub encrypt_job_traffic: bool,
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
    /// On a cluster: leave connections alone that are made after a move. Without it, bind, connect, listen and
    /// their like are watched by a seccomp filter, with no_new_privs.
    #[arg(long)]
    pub no_rewire_connect: bool,
    /// What takes the checkpoints: ckptd's own engine, or an installed DMTCP. A job keeps the one that it was
    /// run with. Jobs of DMTCP are of this machine alone, and have no log of their output.
    #[arg(long, value_enum, default_value_t = EngineSetting::Native)]
    pub engine: EngineSetting,
    /// Write a timeline of launch, checkpoints and restore to FILE, which ui.perfetto.dev and chrome://tracing open.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Also write the job's output to FILE, with ckptd's own lines in brackets, as it is in the job's log: a rollback cuts it
    /// back. FILE is made anew. What a full disk does not take comes once there is room; the job does not wait for it.
    ///
    /// On a cluster a process of yours on this machine does so, also with --detach, until the job is over.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Have COMMAND called by /bin/sh when something happens to the job; may be given several times. EVENT is checkpoint (one is
    /// committed), failed (one could not be taken), lost (a node with processes of the job is gone), moved (they run again, on
    /// other nodes or from a checkpoint), or ended.
    ///
    /// It runs here, as you, beside the job, which never waits for it, for 60 seconds at most. On standard input it reads one
    /// line of JSON about what has happened; CKPTD_EVENT and CKPTD_JOB are set. A failure is a warning in the job's log. To an
    /// address, https://... instead of COMMAND, that line is sent (POST).
    #[arg(long, value_name = "EVENT=COMMAND")]
    pub on: Vec<Hook>,
    /// When this signal comes to ckptd, such as USR1, take a last checkpoint, end the job, and end with the status of
    /// --then-exit. For schedulers that tell before they take machines away; the job does not see the signal.
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub checkpoint_on: Option<i32>,
    /// The exit status after that [default: 85].
    #[arg(long, value_name = "STATUS")]
    pub then_exit: Option<u8>,
    /// The same, where another command wants to know of it.
    #[arg(skip)]
    pub last: Option<LastCheckpoint>,
    /// Where another command wants to know of each checkpoint.
    #[arg(skip)]
    pub commits: Option<OnCommit>,
    /// What brings the job back if it ends before its time.
    #[arg(skip)]
    pub comes_back: ComesBack,
    /// Signals that another command has held up: the job's session lets them come.
    #[arg(skip)]
    pub held: Held,
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

impl JobOptions {
    /// Whether all of a node's ranks are to stay together.
    #[must_use]
    pub fn keeps_nodes_together(&self) -> bool {
        self.placement == Some(Placement::Node)
    }

    /// What is done at a signal that tells of the machines' end.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<LastCheckpoint> {
        if self.last.is_some() {
            return self.last.clone();
        }
        let signal = self.checkpoint_on?;
        Some(LastCheckpoint::new(signal, self.then_exit.unwrap_or(THEN_EXIT)))
    }
}

impl IntervalSetting {
    /// Whole seconds, at least one, for engines that know no others; 0 for only on demand.
    #[must_use]
    pub fn whole_seconds(self) -> u32 {
        match self {
            // In range: the setting is checked where it is read.
            Self::Seconds(seconds) => seconds.ceil() as u32,
            Self::Auto => 0,
        }
    }
}

impl FromStr for IntervalSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let span = super::values::seconds(text);
        span.map_err(|error| format!("{error}, nor 'auto'")).and_then(seconds)
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineSetting {
    /// ckptd's own engine.
    #[default]
    Native,
    /// DMTCP's own programs.
    Dmtcp,
}

/// On whose machines a job may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrustSetting {
    /// The user's own.
    Own,
    /// Also where the agent is root's.
    Root,
    /// Also where it is another user's who shares the machine.
    Any,
}

impl From<TrustSetting> for Trust {
    fn from(setting: TrustSetting) -> Self {
        match setting {
            TrustSetting::Own => Self::Own,
            TrustSetting::Root => Self::Root,
            TrustSetting::Any => Self::Any,
        }
    }
}

/// What becomes of a lost node's MPI daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DaemonsSetting {
    /// They are restored.
    Restore,
    /// Orphans turn to the daemon where they are.
    Fallback,
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

/// By what changed files are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileCheckSetting {
    /// Their size.
    Size,
    /// Their size and the time of their modification.
    Mtime,
    /// Their content.
    Hash,
}

impl From<FileCheckSetting> for FileCheck {
    fn from(setting: FileCheckSetting) -> FileCheck {
        match setting {
            FileCheckSetting::Size => FileCheck::Size,
            FileCheckSetting::Mtime => FileCheck::Mtime,
            FileCheckSetting::Hash => FileCheck::Hash,
        }
    }
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
