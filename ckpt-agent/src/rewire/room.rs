//! Receive buffers that take a whole queue without being read.

use std::os::fd::AsFd;

use ckpt_engine::sys::sockopt;

/// SO_BUF_LOCK (Linux 5.14): bit 2 keeps the kernel from tuning the receive buffer.
const SO_BUF_LOCK: i32 = 72;
/// A fresh connection takes as much as it is.
const ALWAYS_FITS: usize = 16 * 1024;
/// Added for what the kernel counts beside the bytes.
const OVERHEAD: usize = 128 * 1024;

/// A receive buffer that was made larger.
#[derive(Debug, Default)]
pub(super) struct Widened {
    /// SO_RCVBUF and SO_BUF_LOCK before.
    size: Option<(i32, i32)>,
}

impl Widened {
    /// Makes room for so many unread bytes, as far as this machine allows; leaves it to the kernel where
    /// that is enough.
    pub(super) fn for_bytes(socket: impl AsFd, bytes: usize) -> Self {
        if bytes <= ALWAYS_FITS {
            return Self::default();
        }
        // Small packets take several times the room of their bytes; the kernel doubles this once more.
        let wanted = bytes.saturating_mul(2).saturating_add(OVERHEAD);
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX / 2).min(i32::MAX / 2);
        let get = |name| sockopt::get_int(&socket, libc::SOL_SOCKET, name).unwrap_or(0);
        let before = (get(libc::SO_RCVBUF), get(SO_BUF_LOCK));
        let set = |name, value| sockopt::set_int(&socket, libc::SOL_SOCKET, name, value).is_ok();
        if set(libc::SO_RCVBUFFORCE, wanted) {
            return Self { size: Some(before) };
        }
        // Without privilege the low-water mark raises the buffer as far as tcp_rmem allows, which is
        // farther than SO_RCVBUF does (net/ipv4/tcp.c, tcp_set_rcvlowat), and there it stays. The mark
        // itself would keep readers waiting.
        let mark = i32::try_from(bytes.saturating_add(OVERHEAD)).unwrap_or(i32::MAX / 2);
        set(libc::SO_RCVLOWAT, mark);
        set(libc::SO_RCVLOWAT, 1);
        Self::default()
    }

    /// Makes the kernel tell the peer of room that it was not told of: a look at the queue does
    /// (net/ipv4/tcp.c, tcp_cleanup_rbuf).
    pub(super) fn offer(&self, socket: impl AsFd) {
        use std::os::fd::AsRawFd;
        let flags = nix::sys::socket::MsgFlags::MSG_PEEK | nix::sys::socket::MsgFlags::MSG_DONTWAIT;
        // Nothing there is no failure.
        let _ = nix::sys::socket::recv(socket.as_fd().as_raw_fd(), &mut [0], flags);
    }

    /// The kernel goes on tuning; bytes that are there stay.
    pub(super) fn give_back(self, socket: impl AsFd) {
        let set = |name, value| {
            // These values come from the same socket, or are the kernel's defaults.
            let _ = sockopt::set_int(&socket, libc::SOL_SOCKET, name, value);
        };
        if let Some((size, lock)) = self.size {
            set(libc::SO_RCVBUFFORCE, size / 2);
            set(SO_BUF_LOCK, lock);
        }
    }
}
