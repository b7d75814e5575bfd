//! The event loop around the coordinator's state machine: it does what that says.

use super::input::{self, Target, Typed};
use super::joblog::{JobLog, put_back};
use super::output::{JobOutput, Output, Report};
use super::rehearsals::{Finished, Rehearsals};
use super::terminal::{self, RawGuard};
use super::{signals, streams};
use crate::agent::{AgentHandle, StartAgent};
use crate::control::{Asked, Server};
use crate::failure::Failure;
use crate::jobs::{self, JobFolder, JobSettings};
use crate::text;
use coordinator::log::LogFile;
use coordinator::{Action, Entry, Event, JobMachine, Notice, Outcome, Ticket, Time};
use nix::sys::signal::{Signal, raise};
use protocol::agent::{AgentCommand, AgentEvent, CommitRecord, InstanceId};
use protocol::control::{LiveStatus, RehearsalOutcome, Reply, Request};
use protocol::launch::{Console, LaunchSpec, RestoreSpec};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait to be looked at.
const MAX_ASKED: usize = 64;

/// How a session begins.
#[derive(Debug)]
pub enum Begin {
    /// With a new job.
    Launch(Box<LaunchSpec>),
    /// With a job from a checkpoint.
    Restore(RestoreSpec, Box<CommitRecord>),
}

/// A job to be run in the foreground; the caller holds its lock.
#[derive(Debug)]
pub struct Session<'a> {
    /// Its folder.
    pub job: &'a JobFolder,
    /// How it is kept.
    pub settings: JobSettings,
    /// How it begins.
    pub begin: Begin,
    /// Whether each checkpoint is told of.
    pub loud: bool,
    /// The command by which the job is resumed.
    pub resume: String,
}

/// Runs a job until it ends; its exit status.
///
/// # Errors
/// Where it could not be started, or its agent was lost.
pub fn run(session: Session<'_>, start_agent: StartAgent) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of("start the event loop", error))?;
    let status = runtime.block_on(foreground(session, start_agent));
    // Threads that wait for a reader or a typist end with the process.
    runtime.shutdown_background();
    status
}

async fn foreground(session: Session<'_>, start_agent: StartAgent) -> Result<u8, Failure> {
    let what = match &session.begin {
        Begin::Launch(_) => format!("run {}", session.job.name()),
        Begin::Restore(spec, _) => {
            format!("restart {} from checkpoint {}", session.job.name(), spec.checkpoint)
        }
    };
    let failed = |cause: &dyn std::fmt::Display| Failure::of(&what, cause);

    let (log_file, history, warning) = jobs::open_log(session.job)?;
    let (signal_sender, mut signals) = mpsc::unbounded_channel();
    signals::watch(&signal_sender).map_err(|error| failed(&error))?;

    let (agent_sender, mut agent_events) = mpsc::unbounded_channel();
    let agent = start_agent(
        session.job.path().to_owned(),
        Box::new(move |event| drop(agent_sender.send(event))),
    )
    .map_err(|error| failed(&error))?;

    // Before the job can tell anybody that it runs. What is asked early waits.
    let (asked_sender, asked) = mpsc::channel(MAX_ASKED);
    let server = Server::start(session.job.path(), asked_sender);

    let begun = tokio::task::spawn_blocking({
        let agent = agent.clone();
        let begin = match &session.begin {
            Begin::Launch(spec) => Ok(spec.as_ref().clone()),
            Begin::Restore(spec, _) => Err(spec.clone()),
        };
        move || match begin {
            Ok(launch) => agent.launch(launch),
            Err(restore) => agent.restore(restore),
        }
    });
    tokio::pin!(begun);
    // For a job that does not exist yet.
    let mut early = Vec::new();
    let (mut said, mut first) = (Vec::new(), None);
    let console = loop {
        tokio::select! {
            // What a restart waits for is said while it waits; all else is for the job that runs.
            Some(event) = agent_events.recv(), if first.is_none() => match event {
                AgentEvent::Warning { text } => {
                    eprintln!("ckptd: warning: {text}");
                    said.push(text);
                }
                other => first = Some(other),
            },
            begun = &mut begun => {
                let begun = begun.map_err(|error| failed(&error))?;
                break begun.map_err(|error| failed(&error))?;
            }
            Some(signal) = signals.recv() => {
                if is_deadly(signal) {
                    // The job, as far as it exists, dies with this process.
                    agent.command(AgentCommand::Kill);
                    return Err(failed(&"interrupted before the job ran"));
                }
                if signals::is_foreign(signal) && !early.contains(&signal) {
                    early.push(signal);
                }
            }
        }
    };

    let mut tail = None;
    if let Begin::Restore(_, record) = &session.begin {
        tail = put_back(&session.job.log(), record.log_length, record.checkpoint)
            .map_err(|error| failed(&format!("put the log back: {error}")))?;
    }
    let mut log = JobLog::open(&session.job.log())
        .map_err(|error| failed(&format!("open {}: {error}", session.job.log().display())))?;
    if let Begin::Restore(spec, _) = &session.begin {
        // Before anything that the job says.
        log.mark(&format!("restarted from checkpoint {}", spec.checkpoint))
            .map_err(|error| failed(&format!("mark the log: {error}")))?;
    }

    let machine = JobMachine::new(
        session.job.id().to_owned(),
        session.settings.coordinator(),
        history,
        [InstanceId::EMBEDDED],
    );
    let mut runner =
        Runner::start(&session, machine, log_file, agent, console, log).map_err(|e| failed(&e))?;
    for text in said {
        runner.output.mark(format!("warning: {text}"));
    }
    runner.greet(tail, warning);
    if let Err(error) = &server {
        runner.warn(&format!("other commands can't reach this job: {error}"));
    }
    if matches!(&session.begin, Begin::Restore(_, record) if record.suspended) {
        runner.agent.command(AgentCommand::Signal { signal: nix::libc::SIGCONT });
    }
    for signal in early {
        runner.agent.command(AgentCommand::Forward { signal });
    }
    let outcome = runner.drive(first, agent_events, asked, &mut signals).await;
    if let Ok(server) = server {
        server.close().await;
    }
    runner.end(outcome, &mut signals).await
}

