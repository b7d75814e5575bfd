//! A cluster's coordinator as a process: the I/O around [`crate::cluster::ClusterMachine`].
//!
//! - [`admission`]: tokens and certificates of members.
//! - `agent_listener`: the port on which agents connect.
//! - [`succession`]: carrying on for a coordinator whose machine is lost.
//! - `replication`: copies of the folder at agents.
//! - `local`: the Unix socket for commands on this machine.
//! - `driver`: the event loop.
//! - `exchange`: a new certificate authority.
//! - `shortening`: a shorter log that says the same.
//! - `announce`: where the coordinator is, by multicast DNS.
//! - `audit_log`: who ordered what.
//! - `image_secret`: from what keys of images follow.
//! - `job_logs`, `clock`: jobs' output on disk; a clock that stands still when the process does.
//!
//! The folder:
//!
//! ```text
//! STATE/lock                  held while a coordinator runs
//! STATE/cluster.log           what is decided, from which everything is rebuilt
//! STATE/cluster.log.before    the one before, of which nothing but the past is told
//! STATE/cluster.log.shorter.* one that is to take its place, while it is being made
//! STATE/audit.log             who ordered what
//! STATE/members.json          tokens (hashes of their secrets) and members' keys
//! STATE/authority*.pem        the certificate authority, and those that it has replaced
//! STATE/images.key            the secret from which the keys of jobs' images follow
//! STATE/coordinator.sock      for commands
//! STATE/superseded.json       another coordinator has taken over: this one must not begin again
//! STATE/jobs/JOB/log          a job's output
//! STATE/*.token               secrets of the cluster's page, which `ckptd-http` serves
//! STATE/http.address          where it is served
//! ```

pub mod admission;
mod agent_listener;
mod announce;
mod audit_log;
mod clock;
mod driver;
mod exchange;
mod image_secret;
mod job_logs;
mod local;
mod needed;
mod replication;
mod sealing;
pub(crate) mod shortening;
pub mod succession;

use crate::cluster::entry::ClusterEntry;
use crate::cluster::{
    ArchiveKey, ClusterMachine, ClusterSettings, PageCertificate, RecoverError, SeededSecrets,
};
use crate::journal::Journal;
use crate::log::LogError;
use admission::SharedAdmission;
use admission::{Admission, AdmissionError};
use announce::Announcement;
use audit_log::AuditLog;
use ckpt_dmtcp::cluster::Cluster;
use ckpt_dmtcp::server as dmtcp;
use clock::Clock;
use driver::{Driver, Ending, Incoming, Operator};
pub use exchange::{Exchanged, exchange_authority};
use job_logs::JobLogs;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::ifaddrs::getifaddrs;
use protocol::clock::wall_ms;
use protocol::cluster::Term;
use protocol::cluster::image_key::Encryption;
use protocol::cluster::replica::ReplicaNote;
use protocol::service::Service;
use protocol::task;
use protocol::transport::{
    Acceptor, Audience, CommandSocket, Credentials, Fingerprint, Sealer, Successor, TransportError,
    random,
};
pub use replication::LOG;
use replication::{Replication, Source};
use sealing::OrderSealer;
pub use shortening::BEFORE;
use shortening::{log_shortened_above, open_log};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use succession::Marker;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Name of the socket for commands, in the coordinator's folder.
pub const SOCKET: &str = "coordinator.sock";

/// The grace time of who asks for no other, in seconds.
pub const DEFAULT_GRACE: f64 = 10.0;

/// The least grace time, in seconds: several heartbeats have to fit in.
pub const LEAST_GRACE: f64 = 0.5;

/// In the environment: see [`ClusterSettings::tree_above`].
const TREE_ABOVE: &str = "CKPTD_TREE_ABOVE";
/// What the key is for by which a cluster knows its own archives again.
const ARCHIVE_KEY: &str = "ckptd 2026 archives of a cluster's jobs";

/// Reports that may wait for the loop.
const MAX_INCOMING: usize = 1024;

