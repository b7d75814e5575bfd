//! prlimit(2) of another process.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::super::error::{EngineError, Result};
use super::super::graph::ResourceLimit;
use super::super::proc::read_text;

/// RLIM_NLIMITS of Linux.
const LIMITS: u32 = 16;

/// The soft and the hard limit of this process; `u64::MAX`: none.
///
/// # Errors
/// None are known.
#[allow(clippy::useless_conversion, reason = "limits have 32 bits for some machines")]
pub fn own(resource: Resource) -> nix::Result<(u64, u64)> {
    let wide = |limit: libc::rlim_t| match limit {
        libc::RLIM_INFINITY => u64::MAX,
        other => u64::from(other),
    };
    getrlimit(resource).map(|(soft, hard)| (wide(soft), wide(hard)))
}

/// Sets both limits of this process.
///
/// # Errors
/// EPERM where the hard limit would rise.
#[allow(clippy::useless_conversion, reason = "limits have 32 bits for some machines")]
pub fn set_own(resource: Resource, soft: u64, hard: u64) -> nix::Result<()> {
    let narrow = |limit: u64| limit.try_into().unwrap_or(libc::RLIM_INFINITY);
    setrlimit(resource, narrow(soft), narrow(hard))
}

/// All limits of a process.
///
/// # Errors
/// Where it has ended.
pub fn resource_limits(pid: i32) -> Result<Vec<ResourceLimit>> {
    match by_call(pid) {
        // Of another user's process without CAP_SYS_RESOURCE: /proc tells everybody.
        Err(EngineError::System { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
            from_proc(pid)
        }
        other => other,
    }
}

/// /proc/PID/limits (proc_pid_limits(5)): a heading, then one line for each, in the order of their numbers.
fn from_proc(pid: i32) -> Result<Vec<ResourceLimit>> {
    /// Characters of the name in front of the two values (fs/proc/base.c, proc_pid_limits).
    const NAME: usize = 25;
    let path = format!("/proc/{pid}/limits");
    let text = read_text(&path)?.ok_or(EngineError::Gone(pid))?;
    let odd = |line: &str| EngineError::odd(&path, line);
    text.lines()
        .skip(1)
        .zip(0..LIMITS)
        .map(|(line, resource)| {
            let mut words = line.get(NAME..).unwrap_or_default().split_ascii_whitespace();
            let mut value = || match words.next() {
                Some("unlimited") => Ok(libc::RLIM64_INFINITY),
                Some(word) => word.parse().map_err(|_| odd(line)),
                None => Err(odd(line)),
            };
            Ok(ResourceLimit { resource, soft: value()?, hard: value()? })
        })
        .collect()
}

fn by_call(pid: i32) -> Result<Vec<ResourceLimit>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same() {
        let own = std::process::id() as i32;
        assert_eq!(from_proc(own).unwrap(), by_call(own).unwrap());
    }
}
