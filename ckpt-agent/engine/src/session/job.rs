//! The job of an agent: its init, and the launcher's side of its streams.
//!
//! - `adopted`: processes that ckptd has not started;
//! - `settings`: what a dump is told.

mod adopted;
mod settings;

pub use adopted::{Adoptable, try_to_adopt};

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as UnixPid;
use protocol::agent::ExitKind;
use protocol::cluster::NodeName;
use protocol::launch::{Kept, LaunchSpec, RestoreSpec};

use super::filling::Filling;
use super::folders::{own_temporary, session_directories};
use super::instance::Instance;
use super::streams::{console, remember, remember_outer};
use super::types::{RestoreOrder, Started};
use super::{Requests, SessionError, addresses, previous, temporary};
use crate::demand;
use crate::error::EngineError;
use crate::fault;
use crate::graph::{FileId, Offer, OuterEnd, Pid};
use crate::job_init::stages::{self, Mirror};
use crate::job_init::{
    Channel, Connection, INIT_NAME, InstanceOrder, Instruction, Keepsake, NUMBERS_VARIABLE, Order,
    Report, Task, UserOrder, shown_arguments,
};
use crate::objects::{External, StdioRole};
use crate::proc::{Members, job_number, namespaces_of, read_text, stat_of};
use crate::restore::{Past, VDSO_VARIABLE};
use crate::sys::memory_map::{self, Means};
use crate::sys::signals;
use crate::sys::spawn;
use crate::sys::trial::Call;

/// How long stopping all threads of a job may take.
pub const FREEZE_LIMIT: Duration = Duration::from_secs(2);
/// How long the end of a job may take from that of its first process.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// What an init has told until the job was there, with its streams still in its order.
#[derive(Default)]
struct Told {
    started: Started,
    streams: Vec<(StdioRole, OwnedFd)>,
    is_filling: bool,
}

/// A job that runs, or an instance of it.
#[derive(Debug)]
pub struct Job {
    /// The link between this agent and the init; with an embedded agent its end is the end of every
    /// process of the job.
    monitor: Option<Child>,
    init: i32,
    members: Members,
    root: Option<Pid>,
    streams: Vec<(StdioRole, OwnedFd)>,
    outer: Vec<(OuterEnd, OwnedFd)>,
    session_directories: Vec<PathBuf>,
    kept: Kept,
    external: External,
    /// The way to an init that outlives this agent; `None`: it does not.
    instance: Option<Instance>,
    /// Logical node and machine, if late connections are watched.
    watched: Option<(String, NodeName)>,
    /// What processors its programs began on, as far as the last checkpoint knew.
    offers: Vec<Offer>,
    /// The user whom this agent runs it for, if not its own.
    user: Option<UserOrder>,
    /// Whether the init has told the job's end, or is no more.
    over: Arc<AtomicBool>,
    /// How far its memory is filled.
    filling: Filling,
}

impl Job {
    /// Starts a program in an init of its own.
    ///
    /// # Errors
    /// As [`SessionError`].
    pub fn launch(
        mut spec: LaunchSpec,
        instance: Option<InstanceOrder>,
        requests: &Requests,
    ) -> Result<(Self, Started), SessionError> {
        spec.kept.temporary = own_temporary(&spec.environment);
        let external = instance.as_ref().map_or(spec.external, |instance| instance.external);
        let keepsake = Keepsake {
            session_directories: session_directories(&spec.environment, &spec.kept),
            kept: spec.kept.clone(),
            external,
            watched: instance.as_ref().and_then(watched),
            offers: Vec::new(),
            user: instance.as_ref().and_then(|instance| instance.user.clone()),
        };
        let order = Order { instance, ..Order::of(Task::Launch(spec), keepsake) };
        let (job, started) = Self::start(order, Vec::new(), requests)?;
        if started.root.is_none() {
            return Err(SessionError::OutOfOrder("was started without a process"));
        }
        Ok((job, started))
    }

