//! The calls in question, made by the init on a copy of a process's descriptor: they carry the word that passes
//! the filter.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use protocol::cluster::addresses::PortRange;

use super::super::sys::sockopt;
use super::filter::Pass;
use super::sockaddr;

/// A socket's address, as its family shows it.
type Told = Result<SocketAddr, Errno>;

impl Pass {
    /// bind(2).
    pub fn bind(self, fd: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
        self.with_address(libc::SYS_bind, fd, address)
    }

    /// Binds to a port that tells whose connections come from there; where none is left, to any. `next`: where the
    /// search begins.
    pub fn bind_in(
        self,
        fd: BorrowedFd<'_>,
        source: PortRange,
        next: &mut u16,
        at: impl Fn(u16) -> Option<Vec<u8>>,
    ) -> Result<(), Errno> {
        // Two sockets with SO_REUSEADDR get the same port as long as neither listens (socket(7)): each is to have its own.
        let option = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
        let reuses = sockopt::get_int(fd, option.0, option.1).is_ok_and(|reuses| reuses != 0);
        let reuse = |on: i32| sockopt::set_int(fd, option.0, option.1, on);
        if reuses {
            let _ = reuse(0);
        }
        let bound = self.bind_first_free(fd, source, next, at);
        if reuses {
            let _ = reuse(1);
        }
        bound
    }

    fn bind_first_free(
        self,
        fd: BorrowedFd<'_>,
        source: PortRange,
        next: &mut u16,
        at: impl Fn(u16) -> Option<Vec<u8>>,
    ) -> Result<(), Errno> {
        for _ in 0..source.count {
            let port = source.first + *next % source.count;
            *next = next.wrapping_add(1);
            let address = at(port).ok_or(Errno::EADDRNOTAVAIL)?;
            match self.bind(fd, &address) {
                Err(Errno::EADDRINUSE) => {}
                other => return other,
            }
        }
        self.bind(fd, &at(0).ok_or(Errno::EADDRNOTAVAIL)?)
    }

    /// connect(2).
    pub fn connect(self, fd: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
        self.with_address(libc::SYS_connect, fd, address)
    }

    fn with_address(
        self,
        call: libc::c_long,
        fd: BorrowedFd<'_>,
        address: &[u8],
    ) -> Result<(), Errno> {
        // SAFETY: the kernel reads `address.len()` bytes of a live slice.
        let answer = unsafe {
            libc::syscall(call, fd.as_raw_fd(), address.as_ptr(), address.len(), 0, 0, self.word())
        };
        Errno::result(answer).map(drop)
    }

    /// listen(2).
    pub fn listen(self, fd: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
        // SAFETY: takes numbers only.
        let answer = unsafe {
            libc::syscall(libc::SYS_listen, fd.as_raw_fd(), backlog, 0, 0, 0, self.word())
        };
        Errno::result(answer).map(drop)
    }

    /// accept4(2), without waiting. The new descriptor is close-on-exec; `flags`: SOCK_NONBLOCK.
    pub fn accept(self, fd: BorrowedFd<'_>, flags: i32) -> Result<OwnedFd, Errno> {
        let flags = flags | libc::SOCK_CLOEXEC;
        let nobody = std::ptr::null::<u8>();
        let made = without_waiting(fd, || {
            // SAFETY: takes numbers and null pointers only.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_accept4,
                    fd.as_raw_fd(),
                    nobody,
                    nobody,
                    flags,
                    0,
                    self.word(),
                )
            };
            Errno::result(answer)
        })?;
        // SAFETY: the kernel just made this descriptor for us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
    }

    /// getsockname(2).
    pub fn local(self, fd: BorrowedFd<'_>) -> Told {
        self.told(libc::SYS_getsockname, fd)
    }

    /// getpeername(2).
    pub fn peer(self, fd: BorrowedFd<'_>) -> Told {
        self.told(libc::SYS_getpeername, fd)
    }

    fn told(self, call: libc::c_long, fd: BorrowedFd<'_>) -> Told {
        let mut bytes = [0u8; sockaddr::LONGEST];
        let mut length = sockaddr::LONGEST as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, and there are as many.
        let answer = unsafe {
            libc::syscall(
                call,
                fd.as_raw_fd(),
                bytes.as_mut_ptr(),
                &raw mut length,
                0,
                0,
                self.word(),
            )
        };
        Errno::result(answer)?;
        let bytes = bytes.get(..length as usize).unwrap_or_default();
        sockaddr::parse(bytes).ok_or(Errno::EAFNOSUPPORT)
    }
}

/// Makes a call on a descriptor whose flags are a process's, and puts them back.
pub fn without_waiting<T>(
    fd: BorrowedFd<'_>,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    if flags.contains(OFlag::O_NONBLOCK) {
        return call();
    }
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let answer = call();
    // It has succeeded a moment ago.
    let _ = fcntl(fd, FcntlArg::F_SETFL(flags));
    answer
}
