//! An instance's init, as its agent holds it: the way to it, its end, and taking it over.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use protocol::cluster::InstanceKey;

use super::job::{Job, console};
use super::types::{Adopted, Started};
use super::{Requests, SessionError};
use crate::error::EngineError;
use crate::freeze::settle_lingering;
use crate::graph::OuterEnd;
use crate::job_init::{Channel, Instruction, Introduction, Report, init_socket};
use crate::late::NamedSocket;
use crate::proc::{descendants, parent, read_text};
use crate::sys::pidfd::PidFd;
use crate::trace::wait_any;

/// How long an init may take to introduce itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel may take to let go what an agent that was killed had stopped.
const SETTLE: Duration = Duration::from_secs(2);
/// Pause between looks at what ends by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The way to an init that outlives its agent.
#[derive(Debug)]
pub struct Instance {
    process: PidFd,
    /// Its parent, which without namespaces ends what an init that was killed leaves behind.
    link: Option<PidFd>,
    channel: Channel,
    /// Where the next agent would find it.
    socket: PathBuf,
    touching: bool,
    /// Answers to [`Instruction::Names`].
    names: Receiver<(Vec<NamedSocket>, bool)>,
    /// The end of the job, or of the last process, has been reported.
    pub over: bool,
}

impl Drop for Instance {
    /// The init sees that this agent has left, although the thread that listens still holds the socket.
    fn drop(&mut self) {
        let _ = self.channel.socket().shutdown(std::net::Shutdown::Both);
    }
}

impl Instance {
    /// Over the channel on which the init was started.
    ///
    /// # Errors
    /// The init has ended; no threads.
    pub fn begin(
        channel: &Channel,
        init: i32,
        socket: &Path,
        requests: Requests,
    ) -> Result<Self, SessionError> {
        let copy = || channel.socket().try_clone().map(Channel::new).map_err(SessionError::Spawn);
        let (process, link) = (PidFd::open(init)?, link_of(init));
        let (channel, socket) = (copy()?, socket.to_owned());
        let (named, names) = std::sync::mpsc::channel();
        let instance = Self { process, link, channel, socket, touching: false, names, over: false };
        watch(copy()?, requests, named)?;
        Ok(instance)
    }

    /// Tells the init. One that does not listen has ended: its end is reported on its own.
    pub fn instruct(&mut self, instruction: &Instruction) {
        let _ = self.channel.send(instruction, &[]);
    }

    /// Says that this agent is about to change things within the job, or has put them back.
    pub fn touch(&mut self, touching: bool) {
        if self.touching != touching {
            self.touching = touching;
            self.instruct(&Instruction::Touching(touching));
        }
    }

    /// Asks the init what single sockets are called, and whether a connection is under way to a process.
    ///
    /// # Errors
    /// It does not answer.
    pub fn names(&mut self) -> Result<(Vec<NamedSocket>, bool), EngineError> {
        // Of an earlier question, which was given up.
        while self.names.try_recv().is_ok() {}
        self.instruct(&Instruction::Names);
        self.names.recv_timeout(PATIENCE).map_err(|_| EngineError::TooLong {
            what: "asking the job's init for names of sockets".into(),
            limit_ms: PATIENCE.as_millis() as u64,
        })
    }

    /// Kills the init, and with it everything.
    pub fn kill(&self) {
        // It may have ended.
        let _ = self.process.signal(libc::SIGKILL);
    }