    /// Brings a job or an instance back in an init of its own.
    ///
    /// # Errors
    /// As [`SessionError`].
    pub fn restore(
        job_dir: &Path,
        wanted: RestoreOrder,
        requests: &Requests,
        warn: &dyn Fn(String),
    ) -> Result<(Self, Started), SessionError> {
        let RestoreOrder { image_dir, spec, part: wanted_part, instance, connections, absent } =
            wanted;
        if instance.is_none() {
            previous::wait_gone(job_dir)?;
            addresses::prepare(job_dir, &spec, warn)?;
        }
        let mut order = restore_order(image_dir.as_deref().unwrap_or(job_dir), spec)?;
        if let Task::Restore { part, .. } = &mut order.task {
            *part = wanted_part;
        }
        match &instance {
            Some(instance) => {
                order.keepsake.watched = watched(instance);
                order.keepsake.user.clone_from(&instance.user);
            }
            None => {
                if let Some(folder) = &order.keepsake.kept.temporary {
                    temporary::check_free(job_dir, folder)?;
                }
            }
        }
        order.instance = instance;
        let connections: Vec<(Connection, OwnedFd)> =
            connections
                .into_iter()
                .map(|(file, fd)| (Connection { file, absent: None }, fd))
                .chain(absent.into_iter().map(|(end, fd)| {
                    (Connection { file: FileId(u32::MAX), absent: Some(end) }, fd)
                }))
                .collect();
        order.connections = u32::try_from(connections.len()).unwrap_or(u32::MAX);
        Self::start(order, connections, requests)
    }

