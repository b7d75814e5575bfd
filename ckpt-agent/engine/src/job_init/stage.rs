//! From the fresh execution of this program to process 1, and process 1's life.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use protocol::cluster::agent::stream_relay;

use super::super::demand::{self, Pager, Wish};
use super::super::dump::clocks;
use super::super::error::{EngineError, Result};
use super::super::graph::{OuterEnd, RelayEnd, RelayKind};
use super::super::late::{self, Installed, Late};
use super::super::objects::StdioRole;
use super::super::restore::Standing;
use super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_near};
use super::super::sys::reap::{Reaped, reap_any};
use super::super::sys::rounds::Counter;
use super::super::sys::trial::Call;
use super::super::sys::userfault::MissingPages;
use super::super::sys::{prctl, signals, spawn};
use super::bring_back::{Among, Begun, bring_back};
use super::channel::Channel;
use super::connections::Connections;
use super::instance::{InstanceOrder, Instruction};
use super::instance_init::InstanceInit;
use super::lease::Lease;
use super::order::die_with_parent;
use super::reap::End;
use super::rehearsal::{self, Rehearsal, Surroundings};
use super::stages::{self, Stage};
use super::world::{World, kill_all};
use super::{Order, Report, Task, UserOrder, init_socket, launch, namespaces, order, reap};

/// Where the agent has put the socket.
const SOCKET: i32 = 3;
/// Tells a link without namespaces that the agent has ended. Nobody else sends it.
const PARENT_ENDED: Signal = Signal::SIGUSR1;
/// How long an init may take to end the job once nothing fills its memory any more.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// And the pager, once the init has ended.
const LAST_BREATH: Duration = Duration::from_secs(1);
/// How often that is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// What an init has got before it left the machine's namespaces.
struct Prepared {
    order: Order,
    connections: Connections,
    /// In a cluster.
    outside: Option<Outside>,
    /// What can fill memory while the job runs.
    pager: Option<Pager>,
}

/// What an init that outlives its agent has made there.
struct Outside {
    order: InstanceOrder,
    listener: UnixListener,
    /// The offset of CLOCK_BOOTTIME here, ns.
    boottime: i64,
}

/// Acts as init. To be called first thing in `main`, before any thread is made, by a process started
/// under [`INIT_NAME`](super::INIT_NAME). Returns the exit status.
pub fn run() -> i32 {
    // SAFETY: the agent has put a socket there for us; nobody else in this fresh program knows it.
    let socket = unsafe { UnixStream::from_raw_fd(SOCKET) };
    let channel = Channel::new(socket);
    match stage(channel) {
        Ok(status) => status,
        Err((channel, error)) => {
            let _ = channel.send(&Report::of_failure(error), &[]);
            1
        }
    }
}

fn system(call: &'static str, what: &str) -> impl Fn(nix::errno::Errno) -> EngineError {
    move |errno| EngineError::system(call, what, errno)
}

fn stage(channel: Channel) -> std::result::Result<i32, (Channel, EngineError)> {
    match prepare(&channel) {
        Ok(prepared) => divide(channel, prepared),
        Err(error) => Err((channel, error)),
    }
}

/// What is done in the machine's namespaces, and leaving them.
fn prepare(channel: &Channel) -> Result<Prepared> {
    die_with_parent()?;
    let (mut order, is_inside) = order::receive(channel)?;
    if order.stages {
        stages::tell(channel);
    }
    if order.low_heap {
        spawn::randomize_again();
    }
    let connections = Connections::receive(channel, order.connections)?;
    let outside = order.instance.take().map(stay_behind).transpose()?;
    let rehearsal = order.rehearsal.as_ref();
    let surroundings = rehearsal.map(|_| Surroundings::look(order.world)).transpose()?;
    let pager = start_pager(&order, outside.is_some());
    let entering = stages::begin(Stage::Namespaces);
    match order.world {
        World::Own => {
            if !is_inside {
                namespaces::enter_user()?;
            }
            namespaces::enter(order.clocks, surroundings.is_some())?;
        }
        World::Machine => outlive_launcher()?,
    }
    drop(entering);
    if let Some(surroundings) = surroundings {
        surroundings.rebuild()?;
        // The namespaces have changed the credentials, which clears it (prctl(2)).
        die_with_parent()?;
    }
    Ok(Prepared { order, connections, outside, pager })
}

