//! The port on which DMTCP's programs connect: the I/O around [`Machine`].
//!
//! - `network`: who may connect.
//! - `owner`: whose a connection is.
//! - `link`: one connection.
//! - `stand_in`: connections in the stead of peers that departed.
//!
//! DMTCP's protocol has no authentication, and whoever may connect can end the processes and read where their images
//! are. So the port is the machine's own unless its user says otherwise, and programs of this machine are known by the owners
//! of their sockets.

mod link;
mod network;
mod owner;
mod stand_in;

pub use network::{Network, NetworkError};

use super::machine::{
    Action, Checkpoint, Command, Connection, Event, Identity, Machine, Notice, Settings,
};
use super::script;

use crate::cluster::Cluster;
use link::{Arrival, Link};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use protocol::clock::{Time, wall_ms};
use protocol::task;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Messages that may wait for the loop.
const MAX_ARRIVALS: usize = 4096;

/// How long a round may stand still before it is said who is waited for.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How the port is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may connect beside programs of the machine itself.
    pub allow: Vec<Network>,
    /// Seconds between checkpoints for computations that ask for none, 0 for only on demand.
    pub interval: u32,
    /// Where restart scripts are written, and the folder that workers are told who ask.
    pub directory: PathBuf,
    /// Whether it ends with the last process.
    pub exit_on_last: bool,
    /// Whether all processes end with each checkpoint.
    pub kill_after: bool,
    /// Whether `dmtcp_command --quit` ends it; else it ends the processes alone.
    pub quits: bool,
    /// How long a round may stand still before it is said who is waited for.
    pub patience: Duration,
    /// How long a restart waits for processes that do not connect before it goes on without them.
    pub departed_after: Option<Duration>,
}

impl Options {
    /// The machine's own port, with DMTCP's defaults.
    #[must_use]
    pub fn local(port: u16, directory: PathBuf) -> Self {
        Self {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            allow: Vec::new(),
            interval: 0,
            directory,
            exit_on_last: false,
            kill_after: false,
            quits: true,
            patience: PATIENCE,
            departed_after: None,
        }
    }
}

/// Why a checkpoint does not count; the text is one line.
pub type RecordError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps what is to be known of computations.
pub trait Recorder: Send {
    /// Makes a checkpoint's record durable. May take its time: it is called on a thread of its own.
    ///
    /// # Errors
    /// Why it can't, by the recorder's own errors: then the checkpoint does not count.
    fn commit(&mut self, _checkpoint: &Checkpoint) -> Result<(), RecordError> {
        Ok(())
    }

    /// Takes notice of something.
    fn notice(&mut self, _notice: &Notice) {}

    /// The port is a cluster's: here are its nodes.
    fn cluster(&mut self, _cluster: Cluster) {}
}

/// Keeps nothing: checkpoints are the workers' and their users' business.
impl Recorder for () {}

/// What the coordinator's own user wants.
#[derive(Debug)]
pub enum Order {
    /// The machine with these addresses is lost.
    HostLost(Vec<IpAddr>),
    /// What dmtcp_command can ask for, too.
    Command(Command),
    /// A checkpoint; the answer is whether it was begun.
    Checkpoint(oneshot::Sender<bool>),
    /// The list of processes.
    List(oneshot::Sender<String>),
    /// How it is.
    Status(oneshot::Sender<Status>),
}

/// How a computation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The computation.
    pub group: Identity,
    /// Its processes.
    pub peers: usize,
    /// Seconds between checkpoints.
    pub interval: u32,
    /// Whether all of them run.
    pub is_running: bool,
    /// Until the next checkpoint falls due.
    pub next: Option<Duration>,
}

/// Why the port is not served; the text fits after "failed to ...".
#[derive(Debug, Error)]
pub enum ServeError {
    /// The port can't be had.
    #[error("listen for DMTCP's programs at {address}: {source}")]
    Listen {
        /// The port.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Strangers could end processes.
    #[error(
        "listen for DMTCP's programs at {0}: DMTCP has no authentication, so it must be said who may connect, as \
         in --dmtcp-allow 10.0.0.0/24"
    )]
    Open(SocketAddr),
}

/// A port that is listened at.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    options: Options,
    address: SocketAddr,
}

