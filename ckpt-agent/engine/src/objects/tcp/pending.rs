//! Bytes in connections that nobody has accepted yet. They can be read only by accepting, and what
//! was accepted cannot be put back: so the client's socket is connected anew, from the same
//! address to the same listening socket, and sends the same bytes again. It stays the same open
//! file description for its program, which stands still meanwhile. So it is with several connections without bytes, too:
//! their order shows only as they are accepted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use socket2::{SockAddr, SockRef, Socket};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::FileId;
use super::super::super::sys::disconnect::disconnect;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sock_diag::TcpEntry;
use super::super::super::sys::sockopt;
use super::super::socket_options::Moment;
use super::closed_clients::{self, ClosedClient};
use super::diag::{self, View};
use super::refill::{PATIENCE, Refill, refill};
use super::urgent::{self, Taken, Unread};
use super::{DumpContext, Found, Probe, TcpSocket, TcpState, make, quiesce, soon};

/// Limit for the bytes of one connection to be read, and for them to be sent again.
const LIMIT: Duration = Duration::from_secs(2);
/// Limit for one attempt to connect within this machine.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(30);

/// A connection that waits to be accepted, with what its client has sent.
#[derive(Debug)]
pub(super) struct Held {
    /// Where it waits.
    pub(super) listener: FileId,
    /// Place in the queue.
    pub(super) place: u32,
    /// What was sent.
    pub(super) sent: Unread,
}

