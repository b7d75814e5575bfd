//! Makes TCP sockets anew. The order keeps every address: connections first, each through a
//! temporary listener at its server's recorded address and a client bound to its recorded port,
//! then the job's own listeners, then connections that wait at them. Then every queue is filled
//! before anything is shut down, and before anyone runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use protocol::cluster::agent::MovedListener;
use socket2::{SockAddr, SockRef, Socket};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{BlobId, FileId};
use super::super::super::late::{Name, NamedSocket, cookie_of, is_v6_only};
use super::super::super::sys::sockopt;
use super::super::socket_options::{
    Kind, Moment, SocketOptions, set_receive_buffer, set_send_buffer, shared_addresses,
};
use super::ends::{Made, close, closed_peer_of, shut_reading};
use super::make::{self, Address, End, Link, Purpose};
use super::refill::{PATIENCE, Refill, refill};
use super::urgent::{self, Unread};
use super::{
    ClosedClient, Connection, PeerEnd, RestoreContext, Saved, TcpSocket, TcpState, closed_clients,
    connecting,
};

/// Limit for sending all bytes in flight.
const REFILL_LIMIT: Duration = Duration::from_secs(10);
/// Makes all TCP sockets and parks them.
pub(super) fn restore(all: &[Saved<'_, TcpSocket>], context: &mut RestoreContext) -> Result<()> {
    let by_id: BTreeMap<FileId, &TcpSocket> =
        all.iter().map(|saved| (saved.id, saved.object)).collect();
    let mut made = Made::new();
    // The far ends of connections whose peer is gone, until they have done their part.
    let mut closed_peers: Vec<(FileId, OwnedFd)> = Vec::new();

    for saved in all.iter().filter(|saved| saved.object.connection().is_some()) {
        if let Some(fd) = context.connections.remove(&saved.id) {
            refuse_apart(saved.object)?;
            made.insert(saved.id, fd);
        }
    }
    let handed_over: BTreeSet<FileId> = made.keys().copied().collect();
    let servers = server_ports(all);
    let links = links(&by_id, &servers, &handed_over, context.cluster)?;
    make::connect_all(links, context, |end, fd| match end {
        End::Socket(id) => {
            made.insert(id, fd);
        }
        End::ClosedPeer(of) => closed_peers.push((of, fd)),
    })?;
    let until = Instant::now() + make::A_MOMENT;
    listeners_and_idle(all, until, &mut made, context)?;
    waiting(all, &by_id, &mut made, context)?;
    for saved in all {
        let socket = match saved.object.state {
            TcpState::Connecting { peer } => connecting::again(saved, peer, until, context)?,
            TcpState::Closed { refused: true, .. } => {
                connecting::refused_again(saved, until, context)?
            }
            _ => continue,
        };
        made.insert(saved.id, socket);
    }
    make::warn_of_ports(context);
    // The agents have filled what they hand over, and shut down its sending side.
    let own: Vec<&Saved<'_, TcpSocket>> =
        all.iter().filter(|saved| !handed_over.contains(&saved.id)).collect();
    fill(&own, &made, &closed_peers, context)?;
    close(&own, &made, closed_peers)?;
    shut_reading(all, &made, &handed_over)?;
    for saved in all {
        let Some(fd) = made.remove(&saved.id) else {
            return Err(EngineError::Damaged(format!("TCP socket {} has no end", saved.id.0)));
        };
        finish(saved.object, &fd, context);
        if context.cluster {
            name(saved.object, &fd, context);
        }
        context.park(saved.id, fd)?;
    }
    Ok(())
}

/// What agents send through a connection that they hand over are bytes like others.
fn refuse_apart(socket: &TcpSocket) -> Result<()> {
    match socket.connection().and_then(|connection| connection.urgent) {
        None => Ok(()),
        Some(_) => Err(EngineError::Unfit {
            what: "the ends of a TCP connection with an urgent byte (MSG_OOB) are on two machines"
                .into(),
            way_out: "restart the job on one machine".into(),
        }),
    }
}

/// Ports that belong to the serving side: those that listen, and those that several connections share.
fn server_ports(all: &[Saved<'_, TcpSocket>]) -> BTreeSet<u16> {
    let mut connections: BTreeMap<u16, u32> = BTreeMap::new();
    let mut servers = BTreeSet::new();
    for saved in all {
        let Some(local) = saved.object.local else { continue };
        match saved.object.state {
            TcpState::Listening { .. } => {
                servers.insert(local.port());
            }
            TcpState::Connected(_) => *connections.entry(local.port()).or_default() += 1,
            _ => {}
        }
    }
    servers.extend(connections.into_iter().filter(|(_, count)| *count > 1).map(|(port, _)| port));
    servers
}

/// All connections with the roles that their ends take.
fn links(
    by_id: &BTreeMap<FileId, &TcpSocket>,
    servers: &BTreeSet<u16>,
    handed_over: &BTreeSet<FileId>,
    cluster: bool,
) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for (&id, &socket) in by_id {
        if handed_over.contains(&id) {
            continue;
        }
        match &socket.state {
            TcpState::Connected(connection) => match connection.end {
                PeerEnd::Socket { file } | PeerEnd::Waiting { listener: file, .. }
                    if is_apart(by_id, file, cluster) =>
                {
                    links.push(with_closed_peer(id, socket, connection.peer, servers));
                }
                PeerEnd::Socket { file } if file < id => {}
                PeerEnd::Socket { file } => {
                    let peer = by_id.get(&file).copied().filter(|peer| {
                        peer.connection().is_some_and(
                            |back| matches!(back.end, PeerEnd::Socket { file } if file == id),
                        )
                    });
                    let Some(peer) = peer else {
                        return Err(EngineError::Damaged(format!(
                            "TCP sockets {} and {} are not each other's peers",
                            id.0, file.0
                        )));
                    };
                    links.push(link(
                        (End::Socket(id), address(socket)),
                        (End::Socket(file), address(peer)),
                        servers,
                    ));
                }
                PeerEnd::Waiting { .. } => {}
                PeerEnd::Closed | PeerEnd::Outside => {
                    links.push(with_closed_peer(id, socket, connection.peer, servers));
                }
            },
            TcpState::Closed { refused: true, .. } => {}
            TcpState::Closed { .. } => {
                let ip: IpAddr =
                    if socket.v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
                links.push(with_closed_peer(id, socket, SocketAddr::new(ip, 0), servers));
            }
            _ => {}
        }
    }
    Ok(links)
}

/// Whether a peer of the job is restored elsewhere.
fn is_apart(by_id: &BTreeMap<FileId, &TcpSocket>, peer: FileId, cluster: bool) -> bool {
    // A copy that nobody knows of may be here, without its connection.
    cluster && by_id.get(&peer).is_none_or(|peer| peer.state == TcpState::Idle)
}

fn address(socket: &TcpSocket) -> Address {
    let options = if has_been_connected(socket) {
        socket.options.for_connection()
    } else {
        socket.options.clone()
    };
    let multipath = socket.multipath && matches!(socket.state, TcpState::Listening { .. });
    Address { v6: socket.v6, multipath, at: socket.local, options }
}

fn has_been_connected(socket: &TcpSocket) -> bool {
    !matches!(socket.state, TcpState::Idle | TcpState::Listening { .. })
}

/// A link whose far end is ours, to be closed again.
fn with_closed_peer(
    id: FileId,
    socket: &TcpSocket,
    peer: SocketAddr,
    servers: &BTreeSet<u16>,
) -> Link {
    let options = SocketOptions::default();
    let far = Address { v6: socket.v6, multipath: false, at: Some(peer), options };
    link((End::Socket(id), address(socket)), (End::ClosedPeer(id), far), servers)
}

fn link(a: (End, Address), b: (End, Address), servers: &BTreeSet<u16>) -> Link {
    let serves = |end: &(End, Address)| end.1.at.is_some_and(|at| servers.contains(&at.port()));
    let closed_peer = |end: &(End, Address)| matches!(end.0, End::ClosedPeer(_));
    let a_serves = if serves(&a) == serves(&b) { closed_peer(&a) } else { serves(&a) };
    let (server, client) = if a_serves { (a, b) } else { (b, a) };
    Link { server, client }
}

/// Remembers what the job calls a socket, and tells where its listeners are.
fn name(saved: &TcpSocket, fd: &OwnedFd, context: &mut RestoreContext) {
    let socket = SockRef::from(fd);
    let now = |address: std::io::Result<SockAddr>| address.ok()?.as_socket();
    let (local, peer) = (now(socket.local_addr()), now(socket.peer_addr()));
    let differs = |name: Option<SocketAddr>, now: Option<SocketAddr>| {
        let same = |at: SocketAddr| (at.ip().to_canonical(), at.port());
        name.filter(|name| now.is_some_and(|now| same(*name) != same(now)))
    };
    let known_local = saved.name.local.or(saved.local);
    let known_peer = saved.name.peer.or(saved.connection().map(|connection| connection.peer));
    let name = Name {
        local: differs(known_local, local),
        peer: differs(known_peer, peer),
        plain: saved.name.plain && saved.local.map(|at| at.ip()) == local.map(|at| at.ip()),
    };
    if let Some(cookie) = cookie_of(fd.as_fd()).filter(|_| name != Name::default()) {
        context.names.push(NamedSocket { cookie, name });
    }
    // Who has a port listens there sooner or later: no sibling elsewhere may take it meanwhile.
    let has_port = match saved.state {
        TcpState::Listening { .. } => true,
        TcpState::Idle => known_local.is_some_and(|at| at.port() != 0),
        _ => false,
    };
    if let (true, Some(logical), Some(actual)) = (has_port, known_local, local) {
        let v6_only = saved.v6 && is_v6_only(fd.as_fd());
        context.moved.push(MovedListener { logical, actual, v6_only, plain: name.plain });
    }
}

/// Where a socket without a connection is to be: where the job believes it to be, if that can be had.
fn believed(socket: &TcpSocket) -> Address {
    let at = socket.name.local.or(socket.local).map(|at| make::reachable(at, socket.v6));
    Address { at, ..address(socket) }
}

fn listeners_and_idle(
    all: &[Saved<'_, TcpSocket>],
    until: Instant,
    made: &mut Made,
    context: &mut RestoreContext,
) -> Result<()> {
    // One that is merely bound to a port is not in the way of one that listens there, the other way round it is.
    let idle = all.iter().filter(|saved| saved.object.state == TcpState::Idle);
    let bound = all.iter().map(|saved| saved.object).filter(|socket| !has_been_connected(socket));
    let shared = shared_addresses(bound.filter_map(|socket| socket.local));
    for saved in idle.chain(all) {
        let backlog = match saved.object.state {
            TcpState::Listening { backlog, .. } => Some(backlog),
            TcpState::Idle if !made.contains_key(&saved.id) => None,
            _ => continue,
        };
        let mut address = believed(saved.object);
        if saved.object.local.is_some_and(|at| shared.contains(&at)) {
            address.options = address.options.for_shared_port();
        }
        let purpose = if backlog.is_some() { Purpose::Listening } else { Purpose::Idle { until } };
        let wanted = &saved.object.options;
        let socket = make::bound(&address, purpose, context, |socket| {
            // Of a listener: what its connections will start with.
            if backlog.is_none() || wanted.receive_buffer_locked() {
                set_receive_buffer(socket, wanted.receive_buffer);
            }
            set_send_buffer(socket, wanted.send_buffer);
            backlog.map_or(Ok(()), |backlog| socket.listen(backlog))
        })?;
        made.insert(saved.id, socket.into());
    }
    Ok(())
}

/// Connections that the job has not accepted yet.
fn waiting(
    all: &[Saved<'_, TcpSocket>],
    by_id: &BTreeMap<FileId, &TcpSocket>,
    made: &mut Made,
    context: &mut RestoreContext,
) -> Result<()> {
    let mut queue = Vec::new();
    for saved in all {
        if let TcpState::Listening { closed, .. } = &saved.object.state {
            queue.extend(
                closed.iter().map(|closed| (closed.place, saved.id, Client::Closed(closed))),
            );
        }
        let Some(connection) = saved.object.connection() else { continue };
        let PeerEnd::Waiting { listener, place } = connection.end else { continue };
        // One whose listening socket is restored elsewhere is made, and will be found reset.
        if !made.contains_key(&saved.id) {
            queue.push((place, listener, Client::Open(saved, connection)));
        }
    }
    queue.sort_by_key(|(place, ..)| *place);
    let waited_at: BTreeSet<FileId> = queue.iter().map(|(_, listener, _)| *listener).collect();
    for listener in waited_at {
        if let (Some(socket), Some(fd)) = (by_id.get(&listener), made.get(&listener)) {
            let (options, kind) = (socket.options.for_inheritance(), socket.kind());
            // What is not allowed here is told of when the listener is finished.
            options.apply(fd, kind, Moment::Made);
            options.apply(fd, kind, Moment::Last);
        }
    }
    for (_, listener, client) in queue {
        let is_listener = by_id
            .get(&listener)
            .is_some_and(|socket| matches!(socket.state, TcpState::Listening { .. }));
        let Some(listening) = made.get(&listener).filter(|_| is_listener) else {
            return Err(EngineError::Damaged(format!("TCP socket {} does not listen", listener.0)));
        };
        let to = match client {
            Client::Open(_, connection) => connection.peer,
            Client::Closed(closed) => closed.to,
        };
        // The listener may have got another port.
        let port = SockRef::from(listening)
            .local_addr()
            .map_err(|error| EngineError::system("getsockname", "a TCP listener", error))?
            .as_socket()
            .map_or(to.port(), |address| address.port());
        let target = SocketAddr::new(to.ip(), port);
        match client {
            Client::Open(saved, connection) => {
                let client = open_client(saved, connection, target, context)?;
                made.insert(saved.id, client.into());
            }
            Client::Closed(closed) => {
                closed_clients::restore(closed, target, REFILL_LIMIT, context)?;
            }
        }
    }
    Ok(())
}

/// Who has made a connection that is not accepted yet.
#[derive(Clone, Copy)]
enum Client<'a> {
    Open(&'a Saved<'a, TcpSocket>, &'a Connection),
    Closed(&'a ClosedClient),
}

/// Connects a client, and sends what it had sent.
fn open_client(
    saved: &Saved<'_, TcpSocket>,
    connection: &Connection,
    target: SocketAddr,
    context: &mut RestoreContext,
) -> Result<Socket> {
    let client = make::client(&address(saved.object), target, context)?;
    if let Some(sent) = connection.sent {
        send_at_once(&client)?;
        let (fd, bytes) = (client.as_fd(), context.blob(sent)?);
        urgent::check(connection.sent_urgent, bytes.len())?;
        let urgent = connection.sent_urgent.map(|urgent| urgent.at as usize);
        let refills = &mut [Refill { through: fd, to: fd, bytes: &bytes, urgent, may_grow: false }];
        refill(refills, REFILL_LIMIT, PATIENCE)?;
    }
    Ok(client)
}

/// Sends all bytes in flight, each through the socket of its sender.
fn fill(
    all: &[&Saved<'_, TcpSocket>],
    made: &Made,
    closed_peers: &[(FileId, OwnedFd)],
    context: &RestoreContext,
) -> Result<()> {
    let mut queues: Vec<(FileId, &OwnedFd, Unread, bool)> = Vec::new();
    for saved in all {
        let urgent = saved.object.connection().and_then(|connection| connection.urgent);
        let (received, sender): (Option<BlobId>, _) = match &saved.object.state {
            TcpState::Connected(connection) => {
                let sender = match connection.end {
                    PeerEnd::Socket { file } if made.contains_key(&file) => made.get(&file),
                    _ => closed_peer_of(closed_peers, saved.id),
                };
                (connection.received, sender)
            }
            TcpState::Closed { received, .. } => {
                (*received, closed_peer_of(closed_peers, saved.id))
            }
            _ => continue,
        };
        let Some(blob) = received else { continue };
        let Some(sender) = sender else {
            return Err(EngineError::Damaged(format!(
                "TCP socket {} has bytes from nobody",
                saved.id.0
            )));
        };
        send_at_once(sender)?;
        let may_grow = !saved.object.options.receive_buffer_locked();
        let bytes = context.blob(blob)?;
        urgent::check(urgent, bytes.len())?;
        queues.push((saved.id, sender, Unread { bytes, urgent }, may_grow));
    }
    let mut refills = Vec::new();
    for (id, sender, Unread { bytes, urgent }, may_grow) in &queues {
        let Some(to) = made.get(id) else { continue };
        refills.push(Refill {
            through: sender.as_fd(),
            to: to.as_fd(),
            bytes,
            urgent: urgent.map(|urgent| urgent.at as usize),
            may_grow: *may_grow,
        });
    }
    refill(&mut refills, REFILL_LIMIT, PATIENCE)?;
    for (id, _, Unread { urgent, .. }, _) in &queues {
        if let (Some(to), Some(urgent)) = (made.get(id), urgent) {
            urgent::arrive(to.as_fd(), *urgent)?;
        }
    }
    Ok(())
}

/// Else the last bytes wait for an acknowledgement; set as recorded afterwards.
fn send_at_once(sender: impl AsFd) -> Result<()> {
    sockopt::set_int(sender, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
        .map_err(|error| EngineError::system("setsockopt", "TCP_NODELAY", error))
}

/// The options that would have been in the way until now.
fn finish(socket: &TcpSocket, fd: &OwnedFd, context: &mut RestoreContext) {
    let kind: Kind = socket.kind();
    let connected = socket.connection().is_some();
    let mut options = socket.options.clone();
    if socket.holds_port() {
        // Stays on: see `quiesce::let_ports_be_reused`.
        options.set.remove("reuse_address");
    }
    if connected {
        // Differ between the end that connected and the one that accepted (net/ipv4/tcp_ipv4.c,
        // tcp_v4_syn_recv_sock), can't be set and mean nothing: ends may have changed roles.
        for name in ["multicast_ttl", "v6_multicast_hops"] {
            options.set.remove(name);
        }
        set_send_buffer(fd, options.send_buffer);
        if options.receive_buffer_locked() {
            set_receive_buffer(fd, options.receive_buffer);
        }
    }
    let mut failed = options.apply(fd, kind, Moment::Made);
    failed.extend(options.apply(fd, kind, Moment::Last));
    options.apply_buffer_lock(fd);
    make::warn_of_options(&failed, socket.local, context);
}

/// What [`make::connect_all`] needs of a socket before it is connected.
pub(super) fn prepare(socket: &Socket, address: &Address) {
    if address.options.receive_buffer_locked() {
        set_receive_buffer(socket, address.options.receive_buffer);
    }
}
