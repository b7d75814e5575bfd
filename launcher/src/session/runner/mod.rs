//! The event loop around the coordinator's state machine: it does what that says.
//!
//! - `requests`: what other commands want.
//! - `telling`: what the user, those attached and the log are told.
//! - `standing`: a job that its user has stopped.
//! - `calling`: what the commands that `--on` calls are told.
//! - `filling`: how far a restart is.
//! - `ending`: the end, of the job or of what ckptd has to do with it.

mod calling;
mod ending;
mod filling;
mod requests;
mod standing;
mod telling;

use filling::Filling;
use standing::Standing;

use super::attached::Attached;
use super::callers::{Callers, Server};
use super::detached::Staying;
use super::input::{self, Target, Typed, Typist};
use super::joblog::{JobLog, Tail, put_back};
use super::output::{JobOutput, Output, Report};
use super::rehearsals::{Finished, Rehearsals};
use super::terminal::{self, RawGuard};
use super::{signals, streams};
use crate::agent::{AgentHandle, StartAgent};
use crate::client::commits::OnCommit;
use crate::client::last_checkpoint::LastCheckpoint;
use crate::client::launcher;
use crate::client::resume::Resume;
use crate::failure::Failure;
use crate::hooks::Caller;
use crate::interrupts::Held;
use crate::jobs::{self, JobFolder, JobSettings};
use crate::{progress, text};
use coordinator::log::LogFile;
use coordinator::{Action, Entry, Event, JobMachine, Outcome, Time};
use protocol::agent::{AgentCommand, AgentEvent, CommitRecord, InstanceId};
use protocol::launch::{AdoptSpec, Console, LaunchSpec, RestoreSpec};
use protocol::task;
use protocol::transport::ClientEvent;
use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// How a session begins.
#[derive(Debug, Clone)]
pub enum Begin {
    /// With a new job.
    Launch(Box<LaunchSpec>),
    /// With a job from a checkpoint.
    Restore(RestoreSpec, Box<CommitRecord>),
    /// With processes that run already, and go on without ckptd.
    Adopt(AdoptSpec),
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
    /// How the job goes on.
    pub resume: Resume,
    /// What is done at a signal that tells of the machine's end.
    pub last: Option<LastCheckpoint>,
    /// Who wants to know of each checkpoint.
    pub commits: Option<OnCommit>,
    /// Commands that are called when something happens.
    pub hooks: Option<Arc<Caller>>,
    /// Signals that were held up until now.
    pub held: Held,
    /// Whether this is for whoever waits until the job runs, and does not stay.
    pub staying: Option<Staying>,
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
    let last = session.last.clone();
    let status = runtime.block_on(foreground(session, start_agent));
    let status = status.map(|status| last.map_or(status, |last| last.status(status)));
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
        Begin::Adopt(spec) => format!("adopt process {}", spec.pid),
    };
    let failed = |cause: &dyn Display| Failure::of(&what, cause);

    let (log_file, history, warning) = jobs::open_log(session.job)?;
    let (signal_sender, mut signals) = mpsc::unbounded_channel();
    let asked = session.last.as_ref().map(LastCheckpoint::signal);
    signals::watch(&signal_sender, asked).map_err(|error| failed(&error))?;
    session.held.release();

    let (agent_sender, mut agent_events) = mpsc::unbounded_channel();
    let agent = start_agent(
        session.job.path().to_owned(),
        Box::new(move |event| drop(agent_sender.send(event))),
    )
    .map_err(|error| failed(&error))?;

    // Before the job can tell anybody that it runs. What is asked early waits.
    let (server, calls) = Server::start(session.job.path());

    let mut early = Early::default();
    let console = early.begin(&session, &agent, &mut agent_events, &mut signals, &failed).await?;
    if let Some(Err(error)) = session.staying.map(|staying| staying.job_runs(session.job.name())) {
        agent.command(AgentCommand::Kill);
        return Err(failed(&error));
    }
    let (log, tail) = open_output(&session, &failed)?;

    let machine = JobMachine::new(
        session.job.id().to_owned(),
        session.settings.coordinator(),
        history,
        [InstanceId::EMBEDDED],
    );
    let mut runner =
        Runner::start(&session, machine, log_file, agent, console, log).map_err(|e| failed(&e))?;
    for text in early.said {
        runner.output.mark(format!("warning: {text}"));
    }
    runner.greet(tail, warning);
    runner.calls_begin();
    if let Err(error) = &server {
        runner.warn(&format!("other commands can't reach this job: {error}"));
    }
    if matches!(&session.begin, Begin::Restore(_, record) if record.suspended) {
        runner.agent.command(AgentCommand::Signal { signal: nix::libc::SIGCONT });
    }
    if let Some(last) = &session.last {
        last.job_runs(&launcher::socket(session.job.path()), session.job.id());
    }
    for signal in early.signals {
        runner.agent.command(AgentCommand::Forward { signal });
    }
    match runner.drive(early.first, agent_events, calls, &mut signals).await {
        Some(outcome) => runner.end(outcome, &mut signals, server.ok()).await,
        None => runner.let_go(server.ok()).await,
    }
}

