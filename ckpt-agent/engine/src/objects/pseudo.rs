//! Files of /proc and /sys that show the machine rather than a process: opened again.

use std::os::fd::AsFd;

use nix::sys::statfs::{FsType, fstatfs};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::abi;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, reopen};

/// Magic numbers of statfs(2) (include/uapi/linux/magic.h): procfs, sysfs, cgroup v1 and v2.
const KINDS: [u32; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];

/// A file that the kernel makes up as it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PseudoFile {
    /// Its path.
    pub path: String,
    /// File offset, bytes.
    pub offset: u64,
}

/// Whether it is of a /proc that is not mounted there: it may show a process, which a path alone does not tell.
fn is_elsewhere(probe: &Probe) -> Result<bool> {
    let found =
        fstatfs(&probe.copy).map_err(|errno| EngineError::system("fstatfs", &probe.link, errno))?;
    Ok(found.filesystem_type() == FsType(KINDS[0] as _) && !probe.link.starts_with("/proc/"))
}

/// Whether the job may wait for pressure on the machine or on a control group: what it has written is told nowhere. Nothing but
/// triggers is written there, and whether there is one, only poll(2) tells, which takes its event from the job
/// (kernel/sched/psi.c, psi_trigger_poll).
fn is_trigger(probe: &Probe) -> bool {
    // cgroup.pressure turns the others on and off, and takes no trigger.
    let is_switch = probe.link.ends_with("/cgroup.pressure");
    let is_pressure =
        probe.link.starts_with("/proc/pressure/") || probe.link.ends_with(".pressure");
    is_pressure && !is_switch && reopen::writable(probe.flags)
}

impl ObjectKind for PseudoFile {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFREG
            && fstatfs(&probe.copy).is_ok_and(|found| {
                KINDS.iter().any(|kind| found.filesystem_type() == FsType(*kind as _))
            })
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        if is_elsewhere(probe)? {
            let what = format!("{} is a file of /proc that is mounted elsewhere", probe.link);
            return Err(Refusal::new(what, "open it below /proc").into());
        }
        if !super::paths::leads_to_it(probe) {
            return Err(probe.unknown().into());
        }
        if is_trigger(probe) {
            let what = format!("{} is open for writing, as triggers are", probe.link);
            let way_out = "close it while checkpoints are taken";
            return Err(Refusal::new(what, way_out).into());
        }
        Ok(Self { path: probe.link.clone(), offset: probe.info.position()? })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let file = saved.object;
            let fd =
                reopen::open(&file.path, saved.file.flags).map_err(|errno| EngineError::Unfit {
                    what: format!("{} cannot be opened here ({})", file.path, errno.desc()),
                    way_out: "restart on a machine whose kernel has it".to_owned(),
                })?;
            // Some have no offset at all; the others made one up and take it back.
            if let Err(errno) = reopen::seek(fd.as_fd(), file.offset) {
                if file.offset > 0 {
                    return Err(EngineError::system("lseek", &file.path, errno));
                }
            }
            context.park(saved.id, fd)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}
