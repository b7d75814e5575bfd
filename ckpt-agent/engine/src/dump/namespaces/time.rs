//! Time namespaces (time_namespaces(7)). /proc/PID/timens_offsets tells the clocks of the one that the process's children
//! will be in, which is as a rule its own.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{NamespaceContent, TIME_OF_CHILDREN};
use super::super::super::proc::status_of;
use super::super::clocks;
use super::content::file_of;
use super::{name_of, refuse};

/// The file below /proc/PID/ns of the one that a process is in.
pub(super) const OWN: &str = "time";
/// CAP_SYS_ADMIN (include/uapi/linux/capability.h)
const ADMIN: u64 = 1 << 21;

/// The clocks of a time namespace as the job's other processes see them. `file`: by which the process is in it.
pub(super) fn content(
    init: i32,
    pid: i32,
    file: &str,
    all: &BTreeSet<i32>,
) -> Result<NamespaceContent> {
    let name = name_of(pid, file);
    let tells = |pid: &i32| name_of(*pid, TIME_OF_CHILDREN) == name;
    let Some(teller) = std::iter::once(&pid).chain(all).find(|pid| tells(pid)) else {
        let what = "is in a time namespace of its own whose clocks can't be told: the processes in it have made \
                    others for their children";
        return Err(refuse(what.to_owned()));
    };
    let (home, own) = (clocks::offsets(init)?, clocks::offsets(*teller)?);
    Ok(NamespaceContent::Time {
        monotonic_ns: own.0.saturating_sub(home.0),
        boottime_ns: own.1.saturating_sub(home.1),
        fixed: file == OWN || is_fixed(*teller)?,
    })
}

/// Whether anybody has been in the time namespace of a process's children: then its clocks can't be set any more, not even
/// to what they are, which is how one can tell (kernel/time/namespace.c, `proc_timens_set_offset()`).
fn is_fixed(pid: i32) -> Result<bool> {
    let path = format!("/proc/{pid}/timens_offsets");
    let same = file_of(pid, "timens_offsets")?;
    let failed = |error| EngineError::system("write", &path, error);
    let mut file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
    match file.write_all(same.as_bytes()) {
        Ok(()) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

/// A copy of a process is its child, which must not be the first one in a namespace: that would fix its clocks. It needs
/// another one, which it takes a right to make.
pub(super) fn check_copy(pid: i32) -> Result<()> {
    let status = status_of(pid)?;
    match status.capeff & ADMIN {
        0 => {
            let what = "has made a time namespace for its children that none is in yet, and has given CAP_SYS_ADMIN up";
            Err(refuse(what.to_owned()))
        }
        _ => Ok(()),
    }
}
