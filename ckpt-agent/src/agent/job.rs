//! The job of an agent: its init, and the launcher's side of its streams.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as UnixPid;
use protocol::agent::ExitKind;
use protocol::launch::{Console, LaunchSpec, RestoreSpec};

use super::{AgentError, Request};
use crate::engine::EngineError;
use crate::engine::dump::DumpSettings;
use crate::engine::graph::Pid;
use crate::engine::job_init::{Channel, INIT_NAME, Order, Report, Task};
use crate::engine::objects::{External, StdioRole};
use crate::engine::restore::clock_offsets;

/// How long stopping all threads of a job may take.
const FREEZE_LIMIT: Duration = Duration::from_secs(2);

/// An init as this machine numbers it, the first process as the job numbers it, the launcher's ends of
/// the streams.
type Introduced = (i32, Pid, Vec<(StdioRole, OwnedFd)>);

/// A job that runs.
#[derive(Debug)]
pub struct Job {
    /// The link between this agent and the init; its end is the end of every process of the job.
    monitor: Child,
    init: i32,
    root: Pid,
    streams: Vec<(StdioRole, OwnedFd)>,
    session_directories: Vec<PathBuf>,
    external: External,
}

impl Job {
    /// Starts a program in an init of its own.
    ///
    /// # Errors
    /// As [`AgentError`].
    pub fn launch(
        spec: LaunchSpec,
        requests: Sender<Request>,
        warn: &dyn Fn(String),
    ) -> Result<(Self, Console), AgentError> {
        let directories = session_directories(&spec.environment);
        let order = Order { clocks: None, task: Task::Launch(spec) };
        Self::start(&order, directories, External::Warn, requests, warn)
    }

    /// Brings a job back in an init of its own.
    ///
    /// # Errors
    /// As [`AgentError`].
    pub fn restore(
        job_dir: &Path,
        spec: RestoreSpec,
        requests: Sender<Request>,
        warn: &dyn Fn(String),
    ) -> Result<(Self, Console), AgentError> {
        let environment: Vec<_> = std::env::vars_os().collect();
        let directories = session_directories(&environment);
        let external = match spec.external {
            protocol::launch::External::Warn => External::Warn,
            protocol::launch::External::Fail => External::Fail,
        };
        let clocks = Some(clock_offsets(job_dir, spec.checkpoint)?);
        let task = Task::Restore { job_dir: job_dir.to_owned(), spec, part: None };
        Self::start(&Order { clocks, task }, directories, external, requests, warn)
    }

