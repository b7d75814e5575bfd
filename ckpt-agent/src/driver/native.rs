//! A descriptor of a job's stream, pipe, terminal or socket, read and written without ever making the
//! agent wait.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use nix::sys::stat::{SFlag, fstat};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor and how it is read and written.
#[derive(Debug)]
pub struct Native {
    io: Io,
    is_socket: bool,
}

#[derive(Debug)]
enum Io {
    /// epoll(7) tells when it is ready.
    Watched(AsyncFd<OwnedFd>),
    /// A regular file or the like, which is always ready (epoll_ctl(2): EPERM).
    Ready(OwnedFd),
}

/// For which direction a descriptor is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To be read.
    Read,
    /// To be written.
    Write,
    /// Both.
    Both,
}

impl Native {
    /// Of a descriptor whose open file description is ours alone: its flags are changed. Must be called
    /// within the event loop.
    ///
    /// # Errors
    /// As fcntl(2), epoll_ctl(2).
    pub fn own(fd: OwnedFd) -> io::Result<Self> {
        let kind = SFlag::from_bits_truncate(fstat(&fd)?.st_mode as libc::mode_t) & SFlag::S_IFMT;
        let is_socket = kind == SFlag::S_IFSOCK;
        if !is_socket {
            let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL)?);
            fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Self::watch(fd, is_socket)
    }

    /// Of a descriptor that others have, too, whose flags must stay as they are: opened once more through
    /// /proc, which gives a description of its own (proc(5)). Sockets cannot be; each call on them
    /// says for itself that it must not wait.
    ///
    /// # Errors
    /// As open(2), epoll_ctl(2).
    pub fn shared(fd: OwnedFd, direction: Direction) -> io::Result<Self> {
        let kind = SFlag::from_bits_truncate(fstat(&fd)?.st_mode as libc::mode_t) & SFlag::S_IFMT;
        if kind == SFlag::S_IFSOCK {
            return Self::watch(fd, true);
        }
        if kind == SFlag::S_IFREG {
            // Its offset is shared with the others, and it never waits.
            return Ok(Self { io: Io::Ready(fd), is_socket: false });
        }
        let own = OpenOptions::new()
            .read(direction != Direction::Write)
            .write(direction != Direction::Read)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        Self::watch(own.into(), false)
    }

    fn watch(fd: OwnedFd, is_socket: bool) -> io::Result<Self> {
        let copy = fd.try_clone()?;
        // Its objection is to types whose descriptor may go before they do; an OwnedFd's does not. What it
        // proposes is unsafe, which has no place here.
        #[allow(deprecated)]
        let io = match AsyncFd::with_interest(fd, Interest::READABLE | Interest::WRITABLE) {
            Ok(watched) => Io::Watched(watched),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Io::Ready(copy),
            Err(error) => return Err(error),
        };
        Ok(Self { io, is_socket })
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        match &self.io {
            Io::Watched(watched) => watched.get_ref(),
            Io::Ready(fd) => fd,
        }
    }

    /// Waits for bytes, or for one message. 0: the end.
    ///
    /// # Errors
    /// As read(2), recv(2). EIO: nobody has a terminal's other side open.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.io {
            Io::Watched(watched) => {
                watched.async_io(Interest::READABLE, |fd| self.read_now(fd, buffer)).await
            }
            Io::Ready(fd) => self.read_now(fd, buffer),
        }
    }

    /// Whether a read may find something; if not, the task is woken when it does.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> bool {
        match &self.io {
            Io::Watched(watched) => match watched.poll_read_ready(context) {
                Poll::Ready(Ok(mut guard)) => {
                    if self.has_something() {
                        return true;
                    }
                    guard.clear_ready();
                    // Registers again; what came in between makes it ready at once.
                    watched.poll_read_ready(context).is_ready()
                }
                Poll::Ready(Err(_)) => true,
                Poll::Pending => false,
            },
            Io::Ready(_) => true,
        }
    }

    fn has_something(&self) -> bool {
        let mut polled = [PollFd::new(self.fd().as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Reads what is there. [`ErrorKind::WouldBlock`]: nothing.
    ///
    /// # Errors
    /// As [`Native::read`].
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_now(self.fd(), buffer)
    }

    fn read_now(&self, fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| match self.is_socket {
            true => recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT),
            false => nix::unistd::read(fd, buffer),
        })
    }

    /// Waits until some of the bytes could be written; how many.
    ///
    /// # Errors
    /// As write(2), send(2).
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.io {
            Io::Watched(watched) => {
                watched.async_io(Interest::WRITABLE, |fd| self.write_now(fd, bytes)).await
            }
            Io::Ready(fd) => self.write_now(fd, bytes),
        }
    }

    /// Writes what fits. [`ErrorKind::WouldBlock`]: nothing.
    ///
    /// # Errors
    /// As [`Native::write`].
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_now(self.fd(), bytes)
    }

    fn write_now(&self, fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        retry(|| match self.is_socket {
            true => send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
            false => nix::unistd::write(fd.as_fd(), bytes),
        })
    }

    /// The other side of a socket is to see the end. Others show it by being dropped.
    pub fn end_writing(&self) {
        if self.is_socket {
            // The other side may have gone already.
            let _ = shutdown(self.fd().as_raw_fd(), Shutdown::Write);
        }
    }
}

fn retry(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}
