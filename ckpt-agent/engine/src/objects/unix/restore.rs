//! Makes Unix sockets anew: listeners first, connections through them where an end bears a
//! name, else as socket pairs; then queues, then shutdowns.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use socket2::{Domain, MsgHdr, SockRef, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{FileId, Pid, RelayEnd};
use super::super::super::sys::network;
use super::super::super::sys::sockopt;
use super::super::socket_options::{Moment, SO_BUF_LOCK, set_send_buffer};
use super::bound::Bound;
use super::made_by::{by, two_by};
use super::senders::{self, Sent};
use super::{KIND, Message, Name, RestoreContext, Saved, UnixKind, UnixLink, UnixSocket, system};

/// Sent at once on a stream.
const PIECE: usize = 32 * 1024;

/// Of listeners of ours.
const TEMPORARY_BACKLOG: i32 = 16;

type Made = BTreeMap<FileId, OwnedFd>;

/// Makes all Unix sockets and parks them.
pub(super) fn restore(all: &[Saved<'_, UnixSocket>], context: &mut RestoreContext) -> Result<()> {
    let by_id: BTreeMap<FileId, &UnixSocket> =
        all.iter().map(|saved| (saved.id, saved.object)).collect();
    let networks = all.iter().filter_map(|saved| Some((saved.id, saved.file.network?))).collect();
    let mut work = Work { by_id, networks, ..Work::default() };
    work.relays(context)?;
    work.standing()?;
    work.pairs()?;
    work.waiting()?;
    work.fill(context)?;
    work.connect_datagrams(context)?;
    work.close()?;
    work.put_owners(context);
    work.bound.remove_folders();
    for (end, fd) in std::mem::take(&mut work.agents) {
        context.hand_out(end, fd)?;
    }
    for saved in all {
        let Some(fd) = work.made.remove(&saved.id) else {
            return Err(EngineError::Damaged(format!("Unix socket {} has no end", saved.id.0)));
        };
        let options = &saved.object.options;
        let mut failed = options.apply(&fd, KIND, Moment::BeforeBind);
        failed.extend(options.apply(&fd, KIND, Moment::Made));
        failed.extend(options.apply(&fd, KIND, Moment::Last));
        options.apply_buffers(&fd);
        options.apply_buffer_lock(&fd);
        if !failed.is_empty() {
            context.warn(format!(
                "Unix socket: options not restored, not allowed here: {}",
                failed.join(", ")
            ));
        }
        context.park(saved.id, fd)?;
    }
    Ok(())
}

#[derive(Default)]
struct Work<'a> {
    by_id: BTreeMap<FileId, &'a UnixSocket>,
    /// The networks of the job's own in which some were made.
    networks: BTreeMap<FileId, u32>,
    made: Made,
    /// Far ends of sockets whose peer is gone.
    closed_peers: BTreeMap<FileId, OwnedFd>,
    /// Which of those are the agent's, and then they themselves.
    relayed: BTreeMap<FileId, RelayEnd>,
    agents: Vec<(RelayEnd, OwnedFd)>,
    /// Listeners of ours, for connections whose listener the job has closed.
    temporary: BTreeMap<Name, OwnedFd>,
    bound: Bound,
}

impl<'a> Work<'a> {
    /// Sockets that stand alone: listeners, datagram sockets, unconnected ones.
    fn standing(&mut self) -> Result<()> {
        for (&id, &socket) in &self.by_id {
            let backlog = match socket.link {
                UnixLink::Listening { backlog, .. } => Some(backlog),
                UnixLink::None => None,
                _ if socket.variety == UnixKind::Datagram
                    && !self.closed_peers.contains_key(&id)
                    && !is_anonymous_pair(&self.by_id, id) =>
                {
                    None
                }
                _ => continue,
            };
            let made = new_socket(socket.variety, self.networks.get(&id).copied())?;
            if let Some(name) = &socket.name {
                self.bound.bind(&made, name)?;
            }
            if let Some(backlog) = backlog {
                made.listen(backlog).map_err(|error| system("listen on", error))?;
            }
            self.made.insert(id, made.into());
        }
        Ok(())
    }

    /// Sockets whose peer is in another instance. The names of accepted connections are lost with
    /// them: their listener may be there, too.
    fn relays(&mut self, context: &RestoreContext) -> Result<()> {
        for (&id, &socket) in &self.by_id {
            let recorded: Vec<RelayEnd> = match &socket.link {
                UnixLink::Relay { end } => vec![end.clone()],
                _ => Vec::new(),
            };
            let Some(end) = context.legs(id, &recorded).0.pop() else { continue };
            let (own, agent) = Socket::pair(Domain::UNIX, socket_type(socket.variety), None)
                .map_err(|error| system("socketpair", error))?;
            self.made.insert(id, own.into());
            self.closed_peers.insert(id, agent.into());
            self.relayed.insert(id, end);
        }
        Ok(())
    }

