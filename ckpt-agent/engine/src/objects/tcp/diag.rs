//! Which socket is at the other end of which, and what is there where the job has none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::super::super::error::Result;
use super::super::super::graph::FileId;
use super::super::super::sys::sock_diag::{self, TcpEntry, TcpListing};
use super::outer::{self, Whereabouts};
use super::urgent::{self, Unread};
use super::{
    DumpContext, External, Found, PeerEnd, Probe, TcpSocket, TcpState, kernel_state, pending,
    quiesce, refused, soon,
};

// include/net/tcp_states.h
pub(super) const ESTABLISHED: i32 = 1;
pub(super) const SYN_SENT: i32 = 2;
pub(super) const SYN_RECV: i32 = 3;
pub(super) const FIN_WAIT1: i32 = 4;
pub(super) const FIN_WAIT2: i32 = 5;
pub(super) const TIME_WAIT: i32 = 6;
pub(super) const CLOSE: i32 = 7;
pub(super) const CLOSE_WAIT: i32 = 8;
pub(super) const LAST_ACK: i32 = 9;
pub(super) const LISTEN: i32 = 10;
pub(super) const CLOSING: i32 = 11;

/// RCV_SHUTDOWN (include/net/sock.h).
const RCV_SHUTDOWN: u8 = 1;

/// An address within one network: 127.0.0.1 exists on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// Which instance of a network; one machine's job has only number 0.
    pub(super) network: u32,
    /// Address and port; IPv4-mapped ones as IPv4.
    pub(super) address: SocketAddr,
}

impl Endpoint {
    pub(super) fn new(network: u32, address: SocketAddr) -> Self {
        let ip = address.ip().to_canonical();
        Self { network, address: SocketAddr::new(ip, address.port()) }
    }
}

/// The two addresses of a connection as one end sees them.
pub(super) type PairKey = (Endpoint, Endpoint);

/// Finds for every connection key the index of the socket at its other end.
pub(super) fn pair(keys: &[Option<PairKey>]) -> Vec<Option<usize>> {
    let by_key: HashMap<PairKey, usize> =
        keys.iter().enumerate().filter_map(|(index, key)| Some(((*key)?, index))).collect();
    keys.iter()
        .map(|key| key.and_then(|(local, peer)| by_key.get(&(peer, local)).copied()))
        .collect()
}

pub(super) fn key(socket: &TcpSocket) -> Option<PairKey> {
    let peer = socket.connection()?.peer;
    Some((Endpoint::new(0, socket.local?), Endpoint::new(0, peer)))
}