    fn start(
        order: &Order,
        session_directories: Vec<PathBuf>,
        external: External,
        requests: Sender<Request>,
        warn: &dyn Fn(String),
    ) -> Result<(Self, Console), AgentError> {
        let (ours, theirs) = UnixStream::pair().map_err(AgentError::Spawn)?;
        let mut monitor = spawn_init(theirs)?;
        let channel = Channel::new(ours);
        let started = Self::introduce(&channel, order, warn);
        let (init, root, ends) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(error);
            }
        };
        let mut streams = Vec::new();
        let mut console = Console::default();
        for (role, end) in ends {
            streams.push((role, end.try_clone().map_err(AgentError::Spawn)?));
            let place = match role {
                StdioRole::Terminal => &mut console.terminal,
                StdioRole::Stdin => &mut console.stdin,
                StdioRole::Stdout => &mut console.stdout,
                StdioRole::Stderr => &mut console.stderr,
            };
            *place = Some(end);
        }
        let streams = remember(streams)?;
        let job = Self { monitor, init, root, streams, session_directories, external };
        watch(channel, requests)?;
        Ok((job, console))
    }

    fn introduce(
        channel: &Channel,
        order: &Order,
        warn: &dyn Fn(String),
    ) -> Result<Introduced, AgentError> {
        channel.send(order, &[])?;
        let mut init = 0;
        loop {
            let (report, descriptors) = channel.receive::<Report>()?;
            match report {
                Report::Init(pid) => init = pid,
                // A job on one machine has no relays.
                Report::Outer { .. } => {}
                Report::Failed(reason) => return Err(AgentError::Init(reason)),
                Report::Ready { root, console, warnings } => {
                    warnings.into_iter().for_each(warn);
                    return Ok((init, root, console.into_iter().zip(descriptors).collect()));
                }
                Report::Ended(_) => return Err(AgentError::Init("ended before it began".into())),
            }
        }
    }

    /// What a dump of this job is told.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn dump_settings(&self) -> Result<DumpSettings, EngineError> {
        let failed = |error| EngineError::system("dup", "a stream of the job", error);
        let mut stdio = HashMap::new();
        let mut terminal_master = None;
        for (role, end) in &self.streams {
            if *role == StdioRole::Terminal {
                terminal_master = Some(end.try_clone().map_err(failed)?);
                if let Some(slave) = self.slave_inode(end) {
                    stdio.insert(slave, *role);
                }
            } else {
                let stat = nix::sys::stat::fstat(end)
                    .map_err(|errno| EngineError::system("fstat", "a stream", errno))?;
                stdio.insert((stat.st_dev, stat.st_ino), *role);
            }
        }
        Ok(DumpSettings {
            init: self.init,
            root: self.root,
            session_directories: self.session_directories.clone(),
            external: self.external,
            stdio,
            terminal_master,
            relays: Vec::new(),
            remote_shells: Vec::new(),
            freeze_limit: FREEZE_LIMIT,
        })
    }

    fn slave_inode(&self, master: &OwnedFd) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let index = crate::engine::sys::tty::master_index(master).ok()?;
        let path = format!("/proc/{}/root/dev/pts/{index}", self.init);
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    /// Sends a signal to the process group of the job's first process.
    pub fn signal(&self, signal: i32) {
        let Some(root) = self.root_on_this_machine() else { return };
        let group = nix::unistd::getpgid(Some(UnixPid::from_raw(root)));
        if let (Ok(group), Ok(signal)) = (group, Signal::try_from(signal)) {
            // It may just have ended.
            let _ = kill(UnixPid::from_raw(-group.as_raw()), signal);
        }
    }

    fn root_on_this_machine(&self) -> Option<i32> {
        let all = crate::engine::proc::descendants(self.init).ok()?;
        all.into_iter().find(|pid| {
            procfs::process::Process::new(*pid)
                .and_then(|process| process.status())
                .ok()
                .and_then(|status| status.nspid)
                .is_some_and(|numbers| numbers.last() == Some(&self.root))
        })
    }

    /// Ends every process of the job at once.
    pub fn kill(&self) {
        let _ = kill(UnixPid::from_raw(self.init), Signal::SIGKILL);
    }

    /// Waits until no process of the job is left.
    pub fn wait_gone(&mut self) {
        let _ = self.monitor.wait();
    }
}

/// Of pipes only the identity is kept: an end of ours would hold back the end of the job's input, or
/// keep the job's output open.
fn remember(streams: Vec<(StdioRole, OwnedFd)>) -> Result<Vec<(StdioRole, OwnedFd)>, AgentError> {
    streams
        .into_iter()
        .map(|(role, end)| match role {
            StdioRole::Terminal => Ok((role, end)),
            _ => Ok((role, identity(&end)?)),
        })
        .collect()
}

/// An O_PATH descriptor of the same pipe: keeps neither end open.
fn identity(end: &OwnedFd) -> Result<OwnedFd, AgentError> {
    use nix::fcntl::{OFlag, open};
    let path = format!("/proc/self/fd/{}", end.as_fd().as_raw_fd());
    open(path.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
        .map_err(|errno| AgentError::Spawn(errno.into()))
}

/// A fresh execution of this program that becomes the job's init; its socket is descriptor 3, its
/// standard streams are ours, for those that a job inherits.
fn spawn_init(socket: UnixStream) -> Result<Child, AgentError> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(INIT_NAME)
        .env_clear()
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    for name in ["CKPTD_FAULT", "RUST_BACKTRACE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    crate::engine::sys::spawn::with_descriptor(&mut command, socket.into(), 3)
        .map_err(AgentError::Spawn)
}

/// Reads what the init reports while the job runs.
fn watch(channel: Channel, requests: Sender<Request>) -> Result<(), AgentError> {
    std::thread::Builder::new()
        .name("init-watch".into())
        .spawn(move || {
            let ended: Option<ExitKind> = loop {
                match channel.receive::<Report>() {
                    Ok((Report::Ended(status), _)) => break Some(status),
                    Ok(_) => {}
                    Err(_) => break None,
                }
            };
            let _ = requests.send(Request::Ended(ended));
        })
        .map(drop)
        .map_err(AgentError::Spawn)
}

/// Directories whose files travel with the job.
fn session_directories(environment: &[(std::ffi::OsString, std::ffi::OsString)]) -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    let own = environment.iter().find(|(name, _)| name == "TMPDIR").map(|(_, value)| value);
    if let Some(directory) = own.map(PathBuf::from) {
        if directory.is_absolute() && directory != Path::new("/") {
            directories.push(directory);
        }
    }
    directories
}