/// What is heard before the job runs.
#[derive(Default)]
struct Early {
    /// Signals for the job, which does not exist yet.
    signals: Vec<i32>,
    /// Warnings, which the user has seen.
    said: Vec<String>,
    /// The first word that is for the job that runs.
    first: Option<AgentEvent>,
}

impl Early {
    /// Begins the job.
    async fn begin(
        &mut self,
        session: &Session<'_>,
        agent: &Arc<dyn AgentHandle>,
        agent_events: &mut mpsc::UnboundedReceiver<AgentEvent>,
        signals: &mut mpsc::UnboundedReceiver<i32>,
        failed: &dyn Fn(&dyn Display) -> Failure,
    ) -> Result<Console, Failure> {
        let begun = task::spawn_blocking({
            let agent = agent.clone();
            let begin = session.begin.clone();
            move || match begin {
                Begin::Launch(spec) => agent.launch(*spec),
                Begin::Restore(spec, _) => agent.restore(spec),
                Begin::Adopt(spec) => agent.adopt(spec).map(|()| Console::default()),
            }
        });
        tokio::pin!(begun);
        let lives_on = matches!(session.begin, Begin::Adopt(_));
        let filling = Filling::of(session);
        let mut seconds =
            tokio::time::interval_at((Instant::now() + progress::SECOND).into(), progress::SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = seconds.tick() => filling.tell(),
                // What a restart waits for is said while it waits; all else is for the job that runs.
                Some(event) = agent_events.recv(), if self.first.is_none() => match event {
                    AgentEvent::Warning { text } => {
                        progress::say(&format!("warning: {text}"));
                        self.said.push(text);
                    }
                    other => self.first = Some(other),
                },
                begun = &mut begun => {
                    let begun = begun.map_err(|error| failed(&error))?;
                    return begun.map_err(|error| failed(&error));
                }
                Some(signal) = signals.recv() => {
                    if session.last.as_ref().is_some_and(|last| last.on_signal(signal, None)) {
                        continue;
                    }
                    if is_deadly(signal) {
                        // The job, as far as it exists, dies with this process.
                        match lives_on {
                            true => agent.let_go(),
                            false => agent.command(AgentCommand::Kill),
                        }
                        return Err(failed(&"interrupted before the job ran"));
                    }
                    if signals::is_foreign(signal) && !self.signals.contains(&signal) {
                        self.signals.push(signal);
                    }
                }
            }
        }
    }
}

/// The log of what the job writes: as long as its checkpoint left it, and what was cut off for that.
fn open_output(
    session: &Session<'_>,
    failed: &dyn Fn(&dyn Display) -> Failure,
) -> Result<(JobLog, Option<Tail>), Failure> {
    let path = session.job.log();
    let mut tail = None;
    if let Begin::Restore(_, record) = &session.begin {
        tail = put_back(&path, record.log_length, record.checkpoint)
            .map_err(|error| failed(&format!("put the log back: {error}")))?;
    }
    let mut log = JobLog::open(&path)
        .map_err(|error| failed(&format!("open {}: {error}", path.display())))?;
    if let Begin::Restore(spec, _) = &session.begin {
        // Before anything that the job says.
        log.mark(&format!("restarted from checkpoint {}", spec.checkpoint))
            .map_err(|error| failed(&format!("mark the log: {error}")))?;
    }
    Ok((log, tail))
}

fn is_deadly(signal: i32) -> bool {
    matches!(
        signal,
        nix::libc::SIGINT | nix::libc::SIGTERM | nix::libc::SIGHUP | nix::libc::SIGQUIT
    )
}