impl Port {
    /// Listens.
    ///
    /// # Errors
    /// Where the port can't be had, or would be open to everybody.
    pub async fn bind(options: Options) -> Result<Self, ServeError> {
        let address = options.listen;
        if !address.ip().is_loopback() && options.allow.is_empty() {
            return Err(ServeError::Open(address));
        }
        let failed = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, options, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it until it is told to quit. When nobody can give orders any more, it goes on without.
    pub async fn serve(
        self,
        recorder: Arc<Mutex<dyn Recorder>>,
        mut orders: mpsc::Receiver<Order>,
    ) {
        more_descriptors();
        let options = self.options;
        let own_address = own_address(self.address.ip());
        let stand_in = match options.departed_after {
            Some(_) => stand_in::listen(own_address).await,
            None => None,
        };
        let machine = Machine::new(settings(&options, own_address, stand_in));
        let (sender, mut arrivals) = mpsc::channel(MAX_ARRIVALS);
        let gate = task::spawn(link::listen(self.listener, options.allow.clone(), sender.clone()));
        let (done_sender, mut done) = mpsc::unbounded_channel();
        let scripts = Scripts { host: own_host(own_address), port: self.address.port() };
        let (told, telling) = std::sync::mpsc::channel();
        let recording = task::spawn_blocking(move || {
            record(&recorder, &telling, &scripts, &done_sender);
        });
        let mut driver = Driver {
            machine,
            links: HashMap::new(),
            began: Instant::now(),
            recorder: told,
            options,
            quits: false,
        };
        let mut ordered = true;
        while !driver.quits {
            let now = driver.now().nanos;
            let wait = driver
                .machine
                .deadline()
                .map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)));
            tokio::select! {
                Some(arrival) = arrivals.recv() => {
                    driver.arrived(arrival);
                    // What has come already is heard before anybody is found late.
                    while let Ok(arrival) = arrivals.try_recv() {
                        driver.arrived(arrival);
                    }
                }
                Some((generation, failure)) = done.recv() => {
                    driver.feed(Event::Recorded { generation, failure });
                }
                order = orders.recv(), if ordered => match order {
                    Some(order) => driver.order(order),
                    None => ordered = false,
                },
                () = sleep(wait) => {}
            }
            if driver.machine.deadline().is_some_and(|due| due <= driver.now().nanos) {
                driver.feed(Event::Clock);
            }
        }
        gate.abort();
        close_all(driver.links.drain().map(|(_, link)| link).collect()).await;
        drop(driver);
        // All that was decided is kept.
        let _ = recording.await;
    }
}

fn settings(options: &Options, own_address: Ipv4Addr, stand_in: Option<SocketAddr>) -> Settings {
    let identity = Identity {
        host: u64::from(u32::from(own_address)),
        time: wall_ms(),
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        generation: 0,
    };
    Settings {
        identity,
        own_address,
        interval: options.interval,
        directory: options.directory.to_string_lossy().into_owned(),
        exit_on_last: options.exit_on_last,
        kill_after: options.kill_after,
        user: nix::unistd::geteuid().as_raw(),
        patience: nanos(options.patience),
        departed_after: options.departed_after.map(nanos),
        stand_in,
    }
}

/// Closes connections once what was said last has been sent, or has had two seconds for it.
async fn close_all(links: Vec<Arc<Link>>) {
    for link in &links {
        link.close();
    }
    let since = Instant::now();
    while links.iter().any(|link| !link.is_done()) && since.elapsed() < Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct Driver {
    machine: Machine,
    links: HashMap<Connection, Arc<Link>>,
    began: Instant,
    recorder: std::sync::mpsc::Sender<Told>,
    options: Options,
    quits: bool,
}

impl Driver {
    fn now(&self) -> Time {
        Time { nanos: nanos(self.began.elapsed()), unix_ms: wall_ms() }
    }

    fn arrived(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Opened { connection, remote, message, link } => {
                self.links.insert(connection, link);
                self.feed(Event::Opened { connection, remote, message });
            }
            Arrival::Message { connection, message } => {
                self.feed(Event::Message { connection, message });
            }
            Arrival::Closed { connection } => {
                self.links.remove(&connection);
                self.feed(Event::Closed { connection });
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::HostLost(addresses) => self.feed(Event::HostLost { addresses }),
            Order::Command(command) => self.feed(Event::Order(command)),
            Order::Checkpoint(answer) => {
                let before = self.machine.group().generation;
                self.feed(Event::Order(Command::Checkpoint));
                // Whoever asked may have gone.
                let _ = answer.send(self.machine.group().generation != before);
            }
            Order::List(answer) => drop(answer.send(self.machine.list())),
            Order::Status(answer) => {
                let status = Status {
                    group: self.machine.group(),
                    peers: self.machine.peers(),
                    interval: self.machine.interval(),
                    is_running: self.machine.is_running(),
                    next: self
                        .machine
                        .next_checkpoint()
                        .map(|due| Duration::from_nanos(due.saturating_sub(self.now().nanos))),
                };
                let _ = answer.send(status);
            }
        }
    }

    fn feed(&mut self, event: Event) {
        let now = self.now();
        for action in self.machine.step(now, event) {
            match action {
                Action::Send { to, message } => {
                    let bytes: Arc<[u8]> = message.encode().into();
                    for link in to.iter().filter_map(|connection| self.links.get(connection)) {
                        link.send(&bytes);
                    }
                }
                Action::Close { connection } => {
                    if let Some(link) = self.links.remove(&connection) {
                        link.close();
                    }
                }
                Action::Commit(checkpoint) => {
                    let directory = self.machine.directory().into();
                    self.tell(Told::Commit { checkpoint: *checkpoint, directory });
                }
                Action::DialFor { address, key } => stand_in::dial(address, key),
                Action::Notice(notice) => self.notice(&notice),
                Action::Quit => self.quits = self.options.quits || self.options.exit_on_last,
            }
        }
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Began { group, program, restarted } => {
                let how = if *restarted { "is restarted with" } else { "begins with" };
                tracing::info!("DMTCP's computation {group} {how} {program}");
            }
            Notice::Checkpointing { group, peers } => tracing::info!(
                "checkpoint {} of {peers} processes of DMTCP's computation {group}",
                group.generation
            ),
            Notice::Failed { group, reason } => tracing::warn!(
                "checkpoint {} of DMTCP's computation {group} does not count: {reason}",
                group.generation
            ),
            Notice::Restarted { group, peers } => {
                tracing::info!("{peers} processes of DMTCP's computation {group} run again");
            }
            Notice::HostLost { group, peers } => tracing::warn!(
                "{peers} processes of DMTCP's computation {group} are lost with their machine"
            ),
            Notice::Ended { group, .. } => {
                tracing::info!("the last process of DMTCP's computation {group} has gone");
            }
            Notice::Warning(text) => tracing::warn!("DMTCP: {text}"),
        }
        self.tell(Told::Notice(notice.clone()));
    }

    fn tell(&self, told: Told) {
        // Its thread ends after this one.
        let _ = self.recorder.send(told);
    }
}

