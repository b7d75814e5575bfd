//! Connections whose peer is not in this instance of the job. Whether it is another instance or
//! somebody outside is found at a restore, by the addresses of all instances' ends.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::super::super::error::Result;
use super::super::super::graph::{BlobId, FileId, Graph};
use super::super::super::sys::sock_diag;
use super::super::Object;
use super::{DumpContext, Found, PeerEnd, TcpSocket, TcpState, diag, kernel_state, quiesce};

/// One end of a connection whose other end is not restored with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OuterSocket {
    /// Its open file description.
    pub file: FileId,
    /// Its own address at the checkpoint, an IPv4-mapped one as IPv4. A loopback address means the machine
    /// of the checkpoint.
    pub local: SocketAddr,
    /// Its peer's.
    pub peer: SocketAddr,
    /// AF_INET6 rather than AF_INET.
    pub v6: bool,
    /// Bytes that lay unread at this end.
    pub received: Option<BlobId>,
    /// The job had called shutdown(2) SHUT_RD here.
    pub shut_read: bool,
    /// The job had called shutdown(2) SHUT_WR here.
    pub shut_write: bool,
    /// The peer had closed, or shut down writing.
    pub peer_shut: bool,
    /// Bytes sent from this end had not arrived anywhere: such an end must not be connected again.
    pub in_flight: bool,
}

/// Sockets among `files` (those that are restored together) whose peers are not: in another
/// instance, or in another part of this one.
pub fn outer_sockets(graph: &Graph, files: &BTreeSet<FileId>) -> Vec<OuterSocket> {
    let canonical =
        |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    files
        .iter()
        .filter_map(|&file| {
            if graph.files.get(file.0 as usize)?.network.is_some() {
                return None;
            }
            let Some(Object::TcpSocket(socket)) = graph.object(file) else { return None };
            let (connection, local) = (socket.connection()?, socket.local?);
            let apart = match connection.end {
                PeerEnd::Outside => true,
                PeerEnd::Socket { file: peer } => !files.contains(&peer),
                PeerEnd::Waiting { .. } | PeerEnd::Closed => false,
            };
            apart.then(|| OuterSocket {
                file,
                local: canonical(local),
                peer: canonical(connection.peer),
                v6: socket.v6,
                received: connection.received,
                shut_read: connection.shut_read,
                shut_write: connection.shut_write,
                peer_shut: connection.peer_shut,
                in_flight: connection.in_flight,
            })
        })
        .collect()
}

/// Reads all outer connections, when no instance sends any more.
pub(super) fn read_all(all: &mut [Found<'_, TcpSocket>], context: &mut DumpContext) -> Result<()> {
    let is_outer = |found: &Found<'_, TcpSocket>| {
        found.object.connection().is_some_and(|connection| connection.end == PeerEnd::Outside)
    };
    let listens =
        |found: &Found<'_, TcpSocket>| matches!(found.object.state, TcpState::Listening { .. });
    if context.cluster && all.iter().any(|found| is_outer(found) || listens(found)) {
        let listing = sock_diag::tcp_listing()?;
        diag::refuse_unseen(all, &listing)?;
        let listed = listing.entries;
        // An instance that had to run on for a moment may have connected since the first look.
        diag::refuse_strangers(all, &listed, context)?;
        for found in all.iter_mut().filter(|found| is_outer(found)) {
            let bytes = quiesce::peek(found.probe)?;
            let received = (!bytes.is_empty()).then(|| context.keep(bytes));
            let state = i32::from(kernel_state(found.probe)?);
            if state == diag::CLOSE {
                let reset = quiesce::is_reset(found.probe)?;
                found.object.state = TcpState::Closed { reset, refused: false, received };
                continue;
            }
            let (shut_write, shut_read) = diag::shut(found.probe, &listed)?;
            if let TcpState::Connected(connection) = &mut found.object.state {
                connection.received = received;
                connection.shut_write = shut_write;
                connection.shut_read = shut_read;
                connection.peer_shut =
                    matches!(state, diag::CLOSE_WAIT | diag::LAST_ACK | diag::CLOSING);
            }
        }
    }
    // Buffers get their sizes back.
    context.widened.clear();
    Ok(())
}

/// What is known of a peer by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// A machine of the job: most likely another instance.
    Job,
    /// Another machine.
    Elsewhere,
    /// The job's machines are not known.
    Unknown,
}

/// What is known of a peer by its address.
pub(super) fn whereabouts(
    local: Option<SocketAddr>,
    peer: SocketAddr,
    machines: &BTreeSet<IpAddr>,
) -> Whereabouts {
    let ip = peer.ip().to_canonical();
    if ip.is_loopback() || local.is_some_and(|local| local.ip().to_canonical() == ip) {
        return Whereabouts::Job;
    }
    match machines.iter().any(|machine| machine.to_canonical() == ip) {
        true => Whereabouts::Job,
        false if machines.is_empty() => Whereabouts::Unknown,
        false => Whereabouts::Elsewhere,
    }
}
