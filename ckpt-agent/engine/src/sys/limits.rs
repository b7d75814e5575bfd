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

/// What mapping memory and making processes may be refused by.
pub const IN_THE_WAY: [Resource; 4] =
    [Resource::RLIMIT_AS, Resource::RLIMIT_DATA, Resource::RLIMIT_MEMLOCK, Resource::RLIMIT_NPROC];

/// A process that stands still may map more memory, and make more processes, than its program has let it, as far as the caller
/// may allow that. Its limits are as before when this is dropped.
#[derive(Debug)]
pub struct Raised {
    pid: i32,
    before: Vec<ResourceLimit>,
}

impl Raised {
    /// Raises what is in the way: as far as possible with privilege, else to the hard limits.
    ///
    /// # Errors
    /// Where the process has ended.
    pub fn begin(pid: i32) -> Result<Self> {
        let mut raised = Self { pid, before: Vec::new() };
        for limit in resource_limits(pid)? {
            if raise(pid, &limit, true) {
                raised.before.push(limit);
            }
        }
        Ok(raised)
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        for limit in &self.before {
            // A soft limit at most as high as the hard one, and a lower hard one, are nobody's privilege: only the process's end
            // can make it fail.
            let _ = set_resource_limit(self.pid, limit);
        }
    }
}

/// Raises one limit of a process (0: of this one), if it is of those that are in the way; whether it has changed.
/// `above`: also its hard limit, where that is allowed.
fn raise(pid: i32, limit: &ResourceLimit, above: bool) -> bool {
    let in_the_way = IN_THE_WAY.iter().any(|resource| *resource as u32 == limit.resource);
    let none = libc::RLIM64_INFINITY;
    if !in_the_way || limit.soft == none {
        return false;
    }
    let wanted = |most: u64| ResourceLimit { soft: most, hard: most, ..*limit };
    above && limit.hard != none && set_resource_limit(pid, &wanted(none)).is_ok()
        || limit.soft != limit.hard && set_resource_limit(pid, &wanted(limit.hard)).is_ok()
}

/// Lets this process, and those that it makes, map memory and make processes as it is allowed to, whatever the soft limits that it has
/// inherited. `above`: also above the hard ones, where that is allowed.
///
/// # Errors
/// None are known.
pub fn raise_own(above: bool) -> Result<()> {
    for limit in resource_limits(0)? {
        raise(0, &limit, above);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same() {
        let own = std::process::id() as i32;
        assert_eq!(from_proc(own).unwrap(), by_call(own).unwrap());
    }

    #[test]
    fn raised_limits_are_given_back() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let resource = Resource::RLIMIT_DATA as u32;
        let low = ResourceLimit { resource, soft: 1 << 20, hard: 1 << 40 };
        set_resource_limit(pid, &low).unwrap();
        let before = resource_limits(pid).unwrap();
        assert!(before.contains(&low));
        let raised = Raised::begin(pid).unwrap();
        let data = |limits: Vec<ResourceLimit>| limits[resource as usize];
        assert!(data(resource_limits(pid).unwrap()).soft >= low.hard);
        drop(raised);
        let after = resource_limits(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(after, before);
    }
}