fn is_deadly(signal: i32) -> bool {
    matches!(
        signal,
        nix::libc::SIGINT | nix::libc::SIGTERM | nix::libc::SIGHUP | nix::libc::SIGQUIT
    )
}

/// How long a launcher that was let go on looks whether that was for a request, which is there before.
const WOKEN: Duration = Duration::from_millis(100);

/// How long what was said last may take on its way before this process is stopped.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Whether the user has stopped the job, and why this process runs then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is not stopped.
    Runs,
    /// It is not known yet why.
    Woken(Instant),
    /// For requests: once they are answered, this process stops again.
    Serves,
}

struct Runner<'a> {
    session: &'a Session<'a>,
    machine: JobMachine,
    log: LogFile,
    agent: Arc<dyn AgentHandle>,
    output: Output,
    reports: mpsc::UnboundedReceiver<Report>,
    typed: mpsc::UnboundedReceiver<Typed>,
    /// The user's and the job's terminal, where both exist.
    terminals: Option<(OwnedFd, OwnedFd)>,
    raw: RawGuard,
    began: Instant,
    rehearsals: Rehearsals,
    rehearsed: mpsc::UnboundedReceiver<Finished>,
    tickets: HashMap<Ticket, oneshot::Sender<Reply>>,
    next_ticket: Ticket,
    interrupted: bool,
    standing: Standing,
    /// A SIGCONT that is known already is still to be reported.
    continued: bool,
}

