//! Bytes back into connections, all of them in one loop: a receiver's window may only open
//! when another connection has made progress.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use socket2::{Domain, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::sockopt;
use super::super::socket_options::{SO_BUF_LOCK, set_receive_buffer, set_send_buffer};

/// Between two looks at connections that take nothing.
const PAUSE: Duration = Duration::from_micros(50);
/// After this long without a byte taken, the buffers of receivers that are new are made larger.
pub(super) const PATIENCE: Duration = Duration::from_millis(3);
/// Added to twice the bytes for what the kernel counts beside them (struct sk_buff).
const OVERHEAD: usize = 64 * 1024;

/// Bytes for one direction of a connection.
#[derive(Debug)]
pub(super) struct Refill<'a> {
    /// The sender's own socket.
    pub(super) through: BorrowedFd<'a>,
    /// The socket that receives them.
    pub(super) to: BorrowedFd<'a>,
    /// What it receives.
    pub(super) bytes: &'a [u8],
    /// The place of an urgent one among them.
    pub(super) urgent: Option<usize>,
    /// Whether the receiver's buffer may be made larger.
    pub(super) may_grow: bool,
}

impl Refill<'_> {
    /// Sends as much as the kernel takes at once: up to an urgent byte, that byte, or what is behind it.
    fn send(&mut self) -> nix::Result<()> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let (piece, flags) = match self.urgent {
            // The last byte of what is sent so is the urgent one.
            Some(0) => (self.bytes.get(..1), flags | MsgFlags::MSG_OOB),
            Some(at) => (self.bytes.get(..at), flags),
            None => (None, flags),
        };
        let count = send(self.through.as_raw_fd(), piece.unwrap_or(self.bytes), flags)?;
        self.bytes = self.bytes.get(count..).unwrap_or_default();
        self.urgent = self.urgent.and_then(|at| at.checked_sub(count));
        Ok(())
    }
}

/// Sends everything. The senders' buffers are made large enough first, as far as this machine
/// allows: then nothing has to wait for a window. `patience`: after that long without a byte taken, receivers' are, too.
///
/// # Errors
/// A connection is broken, or none has taken a byte for the limit.
pub(super) fn refill(all: &mut [Refill<'_>], limit: Duration, patience: Duration) -> Result<()> {
    let totals: Vec<usize> = all.iter().map(|one| one.bytes.len()).collect();
    let senders: Vec<Option<Size>> =
        all.iter().map(|one| widen(one.through, SEND, one.bytes.len())).collect();
    let mut receivers = Vec::new();
    let result = send_all(all, &totals, (limit, patience), &mut receivers);
    // None of these can fail with values that the same sockets had just told.
    for (one, before) in all.iter().zip(receivers) {
        if let Some(mark) = before.low_water {
            let _ = sockopt::set_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark);
        }
        before.size.inspect(|size| size.give_back(one.to));
    }
    for (one, before) in all.iter().zip(senders) {
        before.inspect(|size| size.give_back(one.through));
    }
    result
}

fn send_all(
    all: &mut [Refill<'_>],
    totals: &[usize],
    (limit, patience): (Duration, Duration),
    receivers: &mut Vec<Before>,
) -> Result<()> {
    let mut moved = Instant::now();
    loop {
        let mut left = 0;
        let mut progress = false;
        for one in all.iter_mut().filter(|one| !one.bytes.is_empty()) {
            match one.send() {
                Ok(()) => progress = true,
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(EngineError::system("send", "bytes in flight", errno)),
            }
            left += one.bytes.len();
        }
        if left == 0 {
            return Ok(());
        }
        if progress {
            moved = Instant::now();
            continue;
        }
        if receivers.is_empty() && moved.elapsed() > patience {
            *receivers = all.iter().zip(totals).map(|(one, total)| grow(one, *total)).collect();
        }
        if moved.elapsed() > limit {
            return Err(EngineError::Unfit {
                what: format!(
                    "{left} bytes in flight do not fit into this machine's socket buffers"
                ),
                way_out: "raise net.core.wmem_max and net.ipv4.tcp_rmem".into(),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Which of a socket's buffers.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    option: i32,
    set: fn(BorrowedFd<'_>, i32),
}

const SEND: Buffer =
    Buffer { option: libc::SO_SNDBUF, set: |socket, bytes| set_send_buffer(socket, bytes) };
const RECEIVE: Buffer =
    Buffer { option: libc::SO_RCVBUF, set: |socket, bytes| set_receive_buffer(socket, bytes) };

/// A buffer's size before it was made larger.
#[derive(Debug)]
struct Size {
    buffer: Buffer,
    bytes: i32,
    lock: Option<i32>,
}

impl Size {
    /// Bytes that stand in the buffer already stay, whatever its size.
    fn give_back(&self, socket: BorrowedFd<'_>) {
        (self.buffer.set)(socket, self.bytes);
        if let Some(lock) = self.lock {
            let _ = sockopt::set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock);
        }
    }
}

/// Makes a buffer large enough for so many bytes, if it is not, as far as this machine allows.
fn widen(socket: BorrowedFd<'_>, buffer: Buffer, bytes: usize) -> Option<Size> {
    let wanted = bytes.saturating_mul(2).saturating_add(OVERHEAD);
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX / 2);
    let now = sockopt::get_int(socket, libc::SOL_SOCKET, buffer.option).ok()?;
    if bytes == 0 || now >= wanted {
        return None;
    }
    let lock = sockopt::get_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK).ok();
    let before = Size { buffer, bytes: now, lock };
    // Without privilege the machine's limit may lie below what tuning had reached: a smaller size
    // could not be taken back, so it is tried on a socket that nobody needs.
    if largest(buffer).is_some_and(|largest| largest <= now) {
        return None;
    }
    (buffer.set)(socket, wanted);
    Some(before)
}

/// The largest size that this process may ask for.
fn largest(buffer: Buffer) -> Option<i32> {
    let trial = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    (buffer.set)(trial.as_fd(), i32::MAX / 2);
    sockopt::get_int(trial.as_fd(), libc::SOL_SOCKET, buffer.option).ok()
}

/// What [`grow`] has to give back.
#[derive(Debug, Default)]
struct Before {
    low_water: Option<i32>,
    size: Option<Size>,
}

/// Makes room at a receiver, without privilege: its low-water mark raises its buffer as far as
/// tcp_rmem allows (net/ipv4/tcp.c, tcp_set_rcvlowat), unless the program chose its size.
fn grow(one: &Refill<'_>, total: usize) -> Before {
    let mut before = Before::default();
    if one.bytes.is_empty() {
        return before;
    }
    if one.may_grow {
        let wanted = i32::try_from(total.saturating_add(OVERHEAD)).unwrap_or(i32::MAX / 2);
        before.low_water = sockopt::get_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT).ok();
        // Where it is refused there is only less room.
        let _ = sockopt::set_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT, wanted);
    } else {
        before.size = widen(one.to, RECEIVE, total);
    }
    before
}
