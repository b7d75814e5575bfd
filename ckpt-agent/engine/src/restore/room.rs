//! Room for the job's memory below the limits of whoever restarts it.

use nix::sys::resource::Resource;

use super::super::error::{EngineError, Result};
use super::super::sys::limits;
use super::super::trace::SCRATCH_SIZE;
use super::Processes;

/// Whether processes may map here what they had mapped: the limit that they inherit is not theirs, which they get last.
///
/// # Errors
/// [`EngineError::Unfit`].
pub fn check(processes: &Processes) -> Result<()> {
    let limits = limits::resource_limits(0)?;
    let limit = limits.iter().find(|limit| limit.resource == Resource::RLIMIT_AS as u32);
    let most = limit.map_or(u64::MAX, |limit| limit.soft);
    for image in processes.values() {
        let lengths = image.areas.iter().map(|area| area.end.saturating_sub(area.start));
        let needed = lengths.fold(SCRATCH_SIZE, u64::saturating_add);
        if needed > most {
            return Err(EngineError::Unfit {
                what: format!(
                    "process {} has mapped {} KiB, and the limit is {} KiB here (RLIMIT_AS)",
                    image.pid,
                    needed / 1024,
                    most / 1024
                ),
                way_out: "raise that (ulimit -v)".into(),
            });
        }
    }
    Ok(())
}
