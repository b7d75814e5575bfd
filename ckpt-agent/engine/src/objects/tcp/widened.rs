//! Receive buffers made large enough for all that a peer may still have to send, while nobody
//! reads. Without it a peer in another instance could never get rid of what is behind a full window,
//! and only its own instance can put bytes back that were fetched here. Nor can anybody put back what was fetched
//! from a peer that has shut down, or is closed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{MsgFlags, recv};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::sockopt;
use super::super::socket_options::{SO_BUF_LOCK, set_receive_buffer};

/// ObjectKind for what is behind a window, as the receiver counts it. A sender's buffer is at most
/// tcp_wmem's last number (4 MiB) or wmem_max, bytes and administration together; packets as they
/// arrive may take twice the room.
const BACKLOG: i32 = 16 << 20;

/// SOCK_RCVBUF_LOCK (include/uapi/linux/socket.h).
const RECEIVE_LOCK: i32 = 2;

/// A socket whose receive buffer the kernel does not make larger by itself, until this is dropped: to it, whoever reads much at once
/// is a fast reader (net/ipv4/tcp_input.c, tcp_rcv_space_adjust), and each checkpoint would let more come to be in flight.
#[derive(Debug)]
pub(super) struct SameSize<'a>(Option<(BorrowedFd<'a>, i32)>);

impl<'a> SameSize<'a> {
    /// From now on; before Linux 5.14, which has no such option, never.
    pub(super) fn hold(socket: BorrowedFd<'a>) -> Self {
        let lock = sockopt::get_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK);
        let held = lock.ok().filter(|lock| lock & RECEIVE_LOCK == 0).filter(|lock| {
            sockopt::set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock | RECEIVE_LOCK).is_ok()
        });
        Self(held.map(|lock| (socket, lock)))
    }
}

impl Drop for SameSize<'_> {
    fn drop(&mut self) {
        if let Some((socket, lock)) = self.0 {
            // The same socket has just told it.
            let _ = sockopt::set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock);
        }
    }
}

/// A socket whose receive buffer was made larger, until this is dropped.
#[derive(Debug)]
pub struct Widened {
    socket: OwnedFd,
    before: Before,
}

#[derive(Debug)]
enum Before {
    /// SO_RCVBUF, SO_BUF_LOCK and TCP_WINDOW_CLAMP.
    Size(i32, i32, Option<i32>),
    /// SO_RCVBUF, SO_BUF_LOCK and SO_RCVLOWAT.
    Chosen(i32, i32, i32),
    /// SO_RCVLOWAT.
    LowWater(i32),
}

/// Whether the kernel takes it as the largest window.
fn set_clamp(socket: impl AsFd, bytes: i32) -> bool {
    sockopt::set_int(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes).is_ok()
}

impl Widened {
    /// Makes a socket's receive buffer larger, as far as this machine allows.
    ///
    /// # Errors
    /// No descriptor left.
    pub(super) fn new(socket: impl AsFd) -> Result<Option<Self>> {
        let get = |name| sockopt::get_int(&socket, libc::SOL_SOCKET, name);
        let set = |name, value| sockopt::set_int(&socket, libc::SOL_SOCKET, name, value).is_ok();
        let Ok(size) = get(libc::SO_RCVBUF) else { return Ok(None) };
        let copy = socket
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| EngineError::system("dup", "a TCP socket", error))?;
        // The kernel doubles what it is given (socket(7)).
        let wanted = size.saturating_add(BACKLOG) / 2;
        if let Ok(lock) = get(SO_BUF_LOCK) {
            if set(libc::SO_RCVBUFFORCE, wanted) {
                // A small size that the program chose has made the largest window small, too: what comes through that
                // comes too slowly (net/ipv4/tcp_input.c, tcp_measure_rcv_mss).
                let clamp =
                    sockopt::get_int(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).ok();
                let clamp = clamp.filter(|&clamp| clamp < wanted && set_clamp(&socket, wanted));
                let before = Before::Size(size, lock, clamp);
                return Ok(Some(Self { socket: copy, before }));
            }
            // Without privilege: as far as the program itself could have chosen, and then as far as the kernel, which the
            // program's choice keeps from it.
            if lock & RECEIVE_LOCK != 0 {
                let Ok(mark) = get(libc::SO_RCVLOWAT) else { return Ok(None) };
                set(libc::SO_RCVBUF, wanted);
                set(SO_BUF_LOCK, lock & !RECEIVE_LOCK);
                set(libc::SO_RCVLOWAT, size.saturating_add(BACKLOG));
                let before = Before::Chosen(size, lock, mark);
                return Ok(Some(Self { socket: copy, before }));
            }
        }
        // Where the kernel chooses: as far as tcp_rmem allows (net/ipv4/tcp.c, tcp_set_rcvlowat).
        let Ok(mark) = get(libc::SO_RCVLOWAT) else { return Ok(None) };
        Ok(set(libc::SO_RCVLOWAT, size.saturating_add(BACKLOG))
            .then_some(Self { socket: copy, before: Before::LowWater(mark) }))
    }
}

impl Drop for Widened {
    fn drop(&mut self) {
        let set = |name, value| {
            // These values were read from the same socket. Bytes beyond the size stay.
            let _ = sockopt::set_int(&self.socket, libc::SOL_SOCKET, name, value);
        };
        match self.before {
            Before::Size(size, lock, clamp) => {
                if let Some(clamp) = clamp {
                    set_clamp(&self.socket, clamp);
                }
                set_receive_buffer(&self.socket, size);
                set(SO_BUF_LOCK, lock);
            }
            Before::Chosen(size, lock, mark) => {
                set(libc::SO_RCVLOWAT, mark);
                set_receive_buffer(&self.socket, size);
                set(SO_BUF_LOCK, lock);
            }
            Before::LowWater(mark) => set(libc::SO_RCVLOWAT, mark),
        }
    }
}

/// Makes the kernel tell a peer of room that it was not told of: a look at the queue makes it compare
/// (net/ipv4/tcp.c, tcp_cleanup_rbuf).
pub(super) fn tell_of_room(socket: impl AsFd) {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    // An empty queue is no failure: its window is open.
    let _ = recv(socket.as_fd().as_raw_fd(), &mut [0], flags);
}
