//! userfaultfd(2) (include/uapi/linux/userfaultfd.h).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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
        control(&watch.0, HANDSHAKE, &mut [VERSION, ASYNCHRONOUS, 0])?;
        Ok(watch)
    }

    /// Watches a range of whole mappings, of which no page is protected yet.
    ///
    /// # Errors
    /// EBUSY: another userfaultfd watches it; ENOMEM: the process has other memory by now (execve(2)), or has ended.
    pub fn watch(&self, start: u64, end: u64) -> nix::Result<()> {
        control(&self.0, WATCH, &mut [start, end - start, WRITES, 0])
    }

    /// Ends the protection of pages in a range that is watched. Memory that has moved (mremap(2)) has pages that are marked
    /// as protected, but are not (before Linux 6.13).
    ///
    /// # Errors
    /// ENOENT: it is not watched.
    pub fn unprotect(&self, start: u64, end: u64) -> nix::Result<()> {
        control(&self.0, PROTECT, &mut [start, end - start, 0])
    }
}

/// UFFDIO_WAKE: _IOR(0xAA, 0x02, struct uffdio_range)
const WAKE: u64 = 0x8010_aa02;
/// UFFDIO_COPY: _IOWR(0xAA, 0x03, struct uffdio_copy)
const COPY: u64 = 0xc028_aa03;
/// UFFDIO_ZEROPAGE: _IOWR(0xAA, 0x04, struct uffdio_zeropage)
const ZERO: u64 = 0xc020_aa04;
/// UFFD_FEATURE_EVENT_REMAP, _REMOVE and _UNMAP: these calls wait, too, until their messages are read.
const TELLS_CHANGES: u64 = 1 << 2 | 1 << 3 | 1 << 6;
/// UFFD_EVENT_*
const FAULT: u8 = 0x12;
const FORK: u8 = 0x13;
const MOVE: u8 = 0x14;
const REMOVE: u8 = 0x15;
const UNMAP: u8 = 0x16;

/// What the kernel tells of memory that is watched for missing pages.
#[derive(Debug)]
pub enum Told {
    /// Somebody waits for the page at this address.
    Fault(u64),
    /// The process has forked. The descriptor is of the child's memory, which is watched as the parent's is.
    Forked(MissingPages),
    /// Memory has moved.
    Moved {
        /// Where it was.
        from: u64,
        /// Where it is.
        to: u64,
        /// Bytes.
        length: u64,
    },
    /// Pages are about to lose their content: first address, and that behind the last.
    Removed(u64, u64),
    /// Memory is no more.
    Unmapped(u64, u64),
}

/// Watches one process's memory for pages that are missing, and fills them. Where its last copy is closed, missing pages are
/// zeros.
#[derive(Debug)]
pub struct MissingPages(OwnedFd);

impl MissingPages {
    /// How the process is to ask for one: faults of the kernel are told, too.
    pub const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK;

