//! What commands want of an open farm while it runs, and its end where nobody wants anything.
//!
//! They come by the socket in the farm's folder, to which its owner and root alone may connect. What they say is a line of at
//! most [`MAX_REQUEST`] bytes, and is answered at once: what takes time, such as writing a task, they have done before.

use super::{Message, Worker, slots};
use crate::client::link::ShortPath;
use crate::farm::FarmError;
use crate::farm::open::{
    Gate, MAX_REQUEST, Reply, Request, RunningTask, SOCKET, forget_stuck, note_loose, note_stuck,
};
use ckptd_farm::{Event, Stage, Task};
use nix::sys::signal::Signal;
use protocol::frame;
use protocol::transport::{AnswerQueue, Audience, ClientEvent, CommandSocket};
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};

/// What commands have said that may wait to be looked at.
const MAX_WAITING: usize = 64;
/// The longest that a worker waits for tasks.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The most that run at a time.
const MOST_SLOTS: u32 = 10_000;
/// How long it is waited for others that add tasks, where they are in the way of the end.
const BUSY: Duration = Duration::from_secs(1);

/// Who is connected, and how long there has been nothing to do.
pub struct Visitors {
    answers: HashMap<u64, AnswerQueue>,
    /// How long the worker waits for tasks.
    patience: Duration,
    idle_until: Option<Instant>,
    /// Held from where it was decided to end.
    gate: Option<Gate>,
}

impl Visitors {
    /// When the worker ends if nobody comes.
    pub fn ends_at(&self) -> Option<Instant> {
        self.idle_until
    }
}

/// What the next one says, where there is a socket.
pub async fn next(visits: &mut Option<Receiver<ClientEvent>>) -> Option<ClientEvent> {
    match visits {
        Some(visits) => visits.recv().await,
        None => std::future::pending().await,
    }
}

impl Worker {
    /// Makes the socket, of an open farm. The caller has its lock: one that is there is a dead worker's.
    pub(super) fn receive(&mut self) -> Result<Option<Receiver<ClientEvent>>, FarmError> {
        let Some(open) = self.folder.record().open else { return Ok(None) };
        // Before anybody can ask for another try.
        forget_stuck(&self.folder)?;
        let path = self.folder.path().join(SOCKET);
        // Nobody else gets at it before its mode is set: the folder is 0700.
        let socket = CommandSocket::bind(ShortPath::of(&path).as_ref(), Audience::Owner)
            .map_err(FarmError::io("create", &path))?;
        let (sender, visits) = channel(MAX_WAITING);
        let tell = move |event| {
            let sender = sender.clone();
            async move { sender.send(event).await.is_ok() }
        };
        protocol::task::spawn(socket.serve(tell, std::future::pending()));
        self.visitors = Some(Visitors {
            answers: HashMap::new(),
            patience: open.idle.min(LONGEST_PATIENCE),
            idle_until: None,
            gate: None,
        });
        Ok(Some(visits))
    }