/// How a coordinator is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens for agents.
    pub listen: SocketAddr,
    /// Its folder.
    pub state: PathBuf,
    /// Seconds from the last word of a node to its being declared gone; None: as the coordinator before
    /// that is carried on for, else [`DEFAULT_GRACE`].
    pub grace: Option<f64>,
    /// The folder of an agent with whose copy it carries on for a lost coordinator.
    pub recover: Option<PathBuf>,
    /// Whether it announces itself by multicast DNS.
    pub discover: bool,
    /// How new images of jobs are encrypted.
    pub encryption: Encryption,
    /// The port for DMTCP's programs.
    pub dmtcp: Option<DmtcpOptions>,
    /// The certificate that the page shows, as the page tells; None: none.
    pub page: watch::Receiver<Option<PageCertificate>>,
}

/// The port for DMTCP's programs, and who keeps what is to be known of them.
#[derive(Clone)]
pub struct DmtcpOptions {
    /// The port.
    pub port: dmtcp::Options,
    /// Who keeps it.
    pub recorder: Arc<Mutex<dyn dmtcp::Recorder>>,
}

impl std::fmt::Debug for DmtcpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DmtcpOptions").field("port", &self.port).finish_non_exhaustive()
    }
}

/// What a coordinator says when it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where agents reach it, HOST:PORT.
    pub addresses: Vec<String>,
    /// Where DMTCP's programs reach it.
    pub dmtcp: Option<SocketAddr>,
    /// How it took over from a lost coordinator, if it just has: one line.
    pub taken_over: Option<String>,
}

/// Why a coordinator does not run; the text fits after "failed to start the coordinator: ".
#[derive(Debug, Error)]
pub enum ServeError {
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// Another one runs.
    #[error("another coordinator runs on {}: end it first, or give another --state", .0.display())]
    Locked(PathBuf),
    /// An option makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It can't carry on for a lost coordinator.
    #[error("carry on for a lost coordinator: {0}")]
    Recovery(String),
    /// Another coordinator has taken over.
    #[error(
        "another coordinator carries on, of term {term}: {by}; what {} holds is of the past: let this \
         machine join that one's cluster with an agent, and start no coordinator here",
        folder.display()
    )]
    Superseded {
        /// The other's term.
        term: Term,
        /// Where it is, or who follows it.
        by: String,
        /// This one's folder.
        folder: PathBuf,
    },
    /// What was decided could not be written down.
    #[error("{0}; started again, the coordinator goes on from what its log holds")]
    Unrecorded(String),
    /// Its port for DMTCP's programs can't be had.
    #[error(transparent)]
    Dmtcp(#[from] dmtcp::ServeError),
    /// Its log can't be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its log can't be used.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Its register can't be used.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// There is nothing to exchange the authority of.
    #[error("there is no cluster in {}: give the --state of its coordinator", .0.display())]
    NoCluster(PathBuf),
    /// Its certificates can't be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let action = action.into();
    move |source| ServeError::Io { action, source }
}

/// Runs a coordinator until it is told to end (SIGTERM, SIGINT). Jobs run on without it, for as
/// long as the leases of their nodes last.
///
/// # Errors
/// Where it can't begin.
pub fn serve(options: &Options, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("start the event loop"))?
        .block_on(run(options, ready))
}

