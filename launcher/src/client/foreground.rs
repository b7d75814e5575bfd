//! A job that another process runs, in the foreground: its output, input and exit status.

use super::commits::OnCommit;
use super::input::Typed;
use super::keys::Keys;
use super::last_checkpoint::LastCheckpoint;
use super::launcher::AskError;
use super::link::{Link, LinkError, LinkSender, connect};
use super::refusal::{refusal, unexpected};
use super::resume::Resume;
use super::{LOST_LIMIT, LOST_RETRY, restarting};
use crate::failure::Failure;
use crate::hooks::Caller;
use crate::interrupts::Held;
use crate::out::print;
use crate::output_file::Follower;
use crate::progress::Watcher;
use crate::session::signals;
use crate::session::sink::Sink;
use crate::session::streams::{terminal_stream, user_output};
use crate::session::terminal::{self, RawGuard};
use crate::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, raise};
use protocol::agent::{CheckpointNumber, ExitKind};
use protocol::cluster::agent::Stream;
use protocol::cluster::client::{Answer, Ask, LogPlace, NO_JOB};
use protocol::cluster::job_event::Happening;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Bytes that may wait for the user's reader before the cluster's answers are left unread.
const MAX_WAITING: usize = 64 * 1024 * 1024;

/// Where the cluster goes so soon after the job was told to end, whoever has told it so may end both.
const ENDING: Duration = Duration::from_secs(60);
/// How long a cluster is looked for then: an agent that is replaced by another one is there again sooner.
const LOST_AT_END: Duration = Duration::from_secs(5);

/// Where a job's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFrom {
    /// The user's standard input, to its end.
    User,
    /// The user's standard input if it is a terminal.
    Terminal,
    /// Nowhere.
    Nowhere,
}

/// Who runs the job, by its socket.
#[derive(Debug, Clone)]
pub enum Host {
    /// A cluster: without a command the job runs on, and a lost connection may come again.
    Cluster(PathBuf),
    /// The launcher of a job without one: with it, the job is gone.
    Launcher(PathBuf),
}

impl Host {
    fn socket(&self) -> &Path {
        let (Self::Cluster(socket) | Self::Launcher(socket)) = self;
        socket
    }
}

/// What is wanted.
#[derive(Debug)]
pub struct Foreground {
    /// Of whom.
    pub host: Host,
    /// For errors: what is being done.
    pub what: String,
    /// The request.
    pub ask: Ask,
    /// Its input.
    pub input: InputFrom,
    /// Whether each checkpoint is told of.
    pub loud: bool,
    /// How the job goes on.
    pub resume: Resume,
    /// What is done at a signal that tells of the machines' end.
    pub last: Option<LastCheckpoint>,
    /// Who wants to know of each checkpoint.
    pub commits: Option<OnCommit>,
    /// Signals that were held up until now.
    pub held: Held,
    /// Commands that are called when something happens.
    pub hooks: Option<Arc<Caller>>,
    /// Who copies its output into a file.
    pub output: Option<Follower>,
}

/// Runs a job until it ends; its exit status. A hangup ends only this command.
///
/// # Errors
/// Where it could not be started, or the cluster was lost.
pub fn run(foreground: Foreground) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of("start the event loop", error))?;
    let last = foreground.last.clone();
    let status = runtime.block_on(async { Screen::start(foreground)?.drive().await });
    let status = status.map(|status| last.map_or(status, |last| last.status(status)));
    // Threads that wait for a reader or a typist end with the process.
    runtime.shutdown_background();
    status
}

#[derive(Debug)]
struct Job {
    id: String,
    name: String,
    terminal: bool,
}

enum Next {
    Go,
    Done(u8),
}

struct Screen {
    want: Foreground,
    sender: LinkSender,
    answers: mpsc::Receiver<Result<Answer, LinkError>>,
    typed_sender: Option<mpsc::Sender<Typed>>,
    typed: mpsc::Receiver<Typed>,
    signals: mpsc::UnboundedReceiver<i32>,
    sinks: [Sink; 3],
    own_is_terminal: bool,
    at_line_start: bool,
    raw: RawGuard,
    job: Option<Job>,
    /// The id of a job that runs, or that the cluster has promised to run.
    accepted: Option<String>,
    /// Tells how far its restart is.
    restarting: Option<Watcher>,
    /// Up to where its output has been shown.
    shown: Option<LogPlace>,
    /// When it was last told to end.
    interrupted: Option<Instant>,
    pipe_told: bool,
    /// Of who has only been attached, at a terminal.
    keys: Option<Keys>,
    /// Nothing more is typed: Ctrl-\ is a signal alone, and leaves the job running.
    input_over: bool,
}