    /// Waits until no process is left. Those that this thread traces are reaped by it: before that, the
    /// kernel does not let the init end (pid_namespaces(7)).
    pub fn wait_gone(&mut self) {
        while !self.process.has_ended() {
            settle_lingering();
            while let Ok(Some(_)) = wait_any() {}
            std::thread::sleep(LOOK_AGAIN);
        }
        let begun = Instant::now();
        while self.link.as_ref().is_some_and(|link| !link.has_ended()) && begun.elapsed() < PATIENCE
        {
            std::thread::sleep(LOOK_AGAIN);
        }
        // An init that was killed has left it.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The link between an init and whoever started it: the init's parent, if that still is this program.
fn link_of(init: i32) -> Option<PidFd> {
    let program = |pid: i32| {
        let found = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let parent = parent(init).filter(|parent| *parent != std::process::id() as i32)?;
    let link = PidFd::open(parent).ok()?;
    (program(parent)? == program(init)?).then_some(link)
}

/// Reads what the init reports.
fn watch(
    channel: Channel,
    requests: Requests,
    named: Sender<(Vec<NamedSocket>, bool)>,
) -> Result<(), SessionError> {
    std::thread::Builder::new()
        .name("init-watch".into())
        .spawn(move || {
            while let Ok((report, _)) = channel.receive::<Report>() {
                if let Report::Names { sockets, unsettled } = report {
                    // Nobody may wait for it any more.
                    let _ = named.send((sockets, unsettled));
                    continue;
                }
                if !requests.send(move |tracer| tracer.reported(report)) {
                    return;
                }
            }
            requests.send(|tracer| tracer.ended(None));
        })
        .map(drop)
        .map_err(SessionError::Spawn)
}

/// Takes an instance over.
///
/// # Errors
/// As [`super::Session::adopt`].
pub fn adopt(
    path: &Path,
    expected: Option<&InstanceKey>,
    requests: Requests,
) -> Result<(Job, Adopted), SessionError> {
    let unreachable = |source| SessionError::Unreachable { path: path.to_owned(), source };
    let socket = init_socket::connect(path).map_err(unreachable)?;
    let peer = init_socket::peer(&socket).map_err(unreachable)?;
    if peer.uid != nix::unistd::geteuid().as_raw() && !nix::unistd::geteuid().is_root() {
        return Err(SessionError::Foreign { path: path.to_owned(), uid: peer.uid });
    }
    socket.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    let channel = Channel::new(socket);
    let (report, descriptors) = channel.receive::<Report>()?;
    let Report::Introduction(introduction) = report else {
        return Err(SessionError::OutOfOrder("did not introduce itself"));
    };
    let introduction = *introduction;
    if expected.is_some_and(|expected| *expected != introduction.identity) {
        return Err(SessionError::OutOfOrder("is another one than was looked for"));
    }
    let mut outer = Vec::new();
    for _ in 0..introduction.outer {
        outer.push(outer_end(&channel)?);
    }
    channel.socket().set_read_timeout(None).map_err(unreachable)?;
    let mut warnings = introduction.warnings.clone();
    wait_let_go(peer.pid, introduction.held, &mut warnings)?;
    build(introduction, &channel, (peer.pid, path), descriptors, outer, warnings, requests)
}

fn outer_end(channel: &Channel) -> Result<(OuterEnd, OwnedFd), SessionError> {
    match channel.receive::<Report>()? {
        (Report::Outer { end }, descriptors) => descriptors
            .into_iter()
            .next()
            .map(|fd| (end, fd))
            .ok_or(SessionError::OutOfOrder("sent an end without its descriptor")),
        _ => Err(SessionError::OutOfOrder("did not send all ends")),
    }
}

fn build(
    introduction: Introduction,
    channel: &Channel,
    (init, socket): (i32, &Path),
    descriptors: Vec<OwnedFd>,
    outer: Vec<(OuterEnd, OwnedFd)>,
    warnings: Vec<String>,
    requests: Requests,
) -> Result<(Job, Adopted), SessionError> {
    let ends: Vec<_> = introduction.console.into_iter().zip(descriptors).collect();
    let mut instance = Instance::begin(channel, init, socket, requests)?;
    instance.over =
        introduction.empty || (introduction.root_instance && introduction.ended.is_some());
    let job =
        Job::taken_over(instance, init, introduction.root, &ends, &outer, introduction.keepsake)?;
    let adopted = Adopted {
        identity: introduction.identity,
        started: Started {
            init,
            root: introduction.root,
            console: console(ends),
            outer,
            moved: introduction.listeners,
            warnings,
        },
        held: introduction.held,
        lease_until_ns: introduction.lease_until_ns,
        touched: introduction.touched,
        ended: introduction.ended,
        empty: introduction.empty,
    };
    Ok((job, adopted))
}

/// A tracer's end lets its tracees go and kills its snapshot processes, but only after its sockets have been closed:
/// waits until nothing of the job is traced, but by an init that holds it.
fn wait_let_go(init: i32, held: bool, warnings: &mut Vec<String>) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        let Some((pid, tracer)) = traced(init, held)? else { return Ok(()) };
        if begun.elapsed() > SETTLE {
            // A debugger of the user's: the job runs, and a checkpoint will say so again.
            warnings.push(format!("process {pid} of the job is traced by process {tracer}"));
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A process of the job with its tracer, as this machine numbers them.
fn traced(init: i32, held: bool) -> Result<Option<(i32, i32)>, EngineError> {
    for pid in descendants(init)? {
        let Some(status) = read_text(&format!("/proc/{pid}/status"))? else { continue };
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"))
            .and_then(|rest| rest.trim().parse().ok())
            .unwrap_or(0);
        if tracer != 0 && !(held && tracer == init) {
            return Ok(Some((pid, tracer)));
        }
    }
    Ok(None)
}