async fn run(options: &Options, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    let state = &options.state;
    check_grace(options.grace.unwrap_or(DEFAULT_GRACE))?;
    let _lock = lock(state)?;
    let prepared = match &options.recover {
        None => {
            let marker =
                Marker::of(state).map_err(io_error(format!("read {}", state.display())))?;
            if let Some(marker) = marker {
                return Err(superseded(state, marker));
            }
            None
        }
        Some(agent) => Some(succession::prepare(agent, state).await?),
    };
    let grace = options.grace.or(prepared.as_ref().map(|prepared| prepared.grace));
    let grace = grace.unwrap_or(DEFAULT_GRACE);
    check_grace(grace)?;
    let ports = Ports::bind(options).await?;
    let seed = seed()?;
    let taken_over = match prepared {
        None => None,
        Some(prepared) => {
            let claim = blake3::hash(&seed).to_hex()[..16].to_owned();
            Some(prepared.take_over(&ports.addresses, claim, wall_ms()).await?.text)
        }
    };
    let folder = Folder::open(state, grace, &ports.addresses, seed, options.encryption)?;
    match run_from(folder, ports, options, taken_over, ready).await? {
        None => Ok(()),
        Some(Ending::Unrecorded(reason)) => Err(ServeError::Unrecorded(reason)),
        Some(Ending::Superseded { term, by }) => {
            let marker = Marker { term, by };
            if let Err(error) = marker.leave(state) {
                tracing::error!("failed to write to {}: {error}", state.display());
            }
            Err(superseded(state, marker))
        }
    }
}

/// Where a list has no first one that has one always.
fn no_authority() -> ServeError {
    ServeError::Transport(TransportError::Unfit("the cluster has no authority".to_owned()))
}

fn superseded(state: &Path, marker: Marker) -> ServeError {
    let Marker { term, by } = marker;
    ServeError::Superseded { term, by, folder: state.to_owned() }
}

/// Where the coordinator listens for other machines' programs.
struct Ports {
    agents: TcpListener,
    /// Its address as it was bound.
    address: SocketAddr,
    /// Where agents reach it, HOST:PORT.
    addresses: Vec<String>,
    dmtcp: Option<(dmtcp::Port, Arc<Mutex<dyn dmtcp::Recorder>>)>,
}

impl Ports {
    async fn bind(options: &Options) -> Result<Self, ServeError> {
        let agents = TcpListener::bind(options.listen)
            .await
            .map_err(io_error(format!("listen at {}", options.listen)))?;
        let address = agents.local_addr().map_err(io_error("find the own address"))?;
        let dmtcp = match &options.dmtcp {
            Some(dmtcp) => {
                Some((dmtcp::Port::bind(dmtcp.port.clone()).await?, Arc::clone(&dmtcp.recorder)))
            }
            None => None,
        };
        Ok(Self { agents, address, addresses: reachable(address), dmtcp })
    }
}

/// What the coordinator's folder says, and the way to write there.
struct Folder {
    machine: ClusterMachine,
    journal: Journal<ClusterEntry>,
    logs: JobLogs,
    audit: AuditLog,
    admission: SharedAdmission,
    /// What names its certificate authority.
    authority: Fingerprint,
    /// This coordinator's own, and such for members that believe in an authority of before.
    credentials: Vec<Credentials>,
    sealer: Sealer,
    replication: Replication,
    clock: Clock,
}

impl Folder {
    fn open(
        state: &Path,
        grace: f64,
        addresses: &[String],
        seed: [u8; 32],
        encryption: Encryption,
    ) -> Result<Self, ServeError> {
        let admission = Admission::open(state)?;
        let authority = admission.authority().fingerprint();
        let credentials = admission.authorities().coordinators()?;
        let own = credentials.first().ok_or_else(no_authority)?;
        let sealer = Sealer::new(own)?;
        let archive_key = ArchiveKey(admission.authority().derived_key(ARCHIVE_KEY));
        let admission = Arc::new(Mutex::new(admission));
        let jobs = state.join("jobs");
        let logs = JobLogs::open(&jobs).map_err(io_error(format!("open {}", jobs.display())))?;
        let audit = AuditLog::open(state).map_err(io_error("open the audit log"))?;
        let settings = ClusterSettings {
            grace: Duration::from_secs_f64(grace).as_nanos() as u64,
            operator: operator(),
            tree_above: tree_above()?,
            addresses: addresses.to_vec(),
            jobs_folder: jobs.to_string_lossy().into_owned(),
            authority: authority.clone(),
            archive_key,
            image_secret: image_secret::open(state)?,
            encryption,
            ..ClusterSettings::default()
        };
        let source = Source::new(state);
        let clock = Clock::new();
        let (journal, entries) = open_log(&source.log(), clock.now())?;
        let secrets = SeededSecrets::new(seed);
        let mut machine =
            ClusterMachine::recover(settings, secrets, clock.now(), entries, logs.lengths())?;
        machine.seal_coordinator(machine.coordinator().clone().sealed(&sealer)?);
        let term = machine.coordinator().term;
        let note = ReplicaNote { term, addresses: addresses.to_vec(), grace_s: grace };
        let replication = Replication::new(source, note);
        Ok(Self {
            machine,
            journal,
            logs,
            audit,
            admission,
            authority,
            credentials,
            sealer,
            replication,
            clock,
        })
    }
}

