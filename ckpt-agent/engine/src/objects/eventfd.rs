//! eventfd(2): a counter that descriptors share.

use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved};

/// An event counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounter {
    /// Its value.
    pub count: u64,
    /// EFD_SEMAPHORE: each read takes one.
    pub semaphore: bool,
}

fn count(probe: &Probe) -> Result<u64> {
    probe.info.number("eventfd-count", 16)
}

/// Whether a read takes one: a read tells, where the counter is more than that. Afterwards the counter is as before;
/// whoever waits for it stands still, and looks at it again before it goes on.
fn counts_down(probe: &Probe) -> Result<bool> {
    let failed = |call| {
        move |errno| EngineError::system(call, "an event counter", std::io::Error::from(errno))
    };
    let set_flags = |flags: i32| {
        fcntl(&probe.copy, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags)))
            .map(drop)
            .map_err(failed("fcntl"))
    };
    let add = |count: u64| match count {
        0 => Ok(()),
        _ => nix::unistd::write(&probe.copy, &count.to_ne_bytes())
            .map(drop)
            .map_err(failed("write to")),
    };
    let take = || {
        let mut taken = [0; size_of::<u64>()];
        nix::unistd::read(&probe.copy, &mut taken)
            .map(|_| u64::from_ne_bytes(taken))
            .map_err(failed("read"))
    };
    let count = count(probe)?;
    // Somebody outside of the job may have it as well, and does not stand still.
    set_flags(probe.flags | libc::O_NONBLOCK)?;
    let added = if count < 2 { 2 } else { 0 };
    let found = add(added).and_then(|()| match take()? {
        1 if added == 0 => add(1).map(|()| true),
        1 => take().map(|_| true),
        all => add(all - added).map(|()| false),
    });
    set_flags(probe.flags)?;
    found
}

impl ObjectKind for EventCounter {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[eventfd]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        Ok(Self {
            count: count(probe)?,
            // Told since Linux 6.5 (fs/eventfd.c, eventfd_show_fdinfo).
            semaphore: match probe.info.get("eventfd-semaphore") {
                Some(told) => told == "1",
                None => counts_down(probe)?,
            },
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

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_tells_what_the_kernel_does_not() {
        for semaphore in [false, true] {
            for blocks in [false, true] {
                for value in [0, 1, 2, 42, u64::MAX - 1] {
                    let mut flags = EfdFlags::EFD_CLOEXEC;
                    flags.set(EfdFlags::EFD_SEMAPHORE, semaphore);
                    flags.set(EfdFlags::EFD_NONBLOCK, !blocks);
                    let counter = EventFd::from_value_and_flags(0, flags).unwrap();
                    if value > 0 {
                        counter.write(value).unwrap();
                    }
                    let fd = std::os::fd::AsRawFd::as_raw_fd(&counter.as_fd());
                    let own = std::process::id() as i32;
                    let probe = Probe::of(own, own, "test", fd).unwrap();
                    assert_eq!(counts_down(&probe).unwrap(), semaphore, "{value}");
                    let after = Probe::of(own, own, "test", fd).unwrap();
                    assert_eq!((count(&after).unwrap(), after.flags), (value, probe.flags));
                }
            }
        }
    }
}
