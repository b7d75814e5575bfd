//! TCP sockets as /proc/net lists them, for users whom a security policy denies sock_diag(7): on Android everybody but root.

use procfs::net::TcpNetEntry;

use super::super::error::{EngineError, Result};
use super::tcp_entry::TcpEntry;

/// TCP_TIME_WAIT and TCP_NEW_SYN_RECV (include/net/tcp_states.h): no sockets yet, or any more.
const NO_SOCKETS: [u8; 2] = [6, 12];

/// As [`super::sock_diag::tcp_sockets`]. Not told is that a program will read no more of a connection that its peer has not
/// closed (SHUT_RD).
///
/// # Errors
/// Where these files cannot be read.
pub fn tcp_sockets() -> Result<Vec<TcpEntry>> {
    let failed = |name: &'static str| {
        move |error: procfs::ProcError| EngineError::odd(name, error.to_string())
    };
    let mut found = procfs::net::tcp().map_err(failed("/proc/net/tcp"))?;
    match procfs::net::tcp6() {
        Ok(more) => found.extend(more),
        // A kernel without IPv6.
        Err(procfs::ProcError::NotFound(_)) => {}
        Err(error) => return Err(failed("/proc/net/tcp6")(error)),
    }
    Ok(found.iter().filter_map(entry).collect())
}

fn entry(listed: &TcpNetEntry) -> Option<TcpEntry> {
    let state = listed.state.to_u8();
    (!NO_SOCKETS.contains(&state)).then_some(TcpEntry {
        state,
        local: listed.local_address,
        peer: listed.remote_address,
        // The kernel numbers sockets with 32 bits.
        inode: listed.inode as u32,
        receive_queue: listed.rx_queue,
        send_queue: listed.tx_queue,
        shutdown: 0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

    use std::io::Write;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::super::sock_diag;
    use super::*;

    /// What both lists say of connections with a port, in an order.
    fn of_port(listed: Vec<TcpEntry>, port: u16) -> Vec<TcpEntry> {
        let concerned = |entry: &TcpEntry| entry.local.port() == port || entry.peer.port() == port;
        let mut entries: Vec<_> = listed.into_iter().filter(concerned).collect();
        entries.sort_by_key(|entry| (entry.local, entry.peer));
        for entry in &mut entries {
            // Told by sock_diag alone: what has been shut down, and the backlog of a listening socket.
            entry.shutdown = 0;
            if entry.state == 10 {
                entry.send_queue = 0;
            }
        }
        entries
    }

    #[test]
    fn both_lists_say_the_same() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address.parse::<SocketAddr>().unwrap()) else {
                continue;
            };
            let at = listener.local_addr().unwrap();
            let mut accepted_by = TcpStream::connect(at).unwrap();
            let accepted = listener.accept().unwrap().0;
            let mut waiting = TcpStream::connect(at).unwrap();
            accepted_by.write_all(b"unread").unwrap();
            waiting.write_all(b"more").unwrap();
            accepted.shutdown(std::net::Shutdown::Write).unwrap();
            // The end of the connection may be acknowledged between the two looks.
            let end = Instant::now() + Duration::from_secs(10);
            let ours = loop {
                let ours = of_port(tcp_sockets().unwrap(), at.port());
                let asked = of_port(sock_diag::by_netlink().unwrap(), at.port());
                if ours == asked {
                    break ours;
                }
                assert!(Instant::now() < end, "{ours:?}, and by sock_diag {asked:?}");
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(ours.len(), 5, "{ours:?}");
            assert!(ours.iter().any(|entry| entry.inode == 0 && entry.receive_queue == 4));
        }
    }
}