/// What the recorder is told, in this order, on a thread of its own: it may wait for a disk.
enum Told {
    Commit {
        checkpoint: Checkpoint,
        /// Where restart scripts are wanted.
        directory: PathBuf,
    },
    Notice(Notice),
}

/// Why there is no restart script.
#[derive(Debug, Error)]
#[error("the restart script can't be written to {}: {source}", directory.display())]
struct ScriptError {
    directory: PathBuf,
    source: io::Error,
}

/// What is in restart scripts.
struct Scripts {
    host: String,
    port: u16,
}

impl Scripts {
    fn write(&self, directory: &Path, checkpoint: &Checkpoint) -> Result<(), ScriptError> {
        match script::write(directory, checkpoint, &self.host, self.port) {
            Ok(path) => {
                let generation = checkpoint.group.generation;
                tracing::info!(
                    "checkpoint {generation} is written; {} restarts it",
                    path.display()
                );
                Ok(())
            }
            Err(source) => Err(ScriptError { directory: directory.to_owned(), source }),
        }
    }
}

/// Tells the recorder, until the loop has ended and all is told.
fn record(
    recorder: &Mutex<dyn Recorder>,
    told: &std::sync::mpsc::Receiver<Told>,
    scripts: &Scripts,
    done: &mpsc::UnboundedSender<(i32, Option<String>)>,
) {
    while let Ok(told) = told.recv() {
        let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Told::Notice(notice) => recorder.notice(&notice),
            Told::Commit { checkpoint, directory } => {
                let kept = recorder
                    .commit(&checkpoint)
                    .and_then(|()| Ok(scripts.write(&directory, &checkpoint)?));
                // The loop has ended: nobody waits.
                let failure = kept.err().map(|error| error.to_string());
                let _ = done.send((checkpoint.group.generation, failure));
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Each worker takes one.
fn more_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard {
            // With fewer, fewer workers fit, and those that do not are told.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}

/// The address by which other machines know this one, where they can reach the port at all.
fn own_address(listening: IpAddr) -> Ipv4Addr {
    match listening {
        IpAddr::V4(v4) if !v4.is_unspecified() => v4,
        IpAddr::V6(v6) if v6.is_loopback() => Ipv4Addr::LOCALHOST,
        _ => nix::ifaddrs::getifaddrs()
            .ok()
            .and_then(|interfaces| {
                interfaces
                    .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
                    .find(|ip| !ip.is_loopback() && !ip.is_link_local())
            })
            .unwrap_or(Ipv4Addr::LOCALHOST),
    }
}

/// The host in restart scripts.
fn own_host(own_address: Ipv4Addr) -> String {
    if own_address.is_loopback() { "localhost".to_owned() } else { own_address.to_string() }
}
