//! What the master of a pair is told in packet mode (TIOCPKT, ioctl_tty(2)), besides bytes. It can be read, and is put back by
//! what brings it about (drivers/tty/pty.c, drivers/tty/n_tty.c).

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::tty;

/// TIOCPKT_* (include/uapi/asm-generic/ioctls.h): input, or output, was thrown away.
pub(super) const FLUSH_READ: u8 = 1;
pub(super) const FLUSH_WRITE: u8 = 2;
/// Output was stopped; it goes on.
pub(super) const STOP: u8 = 4;
pub(super) const START: u8 = 8;
/// ^S and ^Q are ordinary characters now; they are not.
const NO_FLOW: u8 = 16;
const FLOWS: u8 = 32;
/// Modes were changed where somebody else treats them (EXTPROC).
const MODES: u8 = 64;

/// ^Q and ^S, the only characters of which packet mode tells.
pub(super) const FLOW: [u8; 2] = [0x11, 0x13];

fn system(call: &'static str, errno: Errno) -> EngineError {
    EngineError::system(call, "a pseudoterminal in packet mode", errno)
}

/// What is told about bytes alone.
pub(super) fn of_bytes(status: u8) -> u8 {
    status & (FLUSH_READ | FLUSH_WRITE)
}

/// Whether ^S and ^Q stop and start output, as packet mode understands it.
pub(super) fn flows(modes: &libc::termios2) -> bool {
    modes.c_iflag & libc::IXON != 0 && [modes.c_cc[libc::VSTART], modes.c_cc[libc::VSTOP]] == FLOW
}

/// Takes what a master in packet mode is to be told next; 0: nothing.
///
/// # Errors
/// Failed system calls.
pub(super) fn take(master: BorrowedFd<'_>) -> Result<u8> {
    let waits = tty::has_packet_status(master);
    if !waits.map_err(|error| EngineError::system("poll", "a pseudoterminal", error))? {
        return Ok(0);
    }
    // It comes alone, before any bytes.
    let mut status = [0];
    match nix::unistd::read(master, &mut status) {
        Ok(_) => Ok(status[0]),
        Err(errno) => Err(system("read", errno)),
    }
}

/// Throws away what the pair holds in these directions.
///
/// # Errors
/// Failed system calls.
pub(super) fn flush(slave: BorrowedFd<'_>, status: u8) -> Result<()> {
    for (told, which) in [(FLUSH_READ, libc::TCIFLUSH), (FLUSH_WRITE, libc::TCOFLUSH)] {
        // SAFETY: the argument is a number.
        let answer = || unsafe { libc::ioctl(slave.as_raw_fd(), libc::TCFLSH, which) };
        if status & told != 0 && answer() < 0 {
            return Err(system("ioctl TCFLSH", Errno::last()));
        }
    }
    Ok(())
}

/// Changes modes to and fro, so that the master is told of it.
///
/// # Errors
/// Failed system calls.
pub(super) fn tell_modes(slave: BorrowedFd<'_>, modes: &libc::termios2, status: u8) -> Result<()> {
    let set = |modes: &libc::termios2| {
        tty::set_modes(slave, modes)
            .map_err(|error| EngineError::system("ioctl TCSETS2", "a pseudoterminal", error))
    };
    if status & MODES != 0 {
        let mut other = *modes;
        other.c_lflag ^= libc::EXTPROC;
        set(&other)?;
        set(modes)?;
    }
    // What was told last is how it is.
    let last = if flows(modes) { FLOWS } else { NO_FLOW };
    if status & last == 0 {
        return Ok(());
    }
    let mut other = *modes;
    match last {
        // Without IXON, output that is stopped would go on.
        FLOWS => other.c_cc[libc::VSTOP] = 0,
        _ => {
            other.c_iflag |= libc::IXON;
            [other.c_cc[libc::VSTART], other.c_cc[libc::VSTOP]] = FLOW;
        }
    }
    set(&other)?;
    set(modes)
}
