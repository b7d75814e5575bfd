//! The launcher's side of the process that calls commands: it is started, told what happens, and waited for at the end.

use super::called::never_wait;
use super::hook::{Hook, Kind};
use super::note::Note;
use super::queue::{ENDING, LIMIT};
use super::{HELD, hook_variables};
use crate::INNER_CALL;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::jobs::JobFolder;
use crate::session::joblog::JobLog;
use crate::text;
use nix::sys::signal::SigSet;
use nix::unistd::write;
use protocol::cluster::job_event::{Happening, JobEvent};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The hidden command of that process.
const COMMAND: &str = "call-commands";

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// After how long the user is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it may take beside the commands that it calls.
const OWN_TIME: Duration = Duration::from_secs(15);

/// The longest line of it, in bytes.
const LONGEST: u64 = 4096;

/// Lines of it that are kept for the log of a job that has ended.
const MOST_LATE: usize = 256;

/// Commands that are to be called about one job.
#[derive(Debug)]
pub struct Caller {
    hooks: Vec<Hook>,
    /// Where they are called.
    folder: PathBuf,
    /// Where they find jobs, if that is another place than usual.
    jobs: Option<PathBuf>,
    /// Of a job of a cluster: events of it that were before.
    known: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// There is no job yet.
    Waits,
    Runs(Box<Process>),
    /// It could not be started, which was said, or nobody waits for it.
    Left,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// None: nobody is to tell it anything.
    notes: Option<ChildStdin>,
    /// Whether it was said that it does not hear all.
    lacks: bool,
    /// Whether the job's end is its end.
    is_last: bool,
    here: Option<Here>,
}

/// What belongs to a job on this machine alone.
#[derive(Debug)]
struct Here {
    job: JobFolder,
    /// Lines for its log; taken by who writes that.
    lines: Option<UnboundedReceiver<String>>,
    /// Gives those that came when nobody wrote it any more.
    late: JoinHandle<Vec<String>>,
}

impl Caller {
    /// Of these commands, called in that folder; None where there are none. `jobs`: where jobs are kept, if that was said.
    pub fn of(
        hooks: &[Hook],
        folder: &Path,
        jobs: Option<PathBuf>,
        known: u64,
    ) -> Option<Arc<Self>> {
        let (hooks, folder) = (hooks.to_vec(), folder.to_owned());
        let state = Mutex::new(State::Waits);
        (!hooks.is_empty()).then(|| Arc::new(Self { hooks, folder, jobs, known, state }))
    }

    /// Starts the process for a job that is about to run on this machine alone.
    ///
    /// # Errors
    /// Where there can't be another process.
    pub fn start_here(&self, job: &JobFolder) -> Result<(), Failure> {
        let start = || -> io::Result<Process> {
            let mut command = self.command(job.id(), job.name())?;
            let mut child = born(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
            let (sender, lines) = unbounded_channel();
            let said = child.stdout.take();
            let thread = std::thread::Builder::new().name("commands".to_owned());
            let late = thread.spawn(move || pass_on(said, &sender))?;
            let here = Here { job: job.clone(), lines: Some(lines), late };
            Process::of(child, true, Some(here))
        };
        let started = start().map_err(|error| Failure::of("start what --on calls", error))?;
        *self.lock() = State::Runs(Box::new(started));
        Ok(())
    }

    /// Starts it for a job of a cluster that runs, if that has not been done; `alone`: nobody waits for it, or sees what it
    /// says.
    pub fn start_on_cluster(&self, socket: &Path, id: &str, name: &str, alone: bool) {
        let mut state = self.lock();
        // It goes on where the command has found its cluster again.
        if !matches!(*state, State::Waits) {
            return;
        }
        let start = || -> io::Result<Process> {
            let mut command = self.command(id, name)?;
            command.arg("--cluster").arg(socket).arg("--known").arg(self.known.to_string());
            command.stdout(Stdio::null());
            match alone {
                true => command.arg("--alone").stdin(Stdio::null()).stderr(Stdio::null()),
                false => command.stdin(Stdio::piped()),
            };
            Process::of(born(&mut command)?, false, None)
        };
        *state = match start() {
            Ok(process) => State::Runs(Box::new(process)),
            Err(error) => {
                eprintln!("ckptd: warning: what --on calls can't be started: {error}");
                State::Left
            }
        };
    }

    /// The job runs, and ends with this process.
    pub fn runs(&self) {
        self.tell(&Note::Runs);
    }

    /// Something has happened to the job. A line for the user where the process does not hear of it, the first time.
    pub fn happened(&self, what: Happening) -> Option<&'static str> {
        let is_end = matches!(what, Happening::Ended { .. });
        let event = JobEvent { at_ms: Some(text::now_ms()), what };
        let is_told = self.tell(&Note::Happened { event });
        let State::Runs(process) = &mut *self.lock() else { return None };
        process.is_last |= is_end;
        let is_news = !is_told && !std::mem::replace(&mut process.lacks, true);
        is_news.then_some("what --on calls does not hear of all that happens: it does not listen")
    }

