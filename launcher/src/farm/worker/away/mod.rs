//! Tasks on the machines of a cluster: each is a job of that, which the cluster keeps, moves and brings back like any other. Of
//! each task that runs there is a process here, its errand.
//!
//! - `errand`: what such a process does.
//! - `order`: what it is told.
//! - `output`: what the task has written.
//! - `came`: what has come of it.
//! - `remover`: jobs that are of no use any more.
//! - `turns`: so many at a time.
//! - `places`: how many tasks the machines take.

mod came;
mod errand;
mod order;
mod output;
mod places;
mod remover;
mod turns;

pub use came::Came;
pub use errand::run as errand;
pub use order::Order;

use super::keeping::{Keeper, Said, of_name, task_name};
use super::processes::pid_of;
use super::{Message, Program};
use crate::INNER_CALL;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::farm::{FarmError, FarmFolder, MARK, TASK};
use crate::interrupts::Interrupts;
use crate::jobs::StateDir;
use ckptd_farm::{Attempt, Found, Task, What};
use nix::sys::signal::{SigSet, Signal};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::settings::Interval;
use protocol::durable::remove_if_there;
use remover::Remover;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use turns::Turns;

/// By this signal an errand has its task asked to end. SIGTERM is not taken: whoever ends all processes of a machine, as at
/// a reboot, does not mean tasks on others.
pub const TERMINATE: Signal = Signal::SIGUSR1;
/// By this one it has its task ended at once.
pub const KILL: Signal = Signal::SIGUSR2;
/// The most that run at a time: each has a connection to this machine's agent, which takes 96 of a user.
const MOST: usize = 64;
/// The most last checkpoints that are asked for at a time: each has one, too.
const MOST_SAVED: usize = 8;
/// Of a farm's name, in those of its jobs.
const LONGEST_STEM: usize = 24;

/// Tasks of a farm on a cluster.
#[derive(Debug)]
pub struct Away {
    cluster: Cluster,
    /// What the names of its jobs begin with.
    prefix: String,
    said: PathBuf,
    run: PathBuf,
    interval: Interval,
    remover: Remover,
    saves: Arc<Turns>,
}

/// The cluster that the machine of this folder of jobs belongs to.
///
/// # Errors
/// Where there is none.
pub fn cluster_of(state: &StateDir) -> Result<Cluster, Failure> {
    let usual = StateDir::find(None).ok();
    let is_asked = std::env::var_os("CKPTD_DIR").is_some()
        || usual.is_none_or(|usual| usual.path() != state.path());
    Cluster::find(state, is_asked)?.ok_or_else(|| {
        let way = "'ckptd agent' joins one; without --cluster, tasks run on this machine alone";
        Failure::of("run tasks on the cluster", format!("this machine belongs to none: {way}"))
    })
}

impl Away {
    /// Those of that run, with checkpoints at this interval.
    ///
    /// # Errors
    /// Where the machine belongs to no cluster, or a folder can't be made.
    pub fn of(run: &FarmFolder, interval: Interval) -> Result<Self, FarmError> {
        let state = run.path().parent().and_then(Path::parent).map(Path::to_owned);
        let cluster = cluster_of(&StateDir::find(state)?).map_err(FarmError::cluster)?;
        let said = run.said();
        fs::create_dir_all(&said).map_err(FarmError::io("create", &said))?;
        let record = run.record();
        // Names of farms are those of one machine; the time tells them apart.
        let stem: String = record.name.chars().take(LONGEST_STEM).collect();
        let prefix = format!("{stem}.{:x}.", record.created_at_ms);
        let remover =
            Remover::start(cluster.clone()).map_err(FarmError::process("start a thread"))?;
        let (run, saves) = (run.path().to_owned(), Arc::new(Turns::of(MOST_SAVED)));
        Ok(Self { cluster, prefix, said, run, interval, remover, saves })
    }

    fn job(&self, task: Task, attempt: Attempt) -> String {
        // No name is the beginning of another's: jobs are found by the beginnings of their ids, too.
        format!("{}{}.", self.prefix, task_name(task, attempt))
    }

