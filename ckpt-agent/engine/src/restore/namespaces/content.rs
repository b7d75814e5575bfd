//! What a namespace says once it has been made.

use nix::errno::Errno;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{IdRange, NamespaceContent};
use super::super::super::trace::Remote;
use super::{mounts, time};

/// The longest host name, bytes (include/uapi/linux/utsname.h, __NEW_UTS_LEN).
const LONGEST_NAME: usize = 64;
/// struct ifreq: a name of 16 bytes, and what is asked for or answered, here flags.
const REQUEST: usize = 40;
const NAME: usize = 16;
/// SIOCGIFFLAGS and SIOCSIFFLAGS (include/uapi/linux/sockios.h).
const GET_FLAGS: u64 = 0x8913;
const SET_FLAGS: u64 = 0x8914;

/// Refuses what no dump writes.
pub(super) fn check(content: &NamespaceContent) -> Result<()> {
    let fits = match content {
        NamespaceContent::Uts { host, domain } => {
            [host, domain].iter().all(|name| name.len() <= LONGEST_NAME)
        }
        NamespaceContent::User { uids, gids, .. } => {
            [uids, gids].iter().all(|ranges| ranges.len() <= IdRange::MOST)
        }
        NamespaceContent::OwnIpc { objects } => return super::objects::check(objects),
        NamespaceContent::OwnMounts { mounts, pivot, .. } => return mounts::check(mounts, *pivot),
        _ => true,
    };
    match fits {
        true => Ok(()),
        false => Err(EngineError::Damaged("a namespace that no kernel has".to_owned())),
    }
}

/// Has the process that has made a namespace, or this one for it, put in place what it says.
pub(super) fn fill(
    remote: &mut Remote<'_>,
    pid: i32,
    content: &NamespaceContent,
    rehearsal: bool,
    procs: &[u64],
) -> Result<()> {
    match content {
        NamespaceContent::Uts { host, domain } => {
            name(remote, "sethostname", libc::SYS_sethostname, host)?;
            name(remote, "setdomainname", libc::SYS_setdomainname, domain)
        }
        NamespaceContent::Network { loopback_up: true }
        | NamespaceContent::OwnNetwork { loopback_up: true } => start_loopback(remote),
        NamespaceContent::OwnMounts { mounts, pivot, private } => {
            let order =
                mounts::Order { mounts, pivot: *pivot, private: *private, rehearsal, procs };
            mounts::make(remote, pid, &order)
        }
        NamespaceContent::User { uids, gids, may_set_groups } => {
            if !may_set_groups {
                // Before the groups are mapped, which may hang on it.
                write(pid, "setgroups", "deny")?;
            }
            map(pid, "uid_map", uids)?;
            map(pid, "gid_map", gids)
        }
        NamespaceContent::Time { monotonic_ns, boottime_ns, .. } => {
            time::set(pid, *monotonic_ns, *boottime_ns)
        }
        NamespaceContent::Network { loopback_up: false }
        | NamespaceContent::OwnNetwork { loopback_up: false }
        | NamespaceContent::Ipc
        | NamespaceContent::OwnIpc { .. }
        | NamespaceContent::Mounts
        | NamespaceContent::Cgroup
        | NamespaceContent::Pid => Ok(()),
    }
}

fn name(
    remote: &mut Remote<'_>,
    call: &'static str,
    number: impl Into<i64>,
    name: &str,
) -> Result<()> {
    let at = remote.scratch_data()?;
    remote.memory().write(at, name.as_bytes())?;
    remote.call(call, number, &[at, name.len() as u64]).map(drop)
}

/// A namespace without a map is one in which nobody has written any yet.
fn map(pid: i32, file: &str, ranges: &[IdRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let lines = ranges
        .iter()
        .map(|IdRange(inside, outside, count)| format!("{inside} {outside} {count}\n"));
    write(pid, file, &lines.collect::<String>())
}

fn write(pid: i32, file: &str, text: &str) -> Result<()> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::write(&path, text).map_err(|error| EngineError::system("write", path, error))
}

/// Brings the loopback device up, which is how it gets its addresses.
fn start_loopback(remote: &mut Remote<'_>) -> Result<()> {
    let at = remote.scratch_data()?;
    let mut request = [0; REQUEST];
    request[..2].copy_from_slice(b"lo");
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
    let socket = remote.call("socket", libc::SYS_socket, &[libc::AF_INET as u64, kind, 0])?;
    remote.memory().write(at, &request)?;
    remote.call("SIOCGIFFLAGS", libc::SYS_ioctl, &[socket, GET_FLAGS, at])?;
    remote.memory().read(at, &mut request)?;
    let mut flags = [0; 2];
    flags.copy_from_slice(&request[NAME..NAME + 2]);
    let flags = u16::from_ne_bytes(flags) | libc::IFF_UP as u16;
    request[NAME..NAME + 2].copy_from_slice(&flags.to_ne_bytes());
    remote.memory().write(at, &request)?;
    let set = remote.raw(libc::SYS_ioctl, &[socket, SET_FLAGS, at])?;
    remote.call("close", libc::SYS_close, &[socket])?;
    match Errno::from_raw(-set.min(0) as i32) {
        _ if set >= 0 => Ok(()),
        errno => Err(EngineError::system("ioctl", "the loopback device", errno)),
    }
}