/// Reads the bytes of all connections that wait at listening sockets of the job, by the index of
/// their client's socket; those of clients that are closed become part of their listening socket. One connection without
/// bytes is left alone.
///
/// # Errors
/// Refusals before anything is touched; failures to connect again.
pub(super) fn read(
    all: &mut [Found<'_, TcpSocket>],
    view: &View<'_>,
    context: &mut DumpContext,
) -> Result<BTreeMap<usize, Held>> {
    let mut queues = Vec::new();
    for (index, found) in all.iter().enumerate() {
        if matches!(found.object.state, TcpState::Listening { .. }) {
            queues.extend(queue_of(index, all, view)?);
        }
    }
    let mut held = BTreeMap::new();
    for queue in queues {
        queue.run(all, &mut held, context)?;
    }
    Ok(held)
}

/// A listening socket and the clients that wait at it.
struct Queue {
    listener: usize,
    clients: Vec<Client>,
}

/// Who has connected.
enum Client {
    Open(Box<Open>),
    /// It is closed: its address, and the one to which it connected.
    Closed(SocketAddr, SocketAddr),
}

/// A client's socket as it was before anything was touched.
struct Open {
    index: usize,
    local: SockAddr,
    peer: SockAddr,
    flags: OFlag,
    shut_write: bool,
    shut_read: bool,
}

/// The queue of a listening socket, if bytes wait in it.
fn queue_of(
    listener: usize,
    all: &[Found<'_, TcpSocket>],
    view: &View<'_>,
) -> Result<Option<Queue>> {
    let found = &all[listener];
    let inode = found.probe.stat.st_ino as u32;
    let waiting: Vec<&TcpEntry> = view.waiting_at(found.id).collect();
    if let (true, Some(entry)) = (found.object.multipath, waiting.first()) {
        return Err(soon(
            found.probe,
            format!("a connection from {}, not accepted yet from Multipath TCP", entry.peer),
            "it will be accepted soon: try again",
        ));
    }
    let (mut clients, mut needed) = (Vec::new(), None);
    let counted = view.entry(inode).map_or(0, |entry| entry.receive_queue as usize);
    // The queue's order shows only as it is emptied: all of it must be the job's.
    let mut known = counted == waiting.len();
    for entry in &waiting {
        let (client, bytes) = client(entry, all, view)?;
        known &= client.is_some() && i32::from(entry.state) != diag::SYN_RECV;
        if bytes || matches!(client, Some(Client::Closed(..))) {
            needed.get_or_insert(entry.peer);
        }
        clients.extend(client);
    }
    match needed {
        Some(peer) if !known => Err(soon(
            found.probe,
            format!("a connection from {peer} with bytes in it, not accepted yet"),
            "it will be accepted soon: try again",
        )),
        None if !known || clients.len() < 2 => Ok(None),
        _ => Ok(Some(Queue { listener, clients })),
    }
}

/// Who has made a connection, if that can make it again, and whether bytes are in it.
fn client(
    entry: &TcpEntry,
    all: &[Found<'_, TcpSocket>],
    view: &View<'_>,
) -> Result<(Option<Client>, bool)> {
    let bytes = diag::unread(entry) > 0;
    let Some(index) = view.client_of(entry) else {
        let closed = Client::Closed(canonical(entry.peer), canonical(entry.local));
        return Ok((view.client_has_closed(entry).then_some(closed), bytes));
    };
    let bytes = bytes || quiesce::unacknowledged(all[index].probe)? > 0;
    Ok((Open::look(index, &all[index], view).ok().map(|open| Client::Open(Box::new(open))), bytes))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Open {
    fn look(index: usize, found: &Found<'_, TcpSocket>, view: &View<'_>) -> Result<Self> {
        let system = |error| EngineError::system("look at", "a TCP socket", error);
        let socket = SockRef::from(&found.probe.copy);
        let flags = fcntl(&found.probe.copy, FcntlArg::F_GETFL)
            .map_err(|errno| EngineError::system("fcntl", "a TCP socket", errno))?;
        let flags = OFlag::from_bits_retain(flags);
        if flags.contains(OFlag::O_ASYNC) {
            // Its owner would be sent SIGIO.
            return Err(EngineError::odd("a TCP socket", "O_ASYNC"));
        }
        let (shut_write, shut_read) = view.shut(found.probe)?;
        Ok(Self {
            index,
            local: socket.local_addr().map_err(system)?,
            peer: socket.peer_addr().map_err(system)?,
            flags,
            shut_write,
            shut_read,
        })
    }
}

impl Queue {
    /// Accepts everything, reads it, and puts it back in the same order. Whatever fails on the way:
    /// what was accepted is put back.
    fn run(
        &self,
        all: &mut [Found<'_, TcpSocket>],
        held: &mut BTreeMap<usize, Held>,
        context: &mut DumpContext,
    ) -> Result<()> {
        let listener = all[self.listener].id;
        let mut failure = None;
        let mut accepted = Vec::new();
        for _ in 0..self.clients.len() {
            match self.accept(&all[self.listener], context) {
                Ok(Some(one)) => accepted.push(one),
                Ok(None) => {}
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        for (place, (client, socket)) in accepted.into_iter().enumerate() {
            let place = place as u32;
            let (whole, again) = match client {
                Client::Open(open) => {
                    let found = &mut all[open.index];
                    let (sent, whole) = take(Some(found.probe), &socket);
                    let again = open.connect_again(found, socket, &sent, context);
                    held.insert(open.index, Held { listener, place, sent });
                    (whole, again)
                }
                Client::Closed(client, to) => {
                    let (sent, whole) = take(None, &socket);
                    let at = (*client, *to, place);
                    (whole, again_closed(&mut all[self.listener], at, socket, sent, context))
                }
            };
            if let Err(error) = again {
                failure.get_or_insert(error);
            }
            if !whole {
                failure.get_or_insert(EngineError::TooLong {
                    what: "reading a connection that is not accepted yet".into(),
                    limit_ms: LIMIT.as_millis() as u64,
                });
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// One connection; None: one that nobody of the job has made, which came in this very moment.
    fn accept(
        &self,
        listener: &Found<'_, TcpSocket>,
        context: &mut DumpContext,
    ) -> Result<Option<(&Client, Socket)>> {
        let system = |call, error| EngineError::system(call, "a TCP listener", error);
        let probe = listener.probe;
        let ready = poll_one(&probe.copy, libc::POLLIN, Duration::ZERO)
            .map_err(|error| system("poll", error))?;
        if ready & libc::POLLIN == 0 {
            return Err(EngineError::odd("a TCP listener", "fewer connections than it counted"));
        }
        let (socket, from) =
            SockRef::from(&probe.copy).accept().map_err(|error| system("accept from", error))?;
        let from = make::canonical(Ok(from));
        let client = self.clients.iter().find(|one| match one {
            Client::Open(open) => make::canonical(Ok(open.local.clone())) == from,
            Client::Closed(client, _) => Some(*client) == from,
        });
        if client.is_none() {
            context.warn(format!(
                "process {} ({}), descriptor {}: a connection from outside of the job was reset",
                probe.pid, probe.comm, probe.fd
            ));
        }
        Ok(client.map(|client| (client, socket)))
    }
}

/// All bytes that a client has sent, and whether they are all.
fn take(client: Option<&Probe>, accepted: &Socket) -> (Unread, bool) {
    // Else the kernel may hold the last bytes back; set as recorded afterwards.
    for (name, value) in [(libc::TCP_CORK, 0), (libc::TCP_NODELAY, 1)] {
        client.map(|probe| sockopt::set_int(&probe.copy, libc::IPPROTO_TCP, name, value));
    }
    let (began, mut queue) = (Instant::now(), Unread::default());
    if sockopt::set_int(accepted, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1).is_err() {
        return (queue, false);
    }
    while began.elapsed() < LIMIT {
        // Asked before the look at the queue: what is acknowledged then stands in it.
        // Of one that is closed, its end comes last.
        let on_the_way = client.map_or(1, |probe| quiesce::unacknowledged(probe).unwrap_or(1));
        match urgent::take(accepted.as_fd(), &mut queue, false) {
            Ok(Taken::End) => return (queue, true),
            Ok(Taken::All) if on_the_way == 0 => return (queue, true),
            Ok(Taken::All) => std::thread::sleep(PAUSE),
            Err(_) => break,
        }
    }
    (queue, false)
}

/// Ends a connection whose client is closed, and makes it again, with the same bytes in it and closed.
fn again_closed(
    listener: &mut Found<'_, TcpSocket>,
    (client, to, place): (SocketAddr, SocketAddr, u32),
    accepted: Socket,
    Unread { bytes, urgent }: Unread,
    context: &mut DumpContext,
) -> Result<()> {
    // A reset ends it at its client's side at once, also in TIME_WAIT (net/ipv4/tcp_minisocks.c,
    // tcp_timewait_state_process), so that the port is free.
    let _ = accepted.set_linger(Some(Duration::ZERO));
    drop(accepted);
    let now = closed_clients::connect_again(client, to, (&bytes, urgent), LIMIT)?;
    if now != client {
        let probe = listener.probe;
        context.warn(format!(
            "process {} ({}), descriptor {}: a connection from {client}, not accepted yet, had to change its port",
            probe.pid, probe.comm, probe.fd
        ));
    }
    let sent = (!bytes.is_empty()).then(|| context.keep(bytes));
    if let TcpState::Listening { closed, .. } = &mut listener.object.state {
        closed.push(ClosedClient { client: now, to, place, sent, urgent });
    }
    Ok(())
}

impl Open {
    /// Ends the connection and makes it again, with the same bytes in it.
    fn connect_again(
        &self,
        found: &mut Found<'_, TcpSocket>,
        accepted: Socket,
        Unread { bytes, urgent }: &Unread,
        context: &mut DumpContext,
    ) -> Result<()> {
        let copy = &found.probe.copy;
        let system = |call, error| EngineError::system(call, "a TCP client", error);
        let socket = SockRef::from(copy);
        disconnect(copy).map_err(|error| system("disconnect", error))?;
        // The reset has to be there before the same addresses are used again.
        let _ = make::wait_until_told(&accepted, CONNECT_LIMIT);
        drop(accepted);
        let _ = socket.take_error();
        let connected = self.connect(&socket);
        let _ = fcntl(copy, FcntlArg::F_SETFL(self.flags));
        connected.map_err(|error| system("connect again", error))?;
        let now = socket.local_addr().map_err(|error| system("getsockname", error))?.as_socket();
        if now != self.local.as_socket() {
            context.warn(format!(
                "process {} ({}), descriptor {}: a connection not accepted yet had to change its port",
                found.probe.pid, found.probe.comm, found.probe.fd
            ));
            found.object.local = now;
        }
        let _ = sockopt::set_int(copy, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        let fd = copy.as_fd();
        let urgent = urgent.map(|urgent| urgent.at as usize);
        let all = &mut [Refill { through: fd, to: fd, bytes, urgent, may_grow: false }];
        refill(all, LIMIT, PATIENCE)?;
        for (shut, how) in [
            (self.shut_write, std::net::Shutdown::Write),
            (self.shut_read, std::net::Shutdown::Read),
        ] {
            if shut {
                socket.shutdown(how).map_err(|error| system("shut down", error))?;
            }
        }
        let mut options = found.object.options.clone();
        options.set.remove("reuse_address");
        let kind = found.object.kind();
        options.apply(copy, kind, Moment::Made);
        options.apply(copy, kind, Moment::Last);
        options.apply_buffer_lock(copy);
        Ok(())
    }

    /// From the same port. getsockname(2) tells the old one in any case: where the program had bound
    /// it, it is kept, and binding fails; else it is taken again, in either of two ways.
    fn connect(&self, socket: &Socket) -> std::io::Result<()> {
        let at = self.local.as_socket();
        if at.is_some_and(|at| make::connect_at_port(socket, at, &self.peer).is_ok()) {
            return Ok(());
        }
        make::forget_port_range(socket);
        let _ = socket.set_reuse_address(true);
        // Where it cannot be bound, any port is better than none.
        let _ = socket.bind(&self.local);
        socket.connect_timeout(&self.peer, CONNECT_LIMIT)
    }
}
