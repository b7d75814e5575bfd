//! getsockopt(2), setsockopt(2) and the queue lengths of sockets and terminals.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// An option whose value is an int.
///
/// # Errors
/// As getsockopt(2).
pub fn get_int(fd: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    match *read_into(fd, level, name, &mut [0; size_of::<i32>()])? {
        [a, b, c, d] => Ok(i32::from_ne_bytes([a, b, c, d])),
        // IP_MULTICAST_LOOP and its kin answer with one byte where an int was asked for.
        [one] => Ok(i32::from(one)),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Options of at most so many bytes are read without room of their own.
const SHORT: usize = 2048;

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
    // Nearly all are short, and of thousands of sockets each has many.
    if capacity <= SHORT {
        return Ok(read_into(fd, level, name, &mut [0; SHORT][..capacity])?.to_vec());
    }
    let mut value = vec![0u8; capacity];
    let length = read_into(fd, level, name, &mut value)?.len();
    value.truncate(length);
    Ok(value)
}

/// An option into as much room as there is, and what of it was filled.
fn read_into(fd: impl AsFd, level: i32, name: i32, room: &mut [u8]) -> io::Result<&[u8]> {
    let length = exchange_bytes(fd, level, name, room)?;
    // Netlink tells how much there would be (NETLINK_LIST_MEMBERSHIPS).
    Ok(room.get(..length.min(room.len())).unwrap_or_default())
}

/// An option that is asked for by the first bytes of `value`, which takes the answer; returns the answer's length.
///
/// # Errors
/// As getsockopt(2).
pub fn exchange_bytes(fd: impl AsFd, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel reads and writes at most `length` bytes, and `value` has as many.
    let answer =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(length as usize)
}

/// Most instructions of a filter (BPF_MAXINSNS, include/uapi/linux/bpf_common.h).
const MOST_INSTRUCTIONS: usize = 4096;
/// Bytes of one (struct sock_filter).
const INSTRUCTION: usize = 8;

/// The classic filter of a socket (SO_ATTACH_FILTER), its instructions as bytes; none: empty.
///
/// # Errors
/// EACCES for an eBPF program, which can't be read; EINVAL before Linux 3.9.
pub fn filter(fd: impl AsFd) -> io::Result<Vec<u8>> {
    // Whoever has room for none is told how many there are (sk_get_filter()): most sockets have none.
    if filter_into(&fd, &mut [])? == 0 {
        return Ok(Vec::new());
    }
    let mut program = vec![0u8; MOST_INSTRUCTIONS * INSTRUCTION];
    let count = filter_into(&fd, &mut program)?;
    program.truncate(count * INSTRUCTION);
    Ok(program)
}

/// The instructions of a filter into as much room as there is, and how many it has.
fn filter_into(fd: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    // Here the kernel counts instructions, not bytes (sk_get_filter()).
    let mut count = (room.len() / INSTRUCTION) as libc::socklen_t;
    // SAFETY: the kernel writes at most `count` instructions, and there is room for as many.
    let answer = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            room.as_mut_ptr().cast(),
            &raw mut count,
        )
    };
    if answer == 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a classic filter that [`filter`] has read.
///
/// # Errors
/// As setsockopt(2); EINVAL where the bytes are no program.
pub fn attach_filter(fd: impl AsFd, program: &[u8]) -> io::Result<()> {
    let word = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(u32::from_ne_bytes);
    let half = |bytes: &[u8]| <[u8; 2]>::try_from(bytes).map(u16::from_ne_bytes);
    let mut instructions = Vec::with_capacity(program.len() / INSTRUCTION);
    for bytes in program.chunks(INSTRUCTION) {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let [.., jt, jf, _, _, _, _] = *bytes else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let code = half(bytes.get(..2).unwrap_or_default()).map_err(invalid)?;
        let k = word(bytes.get(4..).unwrap_or_default()).map_err(invalid)?;
        instructions.push(libc::sock_filter { code, jt, jf, k });
    }
    let length = instructions.len();
    let program = libc::sock_fprog {
        len: u16::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: a plain structure of a number and a pointer; the kernel reads `len` instructions, and the vector has as many.
    let bytes = unsafe {
        std::slice::from_raw_parts((&raw const program).cast::<u8>(), size_of_val(&program))
    };
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, bytes)
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

/// SO_MEMINFO, since Linux 4.12 (include/uapi/asm-generic/socket.h).
const SO_MEMINFO: i32 = 55;

/// Bytes of memory that what was received and not read yet takes, errors counted (SK_MEMINFO_RMEM_ALLOC).
///
/// # Errors
/// As getsockopt(2).
pub fn received_memory(fd: impl AsFd) -> io::Result<u32> {
    let words = get_bytes(fd, libc::SOL_SOCKET, SO_MEMINFO, 64)?;
    let first = words.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    Ok(u32::from_ne_bytes(*first))
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

/// Whether the next byte of a TCP socket is at the mark of an urgent one (tcp(7), SIOCATMARK).
///
/// # Errors
/// As ioctl(2).
pub fn at_mark(fd: impl AsFd) -> io::Result<bool> {
    /// SIOCATMARK (include/uapi/asm-generic/sockios.h)
    const AT_MARK: libc::Ioctl = 0x8905;
    ioctl_int(fd, AT_MARK).map(|answer| answer != 0)
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
