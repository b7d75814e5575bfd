//! TCP sockets of IPv4 and IPv6, by means that need no privilege: a connection's queues are read
//! while both of its ends stand still, and a restore makes the connection anew between the same
//! two addresses and sends the bytes through it again.
//!
//! * `connecting`: connections that nobody has answered yet;
//! * `diag`: which end belongs to which, from addresses and the kernel's list of sockets;
//! * `quiesce`: waits until every sent byte is in its receiver's queue, and reads the queues;
//! * `pending`: reads connections that are not accepted yet;
//! * `closed_clients`: those of them whose client has closed;
//! * `outer`: connections whose peer is not in this instance of the job;
//! * `widened`: room for what such a peer has still to send;
//! * `refused`: connections that could not be made;
//! * `refill`: puts bytes back through the sender's own socket;
//! * `make`: sockets at recorded addresses;
//! * `orphans`: connections that are closed and still send;
//! * `ends`: half closes, ends and resets;
//! * `urgent`: the urgent byte of a connection;
//! * `restore`: connections, listeners, connections not yet accepted, in the order that keeps
//!   every address what it was.

mod closed_clients;
mod connecting;
mod diag;
mod ends;
mod make;
mod orphans;
mod outer;
#[cfg(test)]
mod outer_tests;
mod pending;
#[cfg(test)]
mod port_tests;
mod quiesce;
mod refill;
mod refused;
mod restore;
#[cfg(test)]
mod tests;
mod urgent;
mod widened;

pub use closed_clients::ClosedClient;
pub use connecting::Asking;
pub(super) use make::taken;
pub use outer::{OuterSocket, outer_sockets};
pub use urgent::Urgent;
pub use widened::Widened;

use std::net::SocketAddr;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{BlobId, FileId};
use super::super::late::{Name, cookie_of};
use super::super::sys::{abi, network, sockopt};
use super::socket_options::{Kind, SocketOptions};
use super::{DumpContext, External, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// TCP_ULP: an upper layer (kernel TLS).
const TCP_ULP: i32 = 31;

/// As much as is read of struct tcp_info (include/uapi/linux/tcp.h), at most.
const INFO: usize = 144;

/// A TCP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSocket {
    /// AF_INET6 rather than AF_INET.
    pub v6: bool,
    /// Multipath TCP: it listens, for connections of that kind and of TCP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multipath: bool,
    /// Its address, if it has a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// What the job calls it, where that is not its address or its peer's.
    #[serde(default, skip_serializing_if = "is_as_it_is")]
    pub name: Name,
    /// What it is in.
    pub state: TcpState,
    /// Options and buffer sizes.
    pub options: SocketOptions,
}

fn is_as_it_is(name: &Name) -> bool {
    *name == Name::default()
}

/// What a TCP socket is in the middle of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum TcpState {
    /// Never connected; bound if it has an address.
    Idle,
    /// listen(2)
    Listening {
        /// Its backlog.
        backlog: i32,
        /// Connections that wait to be accepted and whose client has closed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        closed: Vec<ClosedClient>,
    },
    /// connect(2) was called, and nobody has answered.
    Connecting {
        /// Whom it asks.
        peer: SocketAddr,
    },
    /// Connected, maybe half closed.
    Connected(Connection),
    /// The connection is over in both directions.
    Closed {
        /// It ended by a reset that the program has not been told yet (ECONNRESET).
        reset: bool,
        /// It was never made: the program has not been told yet that it was refused (ECONNREFUSED).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
        /// Bytes that it can still read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<BlobId>,
    },
}
protocol::tagged!(TcpState, "state");

/// One end's view of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The peer's address.
    pub peer: SocketAddr,
    /// What is at the other end.
    pub end: PeerEnd,
    /// Bytes sent to this end that its program has not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<BlobId>,
    /// Which of them is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<Urgent>,
    /// Bytes sent from this end that stand in a connection which is not accepted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<BlobId>,
    /// Which of them is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_urgent: Option<Urgent>,
    /// shutdown(2) SHUT_RD was called here.
    #[serde(default)]
    pub shut_read: bool,
    /// shutdown(2) SHUT_WR was called here.
    #[serde(default)]
    pub shut_write: bool,
    /// Of a connection to outside: the peer has closed or shut down writing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub peer_shut: bool,
    /// Of a connection to outside: bytes sent from this end had not arrived. It can't be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight: bool,
}

/// What is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum PeerEnd {
    /// A socket of the job (this one itself, if it is connected to itself).
    Socket {
        /// The open file description of the socket.
        file: FileId,
    },
    /// It waits to be accepted from a listening socket of the job.
    Waiting {
        /// The listening socket.
        listener: FileId,
        /// Place in its queue, where that is known.
        #[serde(default)]
        place: u32,
    },
    /// The peer has closed: what is left is to be read, then end of file.
    Closed,
    /// Something outside of the job: found reset after a restart. In a cluster maybe another instance
    /// of the job.
    Outside,
}
protocol::tagged!(PeerEnd, "end");

impl TcpSocket {
    /// Whether it has a peer, or asks for one.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, TcpState::Connected(_) | TcpState::Connecting { .. })
    }

    /// For reading and setting its options.
    pub(super) fn kind(&self) -> Kind {
        kind(self.v6, self.multipath)
    }

    /// Whether it keeps a port from others, and with SO_REUSEADDR no longer than it lives.
    pub(super) fn holds_port(&self) -> bool {
        self.local.is_some() && !matches!(self.state, TcpState::Closed { .. })
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.state {
            TcpState::Connected(connection) => Some(connection),
            _ => None,
        }
    }
}