/// What fills the memory of a job while that runs: of one that is brought back on a machine alone, in namespaces of its own,
/// by who may be told of all that its processes do. Where it can't be had, memory is filled before.
fn start_pager(order: &Order, is_instance: bool) -> Option<Pager> {
    let is_for_it = matches!(order.task, Task::Restore { .. })
        && order.world == World::Own
        && order.rehearsal.is_none()
        && !is_instance;
    let can_be_had = is_for_it
        && Wish::of_environment().is_for_demand()
        && Call::Userfaultfd.may_be_made()
        && MissingPages::can_be_had();
    if can_be_had { demand::start().ok() } else { None }
}

/// Without namespaces nobody but the link and the init ends the job's processes, and they are not safe from signals
/// as process 1 is: they block all, and neither is killed by its parent's end. The init sees by its socket that the
/// agent has gone, the link by a signal.
fn outlive_launcher() -> Result<()> {
    signals::set_blocked(u64::MAX)
        .map_err(|error| EngineError::system("rt_sigprocmask", "the job's init", error))?;
    if prctl::has_pdeathsig().map_err(system("prctl", "PR_GET_PDEATHSIG"))? {
        prctl::set_pdeathsig(PARENT_ENDED).map_err(system("prctl", "PR_SET_PDEATHSIG"))?;
    }
    World::Machine.adopt_orphans()
}

/// The link's life without namespaces: it ends the init when the agent has ended, and the job's processes when the
/// init has.
fn watch_over(init: Pid) -> Result<()> {
    let awaited: SigSet = [Signal::SIGCHLD, PARENT_ENDED].into_iter().collect();
    loop {
        match reap_any().map_err(system("wait", "the job's init"))? {
            Reaped::Ended(pid, _) if pid == init.as_raw() => break,
            Reaped::Ended(..) => {}
            Reaped::NoChildren => break,
            Reaped::Nothing | Reaped::Stopped => {
                if awaited.wait() == Ok(PARENT_ENDED) {
                    // It may have ended by itself.
                    let _ = nix::sys::signal::kill(init, Signal::SIGKILL);
                }
            }
        }
    }
    World::Machine.end_all();
    Ok(())
}

/// In a cluster an init outlives its agent.
fn stay_behind(order: InstanceOrder) -> Result<Outside> {
    prctl::set_pdeathsig(None).map_err(system("prctl", "PR_SET_PDEATHSIG"))?;
    nix::unistd::setsid().map_err(system("setsid", "the job's init"))?;
    let failed = |error| EngineError::system("bind", order.socket.display().to_string(), error);
    let listener = init_socket::make(&order.socket).map_err(failed)?;
    let (_, boottime) = clocks::offsets(std::process::id() as i32)?;
    Ok(Outside { order, listener, boottime })
}

fn divide(
    channel: Channel,
    prepared: Prepared,
) -> std::result::Result<i32, (Channel, EngineError)> {
    let Prepared { order, connections, outside, pager } = prepared;
    let (feeding, pager) = pager.map(|pager| (pager.socket, pager.number)).unzip();
    // Both write to the same socket: the child not before its parent has introduced it.
    let (introduced, done) = match nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC) {
        Ok(pipe) => pipe,
        Err(errno) => return Err((channel, system("pipe", "the job's init")(errno))),
    };
    match fork_init(order.number.filter(|_| order.world == World::Machine)) {
        Err(error) => Err((channel, EngineError::system("fork", "the job's init", error))),
        Ok(ForkResult::Parent { child }) => {
            // From here on the init speaks; its socket must not stay open in the link.
            stages::tell_no_more();
            if let Err(error) = channel.send(&Report::Init(child.as_raw()), &[]) {
                return Err((channel, EngineError::odd("report", error.to_string())));
            }
            drop((introduced, done, connections, outside, feeding));
            // With an embedded agent it stays only so that the init dies with the agent: by
            // PR_SET_PDEATHSIG from link to link. In a cluster, so that somebody reaps the init.
            if let Err(error) = release_streams() {
                return Err((channel, error));
            }
            drop(channel);
            match order.world {
                World::Own => wait_for(child, pager),
                // Nobody hears of a failure any more.
                World::Machine => drop(watch_over(child)),
            }
            Ok(0)
        }
        Ok(ForkResult::Child) => {
            drop(done);
            let mut nothing = [0];
            while nix::unistd::read(&introduced, &mut nothing) == Err(nix::errno::Errno::EINTR) {}
            drop(introduced);
            if order.stages {
                stages::tell(&channel);
            }
            let world = order.world;
            let lived = match outside {
                None if order.rehearsal.is_some() => {
                    rehearse(&channel, order, connections).map_err(|error| (Some(channel), error))
                }
                None => live(&channel, order, feeding).map_err(|error| (Some(channel), error)),
                Some(outside) => live_in_cluster(channel, order, outside, connections),
            };
            let status = match lived {
                Ok(()) => 0,
                Err((channel, error)) => {
                    if let Some(channel) = channel {
                        let _ = channel.send(&Report::of_failure(error), &[]);
                    }
                    1
                }
            };
            // In a PID namespace the kernel kills whatever is left.
            world.end_all();
            std::process::exit(status)
        }
    }
}