impl Screen {
    fn start(want: Foreground) -> Result<Self, Failure> {
        let what = want.what.clone();
        let failed = |error: &dyn std::fmt::Display| Failure::of(&what, error);
        let (signal_sender, signals) = mpsc::unbounded_channel();
        let asked = want.last.as_ref().map(LastCheckpoint::signal);
        signals::watch(&signal_sender, asked).map_err(|error| failed(&error))?;
        want.held.release();
        let (sender, answers) =
            connect(want.host.socket(), &want.ask).map_err(|error| failed(&error))?;
        let (typed_sender, typed) = mpsc::channel(4);
        let user = user_output().map_err(|error| failed(&error))?;
        let own_is_terminal = terminal::is_terminal(&user.stderr);
        let sinks = || -> std::io::Result<[Sink; 3]> {
            // Nobody waits for it: how much is queued is looked at before each read.
            let wake =
                Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
            Ok([
                Sink::start(user.stdout, wake.clone())?,
                Sink::start(user.stderr, wake.clone())?,
                Sink::start(user.terminal, wake)?,
            ])
        };
        // Of a new job, all is wanted.
        let shown = matches!(want.ask, Ask::Run(_)).then(LogPlace::default);
        Ok(Self {
            want,
            sender,
            answers,
            typed_sender: Some(typed_sender),
            typed,
            signals,
            sinks: sinks().map_err(|error| failed(&error))?,
            own_is_terminal,
            at_line_start: true,
            raw: RawGuard::new(),
            job: None,
            accepted: None,
            restarting: None,
            shown,
            interrupted: None,
            pipe_told: false,
            keys: None,
            input_over: false,
        })
    }

    async fn drive(mut self) -> Result<u8, Failure> {
        loop {
            if let Next::Done(status) = self.watch_reader() {
                return Ok(status);
            }
            let room = self.sinks.iter().all(|sink| sink.waiting() < MAX_WAITING);
            let next = tokio::select! {
                // Signals first: what comes with a hangup must not reach the job as an end of input.
                biased;
                Some(signal) = self.signals.recv() => self.on_signal(signal),
                Some(typed) = self.typed.recv() => self.on_typed(typed),
                answer = self.answers.recv(), if room => match answer {
                    Some(Ok(answer)) => self.on_answer(answer).await?,
                    Some(Err(error)) => self.look_for_it(error).await?,
                    None => self.look_for_it(LinkError::Gone).await?,
                },
                // The reader may have gone while nothing else happens.
                () = tokio::time::sleep(Duration::from_millis(100)) => Next::Go,
            };
            if let Next::Done(status) = next {
                return Ok(status);
            }
        }
    }

    /// Says something to the cluster; its absence is noticed by the reader.
    fn tell(&mut self, ask: &Ask) {
        let _ = self.sender.send(ask);
    }

    async fn on_answer(&mut self, answer: Answer) -> Result<Next, Failure> {
        match answer {
            Answer::Accepted { job } => {
                if let (Ask::Restart(_), Host::Cluster(socket), true) =
                    (&self.want.ask, &self.want.host, self.want.loud && self.own_is_terminal)
                {
                    self.restarting = Some(restarting::watch(socket.clone(), job.clone()));
                }
                self.accepted = Some(job);
            }
            Answer::Started { job, name, terminal, at } => {
                self.restarting = None;
                let alone = is_detached(&self.want.ask);
                if let Some(output) = &mut self.want.output {
                    output.start(self.want.host.socket(), &job, alone);
                }
                if let Some(hooks) = &self.want.hooks {
                    hooks.start_on_cluster(self.want.host.socket(), &job, &name, alone);
                }
                if alone {
                    self.flush().await;
                    print(&format!("{name}\n"))?;
                    return Ok(Next::Done(0));
                }
                self.shown = Some(at);
                self.started(Job { id: job, name, terminal });
            }
            Answer::Output { stream, bytes, at } => {
                let bytes = STANDARD.decode(bytes).map_err(|error| {
                    Failure::of(&self.want.what, format!("malformed output: {error}"))
                })?;
                self.output(stream, bytes);
                self.shown = Some(at);
            }
            Answer::Say { text } => {
                self.say(&text);
            }
            Answer::Committed { record } => {
                if let Some(commits) = &self.want.commits {
                    commits.tell(record.checkpoint);
                }
                if self.want.loud {
                    self.say(&text::committed(&record));
                }
            }
            Answer::Ended { status, checkpoint } => {
                self.flush().await;
                terminal::leave_raw();
                if let Some(output) = &mut self.want.output {
                    output.finish();
                }
                self.call_end(Some(status), None, checkpoint);
                self.farewell(status, checkpoint);
                return Ok(Next::Done(status.shell_status()));
            }
            Answer::Failed { reason, status } => {
                self.restarting = None;
                self.flush().await;
                terminal::leave_raw();
                if self.is_over() {
                    self.call_end(None, Some(&reason), None);
                }
                return Err(refusal(&self.want.what, reason, status));
            }
            other => return Err(unexpected(&self.want.what, &other)),
        }
        Ok(Next::Go)
    }

