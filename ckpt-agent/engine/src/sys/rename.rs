//! renameat2(2), which nix has for the GNU C library only.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;

/// include/uapi/linux/fs.h
const RENAME_NOREPLACE: libc::c_uint = 1;

/// Renames, unless there is something at `to` already.
///
/// # Errors
/// EEXIST; EINVAL where the file system can't look and rename in one step; others of rename(2).
pub fn rename_to_free(from: &Path, to: &Path) -> nix::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL);
    let (from, to) = (text(from)?, text(to)?);
    let here = AT_FDCWD.as_raw_fd();
    // SAFETY: both strings end in NUL and live across the call, which only reads them.
    let answer = unsafe {
        libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), RENAME_NOREPLACE)
    };
    Errno::result(answer).map(drop)
}
