//! Sockets bound and connected at recorded addresses, or at others where those can't be had.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::FileId;
use super::super::super::sys::network;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::socket_options::{Kind, Moment, SocketOptions};
use super::RestoreContext;
use super::restore::prepare;

/// How long a port may be in a passing connection's hands.
pub(super) const A_MOMENT: Duration = Duration::from_secs(2);

/// Limit for a connection within this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Connections of strangers that a temporary listener turns away before it gives up.
const MOST_STRANGERS: usize = 64;
/// A port in TIME_WAIT on the loopback may be taken again after a second (net/ipv4/tcp_ipv4.c,
/// tcp_twsk_unique with tcp_tw_reuse = 2).
const PORT_LIMIT: Duration = Duration::from_millis(1300);
/// IP_LOCAL_PORT_RANGE (Linux 6.3).
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// One end of a connection to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A socket of the job.
    Socket(FileId),
    /// The far end of a socket of the job whose peer is gone.
    ClosedPeer(FileId),
}

/// Where a socket is to be.
#[derive(Debug, Clone)]
pub(super) struct Address {
    /// AF_INET6 rather than AF_INET.
    pub(super) v6: bool,
    /// It is to listen for Multipath TCP.
    pub(super) multipath: bool,
    /// Address and port; None or port 0: any.
    pub(super) at: Option<SocketAddr>,
    /// For those options that come before bind(2).
    pub(super) options: SocketOptions,
}

/// A connection to be made.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// The end that accepts.
    pub(super) server: (End, Address),
    /// The end that connects.
    pub(super) client: (End, Address),
}

impl Address {
    fn kind(&self) -> Kind {
        super::kind(self.v6, self.multipath)
    }

    fn loopback(&self) -> SocketAddr {
        let ip: IpAddr =
            if self.v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        SocketAddr::new(ip, 0)
    }

    /// The same port of all of the machine's addresses.
    fn unspecified(&self) -> SocketAddr {
        let ip: IpAddr =
            if self.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        SocketAddr::new(ip, self.at.map_or(0, |at| at.port()))
    }

    fn key(&self) -> (bool, Option<SocketAddr>) {
        (self.v6, self.at)
    }
}

fn system(call: &'static str, what: impl std::fmt::Display, error: std::io::Error) -> EngineError {
    EngineError::system(call, what.to_string(), error)
}

/// A socket with the options that come before bind(2), sharing ports with connections that end.
fn new_socket(address: &Address, context: &mut RestoreContext) -> Result<Socket> {
    let domain = if address.v6 { Domain::IPV6 } else { Domain::IPV4 };
    let protocol = if address.multipath { Protocol::MPTCP } else { Protocol::TCP };
    let made = match network::socket(domain, Type::STREAM, Some(protocol)) {
        // Not this kernel, or it is switched off.
        Err(error) if address.multipath => {
            context.warn(format!(
                "there is no Multipath TCP here ({error}): a listening socket is one of TCP alone"
            ));
            network::socket(domain, Type::STREAM, Some(Protocol::TCP))
        }
        other => other,
    };
    let socket = made.map_err(|error| system("make", "a TCP socket", error))?;
    socket.set_reuse_address(true).map_err(|error| system("setsockopt", "SO_REUSEADDR", error))?;
    if address.v6 && address.at.is_some_and(|at| at.ip().to_canonical().is_ipv4()) {
        socket.set_only_v6(false).map_err(|error| system("setsockopt", "IPV6_V6ONLY", error))?;
    }
    let failed = address.options.apply(&socket, address.kind(), Moment::BeforeBind);
    warn_of_options(&failed, address.at, context);
    Ok(socket)
}

/// Tells which options this machine does not allow.
pub(super) fn warn_of_options(
    failed: &[&'static str],
    at: Option<SocketAddr>,
    context: &mut RestoreContext,
) {
    if !failed.is_empty() {
        let at = at.map_or_else(|| "not bound".to_owned(), |at| at.to_string());
        context.warn(format!(
            "socket ({at}): options not restored, not allowed here: {}",
            failed.join(", ")
        ));
    }
}

/// What a bound socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Connections of the restore itself.
    Temporary,
    /// Bound by the job, no more. Its port is waited for until then; after that another one will do.
    Idle {
        /// One time for all such sockets of a restore.
        until: Instant,
    },
    /// Others of the job find it by its address.
    Listening,
}

