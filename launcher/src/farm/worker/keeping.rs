//! Tasks as jobs: what takes checkpoints of them, and how they go on from these.
//!
//! Each of them is one of `ckptd adopt` or `ckptd restart`, whose jobs lie in the run's folder. A checkpoint is asked for
//! there as by any other command.

use super::Message;
use super::processes::pid_of;
use crate::INNER_CALL;
use crate::client::launcher;
use crate::farm::{FarmFolder, MARK, say};
use crate::interrupts::Interrupts;
use crate::jobs::{self, JobFolder, StateDir};
use ckpt_store::{Checkpoint, Damage};
use ckptd_farm::{Attempt, Found, How, Task, What};
use coordinator::{End, History};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use protocol::agent::ExitKind;
use protocol::cluster::client::{Answer, Ask};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long a job may take to be there.
const BEGINNING: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// The most that is read of what was said about a job.
const MOST_SAID: u64 = 64 * 1024;

/// What names the job that a task's try becomes.
pub fn task_name(task: Task, attempt: Attempt) -> String {
    format!("t{}.{attempt}", task.0)
}

/// The try of which that is the name.
pub fn of_name(name: &str) -> Option<(Task, Attempt)> {
    let (task, attempt) = name.strip_prefix('t')?.split_once('.')?;
    Some((Task(task.parse().ok()?), attempt.parse().ok()?))
}

/// A process that keeps a task.
#[derive(Debug)]
pub struct Keeper {
    /// Its number.
    pub pid: Pid,
    /// Which try it keeps.
    pub attempt: Attempt,
    /// How often the job had begun before.
    starts: u64,
    gone: Arc<AtomicBool>,
    said: Said,
}

impl Keeper {
    /// A process that keeps that try.
    pub fn of(pid: Pid, attempt: Attempt, said: Said) -> Self {
        Self { pid, attempt, starts: 0, gone: Arc::default(), said }
    }

    /// It has ended.
    pub fn ended(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// What it has said since the last call.
    pub fn heard(&mut self) -> Vec<String> {
        self.said.more()
    }
}

/// What a keeper says, in a file.
#[derive(Debug)]
pub struct Said {
    path: PathBuf,
    read: u64,
}

impl Said {
    /// What comes behind so many bytes of that file.
    pub fn from(path: PathBuf, read: u64) -> Self {
        Self { path, read }
    }

    /// Whole lines of ckptd's own.
    fn more(&mut self) -> Vec<String> {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.read))?;
            let mut text = Vec::new();
            file.take(MOST_SAID).read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let text = read().unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.read += whole.len() as u64;
        whole.lines().filter_map(|line| line.strip_prefix("ckptd: ")).map(str::to_owned).collect()
    }
}

/// The jobs of a run.
#[derive(Debug)]
pub struct Jobs {
    folder: PathBuf,
    said: PathBuf,
    run: PathBuf,
    working_directory: PathBuf,
    interval: String,
}

impl Jobs {
    /// Of that run, with checkpoints at this interval.
    ///
    /// # Errors
    /// Where their folders can't be made.
    pub fn of(run: &FarmFolder, interval: String) -> io::Result<Self> {
        let (folder, said) = (run.jobs(), run.said());
        fs::create_dir_all(&said)?;
        Ok(Self {
            folder,
            said,
            run: run.path().to_owned(),
            working_directory: run.record().working_directory.clone(),
            interval,
        })
    }

    fn state(&self) -> Result<StateDir, jobs::JobError> {
        StateDir::find(Some(self.folder.clone()))
    }

    fn job(&self, task: Task, attempt: Attempt) -> Option<JobFolder> {
        job_of(&self.folder, &task_name(task, attempt))
    }

    /// What earlier parts of the run have left. `is_done`: whether what a task that has ended with status 0 should have written
    /// is there.
    ///
    /// # Errors
    /// Where that can't be read.
    pub fn found(&self, is_done: impl Fn(Task) -> bool) -> Result<Vec<Found>, jobs::JobError> {
        let all = self.state()?.jobs(|error| say(&format!("warning: failed to {error}")))?;
        let found = all.iter().filter_map(|job| {
            let (task, attempt) = of_name(job.name())?;
            Some(Found { task, attempt, what: what_is_left(job, || is_done(task)) })
        });
        Ok(found.collect())
    }

