//! `ckptd run --engine dmtcp`, and the restart of such a job: DMTCP's own programs, with a coordinator of ours.

use super::records::{self, JobRecorder, Told};
use crate::cli::{EngineSetting, RestartArguments, RunArguments};
use crate::commands::{Context, is_loud};
use crate::failure::Failure;
use crate::jobs::{JobFolder, JobSettings};
use crate::mpi;
use crate::session::callers::{Called, Caller, Callers, Server};
use crate::session::signals;
use crate::text;
use ckpt_dmtcp::machine::Command as Wanted;
use ckpt_dmtcp::server::{Options, Order, Port, Recorder, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::agent::{CheckpointNumber, CommitRecord, ExitKind};
use protocol::cluster::client::{Answer, Ask};
use protocol::control::LiveStatus;
use protocol::task;
use protocol::transport::ClientEvent;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// How long a job that is told to end may take before its processes are told by DMTCP.
const ENDING: Duration = Duration::from_secs(10);

/// What a user lacks whose machine has no DMTCP.
pub const MISSING: &str = "DMTCP is not installed: there is no dmtcp_launch in PATH; leave --engine out, or \
                           install it from https://github.com/dmtcp/dmtcp";

/// DMTCP's program of that name, in PATH, and not one of our own.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH");
    let found = mpi::find_program(name.as_ref(), path.as_deref(), Path::new("/"))?;
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    (std::fs::canonicalize(&found).ok() != own).then_some(found)
}

/// Runs a new job.
pub fn run(context: &Context, arguments: RunArguments) -> Result<u8, Failure> {
    let name = arguments.command.first().cloned().unwrap_or_default();
    let what = format!("run {} with DMTCP", name.to_string_lossy());
    refuse_options(&arguments.options, arguments.detach)?;
    let launch = program("dmtcp_launch").ok_or_else(|| Failure::of(&what, MISSING))?;
    let directory = std::env::current_dir().map_err(|error| Failure::of(&what, error))?;
    let settings = JobSettings {
        engine: EngineSetting::Dmtcp,
        ..JobSettings::default().with(&arguments.options)
    };
    let (job, _lock) = context.state.create(
        arguments.name.as_deref(),
        &arguments.command,
        &directory,
        settings,
    )?;
    let begin =
        Begin { program: launch, images: Vec::new(), command: arguments.command, from: None };
    let loud = is_loud(&arguments.options);
    hold(&job, settings, begin, loud, &context.resume_command(job.name()))
}

/// Lets a job go on; the caller holds its lock.
pub fn restart(
    context: &Context,
    job: &JobFolder,
    record: &CommitRecord,
    arguments: &RestartArguments,
) -> Result<u8, Failure> {
    let what = format!("restart {} from checkpoint {}", job.name(), record.checkpoint);
    refuse_options(&arguments.options, arguments.detach)?;
    if arguments.file_check.is_some() {
        return Err(for_native("--file-check"));
    }
    let program = program("dmtcp_restart").ok_or_else(|| Failure::of(&what, MISSING))?;
    let images =
        records::images(job).files(record.checkpoint).map_err(|error| Failure::of(&what, error))?;
    let settings = job.record().settings.with(&arguments.options);
    let begin = Begin { program, images, command: Vec::new(), from: Some(record.checkpoint) };
    hold(job, settings, begin, is_loud(&arguments.options), &context.resume_command(job.name()))
}

fn refuse_options(options: &crate::cli::JobOptions, detach: bool) -> Result<(), Failure> {
    let given = [
        (detach, "--detach"),
        (options.max_restarts.is_some(), "--max-restarts"),
        (!options.place.is_empty(), "--place"),
        (options.daemons.is_some(), "--daemons"),
        (options.placement.is_some(), "--placement"),
        (options.external.is_some(), "--external"),
        (options.copies.is_some_and(|copies| copies > 1), "--copies"),
        (options.no_rewire_connect, "--no-rewire-connect"),
        (options.encrypt_job_traffic, "--encrypt-job-traffic"),
        (options.rehearse.is_some_and(|every| every > 0), "--rehearse"),
        (options.output.is_some(), "--output"),
        (options.checkpoint_on.is_some() || options.last.is_some(), "--checkpoint-on"),
        (options.interval == Some(crate::cli::IntervalSetting::Auto), "--interval auto"),
    ];
    match given.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(for_native(option)),
    }
}

