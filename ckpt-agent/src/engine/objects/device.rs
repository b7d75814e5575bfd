//! Character devices without a state: /dev/null and its kin.

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::sys::abi;
use super::super::sys::stat::{major, minor};
use super::{DumpContext, Probe, RestoreContext, Room, Saved, reopen};

/// Major number of the memory devices (Documentation/admin-guide/devices.txt).
const MEMORY_DEVICES: u64 = 1;

/// (minor number, path) of those that can be opened anywhere.
const KNOWN: [(u64, &str); 5] =
    [(3, "/dev/null"), (5, "/dev/zero"), (7, "/dev/full"), (8, "/dev/random"), (9, "/dev/urandom")];

/// A device that is the same on every machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The path that it was opened by.
    pub path: String,
    /// Its number below the memory devices.
    pub minor: u64,
}

impl Device {
    fn number(mode: u32, device: u64) -> Option<u64> {
        let known = mode & abi::S_IFMT == abi::S_IFCHR && u64::from(major(device)) == MEMORY_DEVICES;
        let number = minor(device).into();
        (known && KNOWN.iter().any(|(minor, _)| *minor == number)).then_some(number)
    }

    /// The recorded path where it leads to the device, else the usual one.
    fn path(&self) -> Result<&str> {
        let there = nix::sys::stat::stat(self.path.as_str())
            .is_ok_and(|found| Self::number(found.st_mode, found.st_rdev) == Some(self.minor));
        if there {
            return Ok(&self.path);
        }
        KNOWN
            .iter()
            .find(|(minor, _)| *minor == self.minor)
            .map(|(_, path)| *path)
            .ok_or_else(|| EngineError::Damaged(format!("device 1:{} of {}", self.minor, self.path)))
    }
}

impl Room for Device {
    fn recognise(probe: &Probe) -> bool {
        Self::number(probe.stat.st_mode, probe.stat.st_rdev).is_some()
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        Ok(Self { path: probe.link.clone(), minor: minor(probe.stat.st_rdev).into() })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let path = saved.object.path()?;
            let fd = reopen::open(path, saved.file.flags)
                .map_err(|errno| EngineError::system("open", path, errno))?;
            context.park(saved.id, fd)?;
        }
        Ok(())
    }
}