    /// Makes a job of a task that runs.
    ///
    /// # Errors
    /// Where no process can be started.
    pub fn adopt(&self, task: Task, attempt: Attempt, pid: Pid) -> io::Result<Keeper> {
        let name = task_name(task, attempt);
        let pid = pid.to_string();
        let words = ["adopt", "--quiet", "--interval", &self.interval, "--name", &name, &pid];
        // What ends everything ends the task, too, or lets it take its time; until then there is a checkpoint to be had.
        let mut never = SigSet::empty();
        never.add(Signal::SIGTERM);
        never.add(Signal::SIGHUP);
        self.start(task, attempt, &words, never)
    }

    /// Brings a task back from its newest checkpoint.
    ///
    /// # Errors
    /// Where no process can be started.
    pub fn restart(&self, task: Task, attempt: Attempt) -> io::Result<Keeper> {
        let job = self.job(task, attempt);
        let known = job.and_then(|job| jobs::load(&job).ok().map(|history| (job, history)));
        let starts = known.as_ref().map_or(0, |(_, history)| history.starts());
        // Whose end does not count is taken for done, unless it is said which checkpoint is meant.
        let is_done = |history: &History| {
            let done = |end: &End| !end.asked && end.status == Some(ExitKind::Exited(0));
            history.end().is_some_and(done)
        };
        let number = known
            .filter(|(_, history)| is_done(history))
            .and_then(|(job, history)| newest_of(&job, &history));
        let (name, number) = (task_name(task, attempt), number.map(|number| number.to_string()));
        let mut words = vec!["restart", "--quiet", &name];
        words.extend(number.iter().flat_map(|number| ["--checkpoint", number]));
        let keeper = self.start(task, attempt, &words, SigSet::empty())?;
        Ok(Keeper { starts, ..keeper })
    }

    /// `never`: signals that do not come to it.
    fn start(
        &self,
        task: Task,
        attempt: Attempt,
        words: &[&str],
        never: SigSet,
    ) -> io::Result<Keeper> {
        let path = self.said.join(task_name(task, attempt));
        let said = File::options().append(true).create(true).mode(0o600).open(&path)?;
        let read = said.metadata()?.len();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("ckptd").arg("--dir").arg(&self.folder).args(words).process_group(0);
        command.env(INNER_CALL, "1").env(MARK, &self.run).current_dir(&self.working_directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = Interrupts::spawn_with(never, &mut command)?;
        Ok(Keeper::of(pid_of(&child), attempt, Said::from(path, read)))
    }

    /// Asks for a checkpoint of a task. The answer comes as a message.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn checkpoint(
        &self,
        task: Task,
        keeper: &Keeper,
        tell: UnboundedSender<Message>,
    ) -> io::Result<()> {
        self.ask(
            task,
            keeper,
            |job| Ask::Checkpoint { job },
            move |answer| {
                let failed = match answer {
                    Ok(Answer::Committed { .. }) => None,
                    Ok(Answer::Failed { reason, .. }) => Some(reason),
                    // What has ended meanwhile needs none.
                    Ok(_) | Err(_) => None,
                };
                if let Some(reason) = failed {
                    let _ = tell.send(Message::NoCheckpoint(task, reason));
                }
            },
        )
    }

