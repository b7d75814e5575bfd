//! A cluster's coordinator as a process: the I/O around [`crate::cluster::ClusterMachine`].
//!
//! - [`admission`]: tokens and certificates of members.
//! - `gate`: the port on which agents connect.
//! - `local`: the Unix socket for commands on this machine.
//! - `driver`: the event loop.
//! - `job_logs`, `clock`: jobs' output on disk; a clock that stands still when the process does.
//!
//! The folder:
//!
//! ```text
//! STATE/lock                  held while a coordinator runs
//! STATE/cluster.log           what is decided, from which everything is rebuilt
//! STATE/members.json          tokens (hashes of their secrets) and members' certificates
//! STATE/authority*.pem        the certificate authority
//! STATE/coordinator.sock      for commands
//! STATE/jobs/JOB/log          a job's output
//! ```

pub mod admission;
mod clock;
mod driver;
mod gate;
mod job_logs;
mod local;
mod sealing;

use crate::cluster::entry::{ClusterEntry, FORMAT};
use crate::cluster::{ClusterMachine, ClusterSettings, RecoverError, SeededSecrets};
use crate::journal::Journal;
use crate::log::LogError;
use admission::{Admission, AdmissionError};
use clock::Clock;
use driver::{Driver, Operator};
use job_logs::JobLogs;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::ifaddrs::getifaddrs;
use protocol::transport::{Acceptor, Role, Sealer, TransportError};
use sealing::TreeSealer;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Name of the socket for commands, in the coordinator's folder.
pub const SOCKET: &str = "coordinator.sock";

/// The least grace time, in seconds: several heartbeats have to fit in.
pub const LEAST_GRACE: f64 = 0.5;

/// In the environment: see [`ClusterSettings::tree_above`].
const TREE_ABOVE: &str = "CKPTD_TREE_ABOVE";

/// Reports that may wait for the loop.
const MAX_INCOMING: usize = 1024;

/// How a coordinator is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens for agents.
    pub listen: SocketAddr,
    /// Its folder.
    pub state: PathBuf,
    /// Seconds from the last word of a node to its being declared gone.
    pub grace: f64,
}

/// What a coordinator says when it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where agents reach it, HOST:PORT.
    pub addresses: Vec<String>,
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
    /// What was decided could not be written down.
    #[error("{0}; started again, the coordinator goes on from what its log holds")]
    Unrecorded(String),
    /// Its log can't be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its log can't be used.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Its register can't be used.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// Its certificates can't be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let action = action.into();
    move |source| ServeError::Io { action, source }
}

/// Milliseconds since 1970 UTC.
fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
    if !(LEAST_GRACE..=86_400.0).contains(&options.grace) {
        return Err(ServeError::Usage(format!(
            "the grace time must be between {LEAST_GRACE} and 86400 seconds"
        )));
    }
    let state = &options.state;
    let _lock = lock(state)?;
    let admission = Admission::open(state)?;
    let credentials = admission.authority().issue(&Role::Coordinator)?;
    let acceptor = Acceptor::new(&credentials)?;
    let sealer = TreeSealer::new(Sealer::new(&credentials)?);
    let admission = Arc::new(Mutex::new(admission));
    let jobs = state.join("jobs");
    let logs = JobLogs::open(&jobs).map_err(io_error(format!("open {}", jobs.display())))?;
    let operator = nix::unistd::geteuid().as_raw();
    let settings = ClusterSettings {
        grace: Duration::from_secs_f64(options.grace).as_nanos() as u64,
        operator,
        tree_above: tree_above()?,
        jobs_folder: jobs.to_string_lossy().into_owned(),
        ..ClusterSettings::default()
    };
    let opened = ClusterEntry::Opened { format: FORMAT };
    let (journal, entries) = Journal::open(&state.join("cluster.log"), opened)?;
    let lengths = logs.lengths().map_err(io_error(format!("read {}", jobs.display())))?;
    let clock = Clock::new();
    let secrets = Box::new(SeededSecrets::new(seed()?));
    let machine = ClusterMachine::recover(settings, secrets, clock.now(), entries, &lengths)?;

    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(io_error(format!("listen at {}", options.listen)))?;
    let address = listener.local_addr().map_err(io_error("find the own address"))?;
    let addresses = reachable(address);
    let socket = state.join(SOCKET);
    let local =
        local::bind(&socket).map_err(io_error(format!("listen at {}", socket.display())))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(io_error("watch for signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io_error("watch for signals"))?;

    let (sender, incoming) = mpsc::channel(MAX_INCOMING);
    let operator = Operator { uid: operator, addresses: addresses.clone() };
    let driver = Driver::new(machine, journal, logs, Arc::clone(&admission), operator, clock);
    let driver = driver.sealing(sealer);
    let gate = tokio::spawn(gate::listen(listener, acceptor, admission, sender.clone()));
    let clients = tokio::spawn(local::listen(local, sender));
    ready(&Ready { address, addresses });
    tell_service_manager();
    let mut broken = None;
    tokio::select! {
        reason = driver.run(incoming) => broken = reason,
        _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
    }
    gate.abort();
    clients.abort();
    // So that commands find out at once that nobody is there.
    let _ = fs::remove_file(&socket);
    broken.map_or(Ok(()), |reason| Err(ServeError::Unrecorded(reason)))
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
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut seed)
        .map_err(|_| io_error("make a secret")(io::Error::other("the system has no randomness")))?;
    Ok(seed)
}

/// Where others reach a listener: the machine's addresses where it listens at all of them, those
/// that no other machine can reach only if there are no others.
fn reachable(listening: SocketAddr) -> Vec<String> {
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

/// Tells systemd that the service is ready (sd_notify(3)), where it wants to know.
fn tell_service_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let tell = || -> io::Result<()> {
        std::os::unix::net::UnixDatagram::unbound()?.send_to(b"READY=1", &path).map(drop)
    };
    if let Err(error) = tell() {
        tracing::warn!("failed to tell the service manager: {error}");
    }
}
