//! The beginning and the end of an agent.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ckpt_node::{BatteryGuard, Ending, Event};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;
use protocol::cluster::NodeName;
use protocol::cluster::agent::NodeProfile;
use protocol::service::Service;
use protocol::task;
use protocol::transport::{Arrival, Identity, Members, PeerDoor, Token};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::actions::{Driver, Parts};
use super::busy::Busy;
use super::carrier::{Carrier, carry_until};
use super::folders::Folders;
use super::grants::Grants;
use super::keys::Keys;
use super::peers::Peers;
use super::relay::Hub;
use super::replica::Replica;
use super::report::{Report, Reports};
use super::serving::Server;
use super::tree::Lines;
use super::{
    AgentError, AgentOptions, Signals, clients, coordinator, discover, host, shells, succession,
};
use crate::driver::traffic::{self, Jobs, Left, Traffic};
use crate::port::{Doors, Port, address_towards};
use crate::rewire::Wires;
use ckpt_engine::job_init::{INIT_NAME, World};
use ckpt_engine::probe::{self, ProbeError};
use ckpt_engine::sys::restrained::{NEEDLESS, give_up};
use ckpt_engine::sys::sock_diag::tcp_sockets;
use ckpt_engine::sys::standing::{self, acts_for_all};
use ckpt_engine::sys::trial::Call;

/// Where the identity is kept in the agent's folder.
const IDENTITY: &str = "identity";
/// What is in there once it was certified.
const CERTIFICATE: &str = "cert.pem";
/// Where the copy of the coordinator's folder is kept.
const REPLICA: &str = "replica";
/// The lock that keeps a second agent out.
const LOCK: &str = "agent.lock";
/// How long the event loop sleeps if nothing happens.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// How long what was said last may take to be sent.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Runs an agent until it is told to end, or the coordinator does not want it. Instances live on.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: &AgentOptions) -> Result<(), AgentError> {
    if let Some(traffic) = &options.traffic {
        traffic.check().map_err(|error| AgentError::Unfit(error.to_string()))?;
    }
    standing::enter(INIT_NAME).map_err(|error| AgentError::Unfit(format!("start: {error}")))?;
    make_dir(&options.dir)?;
    let _alone = lock(&options.dir)?;
    settle_traffic(options)?;
    // While there is one thread.
    let takes_jobs = match World::chosen() {
        World::Own => probe::inside_namespaces().made,
        World::Machine => checkpoints_without_namespaces(),
    };
    if Uid::effective().is_root() {
        give_up(NEEDLESS).map_err(|error| AgentError::Unfit(format!("start: {error}")))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AgentError::system("start the event loop"))?;
    let mut traffic = None;
    let result = runtime.block_on(serve(options, takes_jobs, &mut traffic));
    // Threads that still copy or wait must not hold up the end.
    runtime.shutdown_background();
    if let Some(traffic) = traffic {
        traffic.end(traffic::jobs_in(&Folders::new(options.dir.clone())));
    }
    result
}

/// An agent that does not encrypt jobs' traffic takes away what another one of before has left to do it, unless processes
/// are here whose traffic would go unencrypted then.
fn settle_traffic(options: &AgentOptions) -> Result<(), AgentError> {
    // Another agent's, which lives, is left alone.
    let is_left =
        || Uid::effective().is_root() && matches!(traffic::left(&options.dir), Ok(Left::Orphaned));
    if options.traffic.is_some() || !is_left() {
        return Ok(());
    }
    match traffic::jobs_in(&Folders::new(options.dir.clone())) {
        Jobs::Here => Err(AgentError::Unfit(
            "start: the traffic of jobs that are here is encrypted; start with --encrypt-job-traffic, or take that away by \
             'ckptd agent --clear-job-traffic'"
                .to_owned(),
        )),
        Jobs::None => traffic::clear().map_err(|error| AgentError::Unfit(format!("start: {error}"))),
    }
}

