//! Starting a program with a descriptor at a number of our choice.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::super::arch::{Architecture, Current};
use super::abi;
use super::dup3::dup3;
use super::{restrained, standing};

/// Changes nothing (personality(2)).
const ASK: u32 = 0xffff_ffff;

/// The first Linux that puts the heap of a static position-independent program where those of others are, whether addresses
/// are randomised or not (fs/binfmt_elf.c, load_elf_binary).
const MOVES_HEAPS: (u32, u32) = (6, 16);

/// Whether the heap of this program begins lower without randomised addresses. A static position-independent one lies among
/// libraries then, and on older kernels its heap with it; randomised its heap is where others' are, or, once in some
/// thousand times, above one.
pub fn randomizing_lifts_heap() -> bool {
    // SAFETY: takes numbers only.
    let (interpreter, entry) =
        unsafe { (libc::getauxval(libc::AT_BASE), libc::getauxval(libc::AT_ENTRY)) };
    #[allow(clippy::unnecessary_cast, reason = "32 bits wide elsewhere")]
    let entry = entry as u64;
    interpreter != 0 || entry < Current::user_top() / 4 || is_kernel_since(MOVES_HEAPS)
}

fn is_kernel_since(version: (u32, u32)) -> bool {
    let release = nix::sys::utsname::uname().ok().map(|names| names.release().to_owned());
    let release = release.and_then(|release| release.into_string().ok()).unwrap_or_default();
    version_of(&release).is_some_and(|own| own >= version)
}

/// The first two numbers of a release as uname(2) tells it.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Has a command executed without randomised addresses, so that its heap begins right behind it: as low as can be.
pub fn with_low_heap(command: &mut Command) {
    // SAFETY: between fork and exec only personality(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let now = libc::personality(ASK as _);
            if now >= 0 {
                libc::personality((now | libc::ADDR_NO_RANDOMIZE) as _);
            }
            Ok(())
        });
    }
}

/// Has what this process executes from now on get randomised addresses again, after [`with_low_heap`].
pub fn randomize_again() {
    // SAFETY: takes a number only.
    unsafe {
        let now = libc::personality(ASK as _);
        if now >= 0 {
            libc::personality((now & !libc::ADDR_NO_RANDOMIZE) as _);
        }
    }
}

/// Starts the command with `fd` as descriptor `number`; all others are closed on exec. It has what this process may, also
/// where that is not root and acts for all users.
///
/// # Errors
/// As `Command::spawn`.
pub fn with_descriptor(command: &mut Command, fd: OwnedFd, number: i32) -> io::Result<Child> {
    let from = fd.as_raw_fd();
    let hands_on = standing::acts_for_all_but_root();
    // SAFETY: between fork and exec only fcntl(2), dup3(2), close_range(2), capget(2), capset(2) and prctl(2) are called,
    // which are async-signal-safe; `fd` stays open until the child has been made.
    unsafe {
        command.pre_exec(move || {
            if from != number {
                dup3(BorrowedFd::borrow_raw(from), number, 0)?;
            } else if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            let first = number + 1;
            let flag = abi::CLOSE_RANGE_CLOEXEC;
            libc::syscall(libc::SYS_close_range, first, u32::MAX, flag);
            if hands_on {
                restrained::hand_on()?;
            }
            Ok(())
        });
    }
    let child = command.spawn();
    drop(fd);
    child
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn releases_are_read() {
        assert_eq!(version_of("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version_of("5.10-android"), Some((5, 10)));
        assert!(version_of("6.9.0") < Some((6, 16)) && Some((6, 16)) <= version_of("7.0"));
        assert_eq!(version_of("odd"), None);
    }
}