/// Serves until it is told to end, or can't go on; then why.
async fn run_from(
    folder: Folder,
    ports: Ports,
    options: &Options,
    taken_over: Option<String>,
    ready: impl FnOnce(&Ready),
) -> Result<Option<Ending>, ServeError> {
    let Folder { machine, journal, logs, audit, admission, authority, credentials, .. } = folder;
    let Ports { agents, address, addresses, dmtcp } = ports;
    let own = machine.coordinator().clone();
    let acceptor = Acceptor::new(&credentials)?;
    let current = credentials.first().ok_or_else(no_authority)?;
    let successor = Successor::new(current, own.clone())?;
    let lost = machine.lost_coordinators().to_vec();
    let (absent, absentees) = watch::channel(machine.absent());

    let socket = options.state.join(SOCKET);
    // The lock of the folder is held: one that is there is a dead one's.
    let local = CommandSocket::bind(&socket, Audience::Everybody)
        .map_err(io_error(format!("listen at {}", socket.display())))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(io_error("watch for signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io_error("watch for signals"))?;

    let (sender, incoming) = mpsc::channel(MAX_INCOMING);
    let operator = Operator { uid: operator(), addresses: addresses.clone() };
    let (register, clock, copies) = (Arc::clone(&admission), folder.clock, folder.replication);
    let driver =
        Driver::new(machine, journal, logs, audit, register, operator, clock, copies, absent)
            .map_err(io_error("start the thread of the log"))?;
    let driver = driver.shortening_above(log_shortened_above()?).hearing(options.page.clone());
    let mut driver = driver.sealing(OrderSealer::new(folder.sealer));
    let (dmtcp_sender, dmtcp_orders) = mpsc::channel(MAX_INCOMING);
    let dmtcp_address = dmtcp.as_ref().map(|(port, _)| port.address());
    if let Some((port, recorder)) = &dmtcp {
        let address = with_host(port.address(), &addresses);
        serve_recorder(recorder, sender.clone(), dmtcp_sender.clone(), address);
        driver.dmtcp.serve(dmtcp_sender);
    }
    let tasks = [
        task::spawn(agent_listener::listen(agents, acceptor, admission, own, sender.clone())),
        task::spawn(local::listen(local, sender)),
        task::spawn(succession::announce(successor, lost, absentees)),
    ];
    let announcement = match options.discover {
        true => Some(Announcement::begin(address, &authority)?),
        false => None,
    };
    // Without the feature, what would serve it is not in the executable: a condition that is known when it is compiled.
    let dmtcp = if cfg!(feature = "dmtcp") {
        dmtcp.map(|(port, recorder)| task::spawn(port.serve(recorder, dmtcp_orders)))
    } else {
        None
    };
    let mut service = Service::ready(&format!("listening at {}", addresses.join(", ")));
    ready(&Ready { address, addresses, dmtcp: dmtcp_address, taken_over });
    let mut ending = None;
    tokio::select! {
        why = driver.run(incoming, &mut service) => ending = why,
        _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
    }
    service.stopping(if ending.is_some() { "cannot go on" } else { "told to end" });
    drop(announcement);
    for task in tasks.into_iter().chain(dmtcp) {
        task.abort();
    }
    // So that commands find out at once that nobody is there.
    let _ = fs::remove_file(&socket);
    Ok(ending)
}

/// Lets the recorder of DMTCP's images ask the loop for what agents do, and the port at `address` for what it does.
fn serve_recorder(
    recorder: &Mutex<dyn dmtcp::Recorder>,
    calls: mpsc::Sender<Incoming>,
    orders: mpsc::Sender<dmtcp::Order>,
    address: SocketAddr,
) {
    // The coordinator ends: whoever waits for an answer hears that there is none.
    let ask = move |call| drop(calls.blocking_send(Incoming::Dmtcp(call)));
    let cluster = Cluster::new(ask, orders, address);
    recorder.lock().unwrap_or_else(PoisonError::into_inner).cluster(cluster);
}

/// The user who may do what only the coordinator's own may: the one it runs as.
fn operator() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A listener's address as other machines know it: with the first of this one's addresses where it listens at all.
fn with_host(mut listening: SocketAddr, addresses: &[String]) -> SocketAddr {
    let own = addresses.first().and_then(|own| own.parse::<SocketAddr>().ok());
    if let (true, Some(own)) = (listening.ip().is_unspecified(), own) {
        listening.set_ip(own.ip());
    }
    listening
}

fn check_grace(grace: f64) -> Result<(), ServeError> {
    if (LEAST_GRACE..=86_400.0).contains(&grace) {
        return Ok(());
    }
    Err(ServeError::Usage(format!(
        "the grace time must be between {LEAST_GRACE} and 86400 seconds"
    )))
}

/// On how many nodes a job may be before its steps go by the command tree, where the environment says so:
/// for tests, whose clusters are small.
fn tree_above() -> Result<u32, ServeError> {
    match std::env::var(TREE_ABOVE) {
        Ok(text) => text
            .parse()
            .map_err(|_| ServeError::Usage(format!("{TREE_ABOVE} must be a number of nodes"))),
        Err(_) => Ok(ClusterSettings::default().tree_above),
    }
}

/// Makes the folder and takes its lock, which goes with the process, however that ends.
fn lock(state: &Path) -> Result<Flock<File>, ServeError> {
    let at = |what: &str| format!("{what} {}", state.display());
    DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(io_error(at("create")))?;
    // Everybody may reach the socket; all other files are for their owner alone.
    fs::set_permissions(state, Permissions::from_mode(0o711)).map_err(io_error(at("open")))?;
    let path = state.join("lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io_error(format!("open {}", path.display())))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => ServeError::Locked(state.to_owned()),
        errno => ServeError::Io { action: at("lock"), source: errno.into() },
    })
}

fn seed() -> Result<[u8; 32], ServeError> {
    let mut seed = [0; 32];
    random(&mut seed)
        .map_err(|_| io_error("make a secret")(io::Error::other("the system has no randomness")))?;
    Ok(seed)
}

/// Where others reach a listener: the machine's addresses where it listens at all of them, those
/// that no other machine can reach only if there are no others.
#[must_use]
pub fn reachable(listening: SocketAddr) -> Vec<String> {
    if !listening.ip().is_unspecified() {
        return vec![listening.to_string()];
    }
    let mut found: Vec<IpAddr> = getifaddrs()
        .map(|interfaces| {
            interfaces
                .filter_map(|interface| {
                    let address = interface.address?;
                    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
                    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
                })
                .filter(|ip| match ip {
                    IpAddr::V4(_) => true,
                    // Those of one link mean nothing without its name.
                    IpAddr::V6(v6) => !listening.is_ipv4() && !v6.is_unicast_link_local(),
                })
                .collect()
        })
        .unwrap_or_default();
    if found.iter().any(|ip| !ip.is_loopback()) {
        found.retain(|ip| !ip.is_loopback());
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found.into_iter().map(|ip| SocketAddr::new(ip, listening.port()).to_string()).collect()
}
