//! The process that starts tasks, has checkpoints taken of them, and records how they end. It has no terminal; its guard has.
//!
//! - `program`: what a task runs.
//! - `outputs`: what tasks write.
//! - `products`: the files that tasks of a workflow write.
//! - `hosts`: where tasks run; `away`: on the machines of a cluster.
//! - `keeping`: tasks of this machine as jobs.
//! - `processes`: who descends from whom.
//! - `acts`: what the state machine wants done.
//! - `reap`: processes that have ended.
//! - `progress`: what the user sees.
//! - `visitors`: what commands want of an open farm; `apart`: the same where no worker runs.

mod acts;
mod apart;
mod away;
mod hosts;
mod keeping;
mod outputs;
pub mod processes;
mod products;
mod program;
mod progress;
mod reap;
mod visitors;

use super::journal::{Failed, Recorder};
use super::open::Gate;
use super::syncing::Synced;
use super::tasks::Tasks;
use super::{FarmError, FarmFolder, say};
use crate::EXIT_FAILED;
use crate::cli::{CheckpointSetting, FarmSettings, HaltSetting};
use crate::failure::Failure;
use crate::session::signals::is_ignored;
pub use apart::change_apart;
pub use away::{cluster_of, errand};
use ckptd_farm::{Attempt, Event, Farm, Outcome, Reach, Settings, Task};
use hosts::Hosts;
pub use hosts::remove_jobs;
use keeping::Keeper;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use outputs::Outputs;
pub use program::Program;
use progress::Progress;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::thread::{JoinHandle, available_parallelism};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use visitors::Visitors;

/// What ends a run before its time.
const DEADLY: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
/// How often those are looked at that nothing else tells of.
const LOOK: Duration = Duration::from_secs(1);
/// Who ends everything tells the worker and its guard, which passes it on: that is one interrupt.
const ECHO: Duration = Duration::from_secs(1);
/// How long nothing is looked at where nothing has to be done.
const REST: Duration = Duration::from_secs(3600);
/// How long processes that keep tasks may take to end when the tasks have.
const LAST_MOMENT: Duration = Duration::from_secs(10);
/// The largest exit status that is a number of failed tasks; what is more is one more.
const MOST_COUNTED: u32 = 100;

/// What is heard from threads.
#[derive(Debug)]
pub enum Message {
    /// A signal.
    Signal(Signal),
    /// A checkpoint could not be taken.
    NoCheckpoint(Task, String),
    /// So many tasks the machines of a cluster take.
    Places(usize),
    /// What a last checkpoint has come to.
    Saved(Task, Result<(), String>),
    /// Ends have been made durable, or not.
    Synced,
}

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A task.
    Task(Task),
    /// A task that was brought back, by the process that does so.
    Restored(Task),
    /// Looks after a task that runs on a cluster.
    Errand(Task),
    /// Takes checkpoints of a task.
    Keeper(Task),
    /// Has taken checkpoints of a task, which has ended; the job is of no use any more once this process has.
    Leaving(Task, Attempt),
}

/// A task that runs.
#[derive(Debug)]
struct Live {
    pid: Pid,
    attempt: Attempt,
    restored: bool,
    /// Whether the farm has killed it, or has had one on a cluster asked to end.
    killed: bool,
    /// When it began, or was to be brought back.
    since: Instant,
}

struct Worker {
    folder: FarmFolder,
    tasks: Tasks,
    outputs: Outputs,
    hosts: Hosts,
    /// Tries of tasks on a cluster of which there may be a job.
    sent: HashSet<(Task, Attempt)>,
    /// How many tasks the machines of a cluster take.
    places: Option<usize>,
    recorder: Recorder,
    farm: Farm,
    began: Instant,
    roles: HashMap<Pid, Role>,
    live: BTreeMap<Task, Live>,
    keepers: BTreeMap<Task, Keeper>,
    /// How many processes are leaving.
    leaving: usize,
    /// Tries whose jobs are to be removed once so many entries are durable.
    over: Vec<((Task, Attempt), u64)>,
    /// Tasks that have failed, whose files are to be removed once so many entries are durable.
    untidied: Vec<(Task, u64)>,
    /// Makes ends durable.
    syncing: Option<JoinHandle<Synced>>,
    tell: UnboundedSender<Message>,
    recordable: bool,
    output_limit: Option<u64>,
    looked_at: Instant,
    progress: Progress,
    /// Where commands come in, of an open farm.
    visitors: Option<Visitors>,
    failed: Failed,
    interrupted_by: Option<Signal>,
    interrupted_at: Instant,
    outcome: Option<Outcome>,
}