    /// Takes note of what somebody does.
    pub(super) fn visited(&mut self, event: ClientEvent) {
        let Some(visitors) = &mut self.visitors else { return };
        match event {
            ClientEvent::Opened { number, answers, .. } => {
                visitors.answers.insert(number, answers);
            }
            ClientEvent::Closed { number } => _ = visitors.answers.remove(&number),
            ClientEvent::Line { number, line } => {
                let reply = match frame::decode::<Request>(&line, MAX_REQUEST) {
                    Ok(request) => self.answer(request),
                    Err(error) => Reply::Refused { reason: format!("read the request: {error}") },
                };
                let Some(visitors) = &mut self.visitors else { return };
                let line = serde_json::to_string(&reply).unwrap_or_default();
                let is_there = visitors.answers.get(&number).is_some_and(|to| to.put(line));
                if !is_there {
                    visitors.answers.remove(&number);
                }
            }
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        let has_gate = self.visitors.as_ref().is_some_and(|visitors| visitors.gate.is_some());
        let is_ending = has_gate || self.farm.is_ending() || self.outcome.is_some();
        match request {
            Request::Status {} => self.status(),
            Request::Stop { now: true } if self.outcome.is_none() => {
                // As Ctrl-C twice.
                for _ in usize::from(self.farm.is_ending())..2 {
                    self.hear(Message::Signal(Signal::SIGINT));
                }
                Reply::Done {}
            }
            _ if is_ending => Reply::Ending {},
            Request::Look { tasks } => match self.take_more(Task(tasks)) {
                Ok(()) => Reply::Done {},
                Err(error) => Reply::Refused { reason: error.to_string() },
            },
            Request::Cancel { task } => self.change(Task(task), Event::Cancel(Task(task))),
            Request::Retry { task } => self.change(Task(task), Event::Retry(Task(task))),
            Request::Slots { jobs } if !(1..=MOST_SLOTS).contains(&jobs) => {
                Reply::Refused { reason: format!("run {jobs} tasks at a time: 1 to {MOST_SLOTS}") }
            }
            Request::Slots { jobs } => {
                self.feed(Event::Slots(slots(Some(jobs), self.places)));
                let mut settings = self.folder.record().settings.clone();
                settings.jobs = Some(jobs);
                match self.folder.change(settings) {
                    Ok(()) => Reply::Done {},
                    Err(error) => Reply::Refused { reason: error.to_string() },
                }
            }
            Request::Stop { now: _ } => {
                self.hear(Message::Signal(Signal::SIGINT));
                Reply::Done {}
            }
        }
    }

    /// Takes the tasks up to that one, which are durable.
    fn take_more(&mut self, last: Task) -> Result<(), FarmError> {
        // One by one: those before one that can't be read are begun.
        while let Some(spool) = self.tasks.spool() {
            let Some(limits) = spool.next(last)? else { break };
            self.feed(Event::Added(limits));
        }
        Ok(())
    }

    /// Takes all tasks that there are, while nobody can add one.
    fn take_all(&mut self, gate: &Gate) -> Result<(), FarmError> {
        let Some(spool) = self.tasks.spool() else { return Ok(()) };
        let last = spool.last(gate)?;
        self.take_more(last)
    }

    /// A task could not be brought back; whoever waits for it is to know why.
    pub(super) fn not_restored(&mut self, task: Task, reason: &str) {
        self.feed(Event::NotRestored(task));
        let is_stuck = self.farm.stage(task) == Stage::Stuck && !self.farm.is_ending();
        if self.visitors.is_some() && is_stuck {
            let reason = reason.trim_start_matches("failed to ");
            if let Err(error) = note_stuck(&self.folder, task, reason) {
                self.progress.warn(&format!("failed to {error}"));
            }
        }
    }

    fn change(&mut self, task: Task, event: Event) -> Reply {
        if self.farm.stage(task) == Stage::Unknown {
            if let Ok(Some(gate)) = Gate::of(self.folder.path()) {
                // What can't be read is not there.
                let _ = self.take_all(&gate);
            }
        }
        if !self.recordable {
            let reason = format!("change task {}: nothing can be recorded at the moment", task.0);
            return Reply::Refused { reason };
        }
        match refusal(self.folder.name(), task, self.farm.stage(task), &event) {
            Some(error) => Reply::Refused { reason: error.to_string() },
            None if matches!(event, Event::Retry(_)) && !self.recorder.has_room_for_retry() => {
                Reply::Refused { reason: no_room(self.folder.name(), task) }
            }
            None => {
                let was_stuck = self.farm.stage(task) == Stage::Stuck;
                self.feed(event);
                if let (true, Err(error)) = (was_stuck, note_loose(&self.folder, task)) {
                    self.progress.warn(&format!("failed to {error}"));
                }
                match self.recordable {
                    true => Reply::Done {},
                    false => {
                        let reason = format!(
                            "record that of task {}: it is done, and recorded once that is possible",
                            task.0
                        );
                        Reply::Refused { reason }
                    }
                }
            }
        }
    }

    fn status(&self) -> Reply {
        let running = self.live.iter().map(|(task, live)| RunningTask {
            task: task.0,
            attempt: live.attempt,
            pid: live.pid.as_raw(),
            seconds: live.since.elapsed().as_secs_f64(),
            restored: live.restored,
        });
        let stuck = self.farm.stuck().map(|task| task.0).collect();
        Reply::Status { running: running.collect(), stuck, jobs: self.farm.slots() as u64 }
    }

    /// Ends where there was nothing to do for a while. Whoever adds a task meanwhile either has done so before, and is seen, or
    /// finds that nobody runs the farm.
    pub(super) fn rest(&mut self) {
        let Some(visitors) = &mut self.visitors else { return };
        if self.outcome.is_some() {
            return;
        }
        let now = Instant::now();
        if !self.farm.is_idle() {
            visitors.idle_until = None;
            return;
        }
        let until = *visitors.idle_until.get_or_insert(now + visitors.patience);
        if until > now {
            return;
        }
        visitors.idle_until = Some(now + BUSY);
        match Gate::of(self.folder.path()) {
            Ok(Some(gate)) => {
                // Whoever has added one may have been killed before it could tell.
                if let Err(error) = self.take_all(&gate) {
                    self.progress.warn(&format!("failed to {error}"));
                }
                if self.farm.is_idle() {
                    self.close(Some(gate));
                }
            }
            Ok(None) => {}
            // Its folder is gone.
            Err(_) => self.close(None),
        }
    }

    fn close(&mut self, gate: Option<Gate>) {
        if let Some(visitors) = &mut self.visitors {
            visitors.gate = gate;
        }
        let _ = fs::remove_file(self.folder.path().join(SOCKET));
        self.feed(Event::Close);
    }
}

/// Why a task is not run again where the journal would become too large to be opened.
pub fn no_room(name: &str, task: Task) -> String {
    format!(
        "run task {} of {name} again: the farm's journal has no room for it; 'ckptd farm submit --farm NAME' begins another farm",
        task.0
    )
}

/// Why nothing comes of what somebody wants of a task.
pub fn refusal(name: &str, task: Task, stage: Stage, event: &Event) -> Option<FarmError> {
    let number = task.0;
    let reason = match (stage, event) {
        (Stage::Unknown, _) => {
            return Some(FarmError::NoTask { name: name.to_owned(), task: number });
        }
        (Stage::Right | Stage::Wrong, Event::Cancel(_)) => format!(
            "cancel task {number} of {name}: it has ended; 'ckptd farm status --farm {name} {number}' tells how"
        ),
        (Stage::Right, Event::Retry(_)) => {
            format!("run task {number} of {name} again: it has ended with status 0")
        }
        (Stage::Queued | Stage::Running, Event::Retry(_)) => format!(
            "run task {number} of {name} again: it has not ended; 'ckptd farm cancel --farm {name} {number}' ends it"
        ),
        (Stage::Stuck, Event::Retry(_)) => format!(
            "run task {number} of {name} again: it has a checkpoint, from which 'ckptd farm stop {name}' and \
             'ckptd farm start {name}' try to bring it back; 'ckptd farm cancel --farm {name} {number}' gives it up"
        ),
        _ => return None,
    };
    Some(FarmError::Refused(reason))
}
