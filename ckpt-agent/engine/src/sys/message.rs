//! recvmsg(2) with its sender's address as the kernel gives it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A message received or peeked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Bytes; with MSG_TRUNC in the flags asked for, the whole message's even where fewer fit.
    pub length: usize,
    /// MSG_* flags of the answer.
    pub flags: i32,
    /// Bytes of ancillary data, as far as there was room for it.
    pub control: usize,
    /// The sender's socket address behind its family, empty where it has none.
    pub from: Vec<u8>,
    /// Its process (SCM_CREDENTIALS), where that was asked for and there was room.
    pub process: Option<i32>,
}

/// SCM_MAX_FD (include/net/scm.h)
const MOST_DESCRIPTORS: usize = 253;
/// SCM_PIDFD (include/linux/socket.h), since Linux 6.5: where it is asked for, a descriptor of the sender.
const SCM_PIDFD: i32 = 4;
/// Room for all descriptors of a message, credentials, and whatever else.
const ANCILLARY: usize = MOST_DESCRIPTORS * 4 + 512;

/// Receives one message into `buffer`, with the descriptors that come with it.
///
/// # Errors
/// As recvmsg(2); EMFILE where this process can't have so many more descriptors.
pub fn receive_rights(
    fd: impl AsFd,
    buffer: &mut [u8],
    flags: i32,
) -> io::Result<(Received, Vec<OwnedFd>)> {
    let mut ancillary = vec![0u64; ANCILLARY.div_ceil(8)];
    let (received, bytes) =
        receive_into(fd, buffer, &mut ancillary, flags | libc::MSG_CMSG_CLOEXEC)?;
    let descriptors = descriptors(&bytes);
    match received.flags & libc::MSG_CTRUNC {
        0 => Ok((received, descriptors)),
        _ => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

/// How many bytes of a stream come before the last piece that one call would give, which are `length` bytes in all: for the last
/// of them there is no memory, and the kernel gives whole pieces only (skb_copy_datagram_iter()). Nothing is kept.
///
/// # Errors
/// As recvmsg(2).
pub fn without_last_piece(fd: impl AsFd, length: usize, flags: i32) -> io::Result<usize> {
    let nowhere = Nowhere::new()?;
    let mut bytes = vec![0u8; length.saturating_sub(1)];
    let mut parts = [
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() },
        libc::iovec { iov_base: nowhere.0, iov_len: 1 },
    ];
    // SAFETY: these are plain data, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len() as _;
    // SAFETY: the first part is a live buffer of its length; the second one is mapped, and may not be written.
    let count = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) => match io::Error::last_os_error() {
            // It is the first piece.
            error if error.raw_os_error() == Some(libc::EFAULT) => Ok(0),
            error => Err(error),
        },
    }
}

/// A page that nobody may write.
struct Nowhere(*mut libc::c_void);

impl Nowhere {
    fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let anywhere = std::ptr::null_mut();
        // SAFETY: maps a new page at a place of the kernel's choice.
        let page = unsafe { libc::mmap(anywhere, 1, libc::PROT_NONE, flags, -1, 0) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(page)) }
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        // SAFETY: the page was mapped above, and nothing refers to it.
        unsafe { libc::munmap(self.0, 1) };
    }
}

/// The descriptors out of ancillary data; those of senders are closed.
fn descriptors(bytes: &[u8]) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    each_part(bytes, &mut |kind, data| {
        if matches!(kind, libc::SCM_RIGHTS | SCM_PIDFD) {
            let numbers = data.chunks_exact(4).filter_map(|four| four.try_into().ok());
            for number in numbers.map(i32::from_ne_bytes) {
                // SAFETY: the kernel just made this descriptor for us alone.
                let fd = unsafe { OwnedFd::from_raw_fd(number) };
                found.extend((kind == libc::SCM_RIGHTS).then_some(fd));
            }
        }
    });
    found
}

/// The process out of ancillary data (struct ucred begins with it).
pub fn process(bytes: &[u8]) -> Option<i32> {
    let mut found = None;
    each_part(bytes, &mut |kind, data| {
        if kind == libc::SCM_CREDENTIALS {
            found = data.get(..4).and_then(|four| four.try_into().ok()).map(i32::from_ne_bytes);
        }
    });
    found
}

/// Each part of the socket level: its type and content.
fn each_part(mut bytes: &[u8], each: &mut dyn FnMut(i32, &[u8])) {
    let head = size_of::<libc::cmsghdr>();
    let word = size_of::<usize>();
    while bytes.len() >= head {
        // struct cmsghdr: a length as long as a word, level, type.
        let mut length = [0; size_of::<usize>()];
        length.copy_from_slice(&bytes[..word]);
        let length = usize::from_ne_bytes(length);
        let number = |at: usize| {
            let field = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(i32::from_ne_bytes(field))
        };
        let (level, kind) = (number(head - 8), number(head - 4));
        let Some(data) = bytes.get(head..length) else { break };
        if let (Some(libc::SOL_SOCKET), Some(kind)) = (level, kind) {
            each(kind, data);
        }
        bytes = bytes.get(length.next_multiple_of(word)..).unwrap_or_default();
    }
}

/// Receives one message into `buffer`, with `control` bytes of room for ancillary data, which is
/// dropped. ObjectKind for descriptors must not be given: they would be installed here.
///
/// # Errors
/// As recvmsg(2).
pub fn receive(
    fd: impl AsFd,
    buffer: &mut [u8],
    control: usize,
    flags: i32,
) -> io::Result<Received> {
    // Words, for the alignment of struct cmsghdr.
    receive_into(fd, buffer, &mut vec![0u64; control.div_ceil(8)], flags)
        .map(|(received, _)| received)
}

/// Also the ancillary data.
fn receive_into(
    fd: impl AsFd,
    buffer: &mut [u8],
    ancillary: &mut [u64],
    flags: i32,
) -> io::Result<(Received, Vec<u8>)> {
    // SAFETY: these are plain data, for which zeros are valid.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: as above.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !ancillary.is_empty() {
        header.msg_control = ancillary.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(ancillary) as _;
    }
    // SAFETY: every pointer in the header leads to a live buffer of the length beside it.
    let length = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let skip = offset_of!(libc::sockaddr_un, sun_path);
    let named = (header.msg_namelen as usize).min(size_of::<libc::sockaddr_storage>());
    // SAFETY: `name` lives, is fully initialised, and `named` does not exceed it.
    let raw = unsafe { std::slice::from_raw_parts((&raw const name).cast::<u8>(), named) };
    let from = raw.get(skip..).unwrap_or_default().to_vec();
    let control = header.msg_controllen as usize;
    let bytes: Vec<u8> =
        ancillary.iter().flat_map(|word| word.to_ne_bytes()).take(control).collect();
    let process = process(&bytes);
    Ok((Received { length, flags: header.msg_flags, control, from, process }, bytes))
}