    /// Takes over an instance that another agent has left.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn taken_over(
        instance: Instance,
        init: i32,
        root: Option<Pid>,
        console: &[(StdioRole, OwnedFd)],
        outer: &[(OuterEnd, OwnedFd)],
        keepsake: Keepsake,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            monitor: None,
            init,
            members: Members::Below(init),
            root,
            streams: remember(console)?,
            outer: remember_outer(outer)?,
            session_directories: keepsake.session_directories,
            kept: keepsake.kept,
            external: external(keepsake.external),
            instance: Some(instance),
            watched: keepsake.watched,
            offers: keepsake.offers,
            user: keepsake.user,
            over: Arc::default(),
            filling: Filling::default(),
        })
    }

    fn start(
        mut order: Order,
        connections: Vec<(Connection, OwnedFd)>,
        requests: &Requests,
    ) -> Result<(Self, Started), SessionError> {
        let (ours, theirs) = UnixStream::pair().map_err(SessionError::Spawn)?;
        let restores = matches!(order.task, Task::Restore { .. });
        order.low_heap = restores && heap_must_be_low();
        order.stages = stages::are_wanted();
        let calls = order.instance.as_ref().and_then(|instance| instance.calls.as_deref());
        let mut monitor = spawn_init(theirs, order.low_heap, calls, Stdio::inherit)?;
        let channel = Channel::new(ours);
        let mut is_filling = false;
        let begun = Self::introduce(&channel, &order, connections).and_then(|told| {
            is_filling = told.is_filling;
            Self::assemble(&channel, &order, told, requests)
        });
        match begun {
            Ok((mut job, started)) => {
                job.monitor = Some(monitor);
                match job.instance {
                    Some(_) => {}
                    None => {
                        job.filling.is_going_on(is_filling);
                        watch(channel, requests.clone(), job.over.clone(), job.filling.clone())?;
                    }
                }
                Ok((job, started))
            }
            Err(error) => {
                // An instance's init does not end with the link, but with the channel.
                drop(channel);
                if order.instance.is_none() {
                    let _ = monitor.kill();
                }
                let _ = monitor.wait();
                Err(error)
            }
        }
    }

    fn assemble(
        channel: &Channel,
        order: &Order,
        told: Told,
        requests: &Requests,
    ) -> Result<(Self, Started), SessionError> {
        let instance = match &order.instance {
            Some(wanted) => {
                let init = told.started.init;
                Some(Instance::begin(channel, init, &wanted.socket, requests.clone())?)
            }
            None => None,
        };
        let Told { mut started, streams, .. } = told;
        let job = Self {
            monitor: None,
            init: started.init,
            members: Members::Below(started.init),
            root: started.root,
            streams: remember(&streams)?,
            outer: remember_outer(&started.outer)?,
            session_directories: order.keepsake.session_directories.clone(),
            kept: order.keepsake.kept.clone(),
            external: external(order.keepsake.external),
            instance,
            watched: order.keepsake.watched.clone(),
            offers: order.keepsake.offers.clone(),
            user: order.keepsake.user.clone(),
            over: Arc::default(),
            filling: Filling::default(),
        };
        started.console = console(streams);
        Ok((job, started))
    }

    fn introduce(
        channel: &Channel,
        order: &Order,
        connections: Vec<(Connection, OwnedFd)>,
    ) -> Result<Told, SessionError> {
        channel.send(order, &[])?;
        for (connection, descriptor) in connections {
            channel.send(&connection, &[descriptor])?;
        }
        let mut stages = Mirror::default();
        let mut told = Told::default();
        let started = &mut told.started;
        loop {
            let (report, descriptors) = channel.receive::<Report>()?;
            match report {
                Report::Init(pid) => started.init = pid,
                Report::Stage(stage) => stages.note(stage.as_ref()),
                Report::Failed(reason) => return Err(SessionError::Init(reason)),
                Report::Outer { end } => {
                    started.outer.extend(descriptors.into_iter().map(|fd| (end.clone(), fd)));
                }
                Report::Ready { root, console, moved, is_filling, warnings } => {
                    told.is_filling = is_filling;
                    started.root = root;
                    told.streams = console.into_iter().zip(descriptors).collect();
                    started.moved = moved;
                    started.warnings = warnings;
                    return Ok(told);
                }
                Report::Ended(_)
                | Report::Introduction(_)
                | Report::Running
                | Report::RootEnded(_)
                | Report::Listens(_)
                | Report::Names { .. }
                | Report::Rehearsed { .. }
                | Report::NotRehearsable(_)
                | Report::Filling { .. }
                | Report::Filled
                | Report::Unfilled(_)
                | Report::Empty => {
                    return Err(SessionError::Init("ended before it began".into()));
                }
            }
        }
    }

    /// The init, as this machine numbers it.
    pub fn init(&self) -> i32 {
        self.init
    }

    /// The way to an init that outlives this agent.
    pub fn instance(&mut self) -> Option<&mut Instance> {
        self.instance.as_mut()
    }

    /// The init that answers for late connections, and who it is: logical node and machine.
    pub fn watched(&mut self) -> Option<(&mut Instance, (String, NodeName))> {
        self.instance.as_mut().zip(self.watched.clone())
    }

    /// Its processes.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Whether its processes end with this agent.
    pub fn ends_with_agent(&self) -> bool {
        !self.is_instance() && !self.is_adopted()
    }

    /// Whether the init outlives this agent.
    pub fn is_instance(&self) -> bool {
        self.instance.is_some()
    }

    /// Whether the job's first process has ended, and with it the job, if that ends within a moment: what fails then
    /// fails for that reason. Never of an instance: it outlives its processes.
    pub fn is_ending(&self) -> bool {
        let until = Instant::now() + LAST_MOMENT;
        while !self.is_instance() && !self.root_lives() {
            if self.over.load(Ordering::Acquire) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    fn root_lives(&self) -> bool {
        let root = self.root_on_this_machine().and_then(|pid| stat_of(pid).ok());
        root.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    /// The first process has ended, others go on.
    pub fn root_ended(&mut self) {
        self.root = None;
    }

    /// More ends of relays, beside those that the init gave.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn hold_relays(&mut self, ends: &[(OuterEnd, OwnedFd)]) -> Result<(), SessionError> {
        self.outer.extend(remember_outer(ends)?);
        Ok(())
    }

    /// An end of a stream or relay is no more: from now on the job's side of it is an ordinary
    /// object whose other side has gone.
    pub fn close_end(&mut self, end: &OuterEnd) {
        match end {
            OuterEnd::Stream(role) => self.streams.retain(|(known, _)| known != role),
            OuterEnd::Relay(_) => self.outer.retain(|(known, _)| known != end),
        }
        if let Some(instance) = &mut self.instance {
            instance.instruct(&Instruction::Close { end: end.clone() });
        }
    }

    /// Sends a signal to the process group of the job's first process.
    pub fn signal(&self, signal: i32) {
        // It has ended, or runs on another machine.
        let Some(root) = self.root_on_this_machine() else { return };
        let group = nix::unistd::getpgid(Some(UnixPid::from_raw(root)));
        if self.is_adopted() && !group.is_ok_and(|group| self.leads(group.as_raw())) {
            return self.forward(signal);
        }
        if let (Ok(group), Ok(signal)) = (group, Signal::try_from(signal)) {
            // It may just have ended.
            let _ = kill(UnixPid::from_raw(-group.as_raw()), signal);
        }
    }

    /// Sends a signal to the job's first process alone.
    pub fn forward(&self, signal: i32) {
        if let Some(root) = self.root_on_this_machine() {
            // It may just have ended.
            let _ = signals::send(root, signal);
        }
    }

    fn root_on_this_machine(&self) -> Option<i32> {
        let root = self.root?;
        let all = self.members.list().ok()?;
        let status = |pid: i32| read_text(&format!("/proc/{pid}/status")).ok().flatten();
        // In PID namespaces of the job's own others may be called the same.
        let depth = status(self.init).map_or(1, |status| namespaces_of(&status));
        all.into_iter().find(|pid| {
            status(*pid).map(|status| job_number(&status, depth).unwrap_or(*pid)) == Some(root)
        })
    }

    /// Waits until all its memory is filled; `count` is told of bytes as they are.
    ///
    /// # Errors
    /// Where that does not get on.
    pub fn wait_until_filled(&self, count: impl Fn(u64)) -> Result<(), EngineError> {
        self.filling.wait(count)
    }

    /// Ends every process of the job at once.
    pub fn kill(&self) {
        if let Some(instance) = &self.instance {
            instance.kill();
            return;
        }
        if self.is_adopted() {
            self.members.stop();
            self.members.kill_living();
            return;
        }
        let _ = kill(UnixPid::from_raw(self.init), Signal::SIGKILL);
    }

    /// The folder of its temporary files.
    pub fn temporary(&self) -> Option<&Path> {
        self.kept.temporary.as_deref()
    }

    /// Waits until no process of the job is left.
    pub fn wait_gone(&mut self) {
        if let Some(instance) = &mut self.instance {
            instance.wait_gone();
        }
        if self.is_adopted() {
            self.wait_adopted_gone();
        }
        if let Some(monitor) = &mut self.monitor {
            // It may have been reaped among this thread's tracees.
            let _ = monitor.wait();
        }
        if let Some(folder) = &self.kept.temporary {
            // What the job has left there is left; a restart makes the folder again.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Where the heap of a restored process ends must be reached from where the init's begins.
pub(super) fn heap_must_be_low() -> bool {
    memory_map::means() == Means::Nothing && spawn::randomizing_lifts_heap()
}

pub(super) fn restore_order(job_dir: &Path, spec: RestoreSpec) -> Result<Order, SessionError> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let Past { clocks, number, offers, kept } = Past::of(job_dir, spec.checkpoint)?;
    let keepsake = Keepsake {
        session_directories: session_directories(&environment, &kept),
        kept,
        external: spec.external,
        watched: None,
        offers,
        user: None,
    };
    let task = Task::Restore { job_dir: job_dir.to_owned(), spec, part: None };
    Ok(Order { clocks: Some(clocks), number, ..Order::of(task, keepsake) })
}

fn watched(instance: &InstanceOrder) -> Option<(String, NodeName)> {
    let watch = instance.watch.as_ref()?;
    Some((instance.host_name.clone(), watch.machine.clone()))
}

fn external(external: protocol::launch::External) -> External {
    match external {
        protocol::launch::External::Warn => External::Warn,
        protocol::launch::External::Fail => External::Fail,
    }
}

/// A fresh execution of this program that becomes the job's init; its socket is descriptor 3, its
/// standard streams are ours where there are jobs that inherit them. `calls`: what it shows to the job's processes.
pub(super) fn spawn_init(
    socket: UnixStream,
    low_heap: bool,
    calls: Option<&Path>,
    stream: fn() -> Stdio,
) -> Result<Child, SessionError> {
    // The new process would be killed for it.
    Call::CloseRange.must_not_be_forbidden()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(shown_arguments(calls));
    command.arg0(INIT_NAME).env_clear().stdin(stream()).stdout(stream()).stderr(stream());
    let passed_on = ["CKPTD_FAULT", fault::FOLDER, "RUST_BACKTRACE"];
    for name in passed_on.into_iter().chain([NUMBERS_VARIABLE, VDSO_VARIABLE, demand::VARIABLE]) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if low_heap {
        spawn::with_low_heap(&mut command);
    }
    spawn::with_descriptor(&mut command, socket.into(), 3).map_err(SessionError::Spawn)
}

/// Reads what the init reports while the job runs.
fn watch(
    channel: Channel,
    requests: Requests,
    over: Arc<AtomicBool>,
    filling: Filling,
) -> Result<(), SessionError> {
    std::thread::Builder::new()
        .name("init-watch".into())
        .spawn(move || {
            let ended: Option<ExitKind> = loop {
                match channel.receive::<Report>() {
                    Ok((Report::Ended(status), _)) => break Some(status),
                    Ok((Report::Filling { bytes }, _)) => filling.has(bytes),
                    Ok((Report::Filled, _)) => filling.is_going_on(false),
                    Ok((Report::Unfilled(why), _)) => {
                        requests.send(move |tracer| tracer.unfilled(&why));
                    }
                    Ok(_) => {}
                    Err(_) => break None,
                }
            };
            over.store(true, Ordering::Release);
            filling.is_going_on(false);
            requests.send(move |tracer| tracer.ended(ended));
        })
        .map(drop)
        .map_err(SessionError::Spawn)
}