/// Whether processes of jobs can be looked into, and their connections be seen, by what may be no more than an app of
/// Android.
fn checkpoints_without_namespaces() -> Result<(), ProbeError> {
    probe::trace_child()?;
    probe::descriptor()?;
    Call::CloseRange.must_not_be_forbidden()?;
    tcp_sockets()?;
    Ok(())
}

/// Images are open to this user alone, in folders of their own. Where jobs run as other users, these must
/// be able to reach the agent's sockets.
fn make_dir(dir: &Path) -> Result<(), AgentError> {
    let mode = if acts_for_all() { 0o711 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(AgentError::system(format!("create {}", dir.display())))
}

fn lock(dir: &Path) -> Result<Flock<File>, AgentError> {
    let path = dir.join(LOCK);
    let failed = |path: &Path| format!("lock {}", path.display());
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(AgentError::system(failed(&path)))?;
    // Whoever could open one of before could keep this agent from starting.
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(AgentError::system(failed(&path)))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => AgentError::Unfit(format!(
            "start: another agent runs in {}; give each its own --dir",
            dir.display()
        )),
        other => AgentError::system(failed(&path))(other.into()),
    })
}

/// Whether the agent of that folder has joined a cluster; also where that folder is not for this user to look into, as
/// one of root's is not.
#[must_use]
pub fn has_joined(dir: &Path) -> bool {
    let folder = dir.join(IDENTITY);
    let certified = folder.join(CERTIFICATE).try_exists();
    folder.exists()
        && certified.unwrap_or_else(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

async fn identity(options: &AgentOptions) -> Result<Identity, AgentError> {
    let folder = options.dir.join(IDENTITY);
    let unfit = |error: &dyn std::fmt::Display| AgentError::Unfit(format!("join: {error}"));
    let known = Identity::load(&folder).map_err(|error| unfit(&error))?;
    let Some(token) = &options.join else {
        let mut known = known.ok_or_else(|| {
            AgentError::Unfit(
                "join: this machine is no member yet; give --join-file FILE".to_owned(),
            )
        })?;
        if options.discover {
            let addresses = discover::addresses(&known.addresses(), &known.cluster()).await;
            known.look_at(&folder, addresses).map_err(|error| unfit(&error))?;
        }
        return Ok(known);
    };
    let mut token: Token = token.parse().map_err(|error| unfit(&error))?;
    if options.discover {
        token.addresses = discover::addresses(&token.addresses, &token.authority).await;
    }
    let name = match (&options.name, known.as_ref()) {
        (Some(name), _) => name.clone(),
        (None, Some(known)) => known.name().clone(),
        (None, None) => host_name()?,
    };
    Identity::open(&folder, &token, &name).await.map_err(|error| unfit(&error))
}

/// The first label of the machine's host name.
fn host_name() -> Result<NodeName, AgentError> {
    let full = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().to_lowercase();
    let label = full.split('.').next().unwrap_or_default();
    label.parse().map_err(|error| AgentError::Unfit(format!("join: {error}; give --name NAME")))
}

/// Makes the port, at the address by which the coordinator is reached, if there is a way to it: one that takes over for a
/// lost coordinator looks for agents there. It moves once there is a connection.
fn open_port(
    options: &AgentOptions,
    identity: &Identity,
    members: &Members,
    wires: Arc<Wires>,
) -> Result<(Port, Receiver<Arrival>), AgentError> {
    let unfit = |error: &dyn std::fmt::Display| AgentError::Unfit(error.to_string());
    let peers = PeerDoor::new(identity, members.clone()).map_err(|error| unfit(&error))?;
    let (doors, arrivals) = Doors::new(peers, wires);
    let mut port = Port::new(options.port, Arc::new(doors));
    if let Some(local) = address_towards(&identity.addresses()).or(options.port.host) {
        port.open_at(local).map_err(|error| unfit(&error))?;
    }
    Ok((port, arrivals))
}

/// Signals that people have a scheduler send before the end of an allocation. Each would end an agent.
const SENT_TO_JOBS: [i32; 4] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGXCPU, libc::SIGPWR];

/// `takes_jobs`: whether namespaces can be made, or their lack be made up for; or why not. `encrypts`: what encrypts jobs'
/// traffic, once there is something.
async fn serve(
    options: &AgentOptions,
    takes_jobs: Result<(), ProbeError>,
    encrypts: &mut Option<Traffic>,
) -> Result<(), AgentError> {
    let (sender, inbox) = unbounded_channel();
    let reports = Reports::new(sender);
    on_signal(SignalKind::interrupt(), &reports, || Event::Terminate)?;
    match options.signals {
        Signals::OfMachine => {
            on_signal(SignalKind::terminate(), &reports, || Event::Terminate)?;
            on_signal(SignalKind::user_defined1(), &reports, || Event::HandOver)?;
        }
        Signals::OfAllocation { terminated, signalled } => {
            disregard(SignalKind::terminate(), terminated)?;
            for kind in SENT_TO_JOBS {
                disregard(SignalKind::from_raw(kind), signalled)?;
            }
            disregard(SignalKind::hangup(), || {})?;
        }
    }
    let identity = Arc::new(identity(options).await?);
    let name = identity.name().clone();
    let lines = Lines::new(identity.trust(), reports.clone());
    let members = Members::default();
    let wires = Arc::new(Wires::default());
    let (port, arrivals) = open_port(options, &identity, &members, wires.clone())?;
    let dialer = Arc::new(Carrier::new(identity.clone()));
    let told = reports.clone();
    let report = move |report| told.event(Event::Replica(report));
    let replica = Replica::start(&options.dir.join(REPLICA), report)
        .map_err(AgentError::system("start a thread"))?;
    let grants = Grants::new(name.clone(), identity.trust());
    let peers = Peers::new(dialer.clone(), grants.clone());
    let traffic = start_traffic(options, &name, &peers, &wires)?;
    encrypts.clone_from(&traffic);
    let connections = peers.clone();
    let hub = Hub::new(name.clone(), peers.clone());
    let folders = Folders::new(options.dir.clone());
    if let Err(error) = folders.clear_incoming() {
        tracing::warn!(%error, "what a copy or an import has left is not removed");
    }
    let busy = Busy::default();
    let nominal = host::Nominal::measure(options.speed);
    let mut profile = host::profile(options, &nominal);
    tell_of_jobs(takes_jobs, &mut profile);
    profile.job_traffic = traffic.as_ref().map(Traffic::offer);
    let sockets = |error: io::Error| AgentError::System {
        what: format!("listen in {}", options.dir.display()),
        error,
    };
    clients::listen(&options.dir, reports.clone()).map_err(sockets)?;
    shells::listen(&options.dir, reports.clone()).map_err(sockets)?;
    let (give_up, given_up) = watch::channel(0);
    let gauge =
        host::Gauge::start(nominal, &options.dir).map_err(AgentError::system("start a thread"))?;
    let battery = battery(options);
    let replica_folder = replica.folder().to_owned();
    let parts = Parts {
        name: name.clone(),
        battery,
        folders: folders.clone(),
        profile,
        gauge,
        port,
        peers,
        identity,
        replica,
        members,
        hub: hub.clone(),
        wires,
        busy: busy.clone(),
        keys: Keys::new(folders.clone()),
        lines: lines.clone(),
        traffic: traffic.clone(),
        reports: reports.clone(),
        give_up,
    };
    let (driver, beats) = Driver::new(parts, BatteryGuard::new(options.leave_below));
    driver.look_for_survivors();
    task::spawn(beat(beats, reports.clone()));
    task::spawn(coordinator::keep(dialer, reports.clone(), given_up));
    let server = Server { hub, folders, grants, tree: Some(lines), busy, traffic };
    task::spawn(accept(arrivals, connections, server, reports, replica_folder));
    tracing::info!(%name, dir = %options.dir.display(), "agent");
    let mut service = Service::ready(&format!("a member by the name of {name}"));
    attend(driver, inbox, &mut service).await?;
    service.stopping("ending");
    tokio::time::sleep(LAST_WORDS).await;
    Ok(())
}

fn start_traffic(
    options: &AgentOptions,
    name: &NodeName,
    peers: &Peers,
    wires: &Arc<Wires>,
) -> Result<Option<Traffic>, AgentError> {
    let Some(wanted) = &options.traffic else { return Ok(None) };
    Traffic::start(wanted, &options.dir, name.clone(), peers.clone(), wires.clone())
        .map(Some)
        .map_err(|error| AgentError::Unfit(format!("encrypt the jobs' traffic: {error}")))
}

fn battery(options: &AgentOptions) -> host::Battery {
    let battery = host::Battery::of_machine();
    if options.leave_below.is_some() && battery.charge().is_none() {
        tracing::warn!("no battery can be read here: --leave-below has no effect");
    }
    battery
}

/// Says where jobs can't run here, or not as elsewhere. A machine that takes none has no slots for them.
fn tell_of_jobs(takes_jobs: Result<(), ProbeError>, profile: &mut NodeProfile) {
    if let Err(reason) = takes_jobs {
        tracing::warn!(
            "no job can run on this machine: {reason}; it keeps copies of images; see ckptd doctor"
        );
        profile.slots = 0;
    } else if World::chosen() == World::Machine {
        tracing::info!("jobs run without namespaces on this machine; see ckptd doctor");
    }
}

/// Serves the other members, and coordinators that carry on for a lost one from the copy in `replica`.
async fn accept(
    mut arrivals: Receiver<Arrival>,
    peers: Peers,
    server: Server,
    reports: Reports,
    replica: PathBuf,
) {
    while let Some(arrival) = arrivals.recv().await {
        match arrival {
            Arrival::Peer(from, key, connection) => {
                let server = server.clone();
                let link = carry_until(connection, peers.guest(from.clone(), key).over());
                task::spawn(async move { server.serve(from, link).await });
            }
            Arrival::Successor(connection) => {
                task::spawn(succession::serve(connection, reports.clone(), replica.clone()));
            }
        }
    }
}

/// Handles reports until the agent is to end.
async fn attend(
    mut driver: Driver,
    mut inbox: UnboundedReceiver<Report>,
    service: &mut Service,
) -> Result<(), AgentError> {
    let longest_sleep = service.longest_sleep().unwrap_or(LONGEST_SLEEP);
    loop {
        service.alive();
        let report = match tokio::time::timeout(longest_sleep, inbox.recv()).await {
            Ok(Some(report)) => report,
            Ok(None) => return Ok(()),
            Err(_) => continue,
        };
        if matches!(report, Report::Node(Event::Terminate)) {
            service.status("leaving the cluster");
        }
        let ending = driver.handle(report);
        if let Some(error) = driver.traffic_failure() {
            return Err(AgentError::Unfit(format!("encrypt the jobs' traffic: {error}")));
        }
        match ending {
            None => {}
            Some(Ending::InOrder) => return Ok(()),
            Some(Ending::Refused(reason)) => return Err(AgentError::Refused(reason)),
        }
    }
}

fn on_signal(kind: SignalKind, reports: &Reports, event: fn() -> Event) -> Result<(), AgentError> {
    let mut stream = signal(kind).map_err(AgentError::system("catch a signal"))?;
    let reports = reports.clone();
    task::spawn(async move {
        while stream.recv().await.is_some() {
            reports.event(event());
        }
    });
    Ok(())
}

/// Catches a signal, and does nothing but tell of it. (What is ignored instead would be ignored by all children.)
fn disregard(kind: SignalKind, tell: fn()) -> Result<(), AgentError> {
    let mut stream = signal(kind).map_err(AgentError::system("catch a signal"))?;
    task::spawn(async move {
        while stream.recv().await.is_some() {
            tell();
        }
    });
    Ok(())
}

async fn beat(mut beats: watch::Receiver<Duration>, reports: Reports) {
    loop {
        let wait = *beats.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep(wait) => reports.tell(Report::Tick),
            changed = beats.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}
