//! What holds the memory of each process while the job goes on.

use super::Quiesced;
use crate::dump::snapshot_process::SnapshotProcess;
use crate::dump::snapshot_processes::{Reading, make_snapshot_processes};
use crate::error::{EngineError, Result};
use crate::freeze::StoppedProcess;

impl Quiesced {
    /// What holds the memory of each process while it goes on; nothing, where the processes themselves are read, which stand as
    /// long.
    ///
    /// # Errors
    /// No memory, too many processes where one of them must not be shown for long.
    pub(super) fn copy_processes(
        &mut self,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
    ) -> Result<Vec<SnapshotProcess>> {
        // A copy would be seen in a PID namespace of the job's own.
        if self.namespaces.has_pids() {
            return Ok(Vec::new());
        }
        let shares = |host_pid: i32| self.shares_memory(host_pid);
        let (context, namespaces) = (&self.context, &self.namespaces);
        let made = make_snapshot_processes(processes, readings, context, namespaces, &shares);
        let refused = made.as_ref().err().is_some_and(is_full);
        // What is hidden must not be shown for so long.
        if !refused || processes.iter().any(|process| process.made_dumpable.is_some()) {
            return made;
        }
        self.context.warn(
            "the job stands until its image is written: its user, or its control group, may have no more processes \
             (RLIMIT_NPROC, pids.max)",
        );
        Ok(Vec::new())
    }
}

/// Whether no process could be made since there are as many as there may be.
fn is_full(error: &EngineError) -> bool {
    let EngineError::System { call, source, .. } = error else { return false };
    matches!(*call, "clone" | "clone3") && source.raw_os_error() == Some(libc::EAGAIN)
}
