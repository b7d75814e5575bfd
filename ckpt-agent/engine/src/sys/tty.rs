//! Terminal requests of ioctl_tty(2) that no crate has.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::abi;
use super::poll::poll_one;

/// TIOCGPKT: packet mode of a master.
const GET_PACKET_MODE: u32 = 0x8004_5438;
/// TIOCGPTLCK: whether the slave is locked.
const GET_LOCK: u32 = 0x8004_5439;
/// TIOCGEXCL: exclusive mode.
const GET_EXCLUSIVE: u32 = 0x8004_5440;
/// TIOCGPTPEER: opens the slave of a master.
const OPEN_PEER: u32 = 0x5441;
/// TIOCGETD: line discipline.
const GET_DISCIPLINE: u32 = 0x5424;
/// TIOCGDEV: device number of the terminal, of the slave where asked of a master.
const GET_DEVICE: u32 = 0x8004_5432;

/// Size of a terminal in characters and pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WindowSize {
    /// Rows of characters.
    pub rows: u16,
    /// Columns of characters.
    pub columns: u16,
    /// Width in pixels.
    pub width: u16,
    /// Height in pixels.
    pub height: u16,
}

fn read_with<T: Copy>(fd: impl AsFd, request: u32, mut value: T) -> io::Result<T> {
    // SAFETY: every caller in this file passes a request that writes exactly one T.
    let answer =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, &raw mut value) };
    if answer == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn write_with<T>(fd: impl AsFd, request: u32, value: &T) -> io::Result<()> {
    // SAFETY: every caller in this file passes a request that reads exactly one T.
    let answer = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, std::ptr::from_ref(value))
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn no_modes() -> libc::termios2 {
    libc::termios2 {
        c_iflag: 0,
        c_oflag: 0,
        c_cflag: 0,
        c_lflag: 0,
        c_line: 0,
        c_cc: [0; 19],
        c_ispeed: 0,
        c_ospeed: 0,
    }
}

/// The slave's modes, asked of either side (TCGETS2).
///
/// # Errors
/// EIO where the master is gone.
pub fn modes(fd: impl AsFd) -> io::Result<libc::termios2> {
    read_with(fd, libc::TCGETS2 as u32, no_modes())
}

/// Sets the slave's modes at once, from either side, flushing nothing (TCSETS2).
///
/// # Errors
/// As ioctl(2).
pub fn set_modes(fd: impl AsFd, modes: &libc::termios2) -> io::Result<()> {
    write_with(fd, libc::TCSETS2 as u32, modes)
}

/// Window size (TIOCGWINSZ).
///
/// # Errors
/// As ioctl(2).
pub fn window_size(fd: impl AsFd) -> io::Result<WindowSize> {
    let raw = read_with(
        fd,
        libc::TIOCGWINSZ as u32,
        libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 },
    )?;
    Ok(WindowSize {
        rows: raw.ws_row,
        columns: raw.ws_col,
        width: raw.ws_xpixel,
        height: raw.ws_ypixel,
    })
}

/// Sets the window size (TIOCSWINSZ).
///
/// # Errors
/// As ioctl(2).
pub fn set_window_size(fd: impl AsFd, size: WindowSize) -> io::Result<()> {
    let raw = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: size.width,
        ws_ypixel: size.height,
    };
    write_with(fd, libc::TIOCSWINSZ as u32, &raw)
}

/// Whether a status waits for the next read of the master in packet mode (drivers/tty/n_tty.c, n_tty_poll). Leaving packet
/// mode would drop it.
///
/// # Errors
/// As poll(2).
pub fn has_packet_status(master: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(poll_one(master, libc::POLLPRI, Duration::ZERO)? & libc::POLLPRI != 0)
}

/// Packet mode of a master.
///
/// # Errors
/// As ioctl(2).
pub fn packet_mode(fd: impl AsFd) -> io::Result<bool> {
    Ok(read_with(fd, GET_PACKET_MODE, 0i32)? != 0)
}

/// Sets packet mode of a master (TIOCPKT).
///
/// # Errors
/// As ioctl(2).
pub fn set_packet_mode(fd: impl AsFd, on: bool) -> io::Result<()> {
    write_with(fd, abi::TIOCPKT, &i32::from(on))
}

/// Whether the slave is locked against being opened.
///
/// # Errors
/// As ioctl(2).
pub fn locked(fd: impl AsFd) -> io::Result<bool> {
    Ok(read_with(fd, GET_LOCK, 0i32)? != 0)
}

/// Locks or unlocks the slave (TIOCSPTLCK).
///
/// # Errors
/// As ioctl(2).
pub fn set_locked(fd: impl AsFd, on: bool) -> io::Result<()> {
    write_with(fd, abi::TIOCSPTLCK, &i32::from(on))
}

/// Exclusive mode.
///
/// # Errors
/// As ioctl(2).
pub fn exclusive(fd: impl AsFd) -> io::Result<bool> {
    Ok(read_with(fd, GET_EXCLUSIVE, 0i32)? != 0)
}

