//! What is written while the job goes on.

use std::time::{Duration, Instant};

use super::frozen::{NotInherited, is_not_inherited};
use crate::doing::{self, Thing};
use crate::dump::areas::Planned;
use crate::dump::snapshot_process::SnapshotProcess;
use crate::error::{EngineError, Result};
use crate::freeze::{FrozenJob, StoppedProcess};
use crate::graph::{Graph, ProcessImage};
use crate::objects::DumpContext;
use crate::proc::Mapping;
use crate::sys::schedule::Ahead;
use crate::tracking::Unwritten;

/// One process of a snapshot.
#[derive(Debug)]
pub struct ProcessDump {
    /// The process itself, as this machine numbers it.
    pub host_pid: i32,
    /// The snapshot process that holds its memory, as this machine numbers it; the process itself, where it stands until all is
    /// written.
    pub snapshot_pid: i32,
    /// Everything but areas, pages and executable.
    pub image: ProcessImage,
    /// Whether /proc shows its program: it does not where a restore could not tell the kernel what the process is.
    pub shows_program: bool,
    /// Its mappings at the moment of the snapshot.
    pub planned: Vec<Planned>,
    /// Pages that the snapshot process did not inherit: address and content.
    pub early: Vec<(u64, Vec<u8>)>,
    /// Guard regions (MADV_GUARD_INSTALL) that it did not inherit.
    pub guards: Vec<(u64, u64)>,
    /// Pages that were not written since earlier checkpoints.
    pub unwritten: Unwritten,
}

impl ProcessDump {
    /// Whether it stands until all is written, and no snapshot process holds its memory.
    pub fn shows_itself(&self) -> bool {
        self.snapshot_pid == self.host_pid
    }
}

/// What is written once the job goes on. Can be sent to another thread.
#[derive(Debug)]
pub struct SnapshotData {
    /// Processes; those of zombies are only in the graph.
    pub processes: Vec<ProcessDump>,
    /// The graph, its blobs still empty.
    pub graph: Graph,
    /// Blobs and warnings.
    pub context: DumpContext,
    /// Bytes per page.
    pub page: u64,
    pub(super) not_inherited: NotInherited,
}

impl SnapshotData {
    /// The snapshot processes, as this machine numbers them.
    pub fn snapshot_processes(&self) -> Vec<i32> {
        let copied = self.processes.iter().filter(|process| !process.shows_itself());
        copied.map(|process| process.snapshot_pid).collect()
    }

    /// Whether this mapping was known not to be inherited when the snapshot process was made, so that its pages
    /// were read from the process itself.
    pub fn knows_not_inherited(&self, host_pid: i32, mapping: &Mapping) -> bool {
        self.as_it_ran(host_pid, mapping).is_some_and(is_not_inherited)
    }

    /// The flags of such a mapping, of a locked one or of a SysV segment, as they were before the freeze.
    pub fn as_it_ran(&self, host_pid: i32, mapping: &Mapping) -> Option<&Mapping> {
        let special = self.not_inherited.get(&host_pid)?;
        special.iter().find(|known| known.start <= mapping.start && mapping.end <= known.end)
    }
}

/// Everything has been read or is held by snapshot processes.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) job: Option<FrozenJob>,
    pub(super) snapshot_processes: Vec<SnapshotProcess>,
    pub(super) data: Option<SnapshotData>,
    pub(super) since: Instant,
}

impl Snapshot {
    /// Lets the job go on; how long it stood.
    ///
    /// # Errors
    /// Failures to let a thread go, other than its end.
    pub fn resume(&mut self) -> Result<Duration> {
        // Those who run already would keep the others standing.
        let _ahead = Ahead::begin();
        if let Some(job) = self.job.take() {
            for mut process in job.processes {
                let pid = process.host_pid;
                doing::begin("letting go", Thing::HostProcess(pid));
                match process.hide_again() {
                    Ok(()) | Err(EngineError::Gone(_)) => {}
                    Err(error) => return Err(error),
                }
                for thread in std::mem::take(&mut process.threads) {
                    match thread.detach() {
                        Ok(()) | Err(EngineError::Gone(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(self.since.elapsed())
    }

    /// What is to be written, once.
    pub fn take_data(&mut self) -> Option<SnapshotData> {
        self.data.take()
    }

    /// Whether the job stands still.
    pub fn stands(&self) -> bool {
        self.job.is_some()
    }

    /// Whether the job must stand until all is written, since no snapshot processes hold its memory.
    pub fn must_stand(&self) -> bool {
        let processes = self.data.iter().flat_map(|data| &data.processes);
        processes.into_iter().any(ProcessDump::shows_itself)
    }

    /// Gives back what was borrowed from a job that stands for long: should its tracer die, it goes on as it was.
    ///
    /// # Errors
    /// Failed ptrace calls, but not a thread's end.
    pub fn rest(&mut self) -> Result<()> {
        for process in self.job.iter_mut().flat_map(|job| &mut job.processes) {
            doing::begin(
                "giving back what was borrowed from",
                Thing::HostProcess(process.host_pid),
            );
            for thread in &mut process.threads {
                match thread.rest() {
                    Ok(()) | Err(EngineError::Gone(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// A job that stands to go on elsewhere must not go on here: it is killed where its tracer dies.
    pub fn die_with_tracer(&self) {
        let processes = self.job.iter().flat_map(|job| &job.processes);
        processes.for_each(StoppedProcess::die_with_tracer);
    }

    /// Processes that stand still.
    pub fn processes(&self) -> usize {
        self.job.as_ref().map_or(0, |job| job.processes.len())
    }

    /// Has the copies of memory stop at their ends, for one who takes their memory when it kills them.
    pub fn stop_snapshot_processes_at_end(&self) {
        for snapshot_process in &self.snapshot_processes {
            if let Err(error) = snapshot_process.stop_at_end() {
                // The write finds that it is dead.
                tracing::debug!("a copy of memory: {error}");
            }
        }
    }

    /// Everything has been written: the copies of memory are not needed any more.
    pub fn drop_snapshot_processes(&mut self) {
        self.snapshot_processes.clear();
    }

    /// Whether all snapshot processes still hold their memory.
    pub fn is_whole(&self) -> bool {
        self.snapshot_processes.iter().all(SnapshotProcess::is_alive)
    }
}