    fn started(&mut self, job: Job) {
        let from_terminal = terminal::is_terminal(std::io::stdin());
        if job.terminal && from_terminal && self.want.input != InputFrom::Nowhere {
            terminal::enter_raw(std::io::stdin());
        }
        if let Some(last) = &self.want.last {
            last.job_runs(self.want.host.socket(), &job.id);
        }
        self.accepted = Some(job.id.clone());
        self.job = Some(job);
        self.resize();
        let wanted = match self.want.input {
            InputFrom::User => true,
            InputFrom::Terminal => from_terminal,
            InputFrom::Nowhere => false,
        };
        let asks = from_terminal && self.own_is_terminal;
        if matches!(self.want.ask, Ask::Attach { .. }) && asks && self.keys.is_none() {
            let job_has_terminal = self.job.as_ref().is_some_and(|job| job.terminal);
            self.keys = Some(Keys::new(job_has_terminal));
            self.take_keys();
            self.tell_of_keys();
        }
        if let (true, Some(typed)) = (wanted, self.typed_sender.take()) {
            if let Err(error) = super::input::start(typed) {
                self.say(&format!("warning: input can't be read: {error}"));
            }
        }
    }

    /// Whether a failure that was told is the job's end: it may be that of a login, with which the job does not end. A
    /// coordinator that does not answer has ended with the allocation of its job.
    fn is_over(&self) -> bool {
        let Some(job) = self.job.as_ref().filter(|_| self.want.hooks.is_some()) else {
            return false;
        };
        let ask = Ask::Events { job: job.id.clone(), known: None };
        match Link::open(self.want.host.socket(), &ask).and_then(|mut link| link.next()) {
            Ok(Answer::Events { over, .. }) => over,
            Ok(Answer::Failed { reason, .. }) => reason.starts_with(NO_JOB),
            Ok(_) => false,
            Err(_) => true,
        }
    }

    /// What is called hears of the job's end from here, too: the cluster of an allocation ends with its job.
    fn call_end(
        &self,
        status: Option<ExitKind>,
        reason: Option<&str>,
        checkpoint: Option<CheckpointNumber>,
    ) {
        let what = Happening::ended(status, reason, checkpoint);
        if let Some(text) = self.want.hooks.as_ref().and_then(|hooks| hooks.happened(what)) {
            eprintln!("ckptd: warning: {text}");
        }
    }

    /// Has the keys come as they are typed, as far as ckptd or the job's own terminal makes something of them.
    fn take_keys(&self) {
        if !terminal::is_terminal(std::io::stdin()) {
            return;
        }
        if self.job.as_ref().is_some_and(|job| job.terminal) {
            terminal::enter_raw(std::io::stdin());
        } else if self.keys.is_some() && !self.input_over {
            terminal::take_quit_key(std::io::stdin());
        }
    }

    fn tell_of_keys(&mut self) {
        let Some(job) = self.job.as_ref().filter(|_| self.own_is_terminal) else { return };
        let (enter, name) = (if job.terminal { "" } else { " and Enter" }, job.name.clone());
        self.say(&format!("attached to {name}; to leave it running: Ctrl-\\ d{enter}"));
    }

    /// The user leaves the job running.
    fn leave(&self) -> Next {
        terminal::leave_raw();
        if let Some(job) = &self.job {
            eprintln!("ckptd: job {0} runs on; to see it: ckptd attach {0}", job.name);
        }
        Next::Done(0)
    }