    /// Lines for the log of a job on this machine, for who writes that.
    pub fn lines(&self) -> Option<UnboundedReceiver<String>> {
        match &mut *self.lock() {
            State::Runs(process) => process.here.as_mut()?.lines.take(),
            State::Waits | State::Left => None,
        }
    }

    /// Waits until all has been called and has ended, where the job has; it is given up where it takes too long, or a signal
    /// comes.
    fn finish(&self) {
        self.tell(&Note::Over);
        let State::Runs(mut process) = std::mem::replace(&mut *self.lock(), State::Left) else {
            return;
        };
        if !process.is_last {
            return;
        }
        let last = self.hooks.iter().filter(|hook| hook.kind == Kind::Ended).count().max(1);
        let calls = u32::try_from(last).unwrap_or(u32::MAX);
        let limit = (LIMIT + ENDING).saturating_mul(calls).saturating_add(OWN_TIME);
        let has_ended = process.wait(limit);
        if let (Some(here), true) = (process.here, has_ended) {
            here.write_late();
        }
    }

    fn command(&self, id: &str, name: &str) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(INNER_CALL, "1").current_dir(&self.folder);
        if let Some(jobs) = &self.jobs {
            command.env("CKPTD_DIR", std::path::absolute(jobs)?);
        }
        command.args([COMMAND, "--id", id, "--name", name]);
        let mut variables = hook_variables();
        for (variable, hook) in variables.by_ref().zip(&self.hooks) {
            command.env(variable, hook.to_string());
        }
        if let Some(end) = variables.next() {
            command.env_remove(end);
        }
        Ok(command)
    }

    fn tell(&self, note: &Note) -> bool {
        match &*self.lock() {
            State::Runs(process) => process.tell(note),
            State::Waits | State::Left => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the process with signals blocked that it is not to have before it has made up its mind about them: its launcher may
/// end at once, and its terminal with it.
fn born(command: &mut Command) -> io::Result<Child> {
    let mut mask = SigSet::thread_get_mask()?;
    HELD.into_iter().for_each(|signal| mask.add(signal));
    Interrupts::spawn_with(mask, command)
}

impl Process {
    fn of(mut child: Child, is_last: bool, here: Option<Here>) -> io::Result<Self> {
        let notes = child.stdin.take();
        // Whoever does not listen must not hold the job up.
        notes.iter().try_for_each(never_wait)?;
        Ok(Self { child, notes, lacks: false, is_last, here })
    }

    /// Whether a note has been passed on: whole, or not at all.
    fn tell(&self, note: &Note) -> bool {
        let Some(notes) = &self.notes else { return true };
        let line = note.line();
        line.is_some_and(|line| write(notes, line.as_bytes()).is_ok_and(|n| n == line.len()))
    }

    /// Waits for its end; false: it goes on alone.
    fn wait(&mut self, limit: Duration) -> bool {
        let since = Instant::now();
        // Without, a signal ends the waiting as it ends any process.
        let mut interrupts = Interrupts::hold().ok();
        let mut is_told = false;
        while since.elapsed() < limit {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if interrupts.as_mut().and_then(Interrupts::came).is_some() {
                self.tell(&Note::GiveUp);
                return false;
            }
            if since.elapsed() > PATIENCE && !std::mem::replace(&mut is_told, true) {
                eprintln!("ckptd: waiting for what --on calls; Ctrl-C ends it");
            }
            sleep(LOOK);
        }
        self.tell(&Note::GiveUp);
        false
    }
}

impl Here {
    /// What came when nobody wrote the log any more; if the job has been restarted by then, somebody else writes it.
    fn write_late(self) {
        drop(self.lines);
        let late = self.late.join().unwrap_or_default();
        if late.is_empty() {
            return;
        }
        let Ok(_lock) = self.job.lock() else { return };
        let Ok(mut log) = JobLog::open(&self.job.log()) else { return };
        for line in late {
            let _ = log.mark(&line);
        }
    }
}

/// Passes lines on for the job's log; those that nobody takes any more.
fn pass_on(said: Option<ChildStdout>, lines: &UnboundedSender<String>) -> Vec<String> {
    let mut late = Vec::new();
    let Some(said) = said else { return late };
    let mut said = BufReader::new(said);
    loop {
        let mut line = String::new();
        match said.by_ref().take(LONGEST).read_line(&mut line) {
            Ok(1..) => {}
            _ => return late,
        }
        let refused = lines.send(line.trim_end().to_owned()).err();
        late.extend(refused.map(|refused| refused.0).filter(|_| late.len() < MOST_LATE));
    }
}

/// What is still to be called when a command has done all else: neither the job's lock nor its way into a store is to wait for
/// that.
#[derive(Debug, Clone, Default)]
pub struct Pending(Arc<Mutex<Vec<Arc<Caller>>>>);

impl Pending {
    /// Has it waited for.
    pub fn add(&self, caller: &Arc<Caller>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(caller.clone());
    }

    /// Waits for all.
    pub fn finish(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().for_each(|caller| caller.finish());
    }
}
