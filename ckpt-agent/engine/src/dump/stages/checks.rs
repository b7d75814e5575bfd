//! What of a process's memory is refused before any call is made in it.

use std::collections::BTreeSet;

use super::Quiesced;
use crate::dump::areas::{check, check_huge, check_watched};
use crate::dump::hidden;
use crate::error::Result;
use crate::proc::{Mapping, read_smaps};

impl Quiesced {
    /// Refuses memory that no image can hold.
    pub(super) fn check_memory(&self, host_pid: i32, mappings: &[Mapping]) -> Result<()> {
        let known = self.frozen.not_inherited.get(&host_pid).map_or(&[][..], Vec::as_slice);
        let mut own = mappings.iter().filter(|mapping| !mapping.is_kernel());
        own.try_for_each(|mapping| check(host_pid, mapping, &self.context))?;
        known.iter().try_for_each(|smaps| check_huge(host_pid, smaps, &self.context))?;
        hidden::check(host_pid, mappings, &self.context)?;
        self.check_watches(host_pid, known)
    }

    /// What was seen while the process ran may have been another's memory, if it was a child of vfork(2) then and runs a
    /// program of its own by now; or the memory is what ckptd watches, of a process that goes by another thread's number
    /// since its main thread has ended. So whatever would be refused is looked at again, when ckptd watches nothing.
    fn check_watches(&self, host_pid: i32, known: &[Mapping]) -> Result<()> {
        let refused = |smaps: &Mapping| check_watched(host_pid, smaps, &self.context);
        if known.iter().try_for_each(refused).is_ok() {
            return Ok(());
        }
        self.context.tracking.retain(&BTreeSet::new());
        read_smaps(host_pid)?.iter().try_for_each(refused)
    }
}
