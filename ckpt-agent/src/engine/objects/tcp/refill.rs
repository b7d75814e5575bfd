//! Bytes back into connections, all of them in one loop: a receiver's window may only open
//! when another connection has made progress.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::sockopt;
use super::super::socket_options::{SO_BUF_LOCK, set_send_buffer};

/// Between two looks at connections that take nothing.
const PAUSE: Duration = Duration::from_micros(50);
/// After this long without a byte taken, buffers are made larger.
const PATIENCE: Duration = Duration::from_millis(3);

/// Bytes for one direction of a connection.
#[derive(Debug)]
pub(super) struct Refill<'a> {
    /// The sender's own socket.
    pub(super) through: BorrowedFd<'a>,
    /// The socket that receives them.
    pub(super) to: BorrowedFd<'a>,
    /// What it receives.
    pub(super) bytes: &'a [u8],
    /// Whether the receiver's buffer may be made larger.
    pub(super) may_grow: bool,
}

/// Sends everything.
///
/// # Errors
/// A connection is broken, or takes no more within the limit.
pub(super) fn refill(all: &mut [Refill<'_>], limit: Duration) -> Result<()> {
    let began = Instant::now();
    let mut moved = Instant::now();
    let mut grown = false;
    let mut before: Vec<Before> = Vec::new();
    let result = loop {
        let mut left = 0;
        let mut progress = false;
        for one in all.iter_mut().filter(|one| !one.bytes.is_empty()) {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(one.through.as_raw_fd(), one.bytes, flags) {
                Ok(count) => {
                    one.bytes = one.bytes.get(count..).unwrap_or_default();
                    progress = true;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(EngineError::system("send", "bytes in flight", errno)),
            }
            left += one.bytes.len();
        }
        if left == 0 {
            break Ok(());
        }
        if progress {
            moved = Instant::now();
            continue;
        }
        if !grown && moved.elapsed() > PATIENCE {
            grown = true;
            before = all.iter().map(grow).collect();
        }
        if began.elapsed() > limit {
            break Err(EngineError::Unfit {
                what: format!(
                    "{left} bytes in flight do not fit into this machine's socket buffers"
                ),
                way_out: "raise net.core.wmem_max and net.ipv4.tcp_rmem".into(),
            });
        }
        std::thread::sleep(PAUSE);
    };
    // Neither can fail with values that the same sockets had just told.
    for (one, before) in all.iter().zip(before) {
        if let Some(mark) = before.low_water {
            let _ = sockopt::set_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark);
        }
        if let Some(lock) = before.send_lock {
            let _ = sockopt::set_int(one.through, libc::SOL_SOCKET, SO_BUF_LOCK, lock);
        }
    }
    result
}

/// What [`grow`] has to give back.
#[derive(Debug, Default)]
struct Before {
    low_water: Option<i32>,
    send_lock: Option<i32>,
}

/// Makes room on both sides, without privilege: a receiver's low-water mark raises its buffer
/// as far as tcp_rmem allows (net/ipv4/tcp.c, tcp_set_rcvlowat).
fn grow(one: &Refill<'_>) -> Before {
    let mut before = Before::default();
    if one.bytes.is_empty() {
        return before;
    }
    let wanted = i32::try_from(one.bytes.len().saturating_mul(2)).unwrap_or(i32::MAX / 2);
    let now = sockopt::get_int(one.through, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(i32::MAX);
    if now < wanted {
        before.send_lock = sockopt::get_int(one.through, libc::SOL_SOCKET, SO_BUF_LOCK).ok();
        set_send_buffer(one.through, wanted);
        // The machine's limit may lie below the size that tuning had reached.
        let after = sockopt::get_int(one.through, libc::SOL_SOCKET, libc::SO_SNDBUF);
        if after.is_ok_and(|after| after < now) {
            set_send_buffer(one.through, now);
        }
    }
    if one.may_grow {
        before.low_water = sockopt::get_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT).ok();
        // Where it is refused there is only less room.
        let _ = sockopt::set_int(one.to, libc::SOL_SOCKET, libc::SO_RCVLOWAT, wanted);
    }
    before
}
