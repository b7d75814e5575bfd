//! Extended attributes of open files (xattr(7)), which nix does not wrap.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

/// Limit of a list of names and of a value (include/uapi/linux/limits.h, XATTR_LIST_MAX, XATTR_SIZE_MAX).
pub const LARGEST: usize = 65_536;

/// The names of all attributes.
///
/// # Errors
/// As flistxattr(2): ENOTSUP where the file system has none.
pub fn list(file: impl AsFd) -> nix::Result<Vec<CString>> {
    // SAFETY: without room nothing is written.
    let needed = unsafe { libc::flistxattr(file.as_fd().as_raw_fd(), std::ptr::null_mut(), 0) };
    if Errno::result(needed)? == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0u8; LARGEST];
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let length = unsafe {
        libc::flistxattr(file.as_fd().as_raw_fd(), names.as_mut_ptr().cast(), names.len())
    };
    let length = Errno::result(length)? as usize;
    names.truncate(length);
    Ok(names
        .split_inclusive(|&byte| byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok().map(CStr::to_owned))
        .collect())
}

/// Whether a file, which may be a symbolic link, has any.
///
/// # Errors
/// As llistxattr(2), but for file systems that have none; EINVAL for a path with a zero in it.
pub fn has_any(path: &Path) -> nix::Result<bool> {
    let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads a string that lives across the call, and writes nothing into a list of no bytes.
    let bytes = unsafe { libc::llistxattr(text.as_ptr(), std::ptr::null_mut(), 0) };
    match Errno::result(bytes) {
        Ok(bytes) => Ok(bytes > 0),
        Err(Errno::EOPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The value of an attribute.
///
/// # Errors
/// As fgetxattr(2).
pub fn get(file: impl AsFd, name: &CStr) -> nix::Result<Vec<u8>> {
    let mut value = vec![0u8; LARGEST];
    // SAFETY: the name ends with a zero; the kernel writes at most as many bytes as the buffer has.
    let length = unsafe {
        libc::fgetxattr(
            file.as_fd().as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(Errno::result(length)? as usize);
    Ok(value)
}

/// Sets an attribute, which may be there or not.
///
/// # Errors
/// As fsetxattr(2).
pub fn set(file: impl AsFd, name: &CStr, value: &[u8]) -> nix::Result<()> {
    // SAFETY: the name ends with a zero, and the kernel reads no more than the value's bytes.
    let done = unsafe {
        libc::fsetxattr(
            file.as_fd().as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    Errno::result(done).map(drop)
}

/// Removes an attribute.
///
/// # Errors
/// As fremovexattr(2).
pub fn remove(file: impl AsFd, name: &CStr) -> nix::Result<()> {
    // SAFETY: the name ends with a zero.
    let done = unsafe { libc::fremovexattr(file.as_fd().as_raw_fd(), name.as_ptr()) };
    Errno::result(done).map(drop)
}