/// A socket bound to its recorded address and made `ready`, or near it where that is taken or not of this
/// machine. A listener listens in `ready`: sockets that are bound to one port and do not listen yet do not
/// see each other, so that a port which could be bound may be another instance's by then.
///
/// # Errors
/// No address at all can be had.
pub(super) fn bound(
    address: &Address,
    purpose: Purpose,
    context: &mut RestoreContext,
    mut ready: impl FnMut(&Socket) -> std::io::Result<()>,
) -> Result<Socket> {
    let Some(at) = address.at else {
        let socket = new_socket(address, context)?;
        ready(&socket).map_err(|error| system("listen on", "a TCP socket", error))?;
        return Ok(socket);
    };
    let of_job = purpose != Purpose::Temporary;
    let idle = matches!(purpose, Purpose::Idle { .. });
    // What is to listen soon would find its port taken then by those of another logical node on this machine.
    let own = context.cluster && idle && address.options.number("reuse_address") == 0;
    // A port that was free when the restart began, and is not now, is a passing connection's as a rule.
    let waits = of_job && !context.cluster && !context.force;
    // Nobody finds a listener of the job anywhere but where it was. One that does not listen may have been connected,
    // and its port may be kept for a minute by the connection that has ended (TIME_WAIT).
    let here_only = waits && !idle;
    let until = match purpose {
        Purpose::Idle { until } => until,
        _ => Instant::now() + A_MOMENT,
    };
    let mut candidates = VecDeque::from([at]);
    let mut first: Option<std::io::Error> = None;
    while let Some(candidate) = candidates.pop_front() {
        let socket = new_socket(address, context)?;
        if of_job && !context.cluster && !context.force {
            // An address that this machine has not is said before; the program may have had it so, too.
            let _ = sockopt::set_int(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
        }
        let error = match bind(&socket, candidate, own, &mut ready) {
            Ok(()) => {
                if let Some(error) = first {
                    let now = socket.local_addr().ok().and_then(|now| now.as_socket());
                    let now = now.unwrap_or(candidate);
                    if !context.cluster {
                        context.warn(format!(
                            "address {at} can't be had ({error}): the socket is at {now} now"
                        ));
                    }
                }
                return Ok(socket);
            }
            Err(error)
                if waits
                    && candidate == at
                    && error.kind() == std::io::ErrorKind::AddrInUse
                    && Instant::now() < until =>
            {
                std::thread::sleep(A_MOMENT / 40);
                candidates.push_front(candidate);
                continue;
            }
            Err(error) if here_only => return Err(taken(at, error)),
            Err(error) => error,
        };
        if first.is_none() {
            candidates.extend(instead(address, at, context.cluster && of_job, &error));
        }
        first.get_or_insert(error);
    }
    Err(system("bind", at, first.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into())))
}

/// Where else a socket may be bound that can't be at its own address. `reached`: others find it where it is, through the
/// cluster.
fn instead(
    address: &Address,
    at: SocketAddr,
    reached: bool,
    error: &std::io::Error,
) -> [SocketAddr; 2] {
    // Where the machine has another address, a socket bound to all of them is reached at it.
    let elsewhere = error.raw_os_error() == Some(libc::EADDRNOTAVAIL);
    let any = address.unspecified();
    let any_port = SocketAddr::new(any.ip(), 0);
    match reached {
        true if elsewhere => [any, any_port],
        true => [SocketAddr::new(at.ip(), 0), any_port],
        false => [SocketAddr::new(at.ip(), 0), address.loopback()],
    }
}

/// A port that somebody has taken since the restart has looked for it.
pub(in crate::objects) fn taken(at: SocketAddr, error: std::io::Error) -> EngineError {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => EngineError::Unfit {
            what: format!("{at} is held by somebody else"),
            way_out: "end that, or use --force to go on at another port".into(),
        },
        _ => system("bind", at, error),
    }
}