/// Completes all sockets of a dump: peers, states, queued bytes.
pub(super) fn complete(all: &mut [Found<'_, TcpSocket>], context: &mut DumpContext) -> Result<()> {
    let keys: Vec<Option<PairKey>> = all.iter().map(|found| key(found.object)).collect();
    let peers = pair(&keys);
    let received = quiesce::quiesce(all, &peers, context)?;
    let listing = if all.iter().all(|found| found.object.state == TcpState::Idle) {
        TcpListing::default()
    } else {
        sock_diag::tcp_listing()?
    };
    refuse_unseen(all, &listing)?;
    refuse_signed(all, &listing)?;
    let listed = listing.entries;
    let view = View::new(all, &listed, &keys, context.cluster);
    let ids: Vec<FileId> = all.iter().map(|found| found.id).collect();
    view.strangers_at_listeners(all, context)?;
    let mut held = pending::read(all, &view, context)?;
    let mut outcomes = Vec::new();
    for (index, found) in all.iter().enumerate() {
        let outcome = match &found.object.state {
            TcpState::Connected(_) if held.contains_key(&index) => held
                .get(&index)
                .map(|held| (held.listener, held.place))
                .map(|(listener, place)| Outcome::Goes(PeerEnd::Waiting { listener, place })),
            TcpState::Connected(_) => Some(view.outcome(found, keys[index], peers[index], &ids)?),
            _ => None,
        };
        outcomes.push(outcome);
    }
    for (index, ((found, outcome), rest)) in all.iter_mut().zip(outcomes).zip(received).enumerate()
    {
        let outside = matches!(outcome, Some(Outcome::Goes(PeerEnd::Outside)));
        let Unread { bytes, urgent } = match peers[index] {
            // Not all may be there yet: `outer::read_all` reads it.
            None if context.cluster && outside => Unread::default(),
            None if context.cluster && outcome.is_some() => {
                Unread { bytes: quiesce::peek(found.probe)?, urgent: None }
            }
            _ => behind_a_mark(found, &listed, rest.received)?,
        };
        let is_over = !matches!(outcome, Some(Outcome::Goes(_)));
        if urgent.is_some() && (context.cluster || is_over) {
            return Err(quiesce::in_flight(found.probe));
        }
        let sent = held.remove(&index).filter(|held| !held.sent.bytes.is_empty());
        let received = (!bytes.is_empty()).then(|| context.keep(bytes));
        let reset = quiesce::is_reset(found.probe)?;
        if reset && i32::from(kernel_state(found.probe)?) != CLOSE {
            return Err(soon(
                found.probe,
                "an error of a TCP connection, or the completion of something sent (MSG_ZEROCOPY, SO_TIMESTAMPING), \
                 that is not read yet",
                "it is read soon: try again",
            ));
        }
        match (&mut found.object.state, outcome) {
            (TcpState::Connected(_), Some(Outcome::Over)) => {
                found.object.state = TcpState::Closed { reset, refused: false, received };
            }
            (TcpState::Connected(connection), Some(Outcome::Goes(end))) => {
                connection.end = end;
                (connection.shut_write, connection.shut_read) = view.shut(found.probe)?;
                if let Some(Unread { bytes, urgent }) = sent.map(|held| held.sent) {
                    (connection.sent, connection.sent_urgent) = (Some(context.keep(bytes)), urgent);
                }
                (connection.received, connection.urgent) = (received, urgent);
                connection.in_flight = rest.in_flight;
                if outside {
                    say_outside(found, context)?;
                }
            }
            (TcpState::Closed { reset: was, refused, received: queue }, _) => {
                *was = reset;
                *refused = reset && refused::was_never_made(found.probe, context)?;
                *queue = received;
            }
            _ => {}
        }
        quiesce::let_ports_be_reused(found)?;
        if found.object.holds_port() {
            found.object.options.set.remove("reuse_address");
        }
    }
    Ok(())
}

/// What stands in a queue of which only what is before an urgent byte may have shown: a program that has read that one
/// alone is told of no more (tcp_inq(), SIOCINQ), and the kernel lists all, but for a connection that is over.
fn behind_a_mark(
    found: &Found<'_, TcpSocket>,
    listed: &[TcpEntry],
    seen: Unread,
) -> Result<Unread> {
    // Of one that listens the kernel lists connections.
    let connected = found.object.connection();
    let entry = connected.and_then(|_| entry(listed, found.probe.stat.st_ino as u32));
    let is_more = match (&found.object.state, entry) {
        _ if seen.urgent.is_some() => false,
        (TcpState::Closed { .. }, _) => urgent::hides(&found.probe.copy)?,
        (_, entry) => entry.is_some_and(|entry| unread(entry) as usize > seen.bytes.len()),
    };
    if is_more { urgent::look(found.probe) } else { Ok(seen) }
}

/// Refuses connections whose keys nobody tells.
fn refuse_signed(all: &[Found<'_, TcpSocket>], listing: &TcpListing) -> Result<()> {
    for found in all {
        let inode = found.probe.stat.st_ino as u32;
        if entry(&listing.entries, inode).is_some_and(|entry| entry.signed) {
            return Err(refused(
                found.probe,
                "a TCP socket with keys for signatures (TCP_MD5SIG)",
                "close it while checkpoints are taken, or do without signatures",
            ));
        }
    }
    Ok(())
}

/// Refuses connections that wait at the job's listening sockets where nobody can tell whose they are.
pub(super) fn refuse_unseen(all: &[Found<'_, TcpSocket>], listing: &TcpListing) -> Result<()> {
    if !listing.without_waiting {
        return Ok(());
    }
    for found in all.iter().filter(|found| matches!(found.object.state, TcpState::Listening { .. }))
    {
        let inode = found.probe.stat.st_ino as u32;
        if entry(&listing.entries, inode).is_some_and(|entry| entry.receive_queue > 0) {
            return Err(soon(
                found.probe,
                "a connection that has not been accepted yet, of which an app is told no more",
                "it will be accepted soon: try again",
            ));
        }
    }
    Ok(())
}

/// Refuses connections at the job's listening sockets that another instance may have made and nobody
/// has accepted.
pub(super) fn refuse_strangers(
    all: &[Found<'_, TcpSocket>],
    listed: &[TcpEntry],
    context: &mut DumpContext,
) -> Result<()> {
    let keys: Vec<Option<PairKey>> = all.iter().map(|found| key(found.object)).collect();
    View::new(all, listed, &keys, context.cluster).strangers_at_listeners(all, context)
}

fn say_outside(found: &Found<'_, TcpSocket>, context: &mut DumpContext) -> Result<()> {
    let probe = found.probe;
    let Some(connection) = found.object.connection() else { return Ok(()) };
    if context.cluster
        && !connection.in_flight
        && outer::whereabouts(found.object.local, connection.peer, &context.machines)
            != Whereabouts::Elsewhere
    {
        // A restore finds out.
        return Ok(());
    }
    match context.external {
        External::Fail => Err(refused(
            probe,
            format!("a connection to {}, outside of the job", connection.peer),
            "close it, or run with --external warn",
        )),
        External::Warn => {
            context.warn(format!(
                "process {} ({}), descriptor {}: the connection to {} leads out of the job; after a \
                 restart it will be found reset",
                probe.pid, probe.comm, probe.fd, connection.peer
            ));
            Ok(())
        }
    }
}

/// What a connected socket turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Goes(PeerEnd),
    Over,
}

pub(super) struct View<'a> {
    listed: &'a [TcpEntry],
    by_key: HashMap<PairKey, &'a TcpEntry>,
    job: HashMap<PairKey, usize>,
    listeners: Vec<(FileId, SocketAddr, bool)>,
    cluster: bool,
}

impl<'a> View<'a> {
    fn new(
        all: &[Found<'_, TcpSocket>],
        listed: &'a [TcpEntry],
        keys: &[Option<PairKey>],
        cluster: bool,
    ) -> Self {
        let by_key = listed.iter().map(|entry| (entry_key(entry), entry)).collect();
        let job = keys.iter().enumerate().filter_map(|(i, key)| Some(((*key)?, i))).collect();
        let listeners = all
            .iter()
            .filter(|found| matches!(found.object.state, TcpState::Listening { .. }))
            .filter_map(|found| {
                let only = found.object.options.number("v6_only") != 0;
                Some((found.id, found.object.local?, only))
            })
            .collect();
        Self { listed, by_key, job, listeners, cluster }
    }

    /// Which directions the program of a connected socket has shut down: writing, reading.
    pub(super) fn shut(&self, probe: &Probe) -> Result<(bool, bool)> {
        shut(probe, self.listed)
    }

    /// What the kernel lists of a socket that has a descriptor.
    pub(super) fn entry(&self, inode: u32) -> Option<&'a TcpEntry> {
        entry(self.listed, inode)
    }

    /// Connections that wait at a listening socket of the job.
    pub(super) fn waiting_at(&self, listener: FileId) -> impl Iterator<Item = &'a TcpEntry> {
        self.listed
            .iter()
            .filter(|entry| entry.inode == 0 && never_accepted(entry))
            .filter(move |entry| self.listener(entry.local) == Some(listener))
    }

    /// Index of the job's socket at the other end of a waiting connection.
    pub(super) fn client_of(&self, entry: &TcpEntry) -> Option<usize> {
        let (local, remote) = entry_key(entry);
        self.job.get(&(remote, local)).copied()
    }

    /// Whether the client of a waiting connection was on this machine, and is closed.
    pub(super) fn client_has_closed(&self, entry: &TcpEntry) -> bool {
        let (local, remote) = entry_key(entry);
        let here = remote.address.ip().is_loopback() || remote.address.ip() == local.address.ip();
        let client = self.by_key.get(&(remote, local));
        // What has sent its FIN and is in TIME_WAIT, or gone, is not listed.
        let gone = match client {
            Some(client) => client.inode == 0 && !never_accepted(client),
            None => i32::from(entry.state) == CLOSE_WAIT,
        };
        !self.cluster && here && gone
    }

    /// The job's listening socket that accepts connections to an address.
    fn listener(&self, at: SocketAddr) -> Option<FileId> {
        let exact = |address: &SocketAddr| address.ip().to_canonical() == at.ip().to_canonical();
        let candidates =
            || self.listeners.iter().filter(|(_, address, _)| address.port() == at.port());
        candidates()
            .find(|(_, address, _)| exact(address))
            .or_else(|| {
                candidates().find(|(_, address, only)| match address.ip() {
                    IpAddr::V4(ip) => ip.is_unspecified() && at.ip().to_canonical().is_ipv4(),
                    IpAddr::V6(ip) => {
                        ip.is_unspecified() && !(*only && at.ip().to_canonical().is_ipv4())
                    }
                })
            })
            .map(|(id, _, _)| *id)
    }

    fn outcome(
        &self,
        found: &Found<'_, TcpSocket>,
        key: Option<PairKey>,
        peer: Option<usize>,
        ids: &[FileId],
    ) -> Result<Outcome> {
        let state = i32::from(kernel_state(found.probe)?);
        if state == CLOSE {
            return Ok(Outcome::Over);
        }
        if let Some(peer) = peer {
            return Ok(Outcome::Goes(PeerEnd::Socket { file: ids[peer] }));
        }
        let Some((local, remote)) = key else { return Ok(Outcome::Goes(PeerEnd::Outside)) };
        let peer_has_closed = matches!(state, CLOSE_WAIT | LAST_ACK | CLOSING);
        let Some(entry) = self.by_key.get(&(remote, local)) else {
            // Gone altogether, in TIME_WAIT, or on another machine, where it may be half closed only.
            let end =
                if peer_has_closed && !self.cluster { PeerEnd::Closed } else { PeerEnd::Outside };
            return Ok(Outcome::Goes(end));
        };
        if entry.inode != 0 {
            return Ok(Outcome::Goes(PeerEnd::Outside));
        }
        if never_accepted(entry) {
            let Some(listener) = self.listener(entry.local) else {
                return Ok(Outcome::Goes(PeerEnd::Outside));
            };
            if unread(entry) > 0 || quiesce::unacknowledged(found.probe)? > 0 {
                return Err(soon(
                    found.probe,
                    format!(
                        "a connection with bytes in it that {} has not accepted yet",
                        entry.local
                    ),
                    "it will be accepted soon: try again",
                ));
            }
            return Ok(Outcome::Goes(PeerEnd::Waiting { listener, place: 0 }));
        }
        // Closed by its program, and the kernel has not done with it.
        if peer_has_closed {
            return Ok(Outcome::Goes(PeerEnd::Closed));
        }
        if matches!(i32::from(entry.state), FIN_WAIT2) {
            return Ok(Outcome::Goes(PeerEnd::Closed));
        }
        Err(soon(
            found.probe,
            format!(
                "a connection with bytes on their way from {}, which has closed it",
                entry.local
            ),
            "they arrive as soon as the program reads: try again",
        ))
    }

    /// Connections that wait at the job's listening sockets, made by nobody in the job.
    fn strangers_at_listeners(
        &self,
        all: &[Found<'_, TcpSocket>],
        context: &mut DumpContext,
    ) -> Result<()> {
        for entry in self.listed.iter().filter(|entry| entry.inode == 0 && never_accepted(entry)) {
            let (local, remote) = entry_key(entry);
            if self.job.contains_key(&(remote, local)) {
                continue;
            }
            let Some(listener) = self.listener(entry.local) else { continue };
            let Some(found) = all.iter().find(|found| found.id == listener) else { continue };
            // `pending` has it.
            if self.client_has_closed(entry) && !found.object.multipath {
                continue;
            }
            let owner_alive =
                self.by_key.get(&(remote, local)).is_some_and(|other| other.inode != 0);
            if !owner_alive && unread(entry) > 0 && i32::from(entry.state) == CLOSE_WAIT {
                return Err(soon(
                    found.probe,
                    format!("a connection from {} with bytes in it, not accepted yet", entry.peer),
                    "it will be accepted soon: try again",
                ));
            }
            let from_job = context.cluster
                && outer::whereabouts(Some(entry.local), entry.peer, &context.machines)
                    != Whereabouts::Elsewhere;
            if from_job {
                return Err(soon(
                    found.probe,
                    format!("a connection from {}, not accepted yet", entry.peer),
                    "it will be accepted soon: try again",
                ));
            }
            if context.external == External::Fail {
                return Err(soon(
                    found.probe,
                    format!(
                        "a connection from {}, outside of the job, not accepted yet",
                        entry.peer
                    ),
                    "it will be accepted soon: try again",
                ));
            }
            context.warn(format!(
                "process {} ({}), descriptor {}: a connection from {} that is not accepted yet will be \
                 missing after a restart",
                found.probe.pid, found.probe.comm, found.probe.fd, entry.peer
            ));
        }
        Ok(())
    }
}

/// What the kernel lists of a socket that has a descriptor.
fn entry(listed: &[TcpEntry], inode: u32) -> Option<&TcpEntry> {
    listed.iter().find(|entry| entry.inode == inode)
}

/// Which directions the program of a connected socket has shut down: writing, reading.
pub(super) fn shut(probe: &Probe, listed: &[TcpEntry]) -> Result<(bool, bool)> {
    let state = i32::from(kernel_state(probe)?);
    let write = matches!(state, FIN_WAIT1 | FIN_WAIT2 | CLOSING | LAST_ACK | TIME_WAIT);
    // A FIN from the peer sets the same bit, but changes the state as well.
    let read = matches!(state, ESTABLISHED | FIN_WAIT1 | FIN_WAIT2)
        && entry(listed, probe.stat.st_ino as u32)
            .is_some_and(|entry| entry.shutdown & RCV_SHUTDOWN != 0);
    Ok((write, read))
}

pub(super) fn entry_key(entry: &TcpEntry) -> PairKey {
    (Endpoint::new(0, entry.local), Endpoint::new(0, entry.peer))
}

/// A socket without an inode is either not accepted yet or closed; close(2) leaves these states.
fn never_accepted(entry: &TcpEntry) -> bool {
    matches!(i32::from(entry.state), ESTABLISHED | SYN_RECV | CLOSE_WAIT)
}

/// Bytes in a receive queue: the kernel counts a FIN as one.
pub(super) fn unread(entry: &TcpEntry) -> u32 {
    entry.receive_queue.saturating_sub(u32::from(i32::from(entry.state) == CLOSE_WAIT))
}
