//! Sockets as /proc/net lists them: those of TCP for users whom a security policy denies sock_diag(7), on Android everybody
//! but root; raw ones and those of ICMP, of which sock_diag knows nothing on many kernels, or on all.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use procfs::net::TcpNetEntry;

use super::super::error::{EngineError, Result};
use super::network;
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
        signed: false,
    })
}

/// TCP_ESTABLISHED: what connect(2) makes of any socket.
const ESTABLISHED: u8 = 1;

/// Raw and ICMP sockets that have a peer: inode and peer.
///
/// # Errors
/// Where these files cannot be read.
pub fn ip_peers() -> io::Result<Vec<(u32, SocketAddr)>> {
    let mut found = Vec::new();
    for list in ["raw", "raw6", "icmp", "icmp6"] {
        match std::fs::read_to_string(network::file(list)) {
            Ok(text) => found.extend(text.lines().filter_map(ip_peer)),
            // A kernel without IPv6, or without such sockets.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// `sl local remote state tx:rx tr:when retransmits uid timeout inode ...` (net/ipv4/raw.c, net/ipv6/datagram.c).
fn ip_peer(line: &str) -> Option<(u32, SocketAddr)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ip, port) = words.get(2)?.split_once(':')?;
    if u8::from_str_radix(words.get(3)?, 16).ok()? != ESTABLISHED {
        return None;
    }
    // Words of 32 bits, as numbers of this machine's byte order.
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((words.get(9)?.parse().ok()?, SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
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
    fn peers_of_raw_and_icmp_sockets_are_read() {
        let address = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let rest =
            "00000000:00000340 00:00000000 00000000     0        0 24723 2 0000000051d3e9a1 0";
        let local = format!("{}:10E1", address([127, 0, 0, 1]));
        let line =
            |state: &str| format!("   51: {local} {}:004D {state} {rest}", address([192, 0, 2, 1]));
        let peer = Some((24723, "192.0.2.1:77".parse().unwrap()));
        assert_eq!(ip_peer(&line("01")), peer);
        assert_eq!(ip_peer(&line("07")), None);
        let six = [[0x20, 1, 0xd, 0xb8], [0; 4], [0; 4], [0, 0, 0, 1]].map(address).concat();
        let line = format!("   51: {six}:10E1 {six}:0000 01 {rest}");
        assert_eq!(ip_peer(&line), Some((24723, "[2001:db8::1]:0".parse().unwrap())));
        assert_eq!(ip_peer("  sl  local_address rem_address   st"), None);
        assert_eq!(ip_peer("1: ä:1 ä:1 01 a b c d e 1"), None);
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