/// Binds and makes ready. A port of the kernel's choice can't be taken by another socket before that is
/// done: nobody shares with a socket that has no SO_REUSEADDR (net/ipv4/inet_connection_sock.c,
/// inet_bind_conflict).
fn bind(
    socket: &Socket,
    at: SocketAddr,
    own: bool,
    ready: &mut impl FnMut(&Socket) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let alone = own || at.port() == 0;
    if alone {
        socket.set_reuse_address(false)?;
    }
    socket.bind(&SockAddr::from(at))?;
    ready(socket)?;
    if alone {
        socket.set_reuse_address(true)?;
    }
    Ok(())
}

/// For [`bound`]: no more than that.
fn as_it_is(_: &Socket) -> std::io::Result<()> {
    Ok(())
}

/// Makes all connections; `take` gets every end.
///
/// # Errors
/// A connection can't be made at any address.
pub(super) fn connect_all(
    mut links: Vec<Link>,
    context: &mut RestoreContext,
    mut take: impl FnMut(End, OwnedFd),
) -> Result<()> {
    let (own, mut others): (Vec<Link>, Vec<Link>) =
        links.drain(..).partition(|link| link.server.0 == link.client.0);
    for link in own {
        let fd = to_itself(&link.client.1, context)?;
        take(link.client.0, fd);
    }
    // One temporary listener per address serves all connections to it.
    others.sort_by_key(|link| link.server.1.key());
    let mut rest = others.as_slice();
    while let Some(first) = rest.first() {
        let count =
            rest.iter().take_while(|link| link.server.1.key() == first.server.1.key()).count();
        let (group, after) = rest.split_at(count);
        rest = after;
        let listener =
            bound(&first.server.1, Purpose::Temporary, context, |listener| listener.listen(16))?;
        let target = listener
            .local_addr()
            .map_err(|error| system("getsockname", "a temporary socket", error))?
            .as_socket()
            .ok_or_else(|| EngineError::odd("getsockname", "no IP address"))?;
        for link in group {
            // Accepted sockets inherit sizes from their listener.
            prepare(&listener, &link.server.1);
            let client = client(&link.client.1, target, context)?;
            let server = accept(&listener, &client)?;
            take(link.server.0, server.into());
            take(link.client.0, client.into());
        }
    }
    Ok(())
}

/// A socket connected to its own address (simultaneous open with itself).
fn to_itself(address: &Address, context: &mut RestoreContext) -> Result<OwnedFd> {
    let socket = bound(address, Purpose::Temporary, context, as_it_is)?;
    let own = socket.local_addr().map_err(|error| system("getsockname", "a TCP socket", error))?;
    socket
        .connect_timeout(&own, CONNECT_LIMIT)
        .map_err(|error| system("connect", "a TCP socket to itself", error))?;
    Ok(socket.into())
}