    fn output(&mut self, stream: Stream, bytes: Vec<u8>) {
        let terminal = self.job.as_ref().is_some_and(|job| job.terminal);
        let sink = match stream {
            Stream::Output if terminal => 2,
            Stream::Output => 0,
            Stream::Error => 1,
        };
        if let Some(last) = bytes.last() {
            self.at_line_start = *last == b'\n';
        }
        self.sinks[sink].put(bytes);
    }

    fn say(&mut self, text: &str) {
        // What is written by another thread would come into its line.
        self.restarting = None;
        let terminal = self.job.as_ref().is_some_and(|job| job.terminal);
        let end = if terminal::is_raw() { "\r\n" } else { "\n" };
        let start = if self.own_is_terminal && !self.at_line_start { end } else { "" };
        self.at_line_start = true;
        let sink = if self.own_is_terminal && terminal { 2 } else { 1 };
        self.sinks[sink].put(format!("{start}ckptd: {text}{end}").into_bytes());
    }

    /// A job whose output nobody reads any more is told so, as a pipe would tell it; one to which this command has only
    /// been attached is not.
    fn watch_reader(&mut self) -> Next {
        if matches!(self.want.ask, Ask::Attach { .. }) && self.sinks[0].is_broken() {
            return Next::Done(128 + 13);
        }
        let terminal = self.job.as_ref().is_some_and(|job| job.terminal);
        if !terminal && !self.pipe_told && self.sinks[0].is_broken() {
            self.pipe_told = true;
            self.tell(&Ask::Signal { signal: nix::libc::SIGPIPE });
        }
        Next::Go
    }

    fn on_typed(&mut self, typed: Typed) -> Next {
        match typed {
            // The end of input is no key.
            Typed::Bytes(bytes) if !bytes.is_empty() && self.keys.is_some() => {
                let passed = self.keys.as_mut().map(|keys| keys.typed(&bytes)).unwrap_or_default();
                if passed.asks {
                    self.ask_before_quit();
                }
                if passed.quit {
                    self.quit();
                }
                if !passed.bytes.is_empty() {
                    self.tell(&Ask::Input { bytes: STANDARD.encode(passed.bytes) });
                }
                if passed.leaves {
                    return self.leave();
                }
            }
            Typed::Bytes(bytes) if bytes.is_empty() && self.keys.is_some() => {
                // Nobody reads keys any more: they are the terminal's again.
                terminal::leave_raw();
                self.input_over = true;
                self.tell(&Ask::Input { bytes: String::new() });
            }
            Typed::Bytes(bytes) => self.tell(&Ask::Input { bytes: STANDARD.encode(bytes) }),
            Typed::Suspend => self.suspend(),
        }
        Next::Go
    }

    fn ask_before_quit(&mut self) {
        self.say(
            "Ctrl-\\ and Enter again sends the job SIGQUIT; to leave it running: Ctrl-\\ d and Enter",
        );
    }

    fn quit(&mut self) {
        self.interrupted = Some(Instant::now());
        self.tell(&Ask::Signal { signal: nix::libc::SIGQUIT });
    }

    fn on_signal(&mut self, signal: i32) -> Next {
        if let Some(last) = &self.want.last {
            let job = self.job.as_ref().map(|job| (self.want.host.socket(), job.id.as_str()));
            if last.on_signal(signal, job) {
                return Next::Go;
            }
        }
        match signal {
            nix::libc::SIGWINCH => self.resize(),
            nix::libc::SIGTSTP => self.suspend(),
            nix::libc::SIGCONT => self.go_on(),
            nix::libc::SIGHUP => {
                terminal::leave_raw();
                if let Some(job) = &self.job {
                    eprintln!("ckptd: job {0} runs on; to see it: ckptd attach {0}", job.name);
                }
                return Next::Done(128 + 1);
            }
            nix::libc::SIGQUIT if self.input_over => return self.leave(),
            // Of another key, or of none.
            nix::libc::SIGQUIT if self.keys.as_mut().is_some_and(|keys| !keys.quits()) => {
                self.ask_before_quit();
            }
            nix::libc::SIGINT if self.keys.as_mut().is_some_and(|keys| !keys.interrupts()) => {
                let leave = if self.input_over { "Ctrl-\\" } else { "Ctrl-\\ d and Enter" };
                self.say(&format!("Ctrl-C again ends the job; to leave it running: {leave}"));
            }
            signal if signals::is_foreign(signal) => self.tell(&Ask::Signal { signal }),
            signal if self.job.is_none() && self.interrupted.is_some() => {
                return Next::Done(u8::try_from(128 + signal).unwrap_or(255));
            }
            signal => {
                self.interrupted = Some(Instant::now());
                self.tell(&Ask::Signal { signal });
            }
        }
        Next::Go
    }

