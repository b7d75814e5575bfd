//! eventfd(2): a counter that descriptors share.

use std::os::fd::AsFd;

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::{DumpContext, Probe, RestoreContext, Room, Saved};

/// An event counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounter {
    /// Its value.
    pub count: u64,
    /// EFD_SEMAPHORE: each read takes one.
    pub semaphore: bool,
}

impl Room for EventCounter {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[eventfd]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        Ok(Self {
            count: probe.info.number("eventfd-count", 16)?,
            // Told since Linux 6.5 (fs/eventfd.c, eventfd_show_fdinfo).
            semaphore: probe.info.get("eventfd-semaphore") == Some("1"),
        })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let mut flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            flags.set(EfdFlags::EFD_SEMAPHORE, saved.object.semaphore);
            let counter = EventFd::from_value_and_flags(0, flags)
                .map_err(|errno| EngineError::system("eventfd", "an event counter", errno))?;
            // eventfd(2) takes only 32 bits of initial value; a write adds all 64.
            if saved.object.count > 0 {
                nix::unistd::write(counter.as_fd(), &saved.object.count.to_ne_bytes())
                    .map_err(|errno| EngineError::system("write to", "an event counter", errno))?;
            }
            context.park(saved.id, counter.into())?;
        }
        Ok(())
    }
}
