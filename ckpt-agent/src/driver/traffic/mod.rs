//! What jobs send from machine to machine, encrypted: `ckptd agent --encrypt-job-traffic`.
//!
//! * `plan`: which addresses and ports that is for, a pure function;
//! * `device`: the device through which the kernel hands over such packets, and the rules that lead them there;
//! * `queue`: their way to another member, over a connection of agents;
//! * `packet`, `gate`: what a member may put into this machine's network;
//! * `arrivals`: connections of jobs that are made again, which agents make for them, come this way, too.
//!
//! The kernel takes care of everything else: it sends again what was dropped, and knows nothing of who carries it.

mod arrivals;
mod device;
mod gate;
mod packet;
mod plan;
mod queue;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ckpt_engine::sys::tun;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Uid;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{JobTraffic, Peer};
use protocol::cluster::peer::PeerMessage;
use tokio::runtime::{Builder, Handle};

use super::folders::Folders;
use super::link::PeerLink;
use super::peers::Peers;
use crate::rewire::Wires;
use device::{Device, LONGEST};
use plan::{Own, Table};
use queue::Queue;

pub use device::{Left, clear, left};

/// Packets that are taken from the device by what is known of members.
const BATCH: usize = 64;

/// Ports that stay as they are unless the operator says otherwise: of ssh, NFS and its portmapper, which a machine must not
/// lose with its agent.
pub const CLEAR_PORTS: [u16; 3] = [22, 2049, 111];

/// Why traffic is not encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The agent is somebody's.
    #[error("--encrypt-job-traffic needs an agent of root's: only root can lead packets elsewhere")]
    NotRoot,
    /// Another one does it.
    #[error("an agent of this machine does so already, by the device {0}")]
    Taken(String),
    /// Another one did it, and was killed.
    #[error(
        "an agent that was killed has left the device {0} ({1}); start that one, or take it away by 'ckptd agent \
         --clear-job-traffic'"
    )]
    Others(String, String),
    /// The kernel knows no rules by ports.
    #[error(
        "the kernel's rules know no ports: Linux 4.17 or newer is needed, with IP_MULTIPLE_TABLES"
    )]
    Rules,
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What.
        what: String,
        /// Its answer.
        source: io::Error,
    },
}

impl TrafficError {
    fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// How an agent encrypts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Ports that stay as they are.
    pub clear_ports: BTreeSet<u16>,
}

impl Options {
    /// Whether it can be done at all. Nothing is made.
    ///
    /// # Errors
    /// The caller is not root, or the kernel has no such devices.
    pub fn check(&self) -> Result<(), TrafficError> {
        if !Uid::effective().is_root() {
            return Err(TrafficError::NotRoot);
        }
        let opened = File::options().read(true).write(true).open(tun::DEVICE);
        opened.map(drop).map_err(TrafficError::at(format!("open {}", tun::DEVICE)))
    }
}

/// Whether processes of jobs are on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// Some, or it is not known.
    Here,
    /// None.
    None,
}

/// What carries packets, and what decides about them.
#[derive(Debug)]
struct Carrier {
    own: NodeName,
    peers: Peers,
    table: RwLock<Arc<Table>>,
    /// Ways to members, with what was known of them when they were made.
    queues: Mutex<HashMap<NodeName, Queue>>,
    device: File,
    threads: Handle,
    /// The device is about to be removed.
    ends: AtomicBool,
}

/// Encrypts, from the start of an agent to its end.
#[derive(Debug, Clone)]
pub struct Traffic {
    carrier: Arc<Carrier>,
    device: Arc<Mutex<Device>>,
    clear_ports: BTreeSet<u16>,
    offer: JobTraffic,
    /// How members have encrypted so far.
    offers: Arc<Mutex<BTreeMap<NodeName, (SocketAddr, JobTraffic)>>>,
}

