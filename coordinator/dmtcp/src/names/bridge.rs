//! A job of ours as a worker of DMTCP's coordinator.

use super::error::CallError;
use super::image::{FORMAT, Pointer};
use super::options::{Mode, Options};
use super::{Ask, Begins, NativeError};
use crate::machine::Identity;
use crate::wire::{HEADER, ImageName, Kind, Message, WorkerState};
use protocol::cluster::client::{Answer, Ask as Question};
use protocol::database::hosts::addresses;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a coordinator may take to begin.
const BEGINNING: Duration = Duration::from_secs(10);

/// Reads a message.
pub fn receive(stream: &mut TcpStream) -> io::Result<Message> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let (mut message, length) = Message::decode(&header).map_err(io::Error::other)?;
    message.payload = vec![0; length];
    stream.read_exact(&mut message.payload)?;
    Ok(message)
}

/// Connects to the coordinator that is wanted, with its port, and starts it if that is: then it writes restart
/// scripts beside the images.
pub fn connect(options: &Options, images: &Path) -> Result<(TcpStream, u16), CallError> {
    let failed = |source: io::Error, port: u16| CallError::Unreachable {
        host: options.host.clone(),
        port,
        source,
    };
    if let (Some(port), Mode::Join | Mode::Any) = (options.port(), options.mode()) {
        match addresses(&options.host, port).and_then(|all| TcpStream::connect(&all[..])) {
            Ok(stream) => return Ok((stream, port)),
            Err(error) if options.mode() == Mode::Join => return Err(failed(error, port)),
            Err(_) => {}
        }
    } else if options.mode() == Mode::Join {
        return Err(CallError::NoPort);
    }
    let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let here = matches!(options.host.as_str(), "localhost" | "127.0.0.1")
        || own.as_deref() == Some(options.host.as_str());
    if !here {
        return Err(CallError::OtherMachine(options.host.clone()));
    }
    let port = start(options.port().unwrap_or(0), images)?;
    TcpStream::connect(("127.0.0.1", port))
        .map(|stream| (stream, port))
        .map_err(|error| failed(error, port))
}

