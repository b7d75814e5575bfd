//! POSIX message queues by their system calls (mq_overview(7)); bionic has no functions for them.
//!
//! A queue's descriptor is an ordinary one: all calls but opening and unlinking work on it in any IPC namespace.

use std::ffi::{CString, c_long};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::super::names;
use nix::errno::Errno;

/// f_type of a queue's file system (include/uapi/linux/magic.h).
pub const MAGIC: i64 = 0x1980_0202;

/// The highest priority of a message (MQ_PRIO_MAX - 1, include/uapi/linux/mqueue.h).
pub const HIGHEST_PRIORITY: u32 = 32767;

/// struct mq_attr (include/uapi/linux/mqueue.h).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// O_NONBLOCK or 0; of the description, not the queue.
    pub flags: c_long,
    /// Most messages.
    pub most_messages: c_long,
    /// Bytes that a message may have.
    pub message_size: c_long,
    /// Messages in it.
    pub messages: c_long,
    reserved: [c_long; 4],
}

impl Attributes {
    /// Of a queue to be made.
    pub fn sized(most_messages: c_long, message_size: c_long) -> Self {
        Self { most_messages, message_size, ..Self::default() }
    }
}

/// One message: its priority and its bytes.
pub type Message = (u32, Vec<u8>);

/// A queue's name as the system calls take it: without the slash that the C library's functions ask for.
fn kernel_name(name: &str) -> nix::Result<CString> {
    CString::new(names::bytes(name.trim_start_matches('/'))).map_err(|_| Errno::EINVAL)
}

/// Opens a queue of this process's IPC namespace; with `O_CREAT` in `flags` it is made with that mode, less the umask, and these
/// attributes.
///
/// # Errors
/// As mq_open(3).
pub fn open(name: &str, flags: i32, mode: u32, attributes: Attributes) -> nix::Result<OwnedFd> {
    let name = kernel_name(name)?;
    // SAFETY: name and attributes outlive the call, which only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_mq_open,
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
            &raw const attributes,
        )
    };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel just returned this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Removes a queue's name.
///
/// # Errors
/// As mq_unlink(3).
pub fn unlink(name: &str) -> nix::Result<()> {
    let name = kernel_name(name)?;
    // SAFETY: the name outlives the call, which only reads it.
    Errno::result(unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) }).map(drop)
}

/// A queue's attributes.
///
/// # Errors
/// EBADF where the descriptor is of no queue.
pub fn attributes(queue: impl AsFd) -> nix::Result<Attributes> {
    let mut attributes = Attributes::default();
    let none = std::ptr::null::<Attributes>();
    // SAFETY: the kernel writes one structure, which outlives the call.
    let done = unsafe {
        libc::syscall(libc::SYS_mq_getsetattr, queue.as_fd().as_raw_fd(), none, &raw mut attributes)
    };
    Errno::result(done).map(|_| attributes)
}

/// Takes the next message out of a queue whose messages have `size` bytes at most. For descriptions with O_NONBLOCK.
///
/// # Errors
/// As mq_receive(3); EAGAIN where there is none.
pub fn receive(queue: impl AsFd, size: usize) -> nix::Result<Message> {
    let mut bytes = vec![0; size];
    let mut priority: libc::c_uint = 0;
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel writes at most `size` bytes and one number; both outlive the call.
    let length = unsafe {
        libc::syscall(
            libc::SYS_mq_timedreceive,
            queue.as_fd().as_raw_fd(),
            bytes.as_mut_ptr(),
            size,
            &raw mut priority,
            no_limit,
        )
    };
    let length = Errno::result(length)?;
    bytes.truncate(length as usize);
    Ok((priority, bytes))
}

/// Puts a message into a queue. For descriptions with O_NONBLOCK.
///
/// # Errors
/// As mq_send(3); EAGAIN where the queue is full.
pub fn send(queue: impl AsFd, priority: u32, bytes: &[u8]) -> nix::Result<()> {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel only reads the bytes, which outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mq_timedsend,
            queue.as_fd().as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            priority,
            no_limit,
        )
    };
    Errno::result(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_by_priority_and_age() {
        let name = format!("/ckptd-mqueue-{}", std::process::id());
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK;
        let queue = match open(&name, flags, 0o600, Attributes::sized(4, 8)) {
            Ok(queue) => queue,
            // A kernel without CONFIG_POSIX_MQUEUE.
            Err(Errno::ENOSYS) => return,
            Err(errno) => panic!("mq_open: {errno}"),
        };
        unlink(&name).unwrap();
        for (priority, text) in [(1, "low"), (7, "first"), (7, "second")] {
            send(&queue, priority, text.as_bytes()).unwrap();
        }
        let found = attributes(&queue).unwrap();
        assert_eq!((found.most_messages, found.message_size, found.messages), (4, 8, 3));
        for expected in [(7, "first"), (7, "second"), (1, "low")] {
            let (priority, bytes) = receive(&queue, 8).unwrap();
            assert_eq!((priority, bytes.as_slice()), (expected.0, expected.1.as_bytes()));
        }
        assert_eq!(receive(&queue, 8), Err(Errno::EAGAIN));
    }
}