impl Traffic {
    /// Makes the device, or takes over that of an agent of before, in that folder. Connections of jobs that arrive are `wires`'. Within a
    /// tokio run time.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn start(
        options: &Options,
        dir: &Path,
        own: NodeName,
        peers: Peers,
        wires: Arc<Wires>,
    ) -> Result<Self, TrafficError> {
        options.check()?;
        let device = Device::open(dir)?;
        let port = arrivals::listen(&device.name, wires)
            .map_err(TrafficError::at(format!("listen at {}", device.name)))?;
        let failed = || TrafficError::at("start a thread");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed())?;
        let carrier = Arc::new(Carrier {
            own,
            peers,
            table: RwLock::default(),
            queues: Mutex::default(),
            device: device.file.try_clone().map_err(failed())?,
            threads: runtime.handle().clone(),
            ends: AtomicBool::new(false),
        });
        let reading = carrier.clone();
        let read = move || {
            let ended = reading.read();
            if let Err(error) = ended.or_else(|error| reading.unless_ending(error)) {
                tracing::error!("jobs' traffic is not carried any more: {error}");
            }
        };
        thread("traffic-read", read).map_err(failed())?;
        // As long as the process.
        thread("traffic-carry", move || runtime.block_on(std::future::pending::<()>()))
            .map_err(failed())?;
        tracing::info!(
            device = device.name,
            "jobs' traffic with members that do so, too, is encrypted"
        );
        Ok(Self {
            carrier,
            device: Arc::new(Mutex::new(device)),
            clear_ports: options.clear_ports.clone(),
            offer: JobTraffic { port },
            offers: Arc::default(),
        })
    }

    /// What others are told.
    #[must_use]
    pub fn offer(&self) -> JobTraffic {
        self.offer
    }

    /// Does as the members are now. While processes of jobs are here, nothing goes unencrypted that has been encrypted so
    /// far: who is gone may only be cut off.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn update(
        &self,
        address: SocketAddr,
        addresses: Vec<IpAddr>,
        coordinators: Vec<String>,
        members: &[Peer],
        jobs: Jobs,
    ) -> Result<(), TrafficError> {
        let own = Own {
            name: self.carrier.own.clone(),
            address,
            addresses,
            coordinators,
            clear_ports: self.clear_ports.clone(),
        };
        let mut device = held(&self.device);
        let kept = match jobs {
            Jobs::Here => device.routed()?,
            Jobs::None => BTreeSet::new(),
        };
        let plan = plan::plan(&own, members, &kept);
        let table = Arc::new(plan.table.clone());
        // Before packets come.
        *self.carrier.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        device.apply(&plan)?;
        let mut offers = held(&self.offers);
        // An agent that was started again knows nothing of a connection of before.
        held(&self.carrier.queues).retain(|node, _| offers.get(node) == plan.offers.get(node));
        *offers = plan.offers;
        Ok(())
    }

    /// The agent ends. Where no processes of jobs are here any more, all is taken away.
    pub fn end(&self, jobs: Jobs) {
        if jobs == Jobs::Here {
            return;
        }
        self.carrier.ends.store(true, Ordering::Relaxed);
        if let Err(error) = device::remove() {
            tracing::error!("what encrypted jobs' traffic could not be removed: {error}");
        }
    }

    /// Where a connection of a job is made again that would be made with that agent's port.
    #[must_use]
    pub fn way_to(&self, agent: SocketAddr) -> SocketAddr {
        let offers = held(&self.offers);
        let offer = offers.values().find(|(address, _)| *address == agent);
        offer.map_or(agent, |(address, traffic)| SocketAddr::new(address.ip(), traffic.port))
    }

    /// Serves a connection that a member has made for its packets, until it ends.
    pub fn serve(&self, from: NodeName, link: PeerLink, first: Vec<u8>) {
        let carrier = self.carrier.clone();
        self.carrier.threads.spawn(async move { carrier.receive(&from, link, first).await });
    }
}

/// Whether processes of jobs are on this machine, or were when the agent was killed.
#[must_use]
pub fn jobs_in(folders: &Folders) -> Jobs {
    if folders.have_records() { Jobs::Here } else { Jobs::None }
}

impl Carrier {
    fn unless_ending(&self, error: io::Error) -> io::Result<()> {
        if self.ends.load(Ordering::Relaxed) { Ok(()) } else { Err(error) }
    }

    fn table(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what the kernel has for members, on a thread of its own.
    fn read(&self) -> io::Result<()> {
        let mut packet = vec![0; LONGEST as usize];
        loop {
            let mut device = [PollFd::new(self.device.as_fd(), PollFlags::POLLIN)];
            match poll(&mut device, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let table = self.table();
            for _ in 0..BATCH {
                match (&self.device).read(&mut packet) {
                    Ok(length) => self.send(&table, packet.get(..length).unwrap_or_default()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn send(&self, table: &Table, bytes: &[u8]) {
        let whole = packet::length(bytes) == Ok(bytes.len());
        let Ok(packet) = packet::read(bytes) else { return };
        let Some(node) = table.members.get(&packet.destination).filter(|_| whole) else { return };
        let mut queues = held(&self.queues);
        if !queues.contains_key(node) {
            let queue = Queue::to(node.clone(), self.peers.clone(), &self.threads);
            queues.insert(node.clone(), queue);
        }
        if let Some(queue) = queues.get(node) {
            queue.push(bytes);
        }
    }

    /// Gives the kernel what a member sends, as far as it may.
    async fn receive(&self, from: &NodeName, mut link: PeerLink, first: Vec<u8>) {
        tracing::debug!(%from, "jobs' traffic: it has connected");
        let mut has_told = false;
        let mut body = first;
        loop {
            let table = self.table();
            let mut rest = body.as_slice();
            while !rest.is_empty() {
                let Ok(length) = packet::length(rest) else {
                    return tracing::warn!(%from, "refused: what it sends are no packets");
                };
                let (packet, more) = rest.split_at(length);
                rest = more;
                match table.admits(from, packet) {
                    // One that the kernel can't take now is lost.
                    Ok(()) => drop((&self.device).write(packet)),
                    Err(reason) if !has_told => {
                        has_told = true;
                        tracing::warn!(%from, "refused a packet: {reason}");
                    }
                    Err(_) => {}
                }
            }
            body = match link.from.recv().await {
                Some((PeerMessage::Packets, body)) => body,
                Some(_) => return tracing::warn!(%from, "it has mistaken the connection"),
                None => return,
            };
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// What a panic elsewhere has left is still true.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