/// What kind of options a socket has.
pub(super) fn kind(v6: bool, multipath: bool) -> Kind {
    Kind {
        family: if v6 { libc::AF_INET6 } else { libc::AF_INET },
        protocol: if multipath { libc::IPPROTO_MPTCP } else { libc::IPPROTO_TCP },
    }
}

/// A state of include/net/tcp_states.h, as TCP_INFO tells it.
fn kernel_state(probe: &Probe) -> Result<u8> {
    Ok(tcp_info(probe)?[0])
}

/// The first fields of struct tcp_info (include/uapi/linux/tcp.h).
fn tcp_info(probe: &Probe) -> Result<Vec<u8>> {
    let info = sockopt::get_bytes(&probe.copy, libc::IPPROTO_TCP, libc::TCP_INFO, INFO)
        .map_err(|error| EngineError::system("getsockopt", "TCP_INFO of a socket", error))?;
    if info.len() < 32 {
        return Err(EngineError::odd("TCP_INFO", format!("{} bytes", info.len())));
    }
    Ok(info)
}

/// The backlog of a listening socket: tcpi_sacked (net/ipv4/tcp.c, tcp_get_info).
fn backlog(info: &[u8]) -> i32 {
    info.get(28..32).and_then(|bytes| bytes.try_into().ok()).map_or(128, i32::from_ne_bytes)
}

fn refused(probe: &Probe, what: impl Into<String>, way_out: &str) -> EngineError {
    EngineError::from(Refusal::new(what, way_out)).at(probe.pid, &probe.comm, probe.fd)
}

/// A refusal of something that goes away by itself.
fn soon(probe: &Probe, what: impl Into<String>, way_out: &str) -> EngineError {
    EngineError::from(Refusal::passing(what, way_out)).at(probe.pid, &probe.comm, probe.fd)
}

impl TcpSocket {
    /// As if it had never been connected or bound.
    pub(super) fn become_idle(&mut self) {
        self.local = None;
        self.state = TcpState::Idle;
    }

    /// A thread is in connect(2) with this socket and has not heard the result: whether that is success. After a
    /// refusal it is as if nobody had been asked yet.
    pub fn hear_of_connect(&mut self) -> bool {
        match self.state {
            TcpState::Connected(_) | TcpState::Closed { reset: false, .. } => true,
            TcpState::Closed { reset: true, received, .. } => {
                if received.is_none() {
                    self.state = TcpState::Idle;
                }
                received.is_some()
            }
            _ => false,
        }
    }
}

impl ObjectKind for TcpSocket {
    const OF_NETWORK: bool = true;

    fn recognise(probe: &Probe) -> bool {
        let option = |name| sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name).ok();
        probe.file_type() == abi::S_IFSOCK
            && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
            && option(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
            && matches!(option(libc::SO_PROTOCOL), Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let multipath = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PROTOCOL)
            .is_ok_and(|protocol| protocol == libc::IPPROTO_MPTCP);
        // Of Multipath TCP the kernel says "mptcp".
        if !multipath
            && sockopt::get_bytes(&probe.copy, libc::IPPROTO_TCP, TCP_ULP, 16)
                .is_ok_and(|name| !name.is_empty())
        {
            return Err(refused(
                probe,
                "a TCP socket with kernel TLS",
                "switch kernel TLS off in the program",
            ));
        }
        let system = |call, error| EngineError::system(call, "a TCP socket", error);
        let socket = SockRef::from(&probe.copy);
        let v6 =
            socket.domain().map_err(|error| system("getsockopt", error))? == socket2::Domain::IPV6;
        let local = socket
            .local_addr()
            .map_err(|error| system("getsockname", error))?
            .as_socket()
            .filter(|address| address.port() != 0);
        let info = tcp_info(probe)?;
        if multipath && i32::from(info[0]) != diag::LISTEN {
            return Err(refused(
                probe,
                "a Multipath TCP socket (IPPROTO_MPTCP) that does not listen",
                "close it while checkpoints are taken, or have the program use TCP",
            ));
        }
        let options = SocketOptions::read(&probe.copy, kind(v6, multipath))?;
        let asked = connecting::asked(probe, context)?;
        let state = match (asked, i32::from(info[0])) {
            (Some(peer), _) => TcpState::Connecting { peer },
            (None, diag::LISTEN) => {
                TcpState::Listening { backlog: backlog(&info), closed: Vec::new() }
            }
            _ => match socket.peer_addr() {
                // Connected, for `finish` to complete; states may still change until then.
                Ok(peer) => match peer.as_socket() {
                    Some(peer) => TcpState::Connected(Connection {
                        peer,
                        end: PeerEnd::Outside,
                        received: None,
                        urgent: None,
                        sent: None,
                        sent_urgent: None,
                        shut_read: false,
                        shut_write: false,
                        peer_shut: false,
                        in_flight: false,
                    }),
                    None => return Err(EngineError::odd("getpeername", format!("{peer:?}"))),
                },
                Err(_) if quiesce::is_over(probe)? => {
                    TcpState::Closed { reset: false, refused: false, received: None }
                }
                Err(_) => TcpState::Idle,
            },
        };
        let peer = match &state {
            TcpState::Connected(connection) => Some(connection.peer),
            TcpState::Connecting { peer } => Some(*peer),
            _ => None,
        };
        // Networks of the job's own lead nowhere else.
        let name = cookie_of(probe.copy.as_fd())
            .filter(|_| network::current().is_none())
            .map_or(Name::default(), |cookie| context.names.name(cookie, local, peer));
        Ok(Self { v6, multipath, local, name, state, options })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        diag::complete(all, context)
    }

    fn late(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        connecting::check_unanswered(all)?;
        outer::read_all(all, context)
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        restore::restore(all, context)
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