fn for_native(option: &str) -> Failure {
    Failure::Usage(format!(
        "wrong usage: {option} is for the native engine: leave it or --engine dmtcp out"
    ))
}

struct Begin {
    program: PathBuf,
    images: Vec<PathBuf>,
    command: Vec<OsString>,
    from: Option<u64>,
}

fn hold(
    job: &JobFolder,
    settings: JobSettings,
    begin: Begin,
    loud: bool,
    resume: &str,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of("start the event loop", error))?;
    let status = runtime.block_on(foreground(job, settings, begin, loud, resume));
    runtime.shutdown_background();
    status
}

type SharedRecorder = Arc<Mutex<JobRecorder>>;

fn lock(recorder: &SharedRecorder) -> MutexGuard<'_, JobRecorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn foreground(
    job: &JobFolder,
    settings: JobSettings,
    begin: Begin,
    loud: bool,
    resume: &str,
) -> Result<u8, Failure> {
    let what = format!("run {} with DMTCP", job.name());
    let failed = |cause: &dyn std::fmt::Display| Failure::of(&what, cause);
    let (told_sender, told) = mpsc::unbounded_channel();
    let mut recorder = JobRecorder::open(job, settings.keep as usize, told_sender)?;
    let written_in = records::images(job).written_in();
    std::fs::create_dir_all(&written_in).map_err(|error| failed(&error))?;
    let (signal_sender, signals) = mpsc::unbounded_channel();
    signals::watch(&signal_sender, None).map_err(|error| failed(&error))?;
    let interval = settings.interval.whole_seconds();
    let port = Port::bind(Options {
        interval,
        ..Options::local(0, records::images(job).folder().to_owned())
    })
    .await
    .map_err(|error| failed(&error))?;
    let address = port.address();
    recorder.begin(begin.from)?;
    let recorder: SharedRecorder = Arc::new(Mutex::new(recorder));
    let (orders, order_receiver) = mpsc::channel(16);
    let shared: Arc<Mutex<dyn Recorder>> = recorder.clone();
    let port_task = task::spawn(port.serve(shared, order_receiver));
    let (server, calls) = Server::start(job.path());
    if let Err(error) = &server {
        eprintln!("ckptd: warning: other commands can't reach this job: {error}");
    }
    let mut command = begin.command_for(&written_in, address.port());
    let child = command
        .spawn()
        .map_err(|error| failed(&format!("execute {}: {error}", begin.program.display())))?;
    let mut holder = Holder {
        orders,
        told,
        calls,
        callers: Callers::new(job.id(), job.name()),
        signals,
        waiting: Vec::new(),
        stopping: Vec::new(),
        asked_to_end: false,
        stop_after: false,
        last_failure: None,
        interval,
        loud,
    };
    let status = holder.until_end(child).await.map_err(|error| failed(&error))?;
    let status = ExitKind::from(status);
    // A checkpoint after which the processes end is recorded a moment later than they do.
    let _ = holder.orders.send(Order::Command(Wanted::Quit)).await;
    let _ = port_task.await;
    while let Ok(told) = holder.told.try_recv() {
        holder.tell(told);
    }
    let newest = lock(&recorder).newest();
    holder.end(&recorder, status, newest);
    if let Ok(server) = server {
        server.close().await;
    }
    if status != ExitKind::Exited(0) && newest.is_some() {
        eprintln!("ckptd: to go on from the newest checkpoint: {resume}");
    }
    Ok(status.shell_status())
}

