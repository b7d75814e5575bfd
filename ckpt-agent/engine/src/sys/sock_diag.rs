//! Sockets of this network namespace as the kernel lists them (sock_diag(7)): peers and accept
//! queues that no call on a descriptor tells.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
    unix::{ShowFlags, UnixRequest, nlas::Nla},
};
use netlink_sys::{SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};

use super::super::error::{EngineError, Result};
pub use super::tcp_entry::TcpEntry;
use super::{network, own_sockets, proc_net};

/// Largest answer that the kernel gives at once (net/netlink/af_netlink.c: 32 KiB).
const ANSWER_BYTES: usize = 64 * 1024;
/// More sockets than this are taken for an endless answer.
const MOST_SOCKETS: usize = 4_000_000;

/// INET_DIAG_MD5SIG (include/uapi/linux/inet_diag.h).
const DIAG_MD5SIG: u16 = 18;

/// A Unix socket that some descriptor refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnixEntry {
    /// Inode of the socket.
    pub inode: u32,
    /// TCP_ESTABLISHED, TCP_CLOSE, TCP_LISTEN.
    pub state: u8,
    /// Inode of the peer; 0: it has no descriptor (closed, or waits to be accepted).
    pub peer: Option<u32>,
    /// Of a listening socket: inodes of those that wait to be accepted, in their order; 0: closed
    /// meanwhile.
    pub waiting: Vec<u32>,
    /// Of a listening socket: the backlog; else bytes accounted to it that its peer has not read.
    pub send_queue: u32,
    /// RCV_SHUTDOWN (1), SEND_SHUTDOWN (2).
    pub shutdown: u8,
    /// Of one bound to a path: the file that it was bound to, whatever the path leads to now; the lower 32 bits of its inode.
    pub bound_to: Option<u32>,
}

/// All Unix sockets that have an inode.
///
/// # Errors
/// The kernel has no unix_diag; netlink failures.
pub fn unix_sockets() -> Result<Vec<UnixEntry>> {
    let request = UnixRequest {
        // A mask of states: all of them, TCP_CLOSE (plain datagram sockets) too.
        // SAFETY: the kernel takes any mask; the crate only names two of its bits.
        state_flags: unsafe {
            netlink_packet_sock_diag::unix::StateFlags::from_bits_unchecked(u32::MAX)
        },
        inode: 0,
        show_flags: ShowFlags::PEER | ShowFlags::ICONS | ShowFlags::RQLEN | ShowFlags::VFS,
        cookie: [0xff; 8],
    };
    let mut found = Vec::new();
    ask(SockDiagMessage::UnixRequest(request), |answer| {
        // The kernel answers a request for a family with sockets of that family alone.
        let SockDiagMessage::UnixResponse(answer) = answer else { return };
        let mut entry = UnixEntry {
            inode: answer.header.inode,
            state: answer.header.state,
            ..UnixEntry::default()
        };
        for attribute in &answer.nlas {
            match attribute {
                Nla::Peer(inode) => entry.peer = Some(*inode),
                Nla::PendingConnections(inodes) => entry.waiting.clone_from(inodes),
                Nla::ReceiveQueueLength(_, send) => entry.send_queue = *send,
                Nla::Shutdown(bits) => entry.shutdown = *bits,
                Nla::Vfs(_) => entry.bound_to = bound_to(attribute),
                _ => {}
            }
        }
        found.push(entry);
    })?;
    Ok(found)
}

