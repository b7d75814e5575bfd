//! Where the file system begins for a process.

use super::super::error::{EngineError, Result};

/// The root directory of a process, where it is another than the job's (chroot(2)).
///
/// # Errors
/// Failed readlink(2).
pub fn root_directory(host_pid: i32) -> Result<Option<String>> {
    let path = format!("/proc/{host_pid}/root");
    let link =
        std::fs::read_link(&path).map_err(|error| EngineError::system("readlink", &path, error))?;
    Ok((link.as_os_str() != "/").then(|| link.to_string_lossy().into_owned()))
}
