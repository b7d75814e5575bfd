//! io_uring(7): rings that a process shares with the kernel (include/uapi/linux/io_uring.h).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// io_uring_setup(2), the same number in all tables.
pub const SETUP: libc::c_long = 425;
/// io_uring_enter(2)
pub const ENTER: libc::c_long = 426;
/// io_uring_register(2)
pub const REGISTER: libc::c_long = 427;

/// IORING_SETUP_SQPOLL: a thread of the kernel's takes the requests.
pub const POLLED: u32 = 1 << 1;
/// IORING_SETUP_CQSIZE
pub const CQ_SIZE: u32 = 1 << 3;
/// IORING_SETUP_SUBMIT_ALL, since Linux 5.18
pub const SUBMIT_ALL: u32 = 1 << 7;
/// IORING_SETUP_SQE128
pub const WIDE_REQUESTS: u32 = 1 << 10;
/// IORING_SETUP_CQE32
pub const WIDE_COMPLETIONS: u32 = 1 << 11;
/// IORING_SETUP_NO_SQARRAY
pub const NO_ARRAY: u32 = 1 << 16;

/// IORING_FEAT_SINGLE_MMAP, since Linux 5.4: both rings lie in one mapping.
const SINGLE_MAPPING: u32 = 1;
/// IORING_ENTER_SQ_WAKEUP
pub const WAKE: u32 = 1 << 1;

/// IORING_REGISTER_BUFFERS
pub const BUFFERS: u32 = 0;
/// IORING_REGISTER_FILES
const FILES: u32 = 2;
/// IORING_REGISTER_EVENTFD
pub const EVENT: u32 = 4;
/// IORING_REGISTER_RING_FDS, since Linux 5.18
pub const RINGS: u32 = 20;
/// Rings that a thread may have registered (IO_RINGFD_REG_MAX, io_uring/tctx.h).
pub const MOST_RINGS: u32 = 16;
/// IORING_ENTER_REGISTERED_RING, since Linux 5.18
pub const BY_PLACE: u32 = 1 << 4;
/// Bytes of struct io_uring_buf_status.
pub const STATUS: usize = 40;
/// IORING_REGISTER_PBUF_STATUS, since Linux 6.8
pub const GROUP_STATUS: u32 = 26;

/// IORING_OFF_SQ_RING: where both rings are mapped from.
pub const RINGS_AT: u64 = 0;
/// IORING_OFF_CQ_RING: the same memory once more.
pub const COMPLETIONS_AT: u64 = 0x800_0000;
/// IORING_OFF_SQES: where the requests are mapped from.
pub const REQUESTS_AT: u64 = 0x1000_0000;

/// IORING_MAX_ENTRIES and IORING_MAX_CQ_ENTRIES (io_uring/io_uring.c).
pub const MOST_ENTRIES: u32 = 32768;
/// Bytes of struct io_uring_sqe.
pub const REQUEST: usize = 64;
/// Bytes of struct io_uring_cqe.
pub const COMPLETION: usize = 16;

/// struct io_uring_params, in words of 32 bits.
pub const PARAMETERS: usize = 30;

/// What io_uring_setup(2) is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Places for requests.
    pub requests: u32,
    /// Places for completions.
    pub completions: u32,
    /// IORING_SETUP_*
    pub flags: u32,
}

impl Shape {
    /// Bytes from one request to the next.
    pub fn request(self) -> usize {
        if self.flags & WIDE_REQUESTS != 0 { 2 * REQUEST } else { REQUEST }
    }

    /// Bytes from one completion to the next.
    pub fn completion(self) -> usize {
        if self.flags & WIDE_COMPLETIONS != 0 { 2 * COMPLETION } else { COMPLETION }
    }

    /// As io_uring_setup(2) reads it.
    pub fn parameters(self) -> [u32; PARAMETERS] {
        let mut words = [0; PARAMETERS];
        (words[1], words[2]) = (self.completions, self.flags | CQ_SIZE);
        words
    }
}

/// Where things are in the memory of the rings, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The kernel's place among the requests.
    pub request_head: u32,
    /// The program's place among them.
    pub request_tail: u32,
    /// Requests that were no requests.
    pub dropped: u32,
    /// Which request is in which place.
    pub array: u32,
    /// The program's place among completions.
    pub completion_head: u32,
    /// The kernel's.
    pub completion_tail: u32,
    /// Completions for which there was no room.
    pub overflow: u32,
    /// The first completion.
    pub completions: u32,
    /// What the program tells the kernel.
    pub completion_flags: u32,
    /// What the kernel tells the program.
    pub request_flags: u32,
}

impl Places {
    /// As io_uring_setup(2) tells them. `None`: a kernel that has two mappings for the rings.
    pub fn of(parameters: &[u32; PARAMETERS]) -> Option<Self> {
        (parameters[5] & SINGLE_MAPPING != 0).then_some(Self {
            request_head: parameters[10],
            request_tail: parameters[11],
            request_flags: parameters[14],
            dropped: parameters[15],
            array: parameters[16],
            completion_head: parameters[20],
            completion_tail: parameters[21],
            overflow: parameters[24],
            completions: parameters[25],
            completion_flags: parameters[26],
        })
    }

    /// Bytes of the rings' memory.
    pub fn length(self, shape: Shape) -> usize {
        let completions = shape.completion() * shape.completions as usize;
        match shape.flags & NO_ARRAY {
            0 => self.array as usize + size_of::<u32>() * shape.requests as usize,
            _ => self.completions as usize + completions,
        }
    }
}

