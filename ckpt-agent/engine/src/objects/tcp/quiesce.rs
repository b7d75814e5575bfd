//! Until every byte that was sent stands in its receiver's queue: then the queues are read.
//!
//! Queues are peeked, not consumed. Only where a receiver's window is full the bytes behind it
//! have to be fetched by reading; they go back through the sender's own socket before this
//! returns. A sender that can't send again, because it has shut down or is closed, gets room at the receiver instead, and
//! what it sends stays there.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::changed::Changed;
use super::orphans::{self, Orphans};
use super::outer::{Whereabouts, whereabouts};
use super::refill::{Refill, refill};
use super::urgent::{self, Taken, Unread};
use super::widened::{SameSize, Widened, tell_of_room};
use super::{DumpContext, Found, Probe, TcpSocket, TcpState, diag, kernel_state, soon};

/// Limit for all connections together, from the last byte that has arrived.
const LIMIT: Duration = Duration::from_secs(2);
/// Limit however many arrive: the job stands still meanwhile.
const LONGEST: Duration = Duration::from_secs(10);
/// Limit for putting bytes back: past it the job would lose them.
const PUT_BACK_LIMIT: Duration = Duration::from_secs(5);
/// After this long without a byte put back, receivers' buffers are made larger, which they stay.
const PUT_BACK_PATIENCE: Duration = Duration::from_millis(100);
/// An acknowledgement that was only delayed comes within this time once it is asked for.
const ACKNOWLEDGED_BY: Duration = Duration::from_millis(1);
/// After this long a window is taken for full.
const FULL_AFTER: Duration = Duration::from_millis(4);
/// A sender that has shut down, or is closed, is waited for this long while nothing more arrives.
const SHUT_LIMIT: Duration = Duration::from_millis(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(30);
/// A peer on a machine that the job does not run on is waited for while it takes bytes, and this long
/// when it takes none.
const STRANGER_LIMIT: Duration = Duration::from_millis(300);
/// Bytes from other instances come in one after the other: what has been silent for so long is full,
/// empty, or waits for its sender.
const SILENCE: Duration = Duration::from_millis(2);

/// What is known of a socket once nothing of this instance is under way.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Bytes that its program has not read; of an outer connection read later.
    pub(super) received: Unread,
    /// Its peer, no instance of the job, has not taken what was sent to it.
    pub(super) in_flight: bool,
}