impl Begin {
    /// DMTCP's launcher, or its restart, for the coordinator at that port of this machine.
    fn command_for(&self, written_in: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--join-coordinator", "--coord-host", "127.0.0.1", "--coord-port"])
            .arg(port.to_string())
            .arg("--ckptdir")
            .arg(written_in);
        if self.from.is_none() {
            // Compression makes a checkpoint take ten times as long.
            command.arg("--no-gzip").args(&self.command);
        } else {
            command.args(&self.images);
        }
        // Its own questions to the topology of PCI devices end under DMTCP in a file that is not there any more.
        if std::env::var_os("HWLOC_COMPONENTS").is_none() {
            command.env("HWLOC_COMPONENTS", "-linux:io");
        }
        command
    }
}

impl Holder {
    /// The job has ended: that is written down, and who waits is told.
    fn end(
        mut self,
        recorder: &SharedRecorder,
        status: ExitKind,
        newest: Option<CheckpointNumber>,
    ) {
        if let Err(error) = lock(recorder).end(Some(status), self.asked_to_end) {
            eprintln!("ckptd: warning: failed to write to the job's log: {error}");
        }
        for caller in std::mem::take(&mut self.stopping) {
            self.callers.answer_last(caller, &Answer::Ended { status, checkpoint: newest });
        }
        self.refuse_waiting("take a checkpoint: the job has ended");
    }
}

/// What a running job's process waits for.
struct Holder {
    orders: mpsc::Sender<Order>,
    told: mpsc::UnboundedReceiver<Told>,
    calls: mpsc::Receiver<ClientEvent>,
    callers: Callers,
    signals: mpsc::UnboundedReceiver<i32>,
    /// Who waits for a checkpoint.
    waiting: Vec<Caller>,
    /// Who waits for the end.
    stopping: Vec<Caller>,
    asked_to_end: bool,
    /// Whether the job is to end with the checkpoint under way.
    stop_after: bool,
    /// Why the checkpoint before was abandoned, if it was.
    last_failure: Option<String>,
    interval: u32,
    loud: bool,
}

impl Holder {
    async fn until_end(&mut self, mut child: Child) -> std::io::Result<ExitStatus> {
        let mut harder = None;
        let mut killed = false;
        loop {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
            tokio::select! {
                status = child.wait() => return status,
                Some(told) = self.told.recv() => {
                    if self.tell(told) {
                        harder = Some(self.kill().await);
                    }
                }
                Some(call) = self.calls.recv() => {
                    if let Some(Called::Asks(caller, ask)) = self.callers.take(call) {
                        if self.request(caller, ask).await {
                            harder = Some(self.kill().await);
                        }
                    }
                }
                Some(signal) = self.signals.recv() => {
                    // A terminal's reach the job by themselves.
                    if matches!(signal, nix::libc::SIGTERM | nix::libc::SIGHUP) {
                        self.asked_to_end = true;
                        signal_to(pid, Signal::SIGTERM);
                        harder = Some(tokio::time::Instant::now() + ENDING);
                    } else if matches!(signal, nix::libc::SIGINT | nix::libc::SIGQUIT) {
                        self.asked_to_end = true;
                        harder = Some(tokio::time::Instant::now() + ENDING);
                    } else if signals::is_foreign(signal) {
                        match Signal::try_from(signal) {
                            Ok(signal) => signal_to(pid, signal),
                            Err(_) => eprintln!(
                                "ckptd: warning: real-time signal {signal} is not passed on to a job of DMTCP"
                            ),
                        }
                    }
                }
                () = due(harder) => {
                    // What does not end by that is not waited for.
                    if killed {
                        signal_to(pid, Signal::SIGKILL);
                    }
                    killed = true;
                    harder = Some(self.kill().await);
                }
            }
        }
    }