impl<'a> Runner<'a> {
    fn start(
        session: &'a Session<'a>,
        machine: JobMachine,
        log_file: LogFile,
        agent: Arc<dyn AgentHandle>,
        console: Console,
        log: JobLog,
    ) -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let (typed_sender, typed) = mpsc::unbounded_channel();
        let mut terminals = None;
        let raw = RawGuard::new();
        let user_terminal = terminal::is_terminal(&stdin);
        if let (Some(job), Some(user)) = (&console.terminal, streams::terminal_stream()) {
            terminals = Some((user, job.try_clone()?));
            if user_terminal && console.stdin.is_none() {
                terminal::enter_raw(&stdin);
            }
        }
        let target = match (console.stdin, &console.terminal) {
            (Some(pipe), _) => Some(Target::Pipe(pipe)),
            (None, Some(job)) if user_terminal => Some(Target::Terminal(job.try_clone()?)),
            _ => None,
        };
        if let Some(target) = target {
            let report = move |typed| {
                let _ = typed_sender.send(typed);
            };
            input::start(stdin.as_fd().try_clone_to_owned()?, target, report)?;
        }
        let (rehearsals, rehearsed) =
            Rehearsals::new(session.job.path().to_owned(), session.settings.rehearse);
        let (report_sender, reports) = mpsc::unbounded_channel();
        let output = Output::start(
            JobOutput {
                terminal: console.terminal,
                stdout: console.stdout,
                stderr: console.stderr,
            },
            streams::user_output()?,
            log,
            move |report| drop(report_sender.send(report)),
        )?;
        Ok(Self {
            session,
            machine,
            log: log_file,
            agent,
            output,
            reports,
            typed,
            terminals,
            raw,
            began: Instant::now(),
            rehearsals,
            rehearsed,
            tickets: HashMap::new(),
            next_ticket: 0,
            interrupted: false,
            standing: Standing::Runs,
            continued: false,
        })
    }

    fn now(&self) -> Time {
        Time {
            nanos: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            unix_ms: text::now_ms(),
        }
    }

    fn warn(&self, text: &str) {
        self.output.say(format!("warning: {text}"));
        self.output.mark(format!("warning: {text}"));
    }

    fn greet(&mut self, tail: Option<super::joblog::Tail>, warning: Option<String>) {
        if let Some(warning) = warning {
            self.warn(&warning);
        }
        if let Begin::Restore(spec, record) = &self.session.begin {
            let age = text::age(record.taken_at_ms, text::now_ms());
            if self.session.loud {
                self.output.say(format!(
                    "job {} goes on from checkpoint {}, {age} old",
                    self.session.job.name(),
                    spec.checkpoint
                ));
            }
        }
        if let Some(tail) = tail {
            self.output.say(format!(
                "the log is put back to its length at the checkpoint; the last {} are kept in {}",
                text::size(tail.bytes),
                tail.path.display()
            ));
        }
    }

    async fn drive(
        &mut self,
        mut first: Option<AgentEvent>,
        mut agent_events: mpsc::UnboundedReceiver<AgentEvent>,
        mut asked: mpsc::Receiver<Asked>,
        signals: &mut mpsc::UnboundedReceiver<i32>,
    ) -> Outcome {
        let restored_from = match &self.session.begin {
            Begin::Launch(_) => None,
            Begin::Restore(spec, _) => Some(spec.checkpoint),
        };
        let mut next = Some(Event::Started { restored_from });
        loop {
            if let Some(event) = next.take() {
                if let Some(outcome) = self.feed(event) {
                    return outcome;
                }
            }
            self.stand().await;
            let wait = self
                .machine
                .deadline()
                .map(|deadline| Duration::from_nanos(deadline.saturating_sub(self.now().nanos)));
            let wait = match self.standing {
                Standing::Woken(until) => {
                    let woken = until.saturating_duration_since(Instant::now());
                    Some(wait.map_or(woken, |wait| wait.min(woken)))
                }
                _ => wait,
            };
            if let Some(event) = first.take() {
                next = Some(Event::Agent { agent: InstanceId::EMBEDDED, event });
                continue;
            }
            next = tokio::select! {
                event = agent_events.recv() => Some(match event {
                    Some(event) => Event::Agent { agent: InstanceId::EMBEDDED, event },
                    None => Event::AgentLost {
                        agent: InstanceId::EMBEDDED,
                        reason: "it ended without a report".to_owned(),
                    },
                }),
                Some(report) = self.reports.recv() => self.reported(report),
                Some(finished) = self.rehearsed.recv() => self.on_rehearsed(&finished),
                Some(typed) = self.typed.recv() => self.on_key(typed).await,
                Some(asked) = asked.recv() => self.on_request(asked),
                Some(signal) = signals.recv() => self.on_signal(signal).await,
                () = sleep(wait) => Some(Event::Clock),
            };
        }
    }

    /// Gives the machine an event and does what it says, until nothing is left to be done.
    fn feed(&mut self, event: Event) -> Option<Outcome> {
        let mut events = VecDeque::from([event]);
        let mut outcome = None;
        while let Some(event) = events.pop_front() {
            for action in self.machine.step(self.now(), event) {
                match action {
                    Action::Tell { command, .. } => self.agent.command(command),
                    Action::DrainConsole { checkpoint } => self.output.drain(checkpoint),
                    Action::Append(entry) => events.extend(self.append(&entry)),
                    Action::Reply { ticket, reply } => {
                        if let Some(sender) = self.tickets.remove(&ticket) {
                            // Whoever asked may have gone.
                            let _ = sender.send(reply);
                        }
                    }
                    Action::Notify(notice) => self.notify(&notice),
                    // On one machine there is nowhere else to go on.
                    Action::Parked { .. } => {}
                    Action::Finish(reached) => outcome = Some(reached),
                }
            }
        }
        outcome
    }

    fn append(&mut self, entry: &Entry) -> Option<Event> {
        let appended = self.log.append(entry);
        match (entry, appended) {
            (Entry::Committed(record), Ok(())) => {
                Some(Event::Recorded { checkpoint: record.checkpoint })
            }
            (_, Ok(())) => None,
            (Entry::Committed(CommitRecord { checkpoint, .. }), Err(error))
            | (Entry::Begun { checkpoint }, Err(error)) => {
                Some(Event::RecordFailed { checkpoint: *checkpoint, reason: error.to_string() })
            }
            (_, Err(error)) => {
                self.warn(&format!("failed to {error}"));
                None
            }
        }
    }

    fn notify(&mut self, notice: &Notice) {
        match notice {
            Notice::Committed { record, steps } => {
                let line = text::committed(record);
                if self.session.loud {
                    self.output.say(line.clone());
                }
                self.output.mark(format!("{line}; {}", text::steps(steps)));
                if let Some(line) = self.rehearsals.committed(record.checkpoint) {
                    self.output.mark(line);
                }
            }
            // Once; `ckptd status` tells it of the newest one.
            Notice::Abandoned { again: true, .. } => {}
            Notice::Abandoned { checkpoint, step, reason, steps, again: false } => {
                let line = format!("checkpoint {checkpoint} abandoned: {step}: {reason}");
                self.output.say(line.clone());
                self.output.mark(format!("{line}; {}", text::steps(steps)));
            }
            Notice::Warning(text) => self.warn(text),
            Notice::Ending { signal } => {
                let name = Signal::try_from(*signal).map_or("a signal", Signal::as_str);
                if self.session.loud {
                    self.output.say(format!("sent {name} to the job"));
                }
                self.output.mark(format!("sent {name}"));
            }
        }
    }

    fn reported(&self, report: Report) -> Option<Event> {
        match report {
            Report::Drained { checkpoint, log_length } => {
                Some(Event::ConsoleDrained { checkpoint, log_length })
            }
            Report::DrainFailed { checkpoint, reason } => {
                Some(Event::DrainFailed { checkpoint, reason })
            }
            Report::LogFailed(text) => {
                self.output.say(format!("warning: {text}"));
                None
            }
        }
    }

    fn on_rehearsed(&mut self, finished: &Finished) -> Option<Event> {
        let Finished { checkpoint, outcome, warnings } = finished;
        let is_gone = self.machine.history().record(*checkpoint).is_none();
        if is_gone && !matches!(outcome, RehearsalOutcome::Restorable { .. }) {
            // It has made room for newer ones.
            self.rehearsals.forget();
            self.output
                .mark(format!("checkpoint {checkpoint} was removed before it was rehearsed"));
            return None;
        }
        let is_news = self.rehearsals.note(finished);
        let (line, to_say) = match outcome {
            RehearsalOutcome::Restorable { processes, took_ms } => {
                (text::restorable(*checkpoint, *processes, *took_ms), self.session.loud)
            }
            RehearsalOutcome::Failed(reason) => {
                let line = format!(
                    "warning: checkpoint {checkpoint} is committed, but a restart from it would fail: {reason}"
                );
                (line, is_news)
            }
            RehearsalOutcome::Unknown(reason) => {
                (format!("warning: checkpoint {checkpoint} is not rehearsed: {reason}"), is_news)
            }
        };
        if to_say {
            self.output.say(line.clone());
        }
        self.output.mark(line);
        for warning in warnings {
            self.output.mark(format!("a restart would warn: {warning}"));
        }
        None
    }

    async fn on_key(&mut self, typed: Typed) -> Option<Event> {
        match typed {
            Typed::Signal(signal) => {
                self.interrupted = true;
                Some(Event::Interrupt { signal, delivered: true })
            }
            Typed::Text => {
                self.interrupted = false;
                Some(Event::InputAfterInterrupt)
            }
            Typed::Suspend => {
                self.suspend().await;
                None
            }
        }
    }

    fn on_request(&mut self, asked: Asked) -> Option<Event> {
        let ticket = self.next_ticket;
        let event = match asked.request {
            Request::Status => {
                let _ = asked.reply.send(Reply::Status(self.status()));
                return None;
            }
            Request::Checkpoint => Event::Request { ticket },
            Request::Stop { checkpoint } => Event::Stop { ticket, checkpoint },
        };
        if self.standing != Standing::Runs {
            self.standing = Standing::Serves;
        }
        self.next_ticket += 1;
        self.tickets.insert(ticket, asked.reply);
        Some(event)
    }

    fn status(&self) -> LiveStatus {
        let now = self.now();
        LiveStatus {
            launcher_pid: std::process::id(),
            processes: self.machine.processes(),
            interval_s: self.machine.interval_s(),
            next_checkpoint_ms: self.machine.due_in_ms(now),
            in_flight: self.machine.in_flight(now),
            ending: self.machine.is_ending(),
            suspended: self.standing != Standing::Runs,
            rehearsal: self.rehearsals.newest().cloned(),
        }
    }

    async fn on_signal(&mut self, signal: i32) -> Option<Event> {
        match signal {
            nix::libc::SIGWINCH => {
                if let Some((user, job)) = &self.terminals {
                    if let Some(size) = terminal::size(user) {
                        terminal::set_size(job, size);
                    }
                }
                None
            }
            nix::libc::SIGTSTP => {
                self.suspend().await;
                None
            }
            nix::libc::SIGCONT => {
                if !std::mem::take(&mut self.continued) {
                    self.go_on();
                }
                None
            }
            signal if is_deadly(signal) => {
                self.interrupted = true;
                Some(Event::Interrupt { signal, delivered: false })
            }
            signal if signals::is_foreign(signal) => {
                self.agent.command(AgentCommand::Forward { signal });
                None
            }
            _ => None,
        }
    }

    /// Stops the job and then this process, as the terminal's suspend key does without ckptd.
    async fn suspend(&mut self) {
        self.agent.command(AgentCommand::Signal { signal: nix::libc::SIGSTOP });
        self.machine.note_suspended(true);
        self.stop_here().await;
    }

    /// Stops this process until it is let go on.
    async fn stop_here(&mut self) {
        // The agent is stopped with this process: let it do this first.
        tokio::time::sleep(LAST_WORDS).await;
        terminal::leave_raw();
        if raise(Signal::SIGSTOP).is_err() {
            return self.go_on();
        }
        self.continued = true;
        self.standing = Standing::Woken(Instant::now() + WOKEN);
    }

    /// Of a job that the user has stopped: lets it go on when the user does or it is to end, and stops again once
    /// those who have woken this process have their answers.
    async fn stand(&mut self) {
        match self.standing {
            Standing::Runs => {}
            _ if self.machine.is_ending() => self.go_on(),
            Standing::Woken(until) if Instant::now() >= until => self.go_on(),
            Standing::Serves if self.tickets.is_empty() && !self.is_busy() => {
                self.stop_here().await;
            }
            _ => {}
        }
    }

    fn is_busy(&self) -> bool {
        self.machine.in_flight(self.now()).is_some()
    }

    fn go_on(&mut self) {
        self.standing = Standing::Runs;
        self.machine.note_suspended(false);
        if let Some((user, job)) = &self.terminals {
            if terminal::is_terminal(std::io::stdin()) {
                terminal::enter_raw(std::io::stdin());
            }
            if let Some(size) = terminal::size(user) {
                terminal::set_size(job, size);
            }
        }
        self.agent.command(AgentCommand::Signal { signal: nix::libc::SIGCONT });
    }

    /// Brings the last output to the user, puts the terminal back, and says how to go on.
    async fn end(
        self,
        outcome: Outcome,
        signals: &mut mpsc::UnboundedReceiver<i32>,
    ) -> Result<u8, Failure> {
        let name = self.session.job.name().to_owned();
        let newest = self.machine.history().newest().map(|record| record.checkpoint);
        let mark = match &outcome {
            Outcome::Ended { status, .. } => Some(text::end(Some(*status))),
            Outcome::Lost { .. } => None,
        };
        let finished = tokio::task::spawn_blocking(move || self.output.finish(mark));
        tokio::pin!(finished);
        loop {
            tokio::select! {
                _ = &mut finished => break,
                // Nobody reads the rest, and somebody has lost patience.
                Some(signal) = signals.recv() => if is_deadly(signal) { break },
            }
        }
        drop(self.raw);
        let resume = &self.session.resume;
        match outcome {
            Outcome::Lost { reason } => Err(Failure::of(format!("keep {name}"), reason)),
            Outcome::Ended { status, asked } => {
                let word = if self.interrupted { "interrupted" } else { "stopped" };
                match newest {
                    Some(_) if asked => {
                        eprintln!("ckptd: job {name} {word}; resume with: {resume}");
                    }
                    None if asked => {
                        eprintln!("ckptd: job {name} {word}; it has no committed checkpoint");
                    }
                    Some(number) if status.shell_status() != 0 && self.session.loud => eprintln!(
                        "ckptd: job {name} {}; to go on from checkpoint {number}: {resume}",
                        text::end(Some(status))
                    ),
                    _ => {}
                }
                Ok(status.shell_status())
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
