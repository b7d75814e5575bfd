//! userfaultfd(2) (include/uapi/linux/userfaultfd.h).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// UFFD_USER_MODE_ONLY, since Linux 5.11
pub const USER_MODE_ONLY: i32 = 1;
/// UFFDIO_API: _IOWR(0xAA, 0x3F, struct uffdio_api)
pub const HANDSHAKE: u64 = 0xc018_aa3f;
/// UFFDIO_REGISTER: _IOWR(0xAA, 0x00, struct uffdio_register)
pub const WATCH: u64 = 0xc020_aa00;
/// UFFD_API
pub const VERSION: u64 = 0xaa;
/// UFFDIO_REGISTER_MODE_MISSING
pub const MISSING: u64 = 1;
/// UFFD_FEATURE_EVENT_FORK: a fork waits until its message is read.
pub const TELLS_FORKS: u64 = 1 << 1;
/// Of the kernel's own among the features: the handshake is over (fs/userfaultfd.c, UFFD_FEATURE_INITIALIZED).
pub const IS_READY: u64 = 1 << 31;
/// UFFDIO_WRITEPROTECT: _IOWR(0xAA, 0x06, struct uffdio_writeprotect)
const PROTECT: u64 = 0xc018_aa06;
/// UFFDIO_REGISTER_MODE_WP
const WRITES: u64 = 1 << 1;
/// UFFD_FEATURE_WP_ASYNC, since Linux 6.7: a write to a protected page goes on at once, and only ends its protection.
const ASYNCHRONOUS: u64 = 1 << 15;

/// Watches what is written in one process's memory, for as long as it is held. Nobody waits for it: the first write to a
/// page ends the page's protection, which PAGEMAP_SCAN tells (Documentation/admin-guide/mm/pagemap.rst).
#[derive(Debug)]
pub struct WriteWatch(OwnedFd);

impl WriteWatch {
    /// Of this process.
    ///
    /// # Errors
    /// Where userfaultfd(2) is not to be had, else as for [`begin`](Self::begin).
    pub fn of_this_process() -> nix::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: takes numbers only.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let number = Errno::result(number)?;
        // SAFETY: the kernel just returned this number for us alone.
        Self::begin(unsafe { OwnedFd::from_raw_fd(number as i32) })
    }

    /// Of the process that has made this descriptor by userfaultfd(2).
    ///
    /// # Errors
    /// EINVAL: before Linux 6.7, or on a processor without.
    pub fn begin(descriptor: OwnedFd) -> nix::Result<Self> {
        let watch = Self(descriptor);
        watch.control(HANDSHAKE, &mut [VERSION, ASYNCHRONOUS, 0])?;
        Ok(watch)
    }

    /// Watches a range of whole mappings, of which no page is protected yet.
    ///
    /// # Errors
    /// EBUSY: another userfaultfd watches it; ENOMEM: the process has other memory by now (execve(2)), or has ended.
    pub fn watch(&self, start: u64, end: u64) -> nix::Result<()> {
        self.control(WATCH, &mut [start, end - start, WRITES, 0])
    }

    /// Ends the protection of pages in a range that is watched. Memory that has moved (mremap(2)) has pages that are marked
    /// as protected, but are not (before Linux 6.13).
    ///
    /// # Errors
    /// ENOENT: it is not watched.
    pub fn unprotect(&self, start: u64, end: u64) -> nix::Result<()> {
        self.control(PROTECT, &mut [start, end - start, 0])
    }

    fn control<const WORDS: usize>(
        &self,
        what: u64,
        argument: &mut [u64; WORDS],
    ) -> nix::Result<()> {
        // SAFETY: the argument lives across the call and is as long as each of these calls reads and writes.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, argument.as_mut_ptr()) };
        Errno::result(answer).map(drop)
    }
}
