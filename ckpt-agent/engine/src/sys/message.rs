//! recvmsg(2) with its sender's address as the kernel gives it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};

/// A message received or peeked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Bytes; with MSG_TRUNC in the flags asked for, the whole message's even where fewer fit.
    pub length: usize,
    /// MSG_* flags of the answer.
    pub flags: i32,
    /// The sender's socket address behind its family, empty where it has none.
    pub from: Vec<u8>,
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
    // SAFETY: these are plain data, for which zeros are valid.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, for the alignment of struct cmsghdr.
    let mut ancillary = vec![0u64; control.div_ceil(8)];
    // SAFETY: as above.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if control > 0 {
        header.msg_control = ancillary.as_mut_ptr().cast();
        header.msg_controllen = control as _;
    }
    // SAFETY: every pointer in the header leads to a live buffer of the length beside it.
    let length = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let skip = offset_of!(libc::sockaddr_un, sun_path);
    let named = (header.msg_namelen as usize).min(size_of::<libc::sockaddr_storage>());
    // SAFETY: `name` lives, is fully initialised, and `named` does not exceed it.
    let raw = unsafe { std::slice::from_raw_parts((&raw const name).cast::<u8>(), named) };
    Ok(Received {
        length,
        flags: header.msg_flags,
        from: raw.get(skip..).unwrap_or_default().to_vec(),
    })
}