    fn resize(&mut self) {
        let terminal = self.job.as_ref().is_some_and(|job| job.terminal);
        if let Some(window) = terminal_stream().filter(|_| terminal).and_then(terminal::size) {
            self.tell(&Ask::Resize { window });
        }
    }

    /// Stops this process; the job, which is not its child, goes on.
    fn suspend(&mut self) {
        terminal::leave_raw();
        if raise(Signal::SIGSTOP).is_err() {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        self.take_keys();
        self.resize();
    }

    /// Connects again, as after an agent that was started again, and goes on with the same job.
    async fn look_for_it(&mut self, lost: LinkError) -> Result<Next, Failure> {
        if let Host::Launcher(_) = self.want.host {
            terminal::leave_raw();
            return Err(Failure::of(&self.want.what, AskError::from(lost)));
        }
        let Some(job) = self.accepted.clone() else {
            let cause = format!("{lost}; whether it was begun is not known: see 'ckptd ls'");
            return Err(Failure::of(&self.want.what, cause));
        };
        let is_told = self.interrupted.is_some_and(|at| at.elapsed() < ENDING);
        let limit = if is_told { LOST_AT_END } else { LOST_LIMIT };
        self.say("the connection to the cluster was lost; the job may run on; trying again");
        let since = Instant::now();
        while since.elapsed() < limit {
            tokio::select! {
                () = tokio::time::sleep(LOST_RETRY) => {}
                Some(signal) = self.signals.recv() => {
                    if self.want.last.as_ref().is_some_and(|last| last.on_signal(signal, None)) {
                        continue;
                    }
                    if matches!(signal, nix::libc::SIGINT | nix::libc::SIGTERM | nix::libc::SIGHUP) {
                        break;
                    }
                }
            }
            let window = terminal_stream().and_then(terminal::size);
            let ask = Ask::Attach { job: job.clone(), window, shown: self.shown };
            let Ok((sender, mut answers)) = connect(self.want.host.socket(), &ask) else {
                continue;
            };
            // An agent may be there before its coordinator.
            match answers.recv().await {
                Some(Ok(Answer::Failed { .. }) | Err(_)) | None => {}
                Some(Ok(answer)) => {
                    (self.sender, self.answers) = (sender, answers);
                    self.say("the connection to the cluster is there again");
                    if let (Some(last), Some(job)) = (&self.want.last, &self.job) {
                        last.job_runs(self.want.host.socket(), &job.id);
                    }
                    return self.on_answer(answer).await;
                }
            }
        }
        terminal::leave_raw();
        let cause = format!("{lost}; the job may run on: ckptd attach {job}");
        Err(Failure::of(&self.want.what, cause))
    }

    /// Waits until the user's readers have everything, or somebody has lost patience.
    async fn flush(&mut self) {
        while self.sinks.iter().any(|sink| sink.waiting() > 0 && !sink.is_broken()) {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
                Some(signal) = self.signals.recv() => {
                    if signal != nix::libc::SIGWINCH && !signals::is_foreign(signal) {
                        return;
                    }
                }
            }
        }
    }

    fn farewell(&self, status: ExitKind, checkpoint: Option<CheckpointNumber>) {
        // A job that has no name yet has nothing to be resumed by.
        let Some(job) = &self.job else { return };
        let resume = &self.want.resume;
        match (status.shell_status(), checkpoint) {
            (0, _) => {}
            (_, Some(_)) if self.interrupted.is_some() => {
                eprintln!("ckptd: job {} interrupted; {}", job.name, resume.offer(&job.name));
            }
            (_, None) if self.interrupted.is_some() => {
                eprintln!("ckptd: job {} interrupted; it has no committed checkpoint", job.name);
            }
            (_, Some(number)) if self.want.loud => eprintln!(
                "ckptd: job {} {}; {}",
                job.name,
                text::end(Some(status)),
                resume.offer_from(number, &job.name)
            ),
            _ => {}
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = &self.raw;
        terminal::leave_raw();
    }
}

fn is_detached(ask: &Ask) -> bool {
    match ask {
        Ask::Run(request) => request.detach,
        Ask::Restart(request) => request.detach,
        _ => false,
    }
}