    /// Whether this process could have one of its own memory: it takes CAP_SYS_PTRACE over the machine to be told of forks.
    pub fn can_be_had() -> bool {
        // SAFETY: takes numbers only.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, Self::FLAGS) };
        // SAFETY: the kernel just returned this number for us alone.
        let made = (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number as i32) });
        made.is_some_and(|descriptor| Self::begin(descriptor).is_ok())
    }

    /// Of the process that has made this descriptor by userfaultfd(2).
    ///
    /// # Errors
    /// EPERM: without CAP_SYS_PTRACE; EINVAL: an old kernel.
    pub fn begin(descriptor: OwnedFd) -> nix::Result<Self> {
        let this = Self(descriptor);
        control(&this.0, HANDSHAKE, &mut [VERSION, TELLS_FORKS | TELLS_CHANGES, 0])?;
        Ok(this)
    }

    /// Another process's copy of one that was begun.
    pub fn copy_of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The descriptor, for another process.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn try_clone(&self) -> std::io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Watches a range of whole mappings.
    ///
    /// # Errors
    /// Memory that can't be watched.
    pub fn watch(&self, start: u64, end: u64) -> nix::Result<()> {
        control(&self.0, WATCH, &mut [start, end - start, MISSING, 0])
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// No descriptors left for that of a child; a message that is not known.
    pub fn next(&self) -> nix::Result<Option<Told>> {
        // struct uffd_msg: the event in the first byte, behind eight bytes up to three numbers.
        let mut words = [0_u64; 4];
        // SAFETY: the kernel writes at most as many bytes as there are.
        let read = unsafe {
            libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words))
        };
        match Errno::result(read) {
            Ok(read) if read as usize == size_of_val(&words) => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno),
            Ok(_) => return Err(Errno::EIO),
        }
        let [head, one, two, three] = words;
        let event = head.to_ne_bytes()[0];
        Ok(Some(match event {
            // First its flags, then the address.
            FAULT => Told::Fault(two),
            FORK => {
                let bytes = one.to_ne_bytes();
                let number = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                // SAFETY: the kernel has just made this descriptor for us alone.
                Told::Forked(Self(unsafe { OwnedFd::from_raw_fd(number) }))
            }
            MOVE => Told::Moved { from: one, to: two, length: three },
            REMOVE => Told::Removed(one, two),
            UNMAP => Told::Unmapped(one, two),
            _ => return Err(Errno::EBADMSG),
        }))
    }

    /// Fills pages at an address, and wakes who waits for them. How many bytes it has filled, and why it stopped: EEXIST: the
    /// next page is there; ENOENT: it is not watched, or is of another mapping than the first; EAGAIN: a message must be read
    /// first; ESRCH: the process has other memory by now, or has ended.
    pub fn copy(&self, to: u64, bytes: &[u8]) -> (u64, nix::Result<()>) {
        let mut argument = [to, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0];
        let answer = control(&self.0, COPY, &mut argument);
        (filled(argument[4], answer), answer)
    }

    /// The same with a page of zeros.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub fn zero(&self, at: u64, page: u64) -> nix::Result<()> {
        control(&self.0, ZERO, &mut [at, page, 0, 0])
    }

    /// Lets whoever waits for pages look again.
    pub fn wake(&self, at: u64, length: u64) {
        // It fails only for a range that is none.
        let _ = control(&self.0, WAKE, &mut [at, length]);
    }

    /// Whether anything can be filled: EAGAIN: the program is changing its mappings, and not all of it has been read; ESRCH:
    /// the process has other memory by now, or has ended; ENOENT: it can. `nowhere` must be the address of a page that is not
    /// watched.
    ///
    /// # Errors
    /// Always.
    pub fn look(&self, nowhere: u64, page: &[u8]) -> nix::Result<()> {
        self.copy(nowhere, page).1
    }

    /// Whether no memory that is watched is at an address: a copy of what can't be read (`nowhere` of this process) fails for
    /// that only where there is some.
    pub fn is_absent(&self, at: u64, page: u64, nowhere: u64) -> bool {
        let mut argument = [at, nowhere, page, 0, 0];
        control(&self.0, COPY, &mut argument) == Err(Errno::ENOENT)
    }
}

impl AsFd for MissingPages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What of a range was filled: the kernel writes how much, or the negative error.
fn filled(written: u64, answer: nix::Result<()>) -> u64 {
    match answer {
        // It writes nothing where it refuses at once.
        Err(errno) if errno != Errno::EAGAIN => 0,
        _ => u64::try_from(written as i64).unwrap_or(0),
    }
}

fn control<const WORDS: usize>(
    descriptor: &OwnedFd,
    what: u64,
    argument: &mut [u64; WORDS],
) -> nix::Result<()> {
    // SAFETY: the argument lives across the call and is as long as each of these calls reads and writes; what it points to
    // is only read.
    let answer = unsafe { libc::ioctl(descriptor.as_raw_fd(), what as _, argument.as_mut_ptr()) };
    Errno::result(answer).map(drop)
}
