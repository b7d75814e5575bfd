//! Whose a connection from this machine is: the owner of the socket at its other end, as the kernel tells it.
//!
//! A socket that its program has closed has no owner any more, and the kernel then reports root's number. So a socket counts
//! only while it is open and connected; and so must ours be afterwards, or another program could have got its port meanwhile.

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
const HEADER: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Bytes of `struct inet_diag_msg`.
const REPLY: usize = 72;
/// Where in it the owner is, and where the inode.
const OWNER: usize = 64;
const INODE: usize = 68;

/// A socket that the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    state: u8,
    owner: u32,
    /// 0: no program has it.
    inode: u32,
}

/// Asks the kernel.
#[derive(Debug)]
pub struct Owners {
    /// None where the kernel has no such interface: then it is looked up in /proc.
    netlink: Option<OwnedFd>,
}

impl Owners {
    /// Opens what it asks by.
    #[must_use]
    pub fn open() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkSockDiag);
        let netlink = socket(family, SockType::Datagram, flags, protocol);
        let netlink = netlink
            .map_err(|error| tracing::info!("owners of connections are read in /proc: {error}"));
        Self { netlink: netlink.ok() }
    }

    /// The user whose socket is at the other end of a connection that was accepted here; None: it is closed, or not on this
    /// machine.
    #[must_use]
    pub fn owner(&self, own: SocketAddr, peer: SocketAddr) -> Option<u32> {
        let found = self.find(peer, own)?;
        let ours = self.find(own, peer)?;
        let open = found.state == ESTABLISHED && found.inode != 0 && ours.state == ESTABLISHED;
        open.then_some(found.owner)
    }

    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<Found> {
        let told = self.netlink.as_ref().and_then(|netlink| ask(netlink, local, remote));
        told.or_else(|| listed(local, remote))
    }
}

/// Whether an address is this machine's own: others can't be bound.
pub fn is_own(address: IpAddr) -> bool {
    address.to_canonical().is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

fn ask(netlink: &OwnedFd, local: SocketAddr, remote: SocketAddr) -> Option<Found> {
    let request = request(local, remote)?;
    let netlink = netlink.as_raw_fd();
    send(netlink, &request, MsgFlags::empty()).ok()?;
    let mut reply = [0; 4096];
    // The answer is there when the question has been sent.
    let count = recv(netlink, &mut reply, MsgFlags::empty()).ok()?;
    read_reply(reply.get(..count)?)
}

fn request(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    const LENGTH: u32 = (HEADER + REQUEST) as u32;
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = match (local_ip, remote_ip) {
        (IpAddr::V4(_), IpAddr::V4(_)) => nix::libc::AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => nix::libc::AF_INET6,
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender.
    bytes.extend([0; 8]);
    bytes.extend([u8::try_from(family).ok()?, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for ip in [local_ip, remote_ip] {
        let mut octets = match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        octets.resize(16, 0);
        bytes.extend(octets);
    }
    // Any interface; no cookie is known.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    Some(bytes)
}

fn read_reply(reply: &[u8]) -> Option<Found> {
    let number = |at: usize| Some(u32::from_ne_bytes(*reply.get(at..)?.first_chunk()?));
    let kind = u16::from_ne_bytes(*reply.get(4..)?.first_chunk()?);
    if kind != SOCK_DIAG_BY_FAMILY || reply.len() < HEADER + REPLY {
        return None;
    }
    Some(Found {
        state: *reply.get(HEADER + 1)?,
        owner: number(HEADER + OWNER)?,
        inode: number(HEADER + INODE)?,
    })
}

/// The same from /proc/net/tcp or tcp6, all of which is read.
fn listed(local: SocketAddr, remote: SocketAddr) -> Option<Found> {
    let read = |path: &str| -> io::Result<Option<Found>> {
        for line in BufReader::new(File::open(path)?).lines().skip(1) {
            if let Some(found) = listed_line(&line?, local, remote) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|path| read(path).ok().flatten())
}

fn listed_line(line: &str, local: SocketAddr, remote: SocketAddr) -> Option<Found> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let is = |field: &str, address: SocketAddr| {
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        listed_address(field).is_some_and(|found| canonical(found) == canonical(address))
    };
    if !is(fields.get(1)?, local) || !is(fields.get(2)?, remote) {
        return None;
    }
    Some(Found {
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        owner: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// An address as /proc has it: words of 32 bits in the machine's order, then the port.
fn listed_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut octets = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        octets.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(octets.as_slice()) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(octets.as_slice()).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ip = if address.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
        let client = TcpStream::connect((ip, port)).unwrap();
        (listener.accept().unwrap().0, client)
    }

    fn both() -> [Owners; 2] {
        let asking = Owners::open();
        assert!(asking.netlink.is_some());
        [asking, Owners { netlink: None }]
    }

    #[test]
    fn the_owner_of_an_open_connection_is_told() {
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::]:0", "[::1]:0"] {
            let (accepted, client) = pair(address);
            let (local, peer) = (accepted.local_addr().unwrap(), accepted.peer_addr().unwrap());
            for owners in both() {
                assert_eq!(owners.owner(local, peer), Some(own), "{address} {owners:?}");
            }
            drop(client);
        }
    }

    #[test]
    fn a_closed_socket_has_no_owner_least_of_all_root() {
        let (accepted, client) = pair("127.0.0.1:0");
        let (local, peer) = (accepted.local_addr().unwrap(), accepted.peer_addr().unwrap());
        drop(client);
        for owners in both() {
            assert_eq!(owners.owner(local, peer), None);
        }
        let nowhere = SocketAddr::new(peer.ip(), 1);
        assert_eq!(Owners::open().owner(local, nowhere), None);
    }

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        for (address, own) in [("127.0.0.1", true), ("::1", true), ("192.0.2.7", false)] {
            assert_eq!(is_own(address.parse().unwrap()), own, "{address}");
        }
    }
}
