//! An instance's init, as its agent holds it: the way to it, and its end.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use super::{Requests, SessionError};
use crate::error::EngineError;
use crate::freeze::settle_lingering;
use crate::job_init::{Channel, Instruction, Report};
use crate::late::NamedSocket;
use crate::proc::parent;
use crate::sys::pidfd::PidFd;
use crate::trace::wait_any;

/// How long an init may take to introduce itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between looks at what ends by itself.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(2);

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
