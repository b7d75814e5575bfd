//! Room for what the dump maps in a process, and for the copy of it, below the process's limits.

use nix::sys::resource::Resource;
use procfs::process::Status;

use super::super::error::{Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::sys::limits::{Raised, resource_limits};
use super::super::trace::SCRATCH_SIZE;

/// Bytes that are mapped in a process at once: the scratch area, and pages for calls that go on.
const NEEDED: u64 = SCRATCH_SIZE + 256 * 1024;

/// A limit, how it is called, how a shell raises it, and what of /proc/PID/status counts against it, KiB.
type Counted = (Resource, &'static str, &'static str, Option<u64>);

impl StoppedProcess {
    /// Lifts limits that would be in the way, until the scratch area is taken out. From here on the process is killed where its
    /// tracer dies.
    ///
    /// # Errors
    /// The refusal of one that would map too much even so; the process's end.
    pub(super) fn make_room(&mut self, status: &Status) -> Result<()> {
        if self.raised.is_some() {
            return Ok(());
        }
        self.die_with_tracer();
        let raised = Raised::begin(self.host_pid)?;
        let limits = resource_limits(self.host_pid)?;
        let counted: [Counted; 2] = [
            (Resource::RLIMIT_AS, "RLIMIT_AS", "ulimit -v", status.vmsize),
            (Resource::RLIMIT_DATA, "RLIMIT_DATA", "ulimit -d", status.vmdata),
        ];
        for (resource, name, raises, used) in counted {
            let used = used.unwrap_or(0).saturating_mul(1024);
            let limit = limits.iter().find(|limit| limit.resource == resource as u32);
            if limit.is_some_and(|limit| limit.soft < used.saturating_add(NEEDED)) {
                return Err(Refusal::new(
                    format!("is less than {} KiB below its hard limit {name}", NEEDED / 1024),
                    format!("raise that ({raises})"),
                )
                .into());
            }
        }
        self.raised = Some(raised);
        Ok(())
    }
}
