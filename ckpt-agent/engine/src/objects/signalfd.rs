//! signalfd(2): signals read as bytes. What is pending belongs to the process that reads.

use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved};

/// A signal descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReader {
    /// Signals that it takes: bit N-1 is signal N.
    pub mask: u64,
}

impl ObjectKind for SignalReader {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[signalfd]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        Ok(Self { mask: probe.info.number("sigmask", 16)? })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let mask = saved.object.mask;
            let flags = libc::SFD_CLOEXEC | (saved.file.flags & libc::SFD_NONBLOCK);
            // SAFETY: the kernel reads the 8 bytes of the mask, which outlives the call.
            let fd = unsafe {
                libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, size_of::<u64>(), flags)
            };
            if fd < 0 {
                return Err(EngineError::last_os("signalfd4", format!("mask {mask:#x}")));
            }
            // SAFETY: the kernel just made this descriptor for us alone.
            context.park(saved.id, unsafe { OwnedFd::from_raw_fd(fd as i32) })?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}