/// Runs the tasks of a run; the exit status. `guard`: the process that looks after this one.
///
/// # Errors
/// Where it can't be begun.
pub fn work(
    folder: PathBuf,
    settings: &str,
    guard: i32,
    resume: &str,
    quiet: bool,
) -> Result<u8, Failure> {
    let path = folder;
    let mut folder = FarmFolder::open(path.clone())?;
    detach(guard).map_err(FarmError::process("begin a session"))?;
    let _lock = folder.lock()?;
    let settings = protocol::json::read(settings.as_bytes())
        .map_err(|error| Failure::of("read the settings of the run", error))?;
    let left = processes::end_left(folder.path());
    if left.map_err(FarmError::process("end what is left of the run"))? > 0 {
        let name = folder.name();
        say(&format!("tasks of the run {name} were left over from before; they were ended"));
    }
    match folder.record().open {
        None => folder.change(settings)?,
        // As somebody may have had it changed before the lock was to be had.
        Some(_) => folder = FarmFolder::open(path)?,
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of("start the event loop", error))?;
    let status = runtime.block_on(async {
        let (tell, messages) = unbounded_channel();
        let mut worker = Worker::new(folder, tell, quiet)?;
        worker.drive(messages).await?;
        worker.finish(resume, quiet)
    });
    // Threads that ask for checkpoints of what has ended end with the process.
    runtime.shutdown_background();
    status
}

/// Leaves the user's terminal to the guard, and ends as if interrupted when that ends.
fn detach(guard: i32) -> nix::Result<()> {
    nix::unistd::setsid()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
    match Pid::parent().as_raw() == guard {
        true => Ok(()),
        false => Err(nix::errno::Errno::ESRCH),
    }
}

/// How many tasks run at a time: as many as somebody has said, else as there are processors; on a cluster, no more than its
/// machines take.
fn slots(jobs: Option<u32>, places: Option<usize>) -> usize {
    match (jobs.map(|jobs| jobs as usize), places) {
        (Some(jobs), places) => places.map_or(jobs, |places| places.min(jobs)),
        (None, Some(places)) => places,
        (None, None) => available_parallelism().map_or(1, usize::from),
    }
}

/// `places`: how many the machines of a cluster take, where tasks run on one.
fn machine_settings(settings: &FarmSettings, places: Option<usize>) -> Settings {
    Settings {
        slots: slots(settings.jobs, places),
        kept_from_start: places.is_some(),
        timeout: settings.timeout,
        retries: settings.retries.unwrap_or(0),
        halt: match settings.halt {
            Some(HaltSetting::When(halt)) => Some(halt),
            Some(HaltSetting::Never) | None => None,
        },
        checkpoint: settings.checkpoint.unwrap_or(CheckpointSetting::Auto).age(),
        ..Settings::default()
    }
}

