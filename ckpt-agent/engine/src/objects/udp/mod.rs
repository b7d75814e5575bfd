//! UDP sockets, and those of UDP-Lite (RFC 3828). Queued datagrams keep their bytes, order and source address, where that is
//! one of this machine's and can be had for a moment.

mod queue;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::super::error::{EngineError, Result};
use super::super::graph::BlobId;
use super::super::sys::{abi, network, sock_diag, sockopt};
use super::multicast::{self, Membership};
use super::shut::Shut;
use super::socket_options::{Kind, Moment, SocketOptions, shared_addresses};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// A UDP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSocket {
    /// AF_INET6 rather than AF_INET.
    pub v6: bool,
    /// UDP-Lite rather than UDP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lite: bool,
    /// Its address, if it has a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// What connect(2) was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Options and buffer sizes.
    pub options: SocketOptions,
    /// Multicast groups that it has joined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Membership>,
    /// Reading is shut down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shut_read: bool,
    /// Writing is shut down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shut_write: bool,
    /// Datagrams that were not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<BlobId>,
    /// From where each of these came, as far as the kernel told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<Option<SocketAddr>>,
    /// The next call is told ECONNREFUSED: the answer to something that was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

impl UdpSocket {
    fn protocol(&self) -> i32 {
        protocol(self.lite)
    }

    fn kind(&self) -> Kind {
        kind(self.v6, self.protocol())
    }

    /// In messages.
    fn name(&self) -> &'static str {
        if self.lite { "UDP-Lite socket" } else { "UDP socket" }
    }

    /// A socket of a family that is nowhere yet.
    fn new_socket(v6: bool, lite: bool) -> Result<Socket> {
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let made = network::socket(domain, Type::DGRAM, Some(Protocol::from(protocol(lite))));
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EPROTONOSUPPORT) if lite => EngineError::Unfit {
                what: "the job has a UDP-Lite socket, and this kernel has none".into(),
                way_out: "restart it under the kernel that it ran under".into(),
            },
            _ => system("make", error),
        })
    }
}

fn protocol(lite: bool) -> i32 {
    if lite { libc::IPPROTO_UDPLITE } else { libc::IPPROTO_UDP }
}

fn kind(v6: bool, protocol: i32) -> Kind {
    Kind { family: if v6 { libc::AF_INET6 } else { libc::AF_INET }, protocol }
}

fn system(call: &'static str, error: std::io::Error) -> EngineError {
    EngineError::system(call, "a UDP socket", error)
}

impl ObjectKind for UdpSocket {
    const OF_NETWORK: bool = true;

