//! The urgent byte of a connection (tcp(7), MSG_OOB): at most one that is not passed yet, with its place among the others.
//!
//! The kernel keeps it in the queue like any other, and a mark beside it: whoever reads stops there, and passes over it
//! (net/ipv4/tcp.c, tcp_recvmsg_locked). With SO_OOBINLINE nothing is passed over, so that is on while a queue is looked
//! at. A second look, behind the mark, begins at an offset (SO_PEEK_OFF, for TCP since Linux 6.9).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde::{Deserialize, Serialize};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::changed::Changed;
use super::{Probe, soon};

/// How long an urgent byte may take to arrive that was sent within this machine.
const ARRIVES_BY: Duration = Duration::from_secs(2);
/// Bytes taken out by one call.
const PIECE: usize = 256 * 1024;

/// An urgent byte among those of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urgent {
    /// Its place.
    pub at: u32,
    /// The program has read it already (MSG_OOB); the mark is still ahead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
}

/// What stands in a receive queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unread {
    /// All bytes, the urgent one among them.
    pub(super) bytes: Vec<u8>,
    /// Which is urgent.
    pub(super) urgent: Option<Urgent>,
}

/// Sees that an urgent byte of an image is one of so many.
///
/// # Errors
/// It is none.
pub(super) fn check(urgent: Option<Urgent>, bytes: usize) -> Result<()> {
    match urgent {
        Some(Urgent { at, .. }) if at as usize >= bytes => {
            Err(EngineError::Damaged(format!("an urgent byte at {at} of {bytes}")))
        }
        _ => Ok(()),
    }
}

/// Whether an urgent byte is there that its program has not read.
pub(super) fn is_unread(socket: impl AsFd) -> Result<bool> {
    let ready = poll_one(socket, libc::POLLPRI, Duration::ZERO)
        .map_err(|error| EngineError::system("poll", "a TCP socket", error))?;
    Ok(ready & libc::POLLPRI != 0)
}

/// Whether the next byte to be read is urgent, or was read as such.
pub(super) fn is_next(socket: impl AsFd) -> Result<bool> {
    sockopt::at_mark(socket)
        .map_err(|error| EngineError::system("ioctl SIOCATMARK", "a TCP socket", error))
}

/// Whether bytes stand behind a mark whose byte was read apart: a program that does not read such bytes inline is told of those
/// before it alone (net/ipv4/tcp.c, tcp_inq()).
pub(super) fn hides(socket: impl AsFd) -> Result<bool> {
    let socket = socket.as_fd();
    let count = || {
        sockopt::readable(socket)
            .map_err(|error| EngineError::system("ioctl FIONREAD", "a TCP socket", error))
    };
    let inline = Changed::begin(socket, libc::SO_OOBINLINE, 1)?;
    let all = count()?;
    drop(inline);
    // In this order: what arrives in between is no mark.
    Ok(count()? < all)
}

/// Looks at a queue with an urgent byte in it, or in which one is suspected. Everything is left where it is.
///
/// # Errors
/// Refusals: it is announced and not there yet; what is behind it can't be looked at.
pub(super) fn look(probe: &Probe) -> Result<Unread> {
    let socket = probe.copy.as_fd();
    let is_read = !is_unread(socket)?;
    let inline = Changed::begin(socket, libc::SO_OOBINLINE, 1)?;
    let system = |call, error| EngineError::system(call, "a TCP socket's queue", error);
    let count = sockopt::readable(socket).map_err(|error| system("ioctl FIONREAD", error))?;
    let offset = Changed::begin(socket, libc::SO_PEEK_OFF, 0).ok();
    let mut queue = Unread::default();
    let mut at = is_next(socket)?.then_some(0);
    while queue.bytes.len() < count {
        let mut piece = vec![0; count - queue.bytes.len()];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let got = match recv(socket.as_raw_fd(), &mut piece, flags) {
            Ok(got) if got > 0 => got,
            Err(Errno::EINTR) => continue,
            Ok(_) | Err(Errno::EAGAIN) => break,
            Err(errno) => return Err(system("peek at", errno.into())),
        };
        queue.bytes.extend_from_slice(piece.get(..got).unwrap_or_default());
        if queue.bytes.len() < count {
            at = at.or(Some(queue.bytes.len()));
            if offset.is_none() {
                break;
            }
        }
    }
    drop((offset, inline));
    let Some(at) = at else { return Ok(queue) };
    if at >= count {
        return Err(soon(
            probe,
            "a TCP connection with urgent data in flight",
            "it is read soon: try again",
        ));
    }
    if queue.bytes.len() < count {
        // The byte alone can be looked at on older kernels, too, unless it is to be read like any other.
        queue.bytes.extend(alone(socket).filter(|_| queue.bytes.len() + 1 == count));
    }
    if queue.bytes.len() < count {
        return Err(soon(
            probe,
            "a TCP connection with bytes behind an urgent one (MSG_OOB), which this kernel does not show",
            "it is read soon: try again, or use Linux 6.9 or newer",
        ));
    }
    queue.urgent = Some(Urgent { at: at as u32, read: is_read });
    Ok(queue)
}