/// Waits until every socket's bytes have arrived, and reads the queues, in the order given; `peers`
/// names each one's other end.
///
/// # Errors
/// Connections that do not come to rest within the limit.
pub(super) fn quiesce(
    all: &[Found<'_, TcpSocket>],
    peers: &[Option<usize>],
    context: &mut DumpContext,
) -> Result<Vec<Rest>> {
    let mut lines: Vec<Line<'_>> = all
        .iter()
        .zip(peers)
        .map(|(found, peer)| Line {
            probe: found.probe,
            peer: *peer,
            connected: matches!(found.object.state, TcpState::Connected(_)),
            has_queue: matches!(
                found.object.state,
                TcpState::Connected(_) | TcpState::Closed { .. }
            ),
            may_grow: !found.object.options.receive_buffer_locked(),
            fetched: None,
            inline: None,
            widened: None,
            sender_closed: false,
            pushed: None,
            outer: outer(found, *peer, context),
        })
        .collect();
    find_closed_senders(all, &mut lines)?;
    for line in lines.iter().filter(|line| line.outer.is_some()) {
        context.widened.extend(Widened::new(&line.probe.copy)?);
    }
    let settled = come_to_rest(&mut lines);
    let read = settled.and_then(|()| lines.iter_mut().map(Line::rest).collect::<Result<Vec<_>>>());
    // On every path: what was fetched goes back.
    lines.iter_mut().for_each(|line| line.inline = None);
    let put_back = put_back(&lines);
    for line in &lines {
        line.give_back_options();
    }
    put_back?;
    read
}

/// In a cluster: a connection that leads out of the instance.
fn outer(
    found: &Found<'_, TcpSocket>,
    peer: Option<usize>,
    context: &DumpContext,
) -> Option<Outer> {
    let connection = found.object.connection()?;
    (context.cluster && peer.is_none()).then(|| Outer {
        peer: whereabouts(found.object.local, connection.peer, &context.machines),
        unread: 0,
        unacknowledged: 0,
        changed: None,
        in_flight: false,
    })
}

/// A connection whose other end another instance may hold.
struct Outer {
    peer: Whereabouts,
    /// Bytes at the last look.
    unread: usize,
    /// Bytes at the last look.
    unacknowledged: usize,
    /// When either was last seen to change.
    changed: Option<Instant>,
    /// It is not waited for any more.
    in_flight: bool,
}

/// Marks those whose peers have been closed on this machine and still send.
fn find_closed_senders(all: &[Found<'_, TcpSocket>], lines: &mut [Line<'_>]) -> Result<()> {
    let alone = |line: &Line<'_>| line.connected && line.peer.is_none() && line.outer.is_none();
    if !lines.iter().any(alone) {
        return Ok(());
    }
    let orphans = orphans::keys()?;
    for (line, found) in lines.iter_mut().zip(all).filter(|(line, _)| alone(line)) {
        let key = diag::key(found.object);
        line.sender_closed = key.is_some_and(|(local, peer)| orphans.contains(&(peer, local)));
    }
    Ok(())
}

struct Line<'a> {
    probe: &'a Probe,
    peer: Option<usize>,
    connected: bool,
    has_queue: bool,
    /// The kernel chooses the size of its receive buffer.
    may_grow: bool,
    /// Bytes consumed from its receive queue.
    fetched: Option<Unread>,
    /// Meanwhile urgent bytes are read like others.
    inline: Option<Changed<'a>>,
    /// More room than it had, until this is dropped.
    widened: Option<Widened>,
    /// Its peer has no descriptor any more, and still sends.
    sender_closed: bool,
    /// TCP_CORK and TCP_NODELAY as they were before the sender was made to send.
    pushed: Option<(i32, i32)>,
    outer: Option<Outer>,
}

