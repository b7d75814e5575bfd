//! Rehearses a restart: a checkpoint is restored into namespaces of its own until everybody is complete, and taken down
//! again. Nobody runs, and the job itself comes to know nothing of it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use protocol::launch::{External, RestoreSpec};

use super::SessionError;
use super::job::{heap_must_be_low, restore_order, spawn_init};
use crate::EngineError;
use crate::fault;
use crate::graph::FileId;
use crate::job_init::{Channel, ChannelError, Connection, Rehearsal, RehearsedInstance, Report};
use crate::sys::pidfd::PidFd;
use ckpt_store::Checkpoint;

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

/// An instance whose restart is to be rehearsed.
#[derive(Debug)]
pub struct InstanceRehearsal {
    /// What it is.
    pub instance: RehearsedInstance,
    /// The folder with its image.
    pub image_dir: PathBuf,
    /// The checkpoint.
    pub checkpoint: u64,
    /// What is done about connections to outside of the job.
    pub external: External,
    /// Stand-ins for connections with other instances, by the open file of the image that each is to be.
    pub connections: Vec<(FileId, OwnedFd)>,
    /// How long it may take.
    pub limit: Duration,
}

/// Rehearses a restart from a checkpoint of the job that is kept in `job_dir`, as the caller's user. Blocks until nothing is
/// left of it; if the calling thread ends before, the kernel ends it all.
///
/// # Errors
/// What the restart would have told; where it can't be rehearsed here.
pub fn rehearse(job_dir: &Path, checkpoint: u64) -> Result<Rehearsed, SessionError> {
    perform(job_dir, checkpoint, External::Warn, Rehearsal::Job, Vec::new(), None)
}

/// As [`rehearse`], of an instance of a cluster's job.
///
/// # Errors
/// As [`rehearse`]; that it took too long.
pub fn rehearse_instance(wanted: InstanceRehearsal) -> Result<Rehearsed, SessionError> {
    let InstanceRehearsal { instance, image_dir, checkpoint, external, connections, limit } =
        wanted;
    let rehearsal = Rehearsal::Instance(Box::new(instance));
    perform(&image_dir, checkpoint, external, rehearsal, connections, Some(limit))
}

fn perform(
    job_dir: &Path,
    checkpoint: u64,
    external: External,
    rehearsal: Rehearsal,
    connections: Vec<(FileId, OwnedFd)>,
    limit: Option<Duration>,
) -> Result<Rehearsed, SessionError> {
    let began = Instant::now();
    let job_dir = std::fs::canonicalize(job_dir).map_err(SessionError::Spawn)?;
    check_memory(&job_dir, checkpoint)?;
    let spec = RestoreSpec { checkpoint, force: false, external, window: None, file_check: None };
    let mut order = restore_order(&job_dir, spec)?;
    order.rehearsal = Some(rehearsal);
    order.low_heap = heap_must_be_low();
    order.connections = u32::try_from(connections.len()).unwrap_or(u32::MAX);
    let (ours, theirs) = UnixStream::pair().map_err(SessionError::Spawn)?;
    let link = spawn_init(theirs, order.low_heap, None, Stdio::null)?;
    let mut cast = Cast { link, init: None };
    let channel = Channel::new(ours);
    channel.send(&order, &[])?;
    for (file, descriptor) in connections {
        channel.send(&Connection { file, absent: None }, &[descriptor])?;
    }
    let (processes, warnings) = cast.play(&channel, limit.map(|limit| (began, limit)))?;
    fault::point("rehearsed");
    drop(cast);
    Ok(Rehearsed { processes, took: began.elapsed(), warnings })
}

/// The processes of a rehearsal. Dropping it ends them.
struct Cast {
    link: Child,
    init: Option<PidFd>,
}

impl Cast {
    fn play(
        &mut self,
        channel: &Channel,
        limit: Option<(Instant, Duration)>,
    ) -> Result<(u32, Vec<String>), SessionError> {
        loop {
            if let Some((began, limit)) = limit {
                // No time at all would be no limit.
                let left = limit.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
                channel.socket().set_read_timeout(Some(left)).map_err(SessionError::Spawn)?;
            }
            match channel.receive::<Report>() {
                // One that has ended meanwhile needs no end.
                Ok((Report::Init(pid), _)) => self.init = PidFd::open(pid).ok(),
                Ok((Report::Rehearsed { processes, warnings }, _)) => {
                    return Ok((processes, warnings));
                }
                Ok((Report::Failed(reason), _)) => return Err(SessionError::Init(reason)),
                Ok((Report::NotRehearsable(why), _)) => {
                    return Err(EngineError::NotRehearsable(why).into());
                }
                Ok(_) => return Err(SessionError::Init("said something else".into())),
                Err(ChannelError::Socket(Errno::EAGAIN)) => {
                    let seconds = limit.map_or(0, |(_, limit)| limit.as_secs());
                    let why = format!("it was not done after {seconds} s");
                    return Err(EngineError::NotRehearsable(why).into());
                }
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