    fn recognise(probe: &Probe) -> bool {
        let option = |name| sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name).ok();
        probe.file_type() == abi::S_IFSOCK
            && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
            && option(libc::SO_TYPE) == Some(libc::SOCK_DGRAM)
            && matches!(option(libc::SO_PROTOCOL), Some(libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE))
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let socket = SockRef::from(&probe.copy);
        let v6 = socket.domain().map_err(|error| system("getsockopt", error))? == Domain::IPV6;
        let local = socket.local_addr().map_err(|error| system("getsockname", error))?;
        let protocol = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PROTOCOL)
            .map_err(|error| system("getsockopt", error))?;
        Ok(Self {
            v6,
            lite: protocol == libc::IPPROTO_UDPLITE,
            local: local.as_socket().filter(|address| address.port() != 0),
            peer: socket.peer_addr().ok().and_then(|peer| peer.as_socket()),
            options: SocketOptions::read(&probe.copy, kind(v6, protocol))?,
            groups: Vec::new(),
            shut_read: false,
            shut_write: false,
            received: Vec::new(),
            senders: Vec::new(),
            refused: false,
        })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        find_shut(all, context)?;
        let groups = multicast::listed();
        if groups.is_none() {
            context.warn(
                "multicast groups can't be read here: UDP sockets will be members of none after a restart",
            );
        }
        let groups = groups.unwrap_or_default();
        for found in all {
            let probe = found.probe;
            found.object.groups = multicast::joined(&probe.copy, found.object.v6, &groups)?;
            let waiting = queue::waiting(probe, found.object)?;
            found.object.refused = waiting == queue::Waiting::Refusal;
            if waiting == queue::Waiting::Datagrams {
                let v6 = found.object.v6;
                (found.object.received, found.object.senders) = queue::peek(probe, v6, context)?;
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        // Those that share a port are all bound before what allowed it is cleared again.
        let shared = [false, true].map(|lite| {
            let alike = all.iter().filter(|saved| saved.object.lite == lite);
            shared_addresses(alike.filter_map(|saved| saved.object.local))
        });
        let is_shared = |socket: &Self| {
            let shared = &shared[usize::from(socket.lite)];
            socket.local.is_some_and(|at| shared.contains(&at))
        };
        let mut made = Vec::new();
        for saved in all {
            let socket = make(saved.object, is_shared(saved.object), context)?;
            join(&socket, &saved.object.groups, context);
            made.push((saved, socket));
        }
        queue::fill(&made, is_shared, context)?;
        for (saved, socket) in &made {
            put_on_device(saved.object, socket, context);
            if queue::is_filled_unbound(saved.object) {
                let same = |_: &mut RestoreContext| {
                    socket.try_clone().map_err(|error| system("fcntl", error))
                };
                bind(saved.object, same(context)?, same, context)?;
            }
        }
        for (_, socket) in made.iter().filter(|(saved, _)| saved.object.refused) {
            queue::be_refused(socket).map_err(|error| system("have refused", error))?;
        }
        for (saved, socket) in made {
            finish(saved.object, &socket, context)?;
            context.park(saved.id, socket.into())?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// Fills in what is shut down.
fn find_shut(all: &mut [Found<'_, UdpSocket>], context: &mut DumpContext) -> Result<()> {
    let mut listed = HashMap::new();
    for protocol in [libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE] {
        let mut concerned = all.iter().filter(|found| found.object.protocol() == protocol);
        match sock_diag::shutdowns(protocol as u8) {
            Ok(found) => listed.extend(found),
            Err(_) if concerned.any(|found| found.object.peer.is_some()) => context.warn(
                "the kernel does not tell which UDP sockets are shut down for writing: they will be open after a \
                 restart",
            ),
            Err(_) => {}
        }
    }
    for found in all {
        let shut = Shut::of(found.probe, &listed).map_err(|error| system("poll", error))?;
        (found.object.shut_read, found.object.shut_write) = (shut.read, shut.write);
    }
    Ok(())
}

/// Its peer, its options, and what is shut down.
fn finish(saved: &UdpSocket, socket: &Socket, context: &mut RestoreContext) -> Result<()> {
    if let Some(peer) = saved.peer {
        match socket.connect(&SockAddr::from(peer)) {
            // From another machine not everything is in reach.
            Err(error) if context.cluster => context.warn(format!(
                "{}: {peer} can't be reached from here ({error}): it is not connected",
                saved.name()
            )),
            other => other.map_err(|error| system("connect", error))?,
        }
    }
    let failed = saved.options.apply(socket, saved.kind(), Moment::Last);
    warn_of(&failed, context);
    let shut = Shut { read: saved.shut_read, write: saved.shut_write };
    shut.put_back(socket).map_err(|error| system("shut down", error))
}

/// A socket with its early options, bound but for one that is filled before that ([`queue::is_filled_unbound`]).
fn make(saved: &UdpSocket, shared: bool, context: &mut RestoreContext) -> Result<Socket> {
    let early = if shared { saved.options.for_shared_port() } else { saved.options.clone() };
    let early = if is_on_device_later(saved) { early.without(DEVICE) } else { early };
    let new = |context: &mut RestoreContext| -> Result<Socket> {
        let socket = UdpSocket::new_socket(saved.v6, saved.lite)?;
        if saved.options.number("reuse_address") != 0 {
            socket.set_reuse_address(true).map_err(|error| system("setsockopt", error))?;
        }
        let mut failed = early.apply(&socket, saved.kind(), Moment::BeforeBind);
        failed.extend(saved.options.apply(&socket, saved.kind(), Moment::Made));
        warn_of(&failed, context);
        saved.options.apply_buffers(&socket);
        saved.options.apply_buffer_lock(&socket);
        Ok(socket)
    };
    let socket = new(context)?;
    if queue::is_filled_unbound(saved) { Ok(socket) } else { bind(saved, socket, new, context) }
}

/// SO_BINDTODEVICE
const DEVICE: &str = "device";

/// Whether a socket is bound to its device only once its datagrams are there: they come over the loopback device, and the end of a
/// connection would take the device away (net/ipv4/udp.c, __udp_disconnect).
fn is_on_device_later(saved: &UdpSocket) -> bool {
    !saved.received.is_empty()
}

/// Binds a socket to its device, where that comes late.
fn put_on_device(saved: &UdpSocket, socket: &Socket, context: &mut RestoreContext) {
    if is_on_device_later(saved) {
        let device = saved.options.only(DEVICE);
        warn_of(&device.apply(socket, saved.kind(), Moment::BeforeBind), context);
    }
}

/// Gives a socket its address, or on another machine another one, made by `anew`, the one that is most like it. (A bind(2) that
/// fails may leave a device behind: net/ipv6/af_inet6.c, __inet6_bind.)
fn bind(
    saved: &UdpSocket,
    socket: Socket,
    anew: impl Fn(&mut RestoreContext) -> Result<Socket>,
    context: &mut RestoreContext,
) -> Result<Socket> {
    let Some(local) = saved.local else { return Ok(socket) };
    // Nobody looks for a socket that has a peer at its port.
    let here_only = saved.peer.is_none() && !context.cluster && !context.force;
    if here_only {
        let _ = sockopt::set_int(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
    }
    let Err(error) = socket.bind(&SockAddr::from(local)) else { return Ok(socket) };
    if here_only {
        return Err(super::tcp::taken(local, error));
    }
    let mut candidates = vec![SocketAddr::new(local.ip(), 0)];
    if context.cluster {
        // Another machine has other addresses: all of them will do.
        let any: IpAddr =
            if saved.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        candidates.extend([SocketAddr::new(any, local.port()), SocketAddr::new(any, 0)]);
    }
    let mut last = None;
    for candidate in candidates {
        let socket = anew(context)?;
        if let Err(error) = socket.bind(&SockAddr::from(candidate)) {
            last = Some(error);
            continue;
        }
        let now = socket.local_addr().ok().and_then(|now| now.as_socket()).unwrap_or(local);
        context.warn(format!(
            "address {local} can't be had ({error}): the {} is at {now} now",
            saved.name()
        ));
        return Ok(socket);
    }
    Err(EngineError::system("bind", local.to_string(), last.unwrap_or(error)))
}

fn warn_of(failed: &[&'static str], context: &mut RestoreContext) {
    if !failed.is_empty() {
        context.warn(format!(
            "UDP socket: options not restored, not allowed here: {}",
            failed.join(", ")
        ));
    }
}

/// Joins all groups; those that this machine can't join are named.
fn join(socket: &Socket, groups: &[Membership], context: &mut RestoreContext) {
    for saved in groups {
        if let Err(error) = multicast::join(socket, saved) {
            context.warn(format!(
                "UDP socket: multicast group {} can't be joined on {} ({error}): it is no member",
                saved.group, saved.interface
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::super::testing::dump;

    #[test]
    fn addresses_and_datagrams_return() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = UdpSocket::bind(address).unwrap();
            let sender = UdpSocket::bind(address).unwrap();
            let name = receiver.local_addr().unwrap();
            sender.connect(name).unwrap();
            sender.send(b"one").unwrap();
            sender.send(b"second").unwrap();
            sender.set_broadcast(true).unwrap();
            let dumped = dump(&[receiver.as_fd(), sender.as_fd()]);
            let mut buffer = [0u8; 32];
            let check = |receiver: &UdpSocket, sender: &UdpSocket, buffer: &mut [u8]| {
                assert_eq!(receiver.recv(buffer).unwrap(), 3);
                assert_eq!(receiver.recv(buffer).unwrap(), 6);
                assert_eq!(&buffer[..6], b"second");
                sender.send(b"more").unwrap();
                assert_eq!(receiver.recv(buffer).unwrap(), 4);
            };
            check(&receiver, &sender, &mut buffer);
            drop((receiver, sender));
            let back = dumped.restore();
            let receiver = UdpSocket::from(back.fds[0].try_clone().unwrap());
            let sender = UdpSocket::from(back.fds[1].try_clone().unwrap());
            assert_eq!(receiver.local_addr().unwrap(), name);
            assert!(sender.broadcast().unwrap());
            check(&receiver, &sender, &mut buffer);
        }
    }

    #[test]
    fn an_address_of_another_machine_becomes_all_of_this_one_s() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut dumped = dump(&[socket.as_fd()]);
        drop(socket);
        let super::super::Object::UdpSocket(saved) = &mut dumped.files[0].object else {
            panic!("no UDP socket");
        };
        saved.local = Some(format!("192.0.2.9:{port}").parse().unwrap());
        // On one machine it keeps its name, whether the address is there or not.
        let kept = UdpSocket::from(dumped.restore().fds[0].try_clone().unwrap());
        assert_eq!(kept.local_addr().unwrap(), format!("192.0.2.9:{port}").parse().unwrap());
        drop(kept);
        let back = dumped.restore_with(|context| context.cluster = true).unwrap();
        let now = UdpSocket::from(back.fds[0].try_clone().unwrap()).local_addr().unwrap();
        assert_eq!(now, format!("0.0.0.0:{port}").parse().unwrap());
        assert_eq!(back.warnings.len(), 1);
    }
}