    fn pairs(&mut self) -> Result<()> {
        let ids: Vec<FileId> = self.by_id.keys().copied().collect();
        for id in ids {
            let socket = self.by_id[&id];
            if self.made.contains_key(&id) {
                continue;
            }
            match socket.link {
                UnixLink::Socket { file } => {
                    let peer =
                        self.by_id.get(&file).copied().filter(|peer| {
                            file != id && peer.link == UnixLink::Socket { file: id }
                        });
                    let Some(peer) = peer else {
                        return Err(EngineError::Damaged(format!(
                            "Unix sockets {} and {} are not each other's peers",
                            id.0, file.0
                        )));
                    };
                    let (one, other) = self.connected(socket, peer)?;
                    self.made.insert(id, one);
                    self.made.insert(file, other);
                }
                UnixLink::Gone { .. } => {
                    let closed_peer = UnixSocket { name: None, ..socket.clone() };
                    let (one, other) = self.connected(socket, &closed_peer)?;
                    self.made.insert(id, one);
                    self.closed_peers.insert(id, other);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Two connected sockets with the names of `one` and `other`.
    fn connected(&mut self, one: &UnixSocket, other: &UnixSocket) -> Result<(OwnedFd, OwnedFd)> {
        if one.variety == UnixKind::Datagram || (one.name.is_none() && other.name.is_none()) {
            return two_by(one.peer_process.or(other.peer_process), || {
                let (a, b) = Socket::pair(Domain::UNIX, socket_type(one.variety), None)?;
                Ok([a.into_raw_fd(), b.into_raw_fd()])
            })
            .map_err(|error| system("socketpair", error));
        }
        let listens = |socket: &UnixSocket| {
            self.by_id.values().any(|listener| {
                matches!(listener.link, UnixLink::Listening { .. }) && same_name(listener, socket)
            })
        };
        // The accepted end bears its listener's name.
        if other.name.is_some() && (one.name.is_none() || (!listens(one) && listens(other))) {
            let (b, a) = self.connected(other, one)?;
            return Ok((a, b));
        }
        let Some(name) = one.name.clone() else {
            return Err(EngineError::Damaged("a Unix connection without a name".into()));
        };
        let client = new_socket(one.variety, name.network)?;
        if let Some(own) = &other.name {
            self.bound.bind(&client, own)?;
        }
        let (listener, name) = self.listener(one, &name)?;
        let listener = SockRef::from(&listener);
        if other.peer_process.is_some() {
            let backlog = self.backlog(&name);
            by(other.peer_process, || listener.listen(backlog))
                .map_err(|error| system("listen on", error))?;
        }
        self.bound
            .reach(&name, |address| by(one.peer_process, || client.connect(address)))?
            .map_err(|error| system("connect", error))?;
        let (server, _) = listener.accept().map_err(|error| system("accept", error))?;
        Ok((server.into(), client.into()))
    }

    /// A copy of the socket that listens at a name, and the name by which it was bound: the job's own, or a temporary
    /// one.
    fn listener(&mut self, like: &UnixSocket, name: &Name) -> Result<(OwnedFd, Name)> {
        let own = self.by_id.iter().find(|(_, listener)| {
            matches!(listener.link, UnixLink::Listening { .. }) && same_name(listener, like)
        });
        let bound_as = own.and_then(|(_, listener)| listener.name.clone());
        let found = match own {
            Some((id, _)) => self.made.get(id),
            None => {
                if !self.temporary.contains_key(name) {
                    let made = new_socket(like.variety, name.network)?;
                    self.bound.bind(&made, name)?;
                    made.listen(TEMPORARY_BACKLOG).map_err(|error| system("listen on", error))?;
                    self.temporary.insert(name.clone(), made.into());
                }
                self.temporary.get(name)
            }
        };
        let copy = found
            .ok_or_else(|| EngineError::Damaged("a Unix listener was not made".into()))?
            .try_clone()
            .map_err(|error| system("dup", error))?;
        Ok((copy, bound_as.unwrap_or_else(|| name.clone())))
    }

    /// Of the job's listener at a name, or a temporary one.
    fn backlog(&self, name: &Name) -> i32 {
        let known = self.by_id.values().find_map(|socket| match socket.link {
            UnixLink::Listening { backlog, .. } if socket.name.as_ref() == Some(name) => {
                Some(backlog)
            }
            _ => None,
        });
        known.unwrap_or(TEMPORARY_BACKLOG)
    }

    /// Connections not yet accepted, in the order of their arrival.
    fn waiting(&mut self) -> Result<()> {
        let mut waiting: Vec<(FileId, u32, FileId, Option<Pid>)> = self
            .by_id
            .iter()
            .filter_map(|(&id, socket)| match socket.link {
                UnixLink::Waiting { listener, place, by } => Some((listener, place, id, by)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        for (listener, _, id, process) in waiting {
            let socket = self.by_id[&id];
            let name = self
                .by_id
                .get(&listener)
                .filter(|at| matches!(at.link, UnixLink::Listening { .. }))
                .and_then(|at| at.name.clone());
            let Some(name) = name else {
                return Err(EngineError::Damaged(format!(
                    "Unix socket {} does not listen",
                    listener.0
                )));
            };
            let client = new_socket(socket.variety, self.networks.get(&id).copied())?;
            if let Some(own) = &socket.name {
                self.bound.bind(&client, own)?;
            }
            client.set_nonblocking(true).map_err(|error| system("fcntl", error))?;
            if let (Some(listens), Some(at)) = (socket.peer_process, self.made.get(&listener)) {
                let backlog = self.backlog(&name);
                by(Some(listens), || SockRef::from(at).listen(backlog))
                    .map_err(|error| system("listen on", error))?;
            }
            self.bound
                .reach(&name, |address| by(process, || client.connect(address)))?
                .map_err(|error| system("connect", error))?;
            client.set_nonblocking(false).map_err(|error| system("fcntl", error))?;
            self.made.insert(id, client.into());
        }
        Ok(())
    }

    fn fill(&self, context: &mut RestoreContext) -> Result<()> {
        for (&id, &socket) in &self.by_id {
            if let Some(fd) = self.made.get(&id).filter(|_| !socket.received.is_empty()) {
                // A message bears its sender's process where one of the two asks for it (net/unix/af_unix.c,
                // unix_maybe_add_creds).
                let wanted = socket.options.number("pass_credentials");
                sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, wanted)
                    .map_err(|error| system("setsockopt", error))?;
            }
            for message in &socket.received {
                let bytes = context.blob(message.bytes)?;
                if socket.variety == UnixKind::Datagram && !self.closed_peers.contains_key(&id) {
                    self.fill_datagram(id, socket, message, &bytes, context)?;
                    continue;
                }
                let peer = match socket.link {
                    UnixLink::Socket { file } => self.made.get(&file),
                    _ => None,
                };
                let sender = self.closed_peers.get(&id).or(peer);
                let Some(sender) = sender else {
                    return Err(EngineError::Damaged(format!(
                        "Unix socket {} has bytes from nobody",
                        id.0
                    )));
                };
                // As much as was queued must fit at once, whatever the size is set to later.
                let room = i32::try_from(bytes.len().saturating_mul(4)).unwrap_or(i32::MAX / 2);
                grow(sender, room.saturating_add(1 << 20));
                let mut files = self.files(message, context)?;
                let by = sender_of(socket, message);
                if message.urgent {
                    send_urgent(by, sender, &bytes, &files)?;
                    continue;
                }
                let step =
                    if socket.variety == UnixKind::Stream { PIECE } else { bytes.len().max(1) };
                for piece in bytes.chunks(step) {
                    send_as(by, sender, piece, &std::mem::take(&mut files))?;
                }
                if !files.is_empty() || bytes.is_empty() && socket.variety != UnixKind::Stream {
                    // A message without a byte.
                    send_as(by, sender, &[], &files)?;
                }
            }
        }
        Ok(())
    }

    /// Descriptors that come with a message.
    fn files(&self, message: &Message, context: &RestoreContext) -> Result<Vec<RawFd>> {
        let find = |file: &FileId| match self.made.get(file) {
            Some(made) => Ok(made.as_raw_fd()),
            None => Ok(context.parked(*file)?.as_raw_fd()),
        };
        message.files.iter().map(find).collect()
    }

    /// Sends a datagram from a socket of the sender's name: one of the job's, or one of our own.
    fn fill_datagram(
        &self,
        id: FileId,
        socket: &UnixSocket,
        message: &Message,
        bytes: &[u8],
        context: &mut RestoreContext,
    ) -> Result<()> {
        let files = self.files(message, context)?;
        let network = self.networks.get(&id).copied();
        let by_name = message.from.as_ref().and_then(|from| {
            // A path leads anywhere.
            let where_named = network.filter(|_| from.first() == Some(&0));
            let is_sender = |name: &Name| name.bytes == *from && name.network == where_named;
            self.by_id.iter().find(|(_, other)| {
                other.variety == UnixKind::Datagram && other.name.as_ref().is_some_and(is_sender)
            })
        });
        let of_pair = match socket.link {
            UnixLink::Socket { file } if is_anonymous_pair(&self.by_id, id) => self.made.get(&file),
            _ => None,
        };
        if let Some(sender) = of_pair {
            grow(sender, 1 << 20);
            return send_as(sender_of(socket, message), sender, bytes, &files);
        }
        let Some(name) = &socket.name else {
            return Err(EngineError::Damaged(format!(
                "Unix socket {} has bytes from nobody",
                id.0
            )));
        };
        let send = |sender: &SockRef<'_>| {
            self.bound.reach(name, |address| {
                let (parts, rights) = ([IoSlice::new(bytes)], rights(&files));
                let datagram = MsgHdr::new().with_addr(address).with_buffers(&parts);
                let datagram = datagram.with_control(&rights);
                by(message.by, || sender.sendmsg(&datagram, libc::MSG_DONTWAIT).map(drop))
            })
        };
        if let Some(sender) = by_name.and_then(|(sender, _)| self.made.get(sender)) {
            send(&SockRef::from(sender))?.map_err(|error| system("send to", error))?;
            return Ok(());
        }
        if let Some(from) = &message.from {
            let own = new_socket(UnixKind::Datagram, network)?;
            let sent = senders::send_as(from, &own, |own| {
                send(&SockRef::from(own)).map_err(std::io::Error::other)?
            });
            let from = String::from_utf8_lossy(from).replace('\0', "@");
            match sent {
                Ok(Sent::Clean) => return Ok(()),
                Ok(Sent::LeftBehind(error)) => {
                    context.warn(format!("after the sender of a datagram, {from}: {error}"));
                    return Ok(());
                }
                Err(error) => context.warn(format!(
                    "a queued datagram does not name its sender {from} any more: the name can't be had ({error})"
                )),
            }
        }
        let own = new_socket(UnixKind::Datagram, network)?;
        send(&SockRef::from(&own))?.map_err(|error| system("send to", error))?;
        Ok(())
    }

    /// Datagram sockets that are connected to a name.
    fn connect_datagrams(&mut self, context: &mut RestoreContext) -> Result<()> {
        for (&id, &socket) in &self.by_id {
            let UnixLink::Socket { file } = socket.link else { continue };
            if socket.variety != UnixKind::Datagram
                || self.closed_peers.contains_key(&id)
                || is_anonymous_pair(&self.by_id, id)
            {
                continue;
            }
            let (Some(made), Some(peer)) = (self.made.get(&id), self.by_id.get(&file)) else {
                return Err(EngineError::Damaged(format!("Unix socket {} has no peer", id.0)));
            };
            let Some(name) = &peer.name else {
                context.warn("a datagram socket lost its connection to a socket without a name");
                continue;
            };
            let client = SockRef::from(made);
            self.bound
                .reach(name, |address| client.connect(address))?
                .map_err(|error| system("connect", error))?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        for (&id, &socket) in &self.by_id {
            let Some(fd) = self.made.get(&id) else { continue };
            if let UnixLink::Gone { reset } = socket.link {
                // A peer that closes with bytes unread resets the connection (unix_release_sock).
                if reset {
                    send_now(fd, b"\0", &[])?;
                }
                continue;
            }
            let end = SockRef::from(fd);
            for (set, how) in [
                (socket.shut_read, std::net::Shutdown::Read),
                (socket.shut_write, std::net::Shutdown::Write),
            ] {
                if set && !matches!(socket.link, UnixLink::Listening { .. }) {
                    end.shutdown(how).map_err(|error| system("shut down", error))?;
                }
            }
        }
        for (id, end) in std::mem::take(&mut self.relayed) {
            self.agents.extend(self.closed_peers.remove(&id).map(|fd| (end, fd)));
        }
        self.closed_peers.clear();
        self.temporary.clear();
        Ok(())
    }

    /// Who may connect to a name.
    fn put_owners(&self, context: &mut RestoreContext) {
        for (name, failed) in self.bound.put_owners() {
            let path = String::from_utf8_lossy(&name.bytes);
            context.warn(format!("socket {path}: its owner and mode are not restored ({failed})"));
        }
    }
}

/// The two ends of socketpair(2) of datagrams: no names, each other's peer.
fn is_anonymous_pair(by_id: &BTreeMap<FileId, &UnixSocket>, id: FileId) -> bool {
    let Some(socket) = by_id.get(&id) else { return false };
    match socket.link {
        UnixLink::Gone { .. } => socket.name.is_none(),
        UnixLink::Socket { file } => by_id.get(&file).is_some_and(|peer| {
            peer.link == UnixLink::Socket { file: id }
                && socket.name.is_none()
                && peer.name.is_none()
        }),
        _ => false,
    }
}

fn same_name(one: &UnixSocket, other: &UnixSocket) -> bool {
    match (&one.name, &other.name) {
        (Some(a), Some(b)) => {
            let same = a.bytes == b.bytes && a.bound_to == b.bound_to && a.network == b.network;
            same && one.variety == other.variety
        }
        _ => false,
    }
}

fn socket_type(kind: UnixKind) -> Type {
    match kind {
        UnixKind::Stream => Type::STREAM,
        UnixKind::Datagram => Type::DGRAM,
        UnixKind::Sequence => Type::SEQPACKET,
    }
}

/// A socket of a network of the job's own, or of the job's: an abstract name is reached from within one alone.
fn new_socket(kind: UnixKind, network: Option<u32>) -> Result<Socket> {
    let make = || network::socket(Domain::UNIX, socket_type(kind), None);
    let made = network::within(network, make);
    made.map_err(|error| system("make", error))
}

/// ObjectKind for what is to be queued; the recorded sizes follow.
fn grow(sender: &OwnedFd, bytes: i32) {
    set_send_buffer(sender, bytes);
    // A size set here is not the program's choice.
    let _ = sockopt::set_int(sender, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
}

/// SCM_RIGHTS as ancillary data.
fn rights(files: &[RawFd]) -> Vec<u8> {
    if files.is_empty() {
        return Vec::new();
    }
    // struct cmsghdr: a length as long as a word, level, type.
    let head = size_of::<libc::cmsghdr>();
    let mut bytes = (head + size_of_val(files)).to_ne_bytes().to_vec();
    bytes.resize(head - 8, 0);
    bytes.extend([libc::SOL_SOCKET, libc::SCM_RIGHTS].map(i32::to_ne_bytes).concat());
    bytes.extend(files.iter().flat_map(|fd| fd.to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
    bytes
}

/// Whom a message is from, where its receiver asks: of a process that has ended no number is known, but most likely it has
/// made the connection.
fn sender_of(socket: &UnixSocket, message: &Message) -> Option<Pid> {
    message.by.or(socket.peer_process).filter(|_| socket.asks_for_senders())
}

/// The urgent byte of a stream.
fn send_urgent(
    process: Option<Pid>,
    through: &OwnedFd,
    byte: &[u8],
    files: &[RawFd],
) -> Result<()> {
    let rights = [ControlMessage::ScmRights(files)];
    let rights = if files.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_OOB | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let send = || {
        sendmsg::<()>(through.as_raw_fd(), &[IoSlice::new(byte)], rights, flags, None)
            .map(drop)
            .map_err(std::io::Error::from)
    };
    by(process, send).map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => EngineError::Unfit {
            what: "Unix sockets have no urgent bytes (MSG_OOB) here".into(),
            way_out: "restart it on a machine with Linux 5.15 or newer".into(),
        },
        _ => system("send on", error),
    })
}

/// As another process, which the receiver is told where it asks for it.
fn send_as(process: Option<Pid>, through: &OwnedFd, bytes: &[u8], files: &[RawFd]) -> Result<()> {
    if process.is_none() {
        return send_now(through, bytes, files);
    }
    by(process, || send_now(through, bytes, files).map_err(std::io::Error::other))
        .map_err(|error| system("send on", error))
}

fn send_now(through: &OwnedFd, mut bytes: &[u8], mut files: &[RawFd]) -> Result<()> {
    loop {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let rights = [ControlMessage::ScmRights(files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<()>(through.as_raw_fd(), &parts, rights, flags, None) {
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                files = &[];
                if bytes.is_empty() {
                    return Ok(());
                }
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                return Err(EngineError::Unfit {
                    what: "the queue of a Unix socket does not take the bytes that were in flight"
                        .into(),
                    way_out: "raise net.core.wmem_max and net.unix.max_dgram_qlen".into(),
                });
            }
            Err(errno) => return Err(system("send on", errno)),
        }
    }
}
