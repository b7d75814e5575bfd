//! getsockopt(2), setsockopt(2) and the queue lengths of sockets and terminals.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// An option whose value is an int.
///
/// # Errors
/// As getsockopt(2).
pub fn get_int(fd: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let bytes = get_bytes(fd, level, name, size_of::<i32>())?;
    match *bytes.as_slice() {
        [a, b, c, d] => Ok(i32::from_ne_bytes([a, b, c, d])),
        // IP_MULTICAST_LOOP and its kin answer with one byte where an int was asked for.
        [one] => Ok(i32::from(one)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Sets an option whose value is an int.
///
/// # Errors
/// As setsockopt(2).
pub fn set_int(fd: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// An option of at most `capacity` bytes.
///
/// # Errors
/// As getsockopt(2).
pub fn get_bytes(fd: impl AsFd, level: i32, name: i32, capacity: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; capacity];
    let mut length = capacity as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and `value` has as many.
    let answer = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(length as usize);
    Ok(value)
}

/// Sets an option given as bytes.
///
/// # Errors
/// As setsockopt(2).
pub fn set_bytes(fd: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of a live slice.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that can be read at once (FIONREAD; of a listening socket: an error).
///
/// # Errors
/// As ioctl(2).
pub fn readable(fd: impl AsFd) -> io::Result<usize> {
    ioctl_int(fd, libc::FIONREAD)
}

/// Bytes sent that the peer has not acknowledged (TCP) or not read (Unix), FIN counted (tcp(7),
/// SIOCOUTQ).
///
/// # Errors
/// As ioctl(2).
pub fn unacknowledged(fd: impl AsFd) -> io::Result<usize> {
    ioctl_int(fd, libc::TIOCOUTQ)
}

fn ioctl_int(fd: impl AsFd, request: libc::Ioctl) -> io::Result<usize> {
    let mut value: libc::c_int = 0;
    // SAFETY: both requests write one int.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut value) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.max(0) as usize)
}