/// Forks the init, with the number that it had if that can be had: its children know it as their parent and session.
fn fork_init(number: Option<i32>) -> std::io::Result<ForkResult> {
    let Some(number) = number else {
        // SAFETY: this process is single-threaded, so the child may go on as ordinary code.
        return Ok(unsafe { fork() }?);
    };
    Ok(
        match fork_near(
            &SingleThreaded::check()?,
            &Counter::default(),
            number,
            libc::SIGCHLD,
            Shared::default(),
        )? {
            Side::Parent(child) => ForkResult::Parent { child: Pid::from_raw(child) },
            Side::Child => ForkResult::Child,
        },
    )
}

/// The link's life beside the init of a PID namespace. A pager that fails before the init can look after it leaves a process
/// waiting for ever, and with it the init: that has some time to say so itself.
fn wait_for(init: Pid, mut pager: Option<i32>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` lives across the call.
        match unsafe { libc::waitpid(-1, &mut status, libc::__WALL) } {
            ended if ended == init.as_raw() => {
                // It has nobody left to fill memory for, and nobody else may be there to reap it.
                if let Some(pager) = pager {
                    ends_within(Pid::from_raw(pager), LAST_BREATH);
                }
                return;
            }
            ended if Some(ended) == pager => {
                pager = None;
                if status != 0 && !ends_within(init, LAST_WORDS) {
                    // It may have ended by itself.
                    let _ = nix::sys::signal::kill(init, Signal::SIGKILL);
                } else if status != 0 {
                    return;
                }
            }
            -1 if nix::errno::Errno::last() != nix::errno::Errno::EINTR => return,
            _ => {}
        }
    }
}

/// Whether a child ends, and is waited for, within this time.
fn ends_within(child: Pid, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::EINTR) => {}
            _ => return true,
        }
        std::thread::sleep(LOOK);
    }
    false
}

/// Process 1 of a job with an embedded agent.
fn live(channel: &Channel, order: Order, pager: Option<UnixStream>) -> Result<()> {
    let mut warnings = Vec::new();
    nix::unistd::setsid().map_err(system("setsid", "the job's init"))?;
    match order.world {
        World::Own => {
            // The namespaces have changed the credentials, which clears it (prctl(2)).
            die_with_parent()?;
            let _mounting = stages::begin(Stage::Mounts);
            warnings.extend(namespaces::mount_own()?);
        }
        World::Machine => order.world.adopt_orphans()?,
    }
    let mut begun = begin(order.task, Connections::default(), None, pager.as_ref(), &mut warnings)?;
    drop(pager);
    // A part of an instance may have none: then it ends with its agent.
    let root = begun.root.unwrap_or(super::NO_ROOT);
    let mut feeder = None;
    if let Some(standing) = begun.standing.take() {
        let _going = stages::begin(Stage::Go);
        feeder = standing.go()?;
    }
    stages::tell_no_more();
    release_streams()?;
    if tell(channel, &begun, feeder.is_some(), warnings).is_err() {
        return Ok(());
    }
    drop(begun);
    let end = reap::until_end(root, channel, feeder).map_err(system("wait", "the job"))?;
    match end {
        End::Job(status) => drop(channel.send(&Report::Ended(status), &[])),
        End::Memory(why) => {
            // Nobody may be left when this process ends, and with it the last copies of what its pages are missing by.
            kill_all();
            reap::until_none_is_left();
            let _ = channel.send(&Report::Unfilled(why), &[]);
        }
        End::Agent => {}
    }
    Ok(())
}

/// Process 1 of a job that is brought back and never let go: it ends with this process.
fn rehearse(channel: &Channel, order: Order, connections: Connections) -> Result<()> {
    let mut warnings = Vec::new();
    nix::unistd::setsid().map_err(system("setsid", "the rehearsal's init"))?;
    // The namespaces have changed the credentials, which clears it (prctl(2)).
    die_with_parent()?;
    rehearsal::seal_mounts()?;
    let instance = match &order.rehearsal {
        Some(Rehearsal::Instance(instance)) => Some(instance),
        _ => None,
    };
    if let Some(instance) = instance {
        let own = order.keepsake.own_host_name();
        warnings.extend(namespaces::name_host(&instance.host_name, own, &instance.hosts)?);
    }
    warnings.extend(namespaces::mount_own()?);
    let Task::Restore { job_dir, spec, part: None } = &order.task else {
        return Err(EngineError::odd("order", "only the restart of all of it can be rehearsed"));
    };
    let among = Among {
        cluster: instance.is_some(),
        watch: instance.is_some_and(|instance| instance.watch),
        crowded: false,
        rehearsal: order.rehearsal.as_ref(),
        pager: None,
    };
    let user = instance.and_then(|instance| instance.user.as_ref());
    let begun = bring_back(job_dir, spec, None, connections, among, user, &mut warnings)?;
    let processes = begun.standing.as_ref().map_or(0, Standing::processes);
    // Whoever asked may have gone.
    let _ = channel.send(&Report::Rehearsed { processes, warnings }, &[]);
    // Nobody says anything any more: this is the end.
    let _ = channel.receive::<Instruction>();
    Ok(())
}

/// Process 1 of an instance in a cluster.
fn live_in_cluster(
    channel: Channel,
    order: Order,
    outside: Outside,
    connections: Connections,
) -> std::result::Result<(), (Option<Channel>, EngineError)> {
    let Outside { order: cluster, listener, boottime } = outside;
    let socket = cluster.socket.clone();
    let forget = || drop(std::fs::remove_file(&socket));
    let keepsake = order.keepsake.clone();
    match begin_instance(&channel, order, &cluster, &listener, connections, boottime) {
        Ok((mut begun, lease)) => answer_late(&cluster, &mut begun)
            .and_then(|late| {
                InstanceInit::new(cluster, keepsake, begun, late, channel, listener, lease)
            })
            .and_then(InstanceInit::serve)
            .map_err(|error| (None, error)),
        Err(error) => {
            forget();
            Err((Some(channel), error))
        }
    }
}

fn begin_instance(
    channel: &Channel,
    order: Order,
    cluster: &InstanceOrder,
    listener: &UnixListener,
    connections: Connections,
    boottime: i64,
) -> Result<(Begun, Lease)> {
    nix::unistd::setsid().map_err(system("setsid", "the job's init"))?;
    init_socket::open(listener)
        .map_err(|error| EngineError::system("listen", "the init's socket", error))?;
    let mut warnings = Vec::new();
    let own_name = order.keepsake.own_host_name();
    match order.world {
        World::Own => {
            let _mounting = stages::begin(Stage::Mounts);
            let named = namespaces::name_host(&cluster.host_name, own_name, &cluster.hosts)?;
            warnings.extend(named);
            warnings.extend(namespaces::mount_own()?);
        }
        World::Machine => {
            // What is brought back has its segments, and their names.
            if let (Some(name), Task::Launch(_)) = (own_name, &order.task) {
                return Err(namespaces::needed_for(name));
            }
            order.world.adopt_orphans()?;
            warnings.extend(namespaces::keep_host_name(own_name.unwrap_or(&cluster.host_name)));
        }
    }
    let mut begun = begin(order.task, connections, Some(cluster), None, &mut warnings)?;
    // A restore has set this process's clocks anew.
    let (_, own) = clocks::offsets(std::process::id() as i32)?;
    let lease = Lease::until(cluster.lease_until_ns, own - boottime)?;
    if let Some(link) = &cluster.shell {
        begun.outer.extend(shell_streams(link, std::mem::take(&mut begun.console)));
    }
    if !cluster.hold {
        if let Some(standing) = begun.standing.take() {
            let _going = stages::begin(Stage::Go);
            standing.go()?;
        }
    }
    stages::tell_no_more();
    release_streams()?;
    init_socket::be_patient(channel.socket())
        .map_err(|error| EngineError::system("setsockopt", "the agent's socket", error))?;
    // An agent that has gone meanwhile shows at the first look at its socket.
    let _ = tell(channel, &begun, false, warnings);
    Ok((begun, lease))
}

fn begin(
    task: Task,
    connections: Connections,
    cluster: Option<&InstanceOrder>,
    pager: Option<&UnixStream>,
    warnings: &mut Vec<String>,
) -> Result<Begun> {
    let user: Option<&UserOrder> = cluster.and_then(|cluster| cluster.user.as_ref());
    let watch = cluster.is_some_and(|cluster| cluster.watch.is_some());
    match task {
        Task::Launch(spec) => {
            let watched = if watch { late::install_or_say(warnings) } else { None };
            let _starting = stages::begin(Stage::Program);
            let (root, console) = launch::launch(&spec, user, warnings)?;
            Ok(Begun {
                root: Some(root.as_raw()),
                console,
                outer: Vec::new(),
                moved: Vec::new(),
                names: Vec::new(),
                connecting: Vec::new(),
                stacks: HashSet::new(),
                watched,
                standing: None,
            })
        }
        Task::Restore { job_dir, spec, part } => {
            let crowded = cluster.is_some_and(|cluster| cluster.crowded);
            let cluster = cluster.is_some();
            let among = Among { cluster, watch, crowded, rehearsal: None, pager };
            bring_back(&job_dir, &spec, part.as_ref(), connections, among, user, warnings)
        }
    }
}

/// Starts to answer the calls that wait. It is the init's first thread beside its own: nothing forks any more.
fn answer_late(order: &InstanceOrder, begun: &mut Begun) -> Result<Option<Late>> {
    let watched: Option<Installed> = begun.watched.take();
    let (Some(installed), Some(watch)) = (watched, &order.watch) else { return Ok(None) };
    let restored = late::Restored {
        names: std::mem::take(&mut begun.names),
        listeners: begun.moved.clone(),
        stacks: std::mem::take(&mut begun.stacks),
    };
    let who = (order.host_name.as_str(), &watch.machine);
    Late::start(installed, who, watch.addresses.clone(), restored).map(Some)
}

/// The streams of a program that a remote shell has launched, as sides of the shell's relays.
fn shell_streams(link: &str, console: Vec<(StdioRole, OwnedFd)>) -> Vec<(OuterEnd, OwnedFd)> {
    let end = |role: StdioRole| {
        let (fd, kind) = match role {
            StdioRole::Stdin => (0, RelayKind::PipeWrite),
            StdioRole::Stdout => (1, RelayKind::PipeRead),
            StdioRole::Stderr => (2, RelayKind::PipeRead),
            // No remote shell has one.
            StdioRole::Terminal => return None,
        };
        Some(OuterEnd::Relay(RelayEnd { id: stream_relay(link, fd), side: 1, kind }))
    };
    console.into_iter().filter_map(|(role, fd)| Some((end(role)?, fd))).collect()
}

/// Tells the agent that the job is there, and gives it copies of its ends.
fn tell(
    channel: &Channel,
    begun: &Begun,
    is_filling: bool,
    warnings: Vec<String>,
) -> std::result::Result<(), super::ChannelError> {
    let copy = |fd: &OwnedFd| {
        fd.try_clone().map_err(|error| {
            nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EMFILE))
        })
    };
    for (end, fd) in &begun.outer {
        channel.send(&Report::Outer { end: end.clone() }, &[copy(fd)?])?;
    }
    let mut ends = Vec::new();
    for (_, end) in &begun.console {
        ends.push(copy(end)?);
    }
    let report = Report::Ready {
        root: begun.root,
        console: begun.console.iter().map(|(role, _)| *role).collect(),
        moved: begun.moved.clone(),
        is_filling,
        warnings,
    };
    channel.send(&report, &ends)
}

/// The job's streams are the job's: whoever waits for their end must not wait for its init.
fn release_streams() -> Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| EngineError::system("open", "/dev/null", error))?;
    for number in 0..3 {
        // SAFETY: takes numbers only; standard streams of a process that prints nothing any more.
        unsafe { libc::dup2(null.as_raw_fd(), number) };
    }
    Ok(())
}