/// Starts a coordinator of our own that ends with its last worker; its port.
fn start(port: u16, images: &Path) -> Result<u16, CallError> {
    let failed = CallError::system("start a coordinator");
    let folder = tempfile::tempdir().map_err(&failed)?;
    let file = folder.path().join("port");
    let status = Command::new("/proc/self/exe")
        .arg0("dmtcp_coordinator")
        .args(["--daemon", "--exit-on-last", "--quiet", "--coord-port", &port.to_string()])
        .arg("--port-file")
        .arg(&file)
        .arg("--ckptdir")
        .arg(images)
        .stdin(Stdio::null())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(CallError::EndedAtOnce);
    }
    let since = Instant::now();
    while since.elapsed() < BEGINNING {
        if let Some(port) = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok())
        {
            return Ok(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(CallError::NoAddress)
}

/// Writes the coordinator's port where it is wanted.
pub fn tell_port(options: &Options, port: u16) -> Result<(), CallError> {
    match &options.port_file {
        Some(file) => {
            fs::write(file, format!("{port}\n")).map_err(CallError::file("write the port to", file))
        }
        None => Ok(()),
    }
}

/// Who the worker is.
#[derive(Debug)]
pub struct Worker {
    stream: TcpStream,
    identity: Identity,
    group: Identity,
    program: String,
    host: String,
}

/// What the job's process has been told by the coordinator.
#[derive(Debug, Default)]
pub struct Told {
    /// To end, at once or with a checkpoint: then the exit status is 0, as that of DMTCP's processes.
    to_end: AtomicBool,
}

impl Told {
    /// The exit status of a job that ended with this one.
    pub fn status(&self, status: u8) -> u8 {
        if self.to_end.load(Ordering::Relaxed) { 0 } else { status }
    }
}

impl Worker {
    fn message(&self, kind: Kind, state: WorkerState) -> Message {
        Message { from: self.identity, state, ..Message::new(kind) }
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(&message.encode())
    }

    fn new(stream: TcpStream, program: &str) -> Self {
        let host = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let hash = blake3::hash(host.as_bytes());
        let number = u32::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1], 0, 0]);
        let time = protocol::clock::wall_ms();
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let identity = Identity { host: number.into(), time, pid, generation: 0 };
        let group = Identity::default();
        let _ = stream.set_nodelay(true);
        Self { stream, identity, group, program: program.to_owned(), host }
    }

    fn greet(&mut self, mut message: Message) -> Result<Message, CallError> {
        let failed = CallError::system("join the coordinator");
        message.real_pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        message.payload = format!("{}\0{}\0", self.host, self.program).into_bytes();
        self.send(&message).map_err(&failed)?;
        let answer = receive(&mut self.stream).map_err(failed)?;
        match answer.kind {
            Kind::Accept => Ok(answer),
            other => Err(CallError::Rejected(other)),
        }
    }

    /// Joins with a new job.
    pub fn launch(
        stream: TcpStream,
        program: &str,
        interval: Option<u32>,
    ) -> Result<Self, CallError> {
        let mut worker = Self::new(stream, program);
        let mut hello = worker.message(Kind::NewWorker, WorkerState::Unknown);
        if let Some(interval) = interval.and_then(|interval| i32::try_from(interval).ok()) {
            hello.interval = interval;
        }
        let accepted = worker.greet(hello)?;
        worker.group = accepted.group;
        worker.identity.pid = accepted.virtual_pid;
        Ok(worker)
    }

    /// Joins with a job that is restarted, and returns when all others have, too.
    pub fn restart(
        stream: TcpStream,
        image: &Pointer,
        interval: Option<u32>,
    ) -> Result<Self, CallError> {
        let mut worker = Self::new(stream, &image.program);
        worker.identity = image.identity();
        worker.group = image.group();
        let mut hello = worker.message(Kind::RestartWorker, WorkerState::Restarting);
        hello.group = worker.group;
        hello.peers = image.peers;
        if let Some(interval) = interval.and_then(|interval| i32::try_from(interval).ok()) {
            hello.interval = interval;
        }
        worker.greet(hello)?;
        for name in ["DMT:Restart", "Socket::Restart_Ns_Register_Data"] {
            worker
                .barrier(name, WorkerState::Restarting)
                .map_err(CallError::system("wait for the other processes"))?;
        }
        Ok(worker)
    }

    fn barrier(&mut self, name: &str, state: WorkerState) -> io::Result<Message> {
        let mut message = self.message(Kind::Barrier, state);
        message.name = name.to_owned();
        self.send(&message)?;
        loop {
            let answer = receive(&mut self.stream)?;
            match answer.kind {
                Kind::BarrierReleased => return Ok(answer),
                Kind::DoCheckpoint => {}
                Kind::Kill => return Err(io::Error::other("the coordinator ends the computation")),
                other => return Err(io::Error::other(format!("unexpected {other:?}"))),
            }
        }
    }

    /// Does what the coordinator says once the job begins, on a thread of its own, until it or the process has gone.
    pub fn begins(mut self, ask: Ask, begun: Kind, images: PathBuf, told: &Arc<Told>) -> Begins {
        let told = Arc::clone(told);
        Box::new(move |job| {
            let job = Job { folder: job.to_owned(), ask, images, told };
            std::thread::spawn(move || {
                if let Err(error) = self.converse(&job, begun) {
                    if !job.told.to_end.load(Ordering::Relaxed) {
                        eprintln!(
                            "ckptd: warning: the coordinator has gone ({error}): the job runs on without it; 'ckptd \
                             checkpoint' and 'ckptd stop' reach it"
                        );
                    }
                }
            });
        })
    }

    fn converse(&mut self, job: &Job, begun: Kind) -> io::Result<()> {
        // It answers once it runs.
        let _ = job.ask(|job| Question::Status { job: Some(job) });
        let mut message = self.message(begun, WorkerState::Running);
        if begun == Kind::AfterExec {
            message.payload = format!("{}\0", self.program).into_bytes();
        }
        self.send(&message)?;
        loop {
            let order = receive(&mut self.stream)?;
            match order.kind {
                Kind::DoCheckpoint => self.checkpoint(job, &order)?,
                Kind::Kill => {
                    job.end();
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    fn checkpoint(&mut self, job: &Job, order: &Message) -> io::Result<()> {
        self.group = order.group;
        self.barrier("DMT:SUSPEND", WorkerState::Presuspend)?;
        let counted = self.barrier("DMT:CHECKPOINT", WorkerState::Suspended)?;
        self.barrier("Socket::Ckpt_Register_Peer_Info", WorkerState::Checkpointing)?;
        let reply = job.ask(|job| Question::Checkpoint { job }).map_err(io::Error::other)?;
        self.barrier("DMT:WriteCkpt", WorkerState::Checkpointed)?;
        match reply {
            Answer::Committed { record } => {
                let Identity { host, time, pid, .. } = self.identity;
                let group = self.group;
                let pointer = Pointer {
                    ckptd_image: FORMAT,
                    dir: job.folder.parent().unwrap_or(&job.folder).to_owned(),
                    job: record.job,
                    checkpoint: record.checkpoint,
                    program: self.program.clone(),
                    identity: (host, time, pid),
                    group: (group.host, group.time, group.pid, group.generation),
                    peers: counted.peers,
                };
                let path = pointer.write(&job.images)?;
                let name = ImageName {
                    host: self.host.clone(),
                    shell: String::new(),
                    path: path.to_string_lossy().into_owned(),
                };
                let mut message = self.message(Kind::ImageName, WorkerState::Checkpointed);
                message.payload = name.payload();
                self.send(&message)?;
                if counted.exit_after {
                    job.end();
                    return Ok(());
                }
            }
            Answer::Failed { reason, .. } => eprintln!("ckptd: failed to {reason}"),
            other => eprintln!("ckptd: failed to take a checkpoint: unexpected answer {other:?}"),
        }
        let message = self.message(Kind::Resuming, WorkerState::Running);
        self.send(&message)
    }
}

/// The job whose worker it is.
struct Job {
    folder: PathBuf,
    ask: Ask,
    /// Where its images are named.
    images: PathBuf,
    told: Arc<Told>,
}

impl Job {
    fn ask(&self, question: impl FnOnce(String) -> Question) -> Result<Answer, NativeError> {
        // A job's folder has the job's id for its name.
        let id = self.folder.file_name().unwrap_or_default().to_string_lossy();
        (self.ask)(&self.folder, &question(id.into_owned()))
    }

    fn end(&self) {
        self.told.to_end.store(true, Ordering::Relaxed);
        // It may have ended by itself.
        let _ = self.ask(|job| Question::Stop { job, checkpoint: false });
    }
}
