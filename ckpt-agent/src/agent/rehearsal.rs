//! Rehearses a restart: a checkpoint is restored into namespaces of its own until everybody is complete, and taken down
//! again. Nobody runs, and the job itself comes to know nothing of it.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use protocol::launch::{External, RestoreSpec};

use super::AgentError;
use super::job::{heap_must_be_low, restore_order, spawn_init};
use crate::engine::EngineError;
use crate::engine::job_init::{Channel, ChannelError, Report};
use crate::engine::sys::pidfd::PidFd;
use crate::store::Checkpoint;

/// A restart that would have succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsed {
    /// Processes that were complete.
    pub processes: u32,
    /// How long it took.
    pub took: Duration,
    /// What the restart would have warned of.
    pub warnings: Vec<String>,
}

/// Rehearses a restart from a checkpoint of the job that is kept in `job_dir`, as the caller's user. Blocks until nothing is
/// left of it; if the calling thread ends before, the kernel ends it all.
///
/// # Errors
/// What the restart would have told; where it can't be rehearsed here.
pub fn rehearse(job_dir: &Path, checkpoint: u64) -> Result<Rehearsed, AgentError> {
    let began = Instant::now();
    let job_dir = std::fs::canonicalize(job_dir).map_err(AgentError::Spawn)?;
    check_memory(&job_dir, checkpoint)?;
    let spec = RestoreSpec { checkpoint, force: false, external: External::Warn, window: None };
    let mut order = restore_order(&job_dir, spec)?;
    order.rehearsal = true;
    order.low_heap = heap_must_be_low();
    let (ours, theirs) = UnixStream::pair().map_err(AgentError::Spawn)?;
    let link = spawn_init(theirs, order.low_heap, Stdio::null)?;
    let mut cast = Cast { link, init: None };
    let channel = Channel::new(ours);
    channel.send(&order, &[])?;
    let (processes, warnings) = cast.play(&channel)?;
    drop(cast);
    Ok(Rehearsed { processes, took: began.elapsed(), warnings })
}

/// The processes of a rehearsal. Dropping it ends them.
struct Cast {
    link: Child,
    init: Option<PidFd>,
}

impl Cast {
    fn play(&mut self, channel: &Channel) -> Result<(u32, Vec<String>), AgentError> {
        loop {
            match channel.receive::<Report>() {
                // One that has ended meanwhile needs no end.
                Ok((Report::Init(pid), _)) => self.init = PidFd::open(pid).ok(),
                Ok((Report::Rehearsed { processes, warnings }, _)) => {
                    return Ok((processes, warnings));
                }
                Ok((Report::Failed(reason), _)) => return Err(AgentError::Init(reason)),
                Ok((Report::NotRehearsable(why), _)) => {
                    return Err(EngineError::NotRehearsable(why).into());
                }
                Ok(_) => return Err(AgentError::Init("said something else".into())),
                Err(ChannelError::Closed) => {
                    let why = "it was killed, perhaps for want of memory".to_owned();
                    return Err(EngineError::NotRehearsable(why).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        match &self.init {
            // The link sees to the rest, and ends behind it.
            Some(init) => drop(init.signal(libc::SIGKILL)),
            None => drop(self.link.kill()),
        }
        // Another thread of this process may have waited for it already.
        let _ = self.link.wait();
    }
}

/// All that is restored is in memory, beside the live job.
fn check_memory(job_dir: &Path, checkpoint: u64) -> Result<(), EngineError> {
    let wanted = Checkpoint::open(job_dir, checkpoint)?.mark().totals.bytes;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    if wanted <= available {
        return Ok(());
    }
    Err(EngineError::NotRehearsable(format!(
        "it needs {wanted} bytes of memory beside the job, {available} are available"
    )))
}
