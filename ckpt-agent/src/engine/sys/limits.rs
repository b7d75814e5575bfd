//! prlimit(2) of another process.

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::super::graph::ResourceLimit;

/// RLIM_NLIMITS of Linux.
const LIMITS: u32 = 16;

/// All limits of a process.
///
/// # Errors
/// EPERM where it is another user's.
pub fn resource_limits(pid: i32) -> Result<Vec<ResourceLimit>> {
    (0..LIMITS)
        .map(|resource| {
            let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: `limit` lives across the call, and no new limit is given.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_prlimit64,
                    pid,
                    resource,
                    std::ptr::null::<libc::rlimit64>(),
                    &raw mut limit,
                )
            };
            Errno::result(answer)
                .map_err(|errno| EngineError::system("prlimit", format!("process {pid}"), errno))?;
            Ok(ResourceLimit { resource, soft: limit.rlim_cur, hard: limit.rlim_max })
        })
        .collect()
}

/// Sets a limit of a process (0: of this one).
///
/// # Errors
/// EPERM where a hard limit would rise without privilege.
pub fn set_resource_limit(pid: i32, limit: &ResourceLimit) -> nix::Result<()> {
    let new = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
    // SAFETY: `new` lives across the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            limit.resource,
            &raw const new,
            std::ptr::null_mut::<libc::rlimit64>(),
        )
    };
    Errno::result(answer).map(drop)
}