struct Runner<'a> {
    session: &'a Session<'a>,
    machine: JobMachine,
    log: LogFile,
    agent: Arc<dyn AgentHandle>,
    output: Output,
    reports: mpsc::UnboundedReceiver<Report>,
    typed: mpsc::UnboundedReceiver<Typed>,
    typed_sender: mpsc::UnboundedSender<Typed>,
    /// Who types what attached callers do; from the first time on.
    typist: Option<Typist>,
    /// The job's terminal.
    terminal: Option<OwnedFd>,
    /// The user's, where the job has one, too.
    user_terminal: Option<OwnedFd>,
    raw: RawGuard,
    began: Instant,
    rehearsals: Rehearsals,
    rehearsed: mpsc::UnboundedReceiver<Finished>,
    callers: Callers,
    attached: Attached,
    /// What the commands that are called want in the log.
    called: mpsc::UnboundedReceiver<String>,
    interrupted: bool,
    standing: Standing,
    /// A SIGCONT that is known already is still to be reported.
    continued: bool,
    /// The user wants a job that was adopted to run on without ckptd.
    leaving: bool,
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
        let raw = RawGuard::new();
        let from_terminal = terminal::is_terminal(&stdin);
        let terminal = console.terminal.as_ref().map(OwnedFd::try_clone).transpose()?;
        let user_terminal = terminal.as_ref().and_then(|_| streams::terminal_stream());
        if user_terminal.is_some() && from_terminal && console.stdin.is_none() {
            terminal::enter_raw(&stdin);
        }
        let target = match (console.stdin, &terminal) {
            (Some(pipe), _) => Some(Target::Pipe(pipe)),
            (None, Some(job)) if from_terminal => Some(Target::Terminal(job.try_clone()?)),
            _ => None,
        };
        if let Some(target) = target {
            let sender = typed_sender.clone();
            let report = move |typed| {
                // A session that is over listens to no keys.
                let _ = sender.send(typed);
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
        let (id, name) = (session.job.id(), session.job.name());
        Ok(Self {
            session,
            machine,
            log: log_file,
            agent,
            output,
            reports,
            typed,
            typed_sender,
            typist: None,
            callers: Callers::new(id, name),
            attached: Attached::new(id, name, terminal.is_some()),
            terminal,
            user_terminal,
            raw,
            began: Instant::now(),
            rehearsals,
            rehearsed,
            called: session
                .hooks
                .as_ref()
                .and_then(|hooks| hooks.lines())
                .unwrap_or_else(calling::none),
            interrupted: false,
            standing: Standing::Runs,
            continued: false,
            leaving: false,
        })
    }

    fn now(&self) -> Time {
        Time {
            nanos: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            unix_ms: text::now_ms(),
        }
    }

    /// Until the job's end. `None`: the user leaves a job that lives on.
    async fn drive(
        &mut self,
        mut first: Option<AgentEvent>,
        mut agent_events: mpsc::UnboundedReceiver<AgentEvent>,
        mut calls: mpsc::Receiver<ClientEvent>,
        signals: &mut mpsc::UnboundedReceiver<i32>,
    ) -> Option<Outcome> {
        let restored_from = match &self.session.begin {
            Begin::Launch(_) | Begin::Adopt(_) => None,
            Begin::Restore(spec, _) => Some(spec.checkpoint),
        };
        let mut next = Some(Event::Started { restored_from });
        loop {
            if let Some(event) = next.take() {
                if let Some(outcome) = self.feed(event) {
                    return Some(outcome);
                }
            }
            if self.leaving {
                return None;
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
                Some(line) = self.called.recv() => {
                    self.output.mark(line);
                    None
                }
                Some(finished) = self.rehearsed.recv() => self.on_rehearsed(&finished),
                Some(typed) = self.typed.recv() => self.on_key(typed).await,
                Some(call) = calls.recv() => self.on_call(call),
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
                    Action::Reply { ticket, reply } => self.callers.reply(ticket, reply),
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

    /// Whether ckptd has not started the job's processes, which then live on without it.
    fn is_adopted(&self) -> bool {
        matches!(self.session.begin, Begin::Adopt(_))
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

    async fn on_signal(&mut self, signal: i32) -> Option<Event> {
        if let Some(last) = &self.session.last {
            let job = self.session.job;
            if last.on_signal(signal, Some((&launcher::socket(job.path()), job.id()))) {
                return None;
            }
        }
        match signal {
            nix::libc::SIGWINCH => {
                self.follow_terminal();
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
            signal if is_deadly(signal) && self.is_adopted() => {
                self.leaving = true;
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
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