    /// Ends the job by DMTCP: its processes vanish, and files that its images need stay, which a signal would
    /// have them remove. When it is to be tried harder.
    async fn kill(&mut self) -> tokio::time::Instant {
        self.asked_to_end = true;
        // It has gone with its last process.
        let _ = self.orders.send(Order::Command(Wanted::Kill)).await;
        tokio::time::Instant::now() + ENDING
    }

    /// Says what happened; whether the job is to be ended now.
    fn tell(&mut self, told: Told) -> bool {
        match told {
            Told::Committed(record) => {
                self.last_failure = None;
                if self.loud {
                    eprintln!("ckptd: {}", text::committed(&record));
                }
                for caller in std::mem::take(&mut self.waiting) {
                    let record = record.clone();
                    self.callers.answer_last(caller, &Answer::Committed { record });
                }
                return std::mem::take(&mut self.stop_after);
            }
            Told::Failed(reason) => {
                if self.last_failure.as_ref() != Some(&reason) {
                    eprintln!("ckptd: a checkpoint was abandoned: {reason}");
                    self.last_failure = Some(reason.clone());
                }
                let text = format!("take a checkpoint: {reason}");
                self.refuse_waiting(&text);
                if std::mem::take(&mut self.stop_after) {
                    for caller in std::mem::take(&mut self.stopping) {
                        self.callers.refuse(caller, text.clone());
                    }
                }
            }
            Told::Warning(text) => eprintln!("ckptd: warning: {text}"),
            Told::Restarted if self.loud => eprintln!("ckptd: all processes run again"),
            Told::Restarted => {}
        }
        false
    }

    /// Nobody who waits for a checkpoint gets one.
    fn refuse_waiting(&mut self, reason: &str) {
        for caller in std::mem::take(&mut self.waiting) {
            self.callers.refuse(caller, reason.to_owned());
        }
    }

    /// Takes a request; whether the job is to be ended now.
    async fn request(&mut self, caller: Caller, ask: Ask) -> bool {
        let refused =
            "take a checkpoint: another one is being taken, or a process is just being started";
        match ask {
            Ask::Status { .. } => {
                let (sender, status) = oneshot::channel();
                let _ = self.orders.send(Order::Status(sender)).await;
                let status: Option<Status> = status.await.ok();
                let live = LiveStatus {
                    launcher_pid: std::process::id(),
                    processes: status.as_ref().and_then(|status| u32::try_from(status.peers).ok()),
                    interval_s: self.interval.into(),
                    next_checkpoint_ms: status
                        .and_then(|status| status.next)
                        .and_then(|next| u64::try_from(next.as_millis()).ok()),
                    in_flight: None,
                    ending: self.asked_to_end,
                    suspended: false,
                    rehearsal: None,
                };
                self.callers.tell_status(caller, &live);
                false
            }
            Ask::Checkpoint { .. } => {
                if self.begin_checkpoint().await {
                    self.waiting.push(caller);
                } else {
                    self.callers.refuse(caller, refused.to_owned());
                }
                false
            }
            Ask::Stop { checkpoint: false, .. } => {
                self.stopping.push(caller);
                true
            }
            Ask::Stop { checkpoint: true, .. } => {
                if self.begin_checkpoint().await {
                    self.stop_after = true;
                    self.stopping.push(caller);
                } else {
                    self.callers.refuse(caller, refused.to_owned());
                }
                false
            }
            Ask::Attach { .. } => {
                let reason = "attach to it: DMTCP runs the job, and its output is not held";
                self.callers.refuse(caller, reason.to_owned());
                false
            }
            _ => {
                self.callers.refuse_without_cluster(caller);
                false
            }
        }
    }

    async fn begin_checkpoint(&self) -> bool {
        let (sender, begun) = oneshot::channel();
        self.orders.send(Order::Checkpoint(sender)).await.is_ok() && begun.await == Ok(true)
    }
}

/// It may have ended by itself.
fn signal_to(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        let _ = kill(pid, signal);
    }
}

async fn due(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