impl Worker {
    fn new(
        folder: FarmFolder,
        tell: UnboundedSender<Message>,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let record = folder.record();
        let settings = record.settings.clone();
        // Who adds tasks to an open farm has them durable before it lets go.
        let gate = record.open.map(|_| Gate::wait(folder.path())).transpose()?;
        let (mut tasks, plan) = folder.open_tasks()?;
        if let (Some(gate), Some(spool)) = (&gate, tasks.spool()) {
            spool.sync(gate)?;
        }
        drop(gate);
        let limits = tasks.limits()?;
        let hosts = Hosts::of(&folder)?;
        let places = match &hosts {
            Hosts::Here(_) => None,
            Hosts::Away(away) => {
                away.watch_places(tell.clone()).map_err(FarmError::process("start a thread"))?;
                Some(away.places()?)
            }
        };
        let machine = machine_settings(&settings, places);
        let results = folder.results();
        let outputs = Outputs::of(results.clone()).map_err(FarmError::io("create", &results))?;
        // In range: there are 10,000 at most.
        let slots = machine.slots as u32;
        let (mut recorder, entries) =
            Recorder::open(&folder.journal(), &results, folder.fixed_tasks(), &tasks, slots)?;
        let working = &record.working_directory;
        let found = hosts.found(&tasks, &folder)?;
        let sent =
            found.iter().filter(|_| hosts.are_away()).map(|found| (found.task, found.attempt));
        let sent = sent.collect();
        let farm = match (plan, limits) {
            (None, None) => Farm::new(machine, record.tasks, entries, found),
            (None, Some(limits)) => Farm::open(machine, limits, entries, found),
            (Some(plan), _) => {
                recorder.writes_in(working);
                Farm::of_plan(machine, plan, entries, found)
            }
        };
        Ok(Self {
            progress: Progress::new(record.tasks, quiet),
            visitors: None,
            folder,
            tasks,
            outputs,
            hosts,
            sent,
            places,
            recorder,
            farm,
            began: Instant::now(),
            roles: HashMap::new(),
            live: BTreeMap::new(),
            keepers: BTreeMap::new(),
            leaving: 0,
            over: Vec::new(),
            untidied: Vec::new(),
            syncing: None,
            tell,
            recordable: true,
            output_limit: settings.output_limit,
            looked_at: Instant::now(),
            failed: Failed::default(),
            interrupted_by: None,
            interrupted_at: Instant::now(),
            outcome: None,
        })
    }

    async fn drive(&mut self, mut messages: UnboundedReceiver<Message>) -> Result<(), Failure> {
        let watch = |kind| signal(kind).map_err(|error| Failure::of("watch for signals", error));
        let mut ended = watch(SignalKind::child())?;
        for deadly in DEADLY.into_iter().filter(|signal| !is_ignored(*signal as i32)) {
            let mut heard = watch(SignalKind::from_raw(deadly as i32))?;
            let tell = self.tell.clone();
            protocol::task::spawn(async move {
                while heard.recv().await.is_some() && tell.send(Message::Signal(deadly)).is_ok() {}
            });
        }
        let mut visits = self.receive()?;
        self.feed(Event::Clock);
        while self.outcome.is_none() || (self.keepers.len() + self.leaving > 0 && !self.is_late()) {
            let wake = self.wake();
            let (message, visit) = tokio::select! {
                Some(message) = messages.recv() => (Some(message), None),
                Some(visit) = visitors::next(&mut visits) => (None, Some(visit)),
                _ = ended.recv() => (None, None),
                () = tokio::time::sleep_until(wake.into()) => (None, None),
            };
            // Who ends everything has ended tasks, too: his signal, which others pass on, counts before their ends.
            tokio::task::yield_now().await;
            let more = std::iter::from_fn(|| messages.try_recv().ok());
            let (signals, others): (Vec<Message>, Vec<Message>) = message
                .into_iter()
                .chain(more)
                .partition(|message| matches!(message, Message::Signal(_)));
            signals.into_iter().for_each(|signal| self.hear(signal));
            // What has ended is not late, and has ended before anything is asked of it.
            self.reap();
            others.into_iter().for_each(|message| self.hear(message));
            visit.into_iter().for_each(|visit| self.visited(visit));
            if self.farm.deadline().is_some_and(|deadline| deadline <= self.began.elapsed()) {
                self.feed(Event::Clock);
            }
            self.look();
            self.rest();
            self.progress.show(&self.farm.outcome(), self.farm.running());
        }
        Ok(())
    }

    /// Whether those that keep tasks take too long to end.
    fn is_late(&self) -> bool {
        self.outcome.is_some() && self.looked_at.elapsed() > LAST_MOMENT
    }

