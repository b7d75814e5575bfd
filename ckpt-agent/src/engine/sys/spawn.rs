//! Starting a program with a descriptor at a number of our choice.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts the command with `fd` as descriptor `number`; all others are closed on exec.
///
/// # Errors
/// As `Command::spawn`.
pub fn with_descriptor(command: &mut Command, fd: OwnedFd, number: i32) -> io::Result<Child> {
    let from = fd.as_raw_fd();
    // SAFETY: between fork and exec only fcntl(2), dup3(2) and close_range(2) are called, which are
    // async-signal-safe; `fd` stays open until the child has been made.
    unsafe {
        command.pre_exec(move || {
            let done = if from == number {
                libc::fcntl(number, libc::F_SETFD, 0)
            } else {
                libc::dup3(from, number, 0)
            };
            if done < 0 {
                return Err(io::Error::last_os_error());
            }
            let first = number + 1;
            let flag = libc::CLOSE_RANGE_CLOEXEC;
            libc::syscall(libc::SYS_close_range, first, u32::MAX, flag);
            Ok(())
        });
    }
    let child = command.spawn();
    drop(fd);
    child
}