/// Inode number of the file that a UNIX_DIAG_VFS attribute names (struct unix_diag_vfs), which the crate keeps to itself.
fn bound_to(attribute: &Nla) -> Option<u32> {
    use netlink_packet_utils::nla::Nla as _;
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// How sockets are to be found, for tests of what phones do: `proc`, by /proc/net; `own`, by asking them.
const WISH: &str = "CKPTD_SOCKETS";
static WAY: LazyLock<Option<Way>> = LazyLock::new(|| {
    let wish = std::env::var(WISH).ok()?;
    [("proc", Way::Proc), ("own", Way::Own)]
        .into_iter()
        .find(|(name, _)| *name == wish)
        .map(|(_, way)| way)
});

/// See [`WISH`].
#[derive(Debug, Clone, Copy)]
enum Way {
    Proc,
    Own,
}

/// TCP sockets, and whether those are among them that no process has a descriptor of.
#[derive(Debug, Default)]
pub struct TcpListing {
    /// The sockets, but those in TIME_WAIT.
    pub entries: Vec<TcpEntry>,
    /// Only those with a descriptor are there.
    pub without_waiting: bool,
}

impl TcpListing {
    fn whole(entries: Vec<TcpEntry>) -> Self {
        Self { entries, without_waiting: false }
    }
}

/// All TCP sockets of IPv4 and IPv6. Who may not ask the kernel reads /proc/net; who may not even that, an app of Android, asks the sockets.
///
/// # Errors
/// The kernel has no tcp_diag, netlink failures; and there is no other way.
pub fn tcp_listing() -> Result<TcpListing> {
    let all = match *WAY {
        // Files of /proc and calls on sockets tell of this process's own network.
        _ if network::current().is_some() => return by_netlink().map(TcpListing::whole),
        None => by_netlink().or_else(|error| proc_net::tcp_sockets().map_err(|_| error)),
        Some(Way::Proc) => proc_net::tcp_sockets(),
        Some(Way::Own) => Err(EngineError::odd(WISH, "sockets are to be asked one by one")),
    };
    match all {
        Ok(entries) => Ok(TcpListing::whole(entries)),
        Err(error) => match own_sockets::tcp_sockets() {
            Ok(entries) => Ok(TcpListing { entries, without_waiting: true }),
            Err(_) => Err(error),
        },
    }
}

/// As [`tcp_listing`], for who does not look for sockets without descriptors.
///
/// # Errors
/// As [`tcp_listing`].
pub fn tcp_sockets() -> Result<Vec<TcpEntry>> {
    tcp_listing().map(|listing| listing.entries)
}

/// By the kernel's answer to a request.
///
/// # Errors
/// The kernel has no tcp_diag; netlink failures.
pub fn by_netlink() -> Result<Vec<TcpEntry>> {
    internet(IPPROTO_TCP)
}

/// Sockets of a protocol that have a port: inode, and RCV_SHUTDOWN (1), SEND_SHUTDOWN (2).
///
/// # Errors
/// The kernel has no udp_diag; netlink failures.
pub fn shutdowns(protocol: u8) -> Result<HashMap<u32, u8>> {
    Ok(internet(protocol)?.into_iter().map(|entry| (entry.inode, entry.shutdown)).collect())
}

fn internet(protocol: u8) -> Result<Vec<TcpEntry>> {
    use netlink_packet_sock_diag::inet::nlas::Nla;
    use netlink_packet_utils::nla::Nla as _;
    // With struct tcp_info comes whether there are keys, for root alone (net/ipv4/tcp_diag.c, tcp_diag_get_aux).
    let extensions = match protocol == IPPROTO_TCP && nix::unistd::geteuid().is_root() {
        true => ExtensionFlags::INFO,
        false => ExtensionFlags::empty(),
    };
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let request = InetRequest {
            family,
            protocol,
            extensions,
            states: StateFlags::all() - StateFlags::TIME_WAIT,
            socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
        };
        ask(SockDiagMessage::InetRequest(request), |answer| {
            // As above.
            let SockDiagMessage::InetResponse(answer) = answer else { return };
            let (header, id) = (&answer.header, &answer.header.socket_id);
            let shutdown = answer.nlas.iter().find_map(|attribute| match attribute {
                Nla::Shutdown(bits) => Some(*bits),
                _ => None,
            });
            found.push(TcpEntry {
                state: header.state,
                local: SocketAddr::new(id.source_address, id.source_port),
                peer: SocketAddr::new(id.destination_address, id.destination_port),
                inode: header.inode,
                receive_queue: header.recv_queue,
                send_queue: header.send_queue,
                shutdown: shutdown.unwrap_or(0),
                signed: answer.nlas.iter().any(|attribute| attribute.kind() == DIAG_MD5SIG),
            });
        })?;
    }
    Ok(found)
}

/// Sends one dump request and hands every answer to `take`.
fn ask(request: SockDiagMessage, mut take: impl FnMut(SockDiagMessage)) -> Result<()> {
    let failed = |call: &'static str| {
        move |source: std::io::Error| {
            EngineError::system(call, "the kernel's list of sockets", source)
        }
    };
    let mut socket = network::netlink(NETLINK_SOCK_DIAG).map_err(failed("socket"))?;
    socket.bind_auto().map_err(failed("bind"))?;
    socket.connect(&NetlinkAddress::new(0, 0)).map_err(failed("connect"))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(request));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0).map_err(failed("send"))?;

    let mut answer = vec![0; ANSWER_BYTES];
    let mut count = 0;
    loop {
        let length = socket.recv(&mut &mut answer[..], 0).map_err(failed("receive"))?;
        let mut rest = answer.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(|error| {
                    EngineError::odd("the kernel's list of sockets", error.to_string())
                })?;
            // Messages are padded to four bytes (netlink(7)).
            let step = (message.header.length as usize).next_multiple_of(4);
            if step == 0 {
                return Err(EngineError::odd("the kernel's list of sockets", "an empty message"));
            }
            rest = rest.get(step..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => take(inner),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => {
                    return Err(failed("read")(error.to_io()));
                }
                _ => {}
            }
            count += 1;
            if count > MOST_SOCKETS {
                return Err(EngineError::odd("the kernel's list of sockets", "no end of it"));
            }
        }
    }
}