/// Makes a ring.
///
/// # Errors
/// As io_uring_setup(2).
pub fn make(shape: Shape) -> nix::Result<(OwnedFd, Places)> {
    let mut parameters = shape.parameters();
    // SAFETY: the kernel reads and writes a struct io_uring_params, which outlives the call.
    let fd = unsafe { libc::syscall(SETUP, shape.requests, parameters.as_mut_ptr()) };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    Ok((fd, Places::of(&parameters).ok_or(Errno::ENOSYS)?))
}

/// Hands over so many requests; how many were taken. With none and without flags it does nothing.
///
/// # Errors
/// As io_uring_enter(2).
pub fn enter(ring: BorrowedFd<'_>, requests: u32, flags: u32) -> nix::Result<u32> {
    let none = std::ptr::null::<u8>();
    // SAFETY: no signal mask. What the requests refer to is up to who has written them.
    let taken = unsafe { libc::syscall(ENTER, ring.as_raw_fd(), requests, 0, flags, none, 0) };
    Errno::result(taken).map(|taken| taken as u32)
}

/// Registers something made of 32-bit numbers, which the kernel only reads.
fn register(ring: BorrowedFd<'_>, what: u32, numbers: &[i32]) -> nix::Result<()> {
    let count = numbers.len();
    // SAFETY: the kernel reads as many numbers as there are.
    let done = unsafe { libc::syscall(REGISTER, ring.as_raw_fd(), what, numbers.as_ptr(), count) };
    Errno::result(done).map(drop)
}

/// Registers descriptors of this process, -1 for an empty place.
///
/// # Errors
/// As io_uring_register(2).
pub fn files_of(ring: BorrowedFd<'_>, numbers: &[i32]) -> nix::Result<()> {
    register(ring, FILES, numbers)
}

/// Registers the eventfd that is told of completions, a descriptor of this process.
///
/// # Errors
/// As io_uring_register(2).
pub fn event_of(ring: BorrowedFd<'_>, number: i32) -> nix::Result<()> {
    register(ring, EVENT, &[number])
}

/// Never an address of a program's.
pub const NOWHERE: usize = usize::MAX - 0xfff;

/// Asks for the registration of an eventfd whose number is nowhere: what the kernel objects to first tells the ring's
/// state.
pub fn ask_for_event(ring: BorrowedFd<'_>) -> Errno {
    // SAFETY: the kernel can read no number there, and registers nothing.
    let done = unsafe { libc::syscall(REGISTER, ring.as_raw_fd(), EVENT, NOWHERE, 1) };
    match Errno::result(done) {
        Ok(_) => Errno::UnknownErrno,
        Err(errno) => errno,
    }
}

/// Whether the ring has buffers of its own to choose from under this number. `None`: the kernel does not tell.
pub fn has_group(ring: BorrowedFd<'_>, number: u16) -> Option<bool> {
    // struct io_uring_buf_status: the number, the answer, and room.
    let mut status = [0_u32; 10];
    status[0] = u32::from(number);
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    let done =
        unsafe { libc::syscall(REGISTER, ring.as_raw_fd(), GROUP_STATUS, status.as_mut_ptr(), 1) };
    match Errno::result(done) {
        Ok(_) => Some(true),
        Err(Errno::ENOENT) => Some(false),
        // Of those that are no ring of buffers it says no more than that; a kernel that does not know the question
        // says the same.
        Err(_) => None,
    }
}

/// Memory of a ring, mapped here.
#[derive(Debug)]
pub struct Shared {
    base: *mut u8,
    length: usize,
}

impl Shared {
    /// Maps it from one of the offsets above.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn of(ring: BorrowedFd<'_>, offset: u64, length: usize) -> nix::Result<Self> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, none) = (ring.as_raw_fd(), std::ptr::null_mut());
        let offset = offset as libc::off_t;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(none, length, both, libc::MAP_SHARED, fd, offset) };
        match base {
            libc::MAP_FAILED => Err(Errno::last()),
            base => Ok(Self { base: base.cast(), length }),
        }
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "{offset} in {}", self.length);
        // SAFETY: within the mapping, as was just seen.
        unsafe { self.base.add(offset) }
    }

    fn cell(&self, offset: u32) -> &AtomicU32 {
        let at = self.at(offset as usize, size_of::<u32>()).cast::<u32>();
        assert!(at.is_aligned());
        // SAFETY: aligned and within the mapping, which lives as long as this; others write it atomically, too.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// A number in it.
    pub fn get(&self, offset: u32) -> u32 {
        self.cell(offset).load(Ordering::Acquire)
    }

    /// Sets a number; what was written before is there when it is seen.
    pub fn set(&self, offset: u32, value: u32) {
        self.cell(offset).store(value, Ordering::Release);
    }

    /// Whether there is memory behind this byte: a mapping may be longer than the ring.
    pub fn has(&self, offset: usize) -> bool {
        let mut byte = 0_u8;
        let there = libc::iovec { iov_base: self.at(offset, 1).cast(), iov_len: 1 };
        let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: the kernel reads a byte of this process, which need not be there, and writes one that outlives the
        // call.
        unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) == 1
        }
    }

    /// What is there.
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let from = self.at(offset, length);
        let mut bytes = vec![0; length];
        // SAFETY: within the mapping; nobody else has the new memory.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Writes to it.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: within the mapping, which no reference of ours leads into.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