/// Connects from the recorded address to `target`.
///
/// # Errors
/// It can't be connected from any address.
pub(super) fn client(
    address: &Address,
    target: SocketAddr,
    context: &mut RestoreContext,
) -> Result<Socket> {
    let target = SockAddr::from(reachable(target, address.v6));
    let Some(at) = address.at.filter(|at| at.port() != 0) else {
        return connect_from(new_socket(address, context)?, &target);
    };
    // A port in TIME_WAIT can be had again in the way in which it was had before, and not at once.
    let ways = [connect_bound, connect_at_port];
    loop {
        let mut later = false;
        for way in ways {
            let socket = new_socket(address, context)?;
            prepare(&socket, address);
            match way(&socket, at, &target) {
                Ok(()) => return Ok(socket),
                Err(error) => later |= error.raw_os_error() == Some(libc::EADDRNOTAVAIL),
            }
        }
        // In a cluster most addresses are another machine's, and no port is worth a wait.
        if !later || context.cluster {
            break;
        }
        // All have ended with the old job, so that one wait will do for all. On other addresses than the loopback's they keep
        // their ports for a minute.
        let until = *context.ports_until.get_or_insert_with(|| Instant::now() + PORT_LIMIT);
        if Instant::now() > until {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let socket = connect_from(new_socket(address, context)?, &target)?;
    if context.cluster {
        // Moves change addresses; nobody is to be told of every one.
        return Ok(socket);
    }
    let now = socket.local_addr().ok().and_then(|now| now.as_socket());
    context.other_ports.push((at, now));
    Ok(socket)
}

/// Tells which connections come from other addresses now.
pub(super) fn warn_of_ports(context: &mut RestoreContext) {
    let others = std::mem::take(&mut context.other_ports);
    let Some((at, now)) = others.first() else { return };
    let now = now.map_or_else(|| "another port".to_owned(), |now| now.to_string());
    let more = match others.len() {
        1 => String::new(),
        all => format!(", and {} more come from other ports, too", all - 1),
    };
    context.warn(format!("address {at} can't be had: the connection comes from {now} now{more}"));
}

fn connect_from(socket: Socket, target: &SockAddr) -> Result<Socket> {
    socket
        .connect_timeout(target, CONNECT_LIMIT)
        .map_err(|error| system("connect", "a TCP socket", error))?;
    Ok(socket)
}

/// Connects from a port that it is bound to, shared with connections that end.
fn connect_bound(socket: &Socket, at: SocketAddr, target: &SockAddr) -> std::io::Result<()> {
    socket.bind(&SockAddr::from(at))?;
    socket.connect_timeout(target, CONNECT_LIMIT)
}

/// Connects from a port without binding to it, which the kernel allows for a port that was
/// taken in the same way and is in TIME_WAIT.
pub(super) fn connect_at_port(
    socket: &Socket,
    at: SocketAddr,
    target: &SockAddr,
) -> std::io::Result<()> {
    socket.set_reuse_address(false)?;
    let port = i32::from(at.port());
    sockopt::set_int(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, port | (port << 16))?;
    sockopt::set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    socket.bind(&SockAddr::from(SocketAddr::new(at.ip(), 0)))?;
    socket.connect_timeout(target, CONNECT_LIMIT)?;
    socket.set_reuse_address(true)?;
    forget_port_range(socket);
    Ok(())
}

/// Back to the kernel's own choice of ports.
pub(super) fn forget_port_range(socket: &Socket) {
    for option in [IP_LOCAL_PORT_RANGE, libc::IP_BIND_ADDRESS_NO_PORT] {
        // Kernels without it have nothing to forget.
        let _ = sockopt::set_int(socket, libc::IPPROTO_IP, option, 0);
    }
}

/// The same address in the family of the socket that is to connect to it.
pub(super) fn reachable(target: SocketAddr, v6: bool) -> SocketAddr {
    match (target.ip(), v6) {
        (IpAddr::V4(ip), true) => SocketAddr::new(ip.to_ipv6_mapped().into(), target.port()),
        (IpAddr::V6(ip), false) => match ip.to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), target.port()),
            IpAddr::V6(_) => target,
        },
        _ => target,
    }
}

/// Accepts the connection that `client` has made; others are turned away.
fn accept(listener: &Socket, client: &Socket) -> Result<Socket> {
    let wanted = canonical(client.local_addr());
    for _ in 0..MOST_STRANGERS {
        wait_for(listener, libc::POLLIN, CONNECT_LIMIT)?;
        let (socket, from) =
            listener.accept().map_err(|error| system("accept", "a TCP connection", error))?;
        if wanted.is_some() && canonical(Ok(from)) == wanted {
            return Ok(socket);
        }
    }
    Err(EngineError::TooLong {
        what: "a TCP connection of the job, behind strangers' connections,".into(),
        limit_ms: CONNECT_LIMIT.as_millis() as u64,
    })
}

/// An address as it compares equal for IPv4 and IPv4-mapped sockets.
pub(super) fn canonical(address: std::io::Result<SockAddr>) -> Option<SocketAddr> {
    let address = address.ok()?.as_socket()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Waits until a socket knows that its peer has closed or reset the connection.
///
/// # Errors
/// [`EngineError::TooLong`].
pub(super) fn wait_until_told(fd: impl AsFd, limit: Duration) -> Result<()> {
    wait_for(fd, libc::POLLRDHUP, limit)
}

fn wait_for(fd: impl AsFd, wanted: i16, limit: Duration) -> Result<()> {
    let ready =
        poll_one(fd, wanted, limit).map_err(|error| system("poll", "a TCP socket", error))?;
    if ready == 0 {
        return Err(EngineError::TooLong {
            what: "a TCP connection within this machine".into(),
            limit_ms: limit.as_millis() as u64,
        });
    }
    Ok(())
}
