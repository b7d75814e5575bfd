//! The addresses of a job's sockets, before a restart on this machine: it waits for ports that others have, and names
//! addresses that the machine has lost. Here rather than in the job's init, which can't see who has a port.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::launch::RestoreSpec;
use socket2::{Domain, SockAddr, Socket, Type};

use super::SessionError;
use crate::EngineError;
use crate::graph::Graph;
use crate::objects::{Object, TcpState};

/// How long a restart waits for a port.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the kernel keeps a port for connections that have ended (TCP_TIMEWAIT_LEN in include/net/tcp.h), and a little. Only a
/// socket that had SO_REUSEADDR before they were made can have it at once.
const LINGERING: Duration = Duration::from_secs(65);
/// How often it tries to have it.
const STEP: Duration = Duration::from_millis(50);
/// TCP_LISTEN as /proc/net/tcp shows it.
const LISTENS: &str = "0A";

/// An address at which others look for a socket of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    tcp: bool,
    at: SocketAddr,
    v6_only: bool,
    reuse_address: bool,
    reuse_port: bool,
}

/// Waits until the job's ports can be had; tells what is missing.
///
/// # Errors
/// A port stays taken; the image can't be read.
pub(super) fn prepare(
    job_dir: &Path,
    spec: &RestoreSpec,
    warn: &dyn Fn(String),
) -> Result<(), SessionError> {
    let image =
        ckpt_store::Checkpoint::open(job_dir, spec.checkpoint).map_err(EngineError::from)?;
    let graph: Graph = image.read_json("graph.json").map_err(EngineError::from)?;
    for ip in local_addresses(&graph) {
        if is_missing(ip) {
            warn(format!(
                "this machine has no address {ip} any more: nobody reaches the job's sockets there until it has"
            ));
        }
    }
    if spec.force {
        // Those that are taken will be elsewhere.
        return Ok(());
    }
    places(&graph).into_iter().try_for_each(|place| place.wait(warn))
}

fn local_addresses(graph: &Graph) -> BTreeSet<IpAddr> {
    let of_machine = graph.files.iter().filter(|file| file.network.is_none());
    let local = of_machine.filter_map(|file| match &file.object {
        Object::TcpSocket(socket) => socket.local,
        Object::UdpSocket(socket) => socket.local,
        _ => None,
    });
    // An address of one link means nothing without the link.
    let known = |ip: &IpAddr| match ip {
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        IpAddr::V4(_) => true,
    };
    local.map(|at| at.ip().to_canonical()).filter(known).collect()
}

fn is_missing(ip: IpAddr) -> bool {
    let lost = |error: std::io::Error| error.raw_os_error() == Some(libc::EADDRNOTAVAIL);
    !ip.is_multicast() && std::net::UdpSocket::bind(SocketAddr::new(ip, 0)).is_err_and(lost)
}

/// Of those that wait for others: nobody looks for a socket that has connected, or is not listening yet, at its port.
fn places(graph: &Graph) -> BTreeSet<Place> {
    // In a network of the job's own every port is free.
    let of_machine = graph.files.iter().filter(|file| file.network.is_none());
    let files = of_machine.filter_map(|file| {
        let (tcp, at, options) = match &file.object {
            Object::TcpSocket(socket) => match socket.state {
                TcpState::Listening { .. } => (true, socket.local?, &socket.options),
                _ => return None,
            },
            Object::UdpSocket(socket) if socket.peer.is_none() && !socket.lite => {
                (false, socket.local?, &socket.options)
            }
            _ => return None,
        };
        let is_set = |name| options.number(name) != 0;
        Some(Place {
            tcp,
            at,
            v6_only: is_set("v6_only"),
            // As the restore binds TCP sockets: connections that end are not in the way.
            reuse_address: tcp || is_set("reuse_address"),
            reuse_port: is_set("reuse_port"),
        })
    });
    files.filter(|place| place.at.port() != 0).collect()
}

impl Place {
    fn wait(self, warn: &dyn Fn(String)) -> Result<(), SessionError> {
        let began = Instant::now();
        let mut said = false;
        while self.is_taken() {
            let who = holder(self.tcp, self.at);
            let limit = if who.is_some() { LIMIT } else { LINGERING };
            let held = || match &who {
                Some(who) => format!("{} is held by {who}", self.at),
                None => format!(
                    "{} is held by connections that have just ended, for a minute at most",
                    self.at
                ),
            };
            if began.elapsed() > limit {
                let way_out = "end that, or use --force to go on at another port".into();
                return Err(EngineError::Unfit { what: held(), way_out }.into());
            }
            // What ends right now is not worth a word.
            if !said && began.elapsed() > STEP * 10 {
                warn(format!("{}; waiting for it", held()));
                said = true;
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Whether the bind would fail for that reason; whatever else is wrong the restore finds out.
    fn is_taken(self) -> bool {
        let bind = || {
            let domain = if self.at.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
            let kind = if self.tcp { Type::STREAM } else { Type::DGRAM };
            let socket = Socket::new(domain, kind, None)?;
            if self.at.is_ipv6() {
                socket.set_only_v6(self.v6_only)?;
            }
            socket.set_reuse_address(self.reuse_address)?;
            socket.set_reuse_port(self.reuse_port)?;
            socket.bind(&SockAddr::from(self.at))
        };
        bind().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

/// The process that has a port, in words.
fn holder(tcp: bool, at: SocketAddr) -> Option<String> {
    let tables = if tcp { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    let mut lines = String::new();
    for table in tables {
        lines.push_str(&std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    }
    let (user, inode) = lines.lines().find_map(|line| socket_at(line, tcp, at))?;
    let link = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pid =
        processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
            let descriptors =
                std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            links.any(|path| path.as_os_str() == link.as_str())
        });
    // Descriptors of others are root's to see.
    let Some(pid) = pid else { return Some(format!("a process of user {user}")) };
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", comm.trim_end()))
}

/// User and inode of the socket that a line of /proc/net/tcp and its kin is about, if it is in the way of `at`.
fn socket_at(line: &str, tcp: bool, at: SocketAddr) -> Option<(u32, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let to_all = ip.bytes().all(|byte| byte == b'0');
    let same = u16::from_str_radix(port, 16).ok()? == at.port()
        && (to_all || at.ip().is_unspecified() || ip == shown(at.ip()))
        && (!tcp || *fields.get(3)? == LISTENS);
    if !same {
        return None;
    }
    Some((fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?))
}

/// An address as the kernel prints it: words in the machine's order.
fn shown(ip: IpAddr) -> String {
    let word = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => format!("{:08X}", u32::from_ne_bytes([a, b, c, d])),
        _ => String::new(),
    };
    match ip {
        IpAddr::V4(ip) => word(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks_exact(4).map(word).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_port_is_found() {
        let own = format!("process {} (", std::process::id());
        for ip in ["127.0.0.1", "0.0.0.0", "::1"] {
            let listener = std::net::TcpListener::bind((ip, 0)).unwrap();
            let at = listener.local_addr().unwrap();
            assert!(holder(true, at).is_some_and(|who| who.starts_with(&own)), "{at}");
            let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
            let at = socket.local_addr().unwrap();
            assert!(holder(false, at).is_some_and(|who| who.starts_with(&own)), "{at}");
        }
    }

    #[test]
    fn an_address_of_documentation_is_missing() {
        assert!(is_missing("192.0.2.9".parse().unwrap()));
        assert!(!is_missing("127.0.0.1".parse().unwrap()));
        assert!(!is_missing("0.0.0.0".parse().unwrap()));
    }
}
