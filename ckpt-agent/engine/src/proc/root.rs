//! Where the file system begins for a process.

use super::super::error::{EngineError, Result};
use super::super::names;

/// The root directory of a process, where it is another than the job's (chroot(2)).
///
/// # Errors
/// Failed readlink(2).
pub fn root_directory(host_pid: i32) -> Result<Option<String>> {
    let path = format!("/proc/{host_pid}/root");
    let link =
        std::fs::read_link(&path).map_err(|error| EngineError::system("readlink", &path, error))?;
    Ok((link.as_os_str() != "/").then(|| names::text(link)))
}

/// The folder from which this process reaches what paths lead to in the mount namespace of a process, whatever its root
/// directory is.
///
/// # Errors
/// As [`root_directory`].
pub fn namespace_root(host_pid: i32) -> Result<String> {
    let root = root_directory(host_pid)?.unwrap_or_default();
    let up = "/..".repeat(root.split('/').filter(|part| !part.is_empty()).count());
    Ok(format!("/proc/{host_pid}/root{up}"))
}