fn come_to_rest(lines: &mut [Line<'_>]) -> Result<()> {
    let began = Instant::now();
    let mut orphans = Orphans::default();
    let (mut before, mut moved) = (0, began);
    loop {
        let mut busy: Option<usize> = None;
        let (mut left, waited) = (0, began.elapsed());
        for sender in 0..lines.len() {
            if !lines[sender].connected {
                continue;
            }
            let count = unacknowledged(lines[sender].probe)?;
            left += count;
            if count > 0 && is_waited_for(lines, sender, waited, moved.elapsed())? {
                busy = Some(sender);
            }
        }
        for (receiver, line) in lines.iter_mut().enumerate() {
            let Some(unread) = line.comes_from_closed()? else { continue };
            left += unread;
            if moved.elapsed() < SHUT_LIMIT {
                busy = busy.or(Some(receiver));
            }
        }
        for line in lines.iter_mut() {
            line.fetch()?;
        }
        let mut coming = false;
        for line in lines.iter_mut() {
            coming |= line.is_coming_in()?;
        }
        if busy.is_none() && coming && waited < LIMIT {
            std::thread::sleep(PAUSE);
            continue;
        }
        let Some(sender) = busy else {
            if lines.iter().any(|line| line.outer.is_some()) && orphans.still_send(began, LIMIT)? {
                std::thread::sleep(orphans::PAUSE);
                continue;
            }
            return Ok(());
        };
        if left != before {
            (before, moved) = (left, Instant::now());
        }
        if moved.elapsed() > LIMIT || waited > LONGEST {
            let probe = lines[sender].probe;
            return Err(EngineError::TooLong {
                what: format!(
                    "bytes sent by process {} ({}), descriptor {}, to arrive",
                    probe.pid, probe.comm, probe.fd
                ),
                limit_ms: waited.as_millis() as u64,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether bytes that a line has sent and nobody has acknowledged are waited for, after the time that all have waited
/// already; for so long now nothing has `moved`. What helps to have them acknowledged is done.
fn is_waited_for(
    lines: &mut [Line<'_>],
    sender: usize,
    waited: Duration,
    moved: Duration,
) -> Result<bool> {
    if lines[sender].outer.is_some() {
        return lines[sender].waits_for_outside(waited);
    }
    // To outside nothing is waited for, but a peer that is not accepted yet, or closed, answers
    // by itself within the delay of an acknowledgement.
    let Some(receiver) = lines[sender].peer else {
        return Ok(waited < Duration::from_millis(60));
    };
    lines[receiver].acknowledge_now();
    if waited > ACKNOWLEDGED_BY {
        lines[sender].push();
    }
    if waited < FULL_AFTER {
        return Ok(true);
    }
    if lines[sender].has_shut_down()? {
        lines[receiver].make_room()?;
        if moved > SHUT_LIMIT {
            return Err(soon(
                lines[sender].probe,
                "a TCP connection shut down behind more bytes than this machine has room for at its receiver",
                "they arrive as soon as the receiver reads: try again",
            ));
        }
        return Ok(true);
    }
    lines[receiver].begin_to_fetch()?;
    Ok(true)
}

fn put_back(lines: &[Line<'_>]) -> Result<()> {
    let mut all: Vec<Refill<'_>> = lines
        .iter()
        .filter_map(|line| {
            let sender = lines.get(line.peer?)?;
            let fetched = line.fetched.as_ref()?;
            Some(Refill {
                through: sender.probe.copy.as_fd(),
                to: line.probe.copy.as_fd(),
                bytes: &fetched.bytes,
                // One that the program has read is one like others to it.
                urgent: fetched
                    .urgent
                    .filter(|urgent| !urgent.read)
                    .map(|urgent| urgent.at as usize),
                may_grow: line.may_grow,
            })
        })
        .collect();
    // All of it was there before.
    refill(&mut all, PUT_BACK_LIMIT, PUT_BACK_PATIENCE)
}

impl Line<'_> {
    /// Makes the kernel send an acknowledgement that it has delayed (tcp(7), TCP_QUICKACK).
    fn acknowledge_now(&self) {
        // Only a hint: without it the acknowledgement comes 40 ms later.
        let _ = sockopt::set_int(&self.probe.copy, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
    }

    /// Makes the kernel send what Nagle's rule, TCP_CORK or MSG_MORE hold back.
    fn push(&mut self) {
        if self.pushed.is_some() {
            return;
        }
        let get = |name| sockopt::get_int(&self.probe.copy, libc::IPPROTO_TCP, name).unwrap_or(0);
        let before = (get(libc::TCP_CORK), get(libc::TCP_NODELAY));
        for (name, value) in [(libc::TCP_CORK, 0), (libc::TCP_NODELAY, 1)] {
            // Where it is refused the bytes leave by the kernel's own timer.
            let _ = sockopt::set_int(&self.probe.copy, libc::IPPROTO_TCP, name, value);
        }
        self.pushed = Some(before);
    }

    /// Gives it a larger receive buffer, once, and has its peer told.
    fn make_room(&mut self) -> Result<()> {
        if self.widened.is_none() {
            self.widened = Widened::new(&self.probe.copy)?;
        }
        tell_of_room(&self.probe.copy);
        Ok(())
    }

    /// How many bytes of a peer that is closed have arrived, if not all have.
    fn comes_from_closed(&mut self) -> Result<Option<usize>> {
        let more = self.sender_closed
            && matches!(
                i32::from(kernel_state(self.probe)?),
                diag::ESTABLISHED | diag::FIN_WAIT1 | diag::FIN_WAIT2
            );
        if !more {
            return Ok(None);
        }
        self.make_room()?;
        readable(self.probe).map(Some)
    }

    fn give_back_options(&self) {
        // Only a socket that was pushed has others than its own.
        let Some((cork, no_delay)) = self.pushed else { return };
        for (name, value) in [(libc::TCP_NODELAY, no_delay), (libc::TCP_CORK, cork)] {
            // These values were read from the same socket.
            let _ = sockopt::set_int(&self.probe.copy, libc::IPPROTO_TCP, name, value);
        }
    }

    fn has_shut_down(&self) -> Result<bool> {
        Ok(matches!(
            i32::from(kernel_state(self.probe)?),
            diag::FIN_WAIT1 | diag::FIN_WAIT2 | diag::LAST_ACK | diag::CLOSING
        ))
    }

    /// From now on what can be read is consumed. A mark among it would be lost by that.
    fn begin_to_fetch(&mut self) -> Result<()> {
        if self.fetched.is_none() {
            let socket = &self.probe.copy;
            if urgent::is_unread(socket)? || urgent::is_next(socket)? || urgent::hides(socket)? {
                return Err(in_flight(self.probe));
            }
            self.inline = Some(Changed::begin(self.probe.copy.as_fd(), libc::SO_OOBINLINE, 1)?);
            self.fetched = Some(Unread::default());
        }
        Ok(())
    }

    /// Consumes what can be read, where that was decided.
    fn fetch(&mut self) -> Result<()> {
        let Some(fetched) = &mut self.fetched else { return Ok(()) };
        let socket = self.probe.copy.as_fd();
        let _same_size = SameSize::hold(socket);
        let passes = self.inline.as_ref().is_some_and(|inline| inline.before() == 0);
        urgent::take(socket, fetched, passes).map(|_: Taken| ())
    }

    /// Whether bytes sent out of the instance are still to be waited for.
    fn waits_for_outside(&mut self, waited: Duration) -> Result<bool> {
        self.push();
        let left = unacknowledged(self.probe)?;
        let probe = self.probe;
        let Some(outer) = &mut self.outer else { return Ok(false) };
        if outer.unacknowledged != left || outer.changed.is_none() {
            outer.unacknowledged = left;
            outer.changed = Some(Instant::now());
        }
        let stuck = outer.changed.map_or(Duration::ZERO, |changed| changed.elapsed());
        match outer.peer {
            Whereabouts::Job if waited > LIMIT => Err(soon(
                probe,
                format!("{left} bytes sent to another node do not arrive"),
                "they arrive once that node's program reads or the network recovers: try again",
            )),
            Whereabouts::Job => Ok(true),
            _ if outer.in_flight => Ok(false),
            _ => {
                outer.in_flight = stuck > STRANGER_LIMIT || waited > LIMIT;
                Ok(!outer.in_flight)
            }
        }
    }

    /// Whether bytes from out of the instance still come in, as far as can be seen; their senders are
    /// told that they have arrived, and that there is room.
    fn is_coming_in(&mut self) -> Result<bool> {
        let probe = self.probe;
        let Some(outer) = &mut self.outer else { return Ok(false) };
        let unread = readable(probe)?;
        let first = outer.changed.is_none();
        if first || unread != outer.unread {
            outer.changed = Some(Instant::now());
            outer.unread = unread;
        }
        let quiet = outer.changed.is_some_and(|changed| changed.elapsed() > SILENCE);
        if !quiet {
            self.acknowledge_now();
            tell_of_room(&probe.copy);
        }
        Ok(!quiet)
    }

    fn rest(&mut self) -> Result<Rest> {
        match &self.outer {
            Some(outer) => Ok(Rest { in_flight: outer.in_flight, ..Rest::default() }),
            None => Ok(Rest { received: self.queue()?, in_flight: false }),
        }
    }

    /// All bytes that this socket's program has not read.
    fn queue(&mut self) -> Result<Unread> {
        if !self.has_queue {
            return Ok(Unread::default());
        }
        match &self.fetched {
            // It goes back as an urgent one, and its receiver may be told of it (SIGURG) once more.
            Some(fetched) if fetched.urgent.is_some() => Err(in_flight(self.probe)),
            Some(fetched) => Ok(fetched.clone()),
            None => {
                let plain =
                    !urgent::is_unread(&self.probe.copy)? && !urgent::is_next(&self.probe.copy)?;
                match plain.then(|| peek_plain(self.probe)).transpose()?.flatten() {
                    Some(bytes) => Ok(Unread { bytes, urgent: None }),
                    None => urgent::look(self.probe),
                }
            }
        }
    }
}

pub(super) fn in_flight(probe: &Probe) -> EngineError {
    soon(
        probe,
        "a TCP connection with an urgent byte (MSG_OOB) that is not read yet",
        "it is read soon: try again",
    )
}

fn readable(probe: &Probe) -> Result<usize> {
    sockopt::readable(&probe.copy)
        .map_err(|error| EngineError::system("ioctl FIONREAD", "a TCP socket", error))
}

/// All bytes in a receive queue without an urgent one, left where they are.
pub(super) fn peek(probe: &Probe) -> Result<Vec<u8>> {
    let socket = &probe.copy;
    if urgent::is_unread(socket)? || urgent::is_next(socket)? || urgent::hides(socket)? {
        return Err(in_flight(probe));
    }
    peek_plain(probe)?.ok_or_else(|| in_flight(probe))
}

/// All bytes in a receive queue, left where they are. `None`: there is a mark among them.
fn peek_plain(probe: &Probe) -> Result<Option<Vec<u8>>> {
    let count = readable(probe)?;
    if count == 0 {
        return Ok(Some(Vec::new()));
    }
    let mut bytes = vec![0u8; count];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    // A program's own offset (Linux 6.9) would be peeked from, and moved. Older kernels have none.
    let _offset = Changed::begin(probe.copy.as_fd(), libc::SO_PEEK_OFF, -1).ok();
    let got = recv(probe.copy.as_raw_fd(), &mut bytes, flags)
        .map_err(|errno| EngineError::system("peek at", "a TCP socket's queue", errno))?;
    Ok((got == count).then_some(bytes))
}

/// Bytes sent and not acknowledged by the peer's kernel.
pub(super) fn unacknowledged(probe: &Probe) -> Result<usize> {
    if matches!(i32::from(kernel_state(probe)?), diag::CLOSE | diag::LISTEN) {
        return Ok(0);
    }
    sockopt::unacknowledged(&probe.copy)
        .map_err(|error| EngineError::system("ioctl SIOCOUTQ", "a TCP socket", error))
}

/// Whether the connection of a socket without a peer is over, rather than never made.
pub(super) fn is_over(probe: &Probe) -> Result<bool> {
    Ok(poll_now(&probe.copy, libc::POLLRDHUP)? & libc::POLLRDHUP != 0)
}

/// Whether an error waits to be told.
pub(super) fn is_reset(probe: &Probe) -> Result<bool> {
    Ok(poll_now(&probe.copy, 0)? & libc::POLLERR != 0)
}

fn poll_now(fd: impl AsFd, wanted: i16) -> Result<i16> {
    poll_one(fd, wanted, Duration::ZERO)
        .map_err(|error| EngineError::system("poll", "a TCP socket", error))
}

/// Lets a restart on this machine have a socket's port at once: after a kill it is held in TIME_WAIT, which
/// another socket may share only if both have SO_REUSEADDR (net/ipv4/inet_connection_sock.c,
/// inet_bind_conflict). Connections inherit it from the socket that accepts them, so listeners, and
/// what is bound and may listen soon, need it as well. Two listeners can't share a port in any case.
pub(super) fn let_ports_be_reused(found: &Found<'_, TcpSocket>) -> Result<()> {
    if !found.object.holds_port() {
        return Ok(());
    }
    sockopt::set_int(&found.probe.copy, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
        .map_err(|error| EngineError::system("setsockopt", "SO_REUSEADDR of a TCP socket", error))
}
