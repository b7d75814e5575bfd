//! Opening for a restore: the access mode and flags of the recorded description, none of the
//! flags that make, cut or choose a file.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl, open as nix_open};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat};

use super::super::error::{EngineError, Result};
use super::super::names;
use super::super::sys::abi;

/// O_TMPFILE without the O_DIRECTORY that it contains (include/uapi/asm-generic/fcntl.h).
/// F_GETFL goes on telling both for a file that was made so.
const TMPFILE_BIT: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Acted upon by open(2) once, and kept out of a second open.
const ONCE: i32 = libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_NOFOLLOW
    | libc::O_DIRECTORY
    | TMPFILE_BIT;

/// Flags that fcntl(F_SETFL) can change and that need no owner to be set first.
const STATUS: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// Whether a description with these flags can be read.
pub fn readable(flags: i32) -> bool {
    flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
}

/// Whether a description with these flags can be written.
pub fn writable(flags: i32) -> bool {
    flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Flags that a second open is told, and fcntl(F_GETFL) tells.
fn lasting(flags: i32) -> i32 {
    let of_folder = if flags & TMPFILE_BIT == 0 { flags & libc::O_DIRECTORY } else { 0 };
    (flags & !ONCE) | of_folder
}

/// The flags with which a description of these is opened again; a link is not followed, it would have been the first time.
pub fn wanted(flags: i32) -> i32 {
    lasting(flags) | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NOFOLLOW
}

/// Opens a path with the recorded flags.
///
/// # Errors
/// As open(2).
pub fn open(path: &str, flags: i32) -> nix::Result<OwnedFd> {
    // The path of a description leads through no link, but that of an own descriptor is one.
    let through = if path.starts_with(MAGIC) { 0 } else { flags & libc::O_NOFOLLOW };
    open_as_told(path, lasting(flags) | through | libc::O_CLOEXEC | libc::O_NOCTTY)
}

/// Opens a path with these flags and no others.
///
/// # Errors
/// As open(2).
pub fn open_as_told(path: &str, flags: i32) -> nix::Result<OwnedFd> {
    let attempt =
        |flags: i32| nix_open(&*names::path(path), OFlag::from_bits_retain(flags), Mode::empty());
    match attempt(flags) {
        // Only the owner may ask for O_NOATIME; not every file system knows O_DIRECT.
        Err(Errno::EPERM) if flags & libc::O_NOATIME != 0 => attempt(flags & !libc::O_NOATIME),
        Err(Errno::EINVAL) if flags & libc::O_DIRECT != 0 => attempt(flags & !libc::O_DIRECT),
        other => other,
    }
}

/// Opens the inode behind a descriptor once more: a new open file description.
///
/// # Errors
/// As open(2) of /proc/self/fd/N: permissions of the inode count.
pub fn reopen(fd: impl AsFd, flags: i32) -> nix::Result<OwnedFd> {
    open(&magic_link(fd), flags)
}

/// Opens a path as [`open`] does, also where its owner has withdrawn the right to since the job opened it: whoever acts as the
/// owner gives themselves that right for as long as it takes.
///
/// # Errors
/// As open(2).
pub fn open_as_owner(path: &str, flags: i32) -> nix::Result<OwnedFd> {
    match open(path, flags) {
        Err(Errno::EACCES) => {
            let anchor = open(path, libc::O_PATH | flags & libc::O_NOFOLLOW);
            anchor.and_then(|anchor| with_right_to(&anchor, flags)).map_err(|_| Errno::EACCES)
        }
        opened => opened,
    }
}

/// The same of the inode behind a descriptor, as [`reopen`].
///
/// # Errors
/// As open(2).
pub fn reopen_as_owner(fd: impl AsFd, flags: i32) -> nix::Result<OwnedFd> {
    match reopen(fd.as_fd(), flags) {
        Err(Errno::EACCES) => with_right_to(fd, flags).map_err(|_| Errno::EACCES),
        opened => opened,
    }
}

/// On a file system that machines share, others may do the same of one file at the same time: what one of them has given is
/// taken back by that one alone, and whoever comes too late tries again.
fn with_right_to(fd: impl AsFd, flags: i32) -> nix::Result<OwnedFd> {
    let link = magic_link(fd.as_fd());
    let mode_now = || -> nix::Result<libc::mode_t> { Ok(fstat(fd.as_fd())?.st_mode) };
    let give = |mode: libc::mode_t| {
        let mode = Mode::from_bits_truncate(mode & !abi::S_IFMT);
        fchmodat(AT_FDCWD, link.as_str(), mode, FchmodatFlags::FollowSymlink)
    };
    let reads = if readable(flags) { Mode::S_IRUSR.bits() } else { 0 };
    let writes = if writable(flags) { Mode::S_IWUSR.bits() } else { 0 };
    for _ in 0..TRIES {
        let mode = mode_now()?;
        // Opening anything else may act upon it, and chmod(2) might take such bits away for good.
        let special = Mode::S_ISUID.bits() | Mode::S_ISGID.bits();
        if mode & abi::S_IFMT != abi::S_IFREG || mode & special != 0 {
            return Err(Errno::EACCES);
        }
        let wider = mode | reads | writes;
        if wider != mode {
            give(wider)?;
        }
        let opened = open(&link, flags);
        // Whoever has changed it meanwhile means what it is now.
        if wider != mode && mode_now()? == wider {
            give(mode)?;
        }
        match opened {
            Err(Errno::EACCES) => std::thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    Err(Errno::EACCES)
}

/// How often a file is opened whose mode others change at the same time.
const TRIES: u32 = 5;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Where /proc shows own descriptors.
const MAGIC: &str = "/proc/self/fd/";

/// The path under which /proc shows an own descriptor.
pub fn magic_link(fd: impl AsFd) -> String {
    format!("{MAGIC}{}", fd.as_fd().as_raw_fd())
}

/// Takes the name of a node away that has just been made: an O_PATH descriptor of it. It gets its owner and its mode, which the umask
/// of whoever restores has no part in, by way of that.
///
/// # Errors
/// Failed system calls; its name is gone in any case where that can be.
pub fn without_name(path: &str, owner: Option<(u32, u32)>, mode: u32) -> nix::Result<OwnedFd> {
    let anchor = open(path, libc::O_PATH);
    nix::unistd::unlink(&*names::path(path))?;
    let anchor = anchor?;
    let link = magic_link(&anchor);
    if let Some((user, group)) = owner {
        nix::unistd::chown(link.as_str(), Some(user.into()), Some(group.into()))?;
    }
    let mode = Mode::from_bits_truncate(mode as libc::mode_t);
    fchmodat(AT_FDCWD, link.as_str(), mode, FchmodatFlags::FollowSymlink)?;
    Ok(anchor)
}

/// Sets the recorded status flags on a description.
///
/// # Errors
/// Failed fcntl(2).
pub fn set_status(fd: BorrowedFd<'_>, flags: i32) -> Result<()> {
    let status = OFlag::from_bits_retain(flags & STATUS);
    fcntl(fd, FcntlArg::F_SETFL(status))
        .map(drop)
        .map_err(|errno| EngineError::system("fcntl", format!("F_SETFL {:#o}", flags), errno))
}

/// Sets the file offset, bytes from the start (for directories: the file system's own cookie).
///
/// # Errors
/// As lseek(2).
pub fn seek(fd: BorrowedFd<'_>, offset: u64) -> nix::Result<()> {
    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    nix::unistd::lseek64(fd, offset, nix::unistd::Whence::SeekSet).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, set_permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::super::super::sys::restrained::{OVER_FILES, Restrained};
    use super::*;

    #[test]
    fn owners_open_what_nobody_may() {
        let path = std::env::temp_dir().join(format!("reopen-{}", std::process::id()));
        let text = names::text(&path);
        let file = File::create(&path).unwrap();
        for (mode, opens) in [(0, true), (0o111, true), (0o4111, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let _without_rights = Restrained::begin(OVER_FILES).unwrap();
            for flags in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
                assert_eq!(open(&text, flags).unwrap_err(), Errno::EACCES);
                assert_eq!(open_as_owner(&text, flags).is_ok(), opens, "{mode:o}");
                assert_eq!(reopen_as_owner(&file, flags).is_ok(), opens, "{mode:o}");
            }
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