    /// When something has to be done if nothing happens.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        if self.outcome.is_some() {
            // Those that keep tasks are about to end, which a signal tells.
            return now + LOOK;
        }
        let farm = self.farm.deadline().map(|deadline| self.began + deadline);
        let needs_look =
            !self.keepers.is_empty() || !self.recordable || self.output_limit.is_some();
        let look = needs_look.then(|| self.looked_at + LOOK);
        let sync = self.recorder.due().filter(|_| self.recordable);
        let idle = self.visitors.as_ref().and_then(Visitors::ends_at);
        farm.into_iter().chain(look).chain(sync).chain(idle).min().unwrap_or(now + REST)
    }

    /// Gives the state machine an event and does what it says, until nothing is left to be done.
    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.farm.step(self.began.elapsed(), event) {
                self.perform(action, &mut events);
            }
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Signal(signal) => {
                let is_first = self.interrupted_by.is_none();
                // Who ends a service, a session or a terminal may send several, to all processes.
                let of_all = [Signal::SIGTERM, Signal::SIGHUP];
                let is_echo = self.interrupted_by.is_some_and(|first| of_all.contains(&first))
                    && of_all.contains(&signal)
                    && self.interrupted_at.elapsed() < ECHO;
                if is_echo {
                    return;
                }
                self.interrupted_by.get_or_insert(signal);
                self.interrupted_at = Instant::now();
                let has_tasks = self.farm.running() > 0;
                let reach = if of_all.contains(&signal) { Reach::All } else { Reach::Farm };
                // Before anything is said: a terminal may take its time.
                self.feed(Event::Interrupt(reach));
                if is_first && has_tasks {
                    self.progress.say(
                        "tasks are being ended, with last checkpoints; once more ends them at once",
                    );
                }
            }
            Message::Synced => self.synced(),
            Message::Places(places) => {
                self.places = Some(places);
                let jobs = self.folder.record().settings.jobs;
                self.feed(Event::Slots(slots(jobs, self.places)));
            }
            Message::NoCheckpoint(task, reason) => self.no_checkpoint(task, &reason),
            Message::Saved(task, saved) => {
                let is_saved = saved.is_ok();
                let lives = self.live.contains_key(&task);
                self.feed(Event::Saved(task, is_saved));
                // What has ended meanwhile needs none.
                if let (Err(reason), true) = (saved, lives) {
                    self.not_saved(task, &reason);
                }
            }
        }
    }

    fn not_saved(&mut self, task: Task, reason: &str) {
        self.progress.warn(&format!("no last checkpoint of task {}: {reason}", task.0));
    }

    fn no_checkpoint(&mut self, task: Task, reason: &str) {
        self.progress.warn(&format!("no checkpoint of task {}: {reason}", task.0));
    }

    /// Looks at what nothing tells of by itself.
    fn look(&mut self) {
        if self.recordable && self.recorder.due().is_some_and(|due| due <= Instant::now()) {
            self.start_sync();
        }
        if self.outcome.is_some() || self.looked_at.elapsed() < LOOK {
            return;
        }
        self.looked_at = Instant::now();
        if !self.recordable && !self.folder.is_there() {
            // Nothing can ever be recorded again.
            self.progress.say("the folder of the run is gone: its tasks are ended");
            for _ in usize::from(self.farm.is_ending())..2 {
                self.hear(Message::Signal(Signal::SIGINT));
            }
            return;
        }
        let may_retry = !self.recordable && self.syncing.is_none();
        if may_retry && self.recorder.retry(&self.tasks).is_ok() {
            self.recordable = true;
            self.forget_over();
            self.progress.say("results can be written again");
            self.feed(Event::Recordable(true));
        }
        let heard: Vec<(Task, Vec<String>)> =
            self.keepers.iter_mut().map(|(task, keeper)| (*task, keeper.heard())).collect();
        for (task, lines) in heard {
            if let Some(line) = lines.iter().find(|line| line.starts_with("warning: ")) {
                self.progress.warn(&format!(
                    "task {}: {}",
                    task.0,
                    line.trim_start_matches("warning: ")
                ));
            }
        }
        let Some(limit) = self.output_limit else { return };
        let over: Vec<Task> =
            self.live.keys().copied().filter(|task| self.outputs.written(*task) > limit).collect();
        for task in over {
            self.feed(Event::WroteTooMuch(task));
        }
    }

    /// Has what was recorded made durable.
    fn start_sync(&mut self) {
        let syncing = match self.recorder.begin_sync() {
            Ok(syncing) => syncing,
            Err(error) => return self.recorded(Err(error)),
        };
        let tell = self.tell.clone();
        let run = move || {
            let synced = syncing.perform();
            // Nobody listens any more at the end of the run, which waits for this thread.
            let _ = tell.send(Message::Synced);
            synced
        };
        match std::thread::Builder::new().name("syncs".to_owned()).spawn(run) {
            Ok(thread) => self.syncing = Some(thread),
            Err(error) => {
                let error = FarmError::process("start a thread")(error);
                self.recorder.not_synced();
                self.recorded(Err(error));
            }
        }
    }

    /// Takes what a thread that makes ends durable has come to; waits for it.
    fn synced(&mut self) {
        let Some(thread) = self.syncing.take() else { return };
        let synced = match thread.join() {
            Ok(synced) => self.recorder.synced(synced),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        self.recorded(synced);
        self.forget_over();
    }

    /// Takes note of whether something could be recorded.
    fn recorded(&mut self, result: Result<(), FarmError>) {
        let Err(error) = result else { return };
        if self.recordable {
            self.recordable = false;
            self.progress
                .say(&format!("failed to {error}; no more tasks are begun until that is possible"));
        }
        self.feed(Event::Recordable(false));
    }

    /// The end: tells how it went; the exit status.
    fn finish(mut self, resume: &str, quiet: bool) -> Result<u8, Failure> {
        self.synced();
        let synced = self.recorder.sync();
        let left_behind = processes::end_all();
        self.progress.end();
        let is_recorded = self.recordable && synced.is_ok();
        self.recordable = is_recorded;
        self.forget_over();
        self.hosts.finish();
        if let Err(error) = synced {
            say(&format!("failed to {error}"));
        }
        if !is_recorded {
            say("ends of tasks could not be recorded; those tasks will be run again");
        }
        let left_behind =
            left_behind.map_err(FarmError::process("end what is left of the tasks"))?;
        let outcome = self.outcome.unwrap_or_default();
        self.tell_end(&outcome, left_behind, resume, quiet);
        if let (true, Some(signal)) = (outcome.interrupted, self.interrupted_by) {
            return Ok(128u8.saturating_add(u8::try_from(signal as i32).unwrap_or(127)));
        }
        if outcome.stuck > 0 || !is_recorded {
            return Ok(EXIT_FAILED);
        }
        let not_right = outcome.failed.saturating_add(outcome.skipped);
        Ok(u8::try_from(not_right.min(MOST_COUNTED + 1)).unwrap_or(u8::MAX))
    }

    fn tell_end(&self, outcome: &Outcome, left_behind: usize, resume: &str, quiet: bool) {
        for line in self.failed.lines(&self.tasks) {
            say(&line);
        }
        if left_behind > 0 {
            let number = text_of(
                left_behind,
                "process that tasks had left behind was",
                "processes that tasks had left behind were",
            );
            say(&format!("{number} ended"));
        }
        let over = outcome.right + outcome.failed;
        if !quiet {
            let failed = match outcome.failed {
                0 => String::new(),
                failed => format!(", {failed} of them not with status 0"),
            };
            let folder = self.outputs.folder().display();
            let all = self.folder.record().tasks;
            say(&format!("{over} of {all} tasks have ended{failed}; results are in {folder}"));
        }
        if outcome.skipped > 0 {
            let skipped = text_of(outcome.skipped as usize, "task waits", "tasks wait");
            say(&format!(
                "{skipped} for ones that failed, and will not run; '{resume} --retry-failed' tries all of these again"
            ));
        }
        let left = outcome.left + outcome.stuck;
        if left > 0 {
            let left = text_of(left as usize, "task is", "tasks are");
            say(&format!("{left} left; '{resume}' goes on"));
        }
    }
}

/// Takes out what has waited until so many entries are durable.
fn take_durable<T>(waiting: &mut Vec<(T, u64)>, durable: u64) -> Vec<T> {
    let (due, not_yet): (Vec<_>, Vec<_>) =
        std::mem::take(waiting).into_iter().partition(|(_, number)| *number <= durable);
    *waiting = not_yet;
    due.into_iter().map(|(due, _)| due).collect()
}

fn text_of(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}