    /// Asks for a last checkpoint of a task, and for its end then. The answer comes as a message.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn save(
        &self,
        task: Task,
        keeper: &Keeper,
        tell: UnboundedSender<Message>,
    ) -> io::Result<()> {
        self.ask(
            task,
            keeper,
            |job| Ask::Stop { job, checkpoint: true },
            move |answer| {
                let saved = match answer {
                    Ok(Answer::Ended { checkpoint: Some(_), .. }) => Ok(()),
                    Ok(Answer::Failed { reason, .. }) => Err(reason),
                    Ok(_) | Err(None) => Err("there was none when it ended".to_owned()),
                    Err(Some(error)) => Err(error.to_string()),
                };
                let _ = tell.send(Message::Saved(task, saved));
            },
        )
    }

    fn ask(
        &self,
        task: Task,
        keeper: &Keeper,
        ask: fn(String) -> Ask,
        answered: impl FnOnce(Result<Answer, Option<launcher::AskError>>) + Send + 'static,
    ) -> io::Result<()> {
        let (folder, name) = (self.folder.clone(), task_name(task, keeper.attempt));
        let gone = keeper.gone.clone();
        let wait = move || {
            let since = Instant::now();
            let is_too_late = || gone.load(Ordering::Acquire) || since.elapsed() > BEGINNING;
            let job = loop {
                match job_of(&folder, &name) {
                    Some(job) => break job,
                    None if is_too_late() => return answered(Err(None)),
                    None => std::thread::sleep(LOOK),
                }
            };
            let begins = || !gone.load(Ordering::Acquire);
            let answer =
                launcher::ask_beginning(job.path(), &ask(job.id().to_owned()), None, begins);
            answered(answer.map_err(Some));
        };
        std::thread::Builder::new().name(format!("asks {}", task.0)).spawn(wait).map(drop)
    }

    /// How a task has ended that was brought back by this one; None: it was not, or it was lost.
    pub fn end_of(&self, task: Task, keeper: &Keeper) -> Option<How> {
        let history = jobs::load(&self.job(task, keeper.attempt)?).ok()?;
        if history.starts() <= keeper.starts {
            // What there is of an end is of an earlier time.
            return None;
        }
        let end = history.end()?;
        if end.asked {
            // Somebody has ended it: not by the farm's word, or that would be known.
            return Some(How::Signalled(Signal::SIGTERM as i32));
        }
        end.status.map(how)
    }

    /// Removes the job of a task's try.
    pub fn forget(&self, task: Task, attempt: Attempt) {
        if let Some(job) = self.job(task, attempt) {
            if let Err(error) = fs::remove_dir_all(job.path()) {
                say(&format!("warning: failed to remove {}: {error}", job.path().display()));
            }
        }
        // It tells of what is over.
        let _ = fs::remove_file(self.said.join(task_name(task, attempt)));
    }
}

/// A job's end as a task's.
pub fn how(end: ExitKind) -> How {
    match end {
        ExitKind::Exited(status) => How::Exited(status),
        ExitKind::Signalled(signal) => How::Signalled(signal),
    }
}

fn job_of(folder: &Path, name: &str) -> Option<JobFolder> {
    StateDir::find(Some(folder.to_owned()))
        .ok()?
        .find_job(name)
        .ok()
        .filter(|job| job.name() == name)
}

fn what_is_left(job: &JobFolder, is_done: impl Fn() -> bool) -> What {
    // The restart says what is wrong with it; to begin anew is not for a run to decide.
    let Ok(history) = jobs::load(job) else { return What::Checkpoint };
    match history.end() {
        // Nobody has ended it, and it says how it went.
        // From before the machine was started, the word of it is durable, and what the task has written need not be.
        Some(end) if !end.asked && end.at_ms >= started_at_ms() => match end.status {
            // It has answered whoever has ended everything.
            Some(ExitKind::Exited(0)) if !is_done() => {}
            // Whoever has ended everything has ended the task, too.
            Some(ExitKind::Exited(status)) if !How::Exited(status).may_be_a_stop() => {
                return What::End(status);
            }
            _ => {}
        },
        _ => {}
    }
    match newest_of(job, &history) {
        Some(_) => What::Checkpoint,
        None => What::Nothing,
    }
}

/// The newest checkpoint of a job. One that is in the log and has no mark yet when everything is killed was never there.
fn newest_of(job: &JobFolder, history: &History) -> Option<u64> {
    let is_there = |number: &u64| {
        !matches!(Checkpoint::open(job.path(), *number), Err(Damage::Incomplete { .. }))
    };
    history.committed().rev().map(|(record, _)| record.checkpoint).find(is_there)
}

/// When this machine was started, in milliseconds since 1970 UTC.
fn started_at_ms() -> u64 {
    protocol::clock::wall_ms().saturating_sub(protocol::clock::boot_ms())
}