/// Modes that can't be changed, a bit each (TIOCGLCKTRMIOS); `None`: all can be, or the kernel knows nothing of that.
///
/// # Errors
/// As ioctl(2).
pub fn fixed_modes(fd: impl AsFd) -> io::Result<Option<libc::termios2>> {
    /// TIOCGLCKTRMIOS
    const GET_FIXED: u32 = 0x5456;
    let mut bytes = [0; TERMIOS_SIZE];
    // SAFETY: the request writes TERMIOS_SIZE bytes, a struct termios of the kernel's.
    let answer = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), GET_FIXED as libc::Ioctl, bytes.as_mut_ptr())
    };
    if answer < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL) => Ok(None),
            _ => Err(error),
        };
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    };
    let mut modes = no_modes();
    (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag) =
        (word(0), word(4), word(8), word(12));
    modes.c_line = bytes[16];
    modes.c_cc.copy_from_slice(&bytes[17..TERMIOS_SIZE]);
    Ok(Some(modes))
}

/// Fixes modes as they are, or none (TIOCSLCKTRMIOS).
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, since Linux 5.9 also CAP_CHECKPOINT_RESTORE; as ioctl(2).
pub fn fix_modes(fd: impl AsFd, modes: Option<&libc::termios2>) -> io::Result<()> {
    /// TIOCSLCKTRMIOS
    const SET_FIXED: u32 = 0x5457;
    let modes = modes.copied().unwrap_or_else(no_modes);
    let mut bytes = [0; TERMIOS_SIZE];
    let words = [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag];
    bytes[..16].copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    bytes[16] = modes.c_line;
    bytes[17..].copy_from_slice(&modes.c_cc);
    // SAFETY: the request reads TERMIOS_SIZE bytes, which the array has.
    let answer =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), SET_FIXED as libc::Ioctl, bytes.as_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Line discipline of a side (TIOCGETD); 0: N_TTY.
///
/// # Errors
/// As ioctl(2).
pub fn discipline(fd: impl AsFd) -> io::Result<i32> {
    read_with(fd, GET_DISCIPLINE, 0i32)
}

/// Takes a terminal out of exclusive mode (TIOCNXCL).
///
/// # Errors
/// As ioctl(2).
pub fn set_shared(fd: impl AsFd) -> io::Result<()> {
    write_with(fd, libc::TIOCNXCL as u32, &0i32)
}

/// Puts a terminal into exclusive mode (TIOCEXCL).
///
/// # Errors
/// As ioctl(2).
pub fn set_exclusive(fd: impl AsFd) -> io::Result<()> {
    write_with(fd, libc::TIOCEXCL as u32, &0i32)
}

/// Major numbers of the slaves of pseudoterminals (Documentation/admin-guide/devices.txt).
pub const SLAVE_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

/// Bytes that a read of this side would return (TIOCINQ, ioctl_tty(2)); of a line that is being typed, none.
///
/// # Errors
/// As ioctl(2).
pub fn unread(fd: impl AsFd) -> io::Result<i32> {
    read_with(fd, libc::FIONREAD as u32, 0i32)
}

/// Stops what is written to this side, or starts it again: tcflow(3), TCOOFF and TCOON.
///
/// # Errors
/// As ioctl(2).
pub fn set_flow(fd: impl AsFd, runs: bool) -> io::Result<()> {
    let how = if runs { libc::TCOON } else { libc::TCOOFF };
    // SAFETY: the argument is a number.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TCXONC, how) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Index of a pseudoterminal, asked of its master (TIOCGPTN).
///
/// # Errors
/// ENOTTY where it is no master.
pub fn master_index(fd: impl AsFd) -> io::Result<u32> {
    read_with(fd, abi::TIOCGPTN, 0u32)
}

/// Device number (major, minor) of the terminal behind a descriptor; of the slave for both sides of
/// a pair.
///
/// # Errors
/// As ioctl(2).
pub fn device(fd: impl AsFd) -> io::Result<(u32, u32)> {
    let encoded = read_with(fd, GET_DEVICE, 0u32)?;
    // include/linux/kdev_t.h, new_decode_dev.
    Ok(((encoded & 0xfff00) >> 8, (encoded & 0xff) | ((encoded >> 12) & 0xfff00)))
}

/// Opens the slave of a master, wherever its file system is mounted (TIOCGPTPEER).
///
/// # Errors
/// As open(2): EIO where the slave is locked.
pub fn open_peer(master: impl AsFd, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the request takes flags by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(master.as_fd().as_raw_fd(), OPEN_PEER as libc::Ioctl, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Session of the terminal, asked of its master (TIOCGSID), in the caller's PID namespace.
///
/// # Errors
/// ENOTTY where it controls no session.
pub fn session(master: impl AsFd) -> io::Result<i32> {
    read_with(master, abi::TIOCGSID, 0i32)
}

/// Foreground process group, asked of the master (TIOCGPGRP), in the caller's PID namespace.
///
/// # Errors
/// As ioctl(2).
pub fn foreground_group(master: impl AsFd) -> io::Result<i32> {
    read_with(master, libc::TIOCGPGRP as u32, 0i32)
}

/// Makes a terminal the controlling one of the calling session leader (TIOCSCTTY, ioctl_tty(2)).
///
/// # Errors
/// EPERM where the caller leads no session or has a terminal already, or another session has this one.
pub fn take_controlling(slave: impl AsFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let answer = unsafe { libc::ioctl(slave.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of the kernel's struct termios (include/uapi/asm-generic/termbits.h): four words of flags,
/// c_line, 19 control characters.
pub const TERMIOS_SIZE: usize = 36;

/// Sets a terminal's modes from the bytes that TCGETS gives.
///
/// # Errors
/// EINVAL where there are too few bytes; as ioctl(2).
pub fn set_termios_bytes(fd: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let Some(bytes) = bytes.get(..TERMIOS_SIZE) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: the request reads TERMIOS_SIZE bytes, which the slice has.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TCSETS, bytes.as_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