/// The urgent byte, left where it is.
fn alone(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0];
    let flags = MsgFlags::MSG_OOB | MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let got = recv(socket.as_raw_fd(), &mut byte, flags);
    (got == Ok(1)).then_some(byte[0])
}

/// How taking bytes out of a queue has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// There are none for now.
    All,
    /// There will be none any more.
    End,
}

/// Takes all bytes out of the queue of a socket that has SO_OOBINLINE on. Of several urgent bytes the last one counts, as
/// for whoever had not read any of them. `passes`: whether the program, which has read it, would not read it again.
///
/// # Errors
/// As recv(2).
pub(super) fn take(
    socket: BorrowedFd<'_>,
    queue: &mut Unread,
    passes: bool,
) -> std::result::Result<Taken, EngineError> {
    let system = |call, error| EngineError::system(call, "bytes in flight", error);
    loop {
        // In this order: the kernel marks an urgent byte before it puts it into the queue (net/ipv4/tcp_input.c,
        // tcp_rcv_established), so of what is counted here the mark is there, and no more than that is taken.
        let ready = sockopt::readable(socket).map_err(|error| system("ioctl FIONREAD", error))?;
        if ready == 0 {
            match recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Ok(Taken::End),
                Err(Errno::EAGAIN) => return Ok(Taken::All),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(errno) => return Err(system("receive", errno.into())),
            }
        }
        let (is_marked, is_read) = (is_next(socket)?, !is_unread(socket)?);
        // The byte alone, where it is to be left out.
        let left_out = is_marked && is_read && passes;
        let mut piece = vec![0; if left_out { 1 } else { ready.min(PIECE) }];
        match recv(socket.as_raw_fd(), &mut piece, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Ok(Taken::End),
            Ok(_) if left_out => {}
            Ok(count) => {
                if is_marked {
                    queue.urgent = Some(Urgent { at: queue.bytes.len() as u32, read: is_read });
                }
                queue.bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
            }
            Err(Errno::EAGAIN) => return Ok(Taken::All),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("receive", errno.into())),
        }
    }
}

/// Waits until an urgent byte is there that was sent, and reads it where the program had.
///
/// # Errors
/// It does not come.
pub(super) fn arrive(socket: BorrowedFd<'_>, urgent: Urgent) -> Result<()> {
    let ready = poll_one(socket, libc::POLLPRI, ARRIVES_BY)
        .map_err(|error| EngineError::system("poll", "a TCP socket", error))?;
    if ready & libc::POLLPRI == 0 {
        return Err(EngineError::TooLong {
            what: "an urgent byte (MSG_OOB) to arrive".into(),
            limit_ms: ARRIVES_BY.as_millis() as u64,
        });
    }
    if urgent.read {
        recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_OOB | MsgFlags::MSG_DONTWAIT)
            .map_err(|errno| EngineError::system("receive", "an urgent byte", errno))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::send;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn put(mut sender: &TcpStream, before: &[u8], urgent: u8, behind: &[u8]) {
        sender.set_nodelay(true).unwrap();
        sender.write_all(before).unwrap();
        send(sender.as_raw_fd(), &[urgent], MsgFlags::MSG_OOB).unwrap();
        sender.write_all(behind).unwrap();
        while sockopt::unacknowledged(sender).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    /// What is taken out, and whether the end has come.
    fn taken(receiver: &TcpStream, passes: bool) -> (Unread, bool) {
        let mut all = Unread::default();
        let inline = Changed::begin(receiver.as_fd(), libc::SO_OOBINLINE, 1).unwrap();
        let end = take(receiver.as_fd(), &mut all, passes).unwrap() == Taken::End;
        assert_eq!(inline.before(), 0);
        drop(inline);
        assert_eq!(sockopt::get_int(receiver, libc::SOL_SOCKET, libc::SO_OOBINLINE).unwrap(), 0);
        (all, end)
    }

    #[test]
    fn the_last_of_several_counts() {
        let (sender, receiver) = pair();
        put(&sender, b"one", b'A', b"two");
        put(&sender, b"three", b'B', b"four");
        drop(sender);
        let (all, end) = taken(&receiver, true);
        assert_eq!(all.bytes, b"oneAtwothreeBfour");
        assert_eq!((all.urgent, end), (Some(Urgent { at: 12, read: false }), true));
    }

    #[test]
    fn one_that_was_read_is_not_read_again() {
        for (passes, bytes) in [(true, &b"beforebehind"[..]), (false, b"beforeRbehind")] {
            let (sender, receiver) = pair();
            put(&sender, b"before", b'R', b"behind");
            arrive(receiver.as_fd(), Urgent { at: 6, read: true }).unwrap();
            assert!(!is_unread(&receiver).unwrap() && !is_next(&receiver).unwrap());
            let (all, end) = taken(&receiver, passes);
            assert_eq!((all.bytes.as_slice(), end), (bytes, false));
            let known = (!passes).then_some(Urgent { at: 6, read: true });
            assert_eq!(all.urgent, known);
        }
    }

    #[test]
    fn a_place_behind_all_bytes_is_damage() {
        assert!(check(None, 0).is_ok());
        let urgent = Urgent { at: 3, read: false };
        assert!(check(Some(urgent), 4).is_ok());
        assert!(check(Some(urgent), 3).is_err());
    }
}
