//! TCP sockets of this user's processes, asked one by one through copies of their descriptors: for apps of Android, which may neither
//! ask sock_diag(7) nor read /proc/net. Sockets that no process has a descriptor of are not found; of those that wait to be
//! accepted a listening socket knows the number.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use super::super::error::{EngineError, Result};
use super::pidfd::PidFd;
use super::sockopt;
use super::tcp_entry::TcpEntry;

/// Fields of struct tcp_info (linux/tcp.h): the state is the first byte; of a listening socket these two have who waits to be accepted, and
/// the most that may (net/ipv4/tcp.c, tcp_get_info).
const UNACKED: usize = 24;
const SACKED: usize = 28;
/// Bytes of it that are looked at.
const INFO: usize = 32;
/// TCP_LISTEN (net/tcp_states.h).
const LISTEN: u8 = 10;

/// All of them. A connection's peer is not told while it is being made, nor that a program will read no more (SHUT_RD).
///
/// # Errors
/// Processes cannot be listed, or their descriptors not be copied (pidfd_getfd(2)).
pub fn tcp_sockets() -> Result<Vec<TcpEntry>> {
    let own = nix::unistd::geteuid().as_raw();
    let processes = procfs::process::all_processes()
        .map_err(|error| EngineError::odd("/proc", error.to_string()))?;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for process in processes.flatten().filter(|process| process.uid().is_ok_and(|uid| uid == own)) {
        // Who ends meanwhile has none.
        let Ok(descriptors) = process.fd() else { continue };
        let mut pidfd = None;
        for descriptor in descriptors.flatten() {
            let procfs::process::FDTarget::Socket(inode) = descriptor.target else { continue };
            if !seen.insert(inode) {
                continue;
            }
            let pidfd = match &pidfd {
                Some(pidfd) => pidfd,
                None => pidfd.insert(PidFd::open(process.pid())?),
            };
            let Ok(copy) = pidfd.descriptor(descriptor.fd) else { continue };
            // The kernel numbers sockets with 32 bits.
            found.extend(entry(copy, inode as u32));
        }
    }
    Ok(found)
}

/// What a socket says of itself; `None`: it is none of TCP, or not to be listed.
fn entry(socket: OwnedFd, inode: u32) -> Option<TcpEntry> {
    let info = sockopt::get_bytes(&socket, libc::IPPROTO_TCP, libc::TCP_INFO, INFO).ok()?;
    let state = *info.first().filter(|_| info.len() >= INFO)?;
    let number =
        |at: usize| info[at..at + 4].try_into().map(u32::from_ne_bytes).unwrap_or_default();
    let (receive_queue, send_queue) = match state {
        LISTEN => (number(UNACKED), number(SACKED)),
        _ => {
            let bytes = |count: std::io::Result<usize>| count.map_or(0, |count| count as u32);
            (bytes(sockopt::readable(&socket)), bytes(sockopt::unacknowledged(&socket)))
        }
    };
    let socket = TcpStream::from(socket);
    let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Some(TcpEntry {
        state,
        local: socket.local_addr().ok()?,
        peer: socket.peer_addr().unwrap_or(nobody),
        inode,
        receive_queue,
        send_queue,
        shutdown: 0,
        signed: false,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::super::sock_diag;
    use super::*;

    #[test]
    fn sockets_say_what_the_kernel_lists() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let mut connected = TcpStream::connect(at).unwrap();
        let accepted = listener.accept().unwrap().0;
        connected.write_all(b"unread").unwrap();
        let _waiting = TcpStream::connect(at).unwrap();
        let of_port = |listed: Vec<TcpEntry>| {
            let mut listed: Vec<_> = listed
                .into_iter()
                .filter(|entry| entry.inode != 0)
                .filter(|entry| entry.local.port() == at.port() || entry.peer.port() == at.port())
                .collect();
            listed.sort_by_key(|entry| entry.inode);
            listed
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let ours = of_port(tcp_sockets().unwrap());
            if ours == of_port(sock_diag::by_netlink().unwrap()) {
                assert_eq!(ours.len(), 4, "{ours:?}");
                let listening = ours.iter().find(|entry| entry.state == LISTEN).unwrap();
                assert_eq!(listening.receive_queue, 1);
                break;
            }
            assert!(std::time::Instant::now() < end, "{ours:?}");
        }
        drop(accepted);
    }
}