    /// What earlier parts of the run have left on the cluster: whether it runs, has ended or is at rest is for an errand to see.
    ///
    /// # Errors
    /// Where the cluster can't be asked.
    pub fn found(&self) -> Result<Vec<Found>, FarmError> {
        let jobs = self.cluster.listing_in_time("find the tasks on the cluster", &Ask::Jobs);
        let jobs = jobs.map_err(FarmError::cluster)?;
        let names = jobs.as_array().into_iter().flatten().filter_map(|job| job["name"].as_str());
        let tries =
            names.filter_map(|name| of_name(name.strip_prefix(&self.prefix)?.strip_suffix('.')?));
        Ok(tries.map(|(task, attempt)| Found { task, attempt, what: What::Checkpoint }).collect())
    }

    /// Sends an errand for a task: its job is begun, unless there is one.
    ///
    /// # Errors
    /// Where no process can be started.
    pub fn send(
        &self,
        (task, attempt): (Task, Attempt),
        program: Program,
        (out, err): (File, File),
    ) -> io::Result<Keeper> {
        let path = self.said.join(task_name(task, attempt));
        let said = File::options().append(true).create(true).mode(0o600).open(&path)?;
        let read = said.metadata()?.len();
        // What is there is of an earlier errand.
        remove_if_there(&came::path(&path))?;
        let order = Order {
            socket: self.cluster.socket().to_owned(),
            job: self.job(task, attempt),
            said: path.clone(),
            interval: self.interval,
        };
        let Program { words, directory, environment } = program;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("ckptd").args(["farm", "errand"]).arg(order.text()?).arg("--").args(words);
        if let Some(environment) = environment {
            command.env_clear().envs(environment);
        }
        command.current_dir(directory).env(MARK, &self.run).env(TASK, task.0.to_string());
        command.env(INNER_CALL, "1").process_group(0);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        // Until it listens to them.
        let mut held = SigSet::empty();
        held.add(TERMINATE);
        held.add(KILL);
        let child = Interrupts::spawn_with(held, &mut command)?;
        Ok(Keeper::of(pid_of(&child), attempt, Said::from(path, read)))
    }

    /// What has come of an errand that has ended.
    pub fn came(&self, task: Task, attempt: Attempt) -> Option<Came> {
        Came::read(&self.said.join(task_name(task, attempt)))
    }

    /// Asks for a last checkpoint of a task, and for its end then. The answer comes as a message.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn save(
        &self,
        task: Task,
        attempt: Attempt,
        tell: UnboundedSender<Message>,
    ) -> io::Result<()> {
        let (cluster, job) = (self.cluster.clone(), self.job(task, attempt));
        let saves = self.saves.clone();
        let ask = move || {
            let _turn = saves.take();
            let ask = Ask::Stop { job, checkpoint: true };
            let saved = match cluster.ask("take a last checkpoint", &ask) {
                Ok(Answer::Ended { checkpoint: Some(_), .. }) => Ok(()),
                Ok(_) => Err("there was none when it ended".to_owned()),
                Err(failure) => Err(failure.to_string()),
            };
            let _ = tell.send(Message::Saved(task, saved));
        };
        std::thread::Builder::new().name(format!("saves {}", task.0)).spawn(ask).map(drop)
    }

    /// Has the job of a task's try removed.
    pub fn forget(&self, task: Task, attempt: Attempt) {
        let path = self.said.join(task_name(task, attempt));
        // They tell of what is over.
        let _ = fs::remove_file(came::path(&path));
        let _ = fs::remove_file(path);
        self.remover.remove(self.job(task, attempt));
    }

    /// Waits until what is of no use any more is removed, or nobody answers; the rest is found when the run goes on.
    pub fn finish(&mut self) {
        self.remover.finish();
    }

    /// How many tasks the machines take.
    ///
    /// # Errors
    /// Where the cluster can't be asked.
    pub fn places(&self) -> Result<usize, FarmError> {
        let nodes = self.cluster.listing_in_time("list the nodes", &Ask::Nodes);
        let nodes = nodes.map_err(FarmError::cluster)?;
        Ok(places::of(&nodes, &self.prefix).min(MOST))
    }

    /// Tells how many tasks the machines take, again and again.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn watch_places(&self, tell: UnboundedSender<Message>) -> io::Result<()> {
        let (cluster, prefix) = (self.cluster.clone(), self.prefix.clone());
        let watch = move || places::watch(&cluster, &prefix, MOST, &tell);
        std::thread::Builder::new().name("places".to_owned()).spawn(watch).map(drop)
    }
}
