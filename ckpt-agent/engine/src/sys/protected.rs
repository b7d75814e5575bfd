//! Attributes of files that keep even their owner from changing them (ioctl_iflags(2), chattr(1)).

use std::os::fd::{AsRawFd, BorrowedFd};

/// FS_IMMUTABLE_FL and FS_APPEND_FL (include/uapi/linux/fs.h).
const IMMUTABLE: libc::c_int = 0x10;
const APPEND: libc::c_int = 0x20;
/// FS_IOC_GETFLAGS: _IOR('f', 1, long), though an int is written.
const GET: u64 = 0x8000_6601 | (size_of::<libc::c_long>() as u64) << 16;

/// The attribute that protects an open file, by its name and chattr(1)'s letter. `None`: there is none, or the file system has no
/// such attributes.
pub fn attribute(file: BorrowedFd<'_>) -> Option<&'static str> {
    let mut flags: libc::c_int = 0;
    // SAFETY: the kernel writes an int, which outlives the call.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET as _, &raw mut flags) };
    match flags {
        _ if answer != 0 => None,
        flags if flags & IMMUTABLE != 0 => Some("immutable (chattr +i)"),
        flags if flags & APPEND != 0 => Some("append-only (chattr +a)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_ordinary_file_is_not_protected() {
        assert_eq!(attribute(tempfile::tempfile().unwrap().as_fd()), None);
        let (end, _other) = nix::unistd::pipe().unwrap();
        assert_eq!(attribute(end.as_fd()), None);
    }
}
