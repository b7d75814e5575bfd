//! Files among mounts of a job's own that a restart can't open there: it opens them by the job's mounts alone. Folders are
//! refused, since what lies around them would be another thing.

use std::collections::{BTreeSet, HashMap};

use nix::sys::resource::Resource;

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{Descriptor, Inside, Lock, OpenFile, Pid};
use super::super::objects::{DumpContext, Object, Probe};
use super::super::sys::limits::resource_limits;

/// Numbers above its highest descriptor that a process needs to get another file in place of one.
const ROOM: u64 = 2;

/// Why a file is opened before there are mounts of the job's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// It is under way in a Unix socket.
    InFlight,
    /// A ring is made with it.
    Registered,
    /// Its process could not be given another one later.
    Limited,
}

impl Early {
    /// Refuses a folder.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(self, inside: Option<&Inside>, object: &Object) -> Result<()> {
        let is_later = object.is_place() || object.is_made_with_mounts();
        let Some(Inside { path, .. }) = inside.filter(|_| is_later) else { return Ok(()) };
        let what = |why: &str| format!("{path} of mounts of its own{why}");
        Err(match self {
            Self::InFlight => Refusal::passing(what(""), "it is received soon: try again"),
            Self::Registered => Refusal::new(
                what(", registered with an io_uring"),
                "unregister it while checkpoints are taken",
            ),
            Self::Limited => Refusal::new(
                what(", where the limit of open files leaves no number free"),
                "raise the limit (ulimit -n)",
            ),
        }
        .into())
    }

    /// Has a file opened by the job's mounts alone.
    ///
    /// # Errors
    /// The refusal of a folder.
    pub fn open(self, file: &mut OpenFile) -> Result<()> {
        self.check(file.inside.as_ref(), &file.object)?;
        file.inside = None;
        Ok(())
    }
}

/// Files on which processes hold locks of their own: a process loses its locks of a file with any descriptor of it that it
/// closes, as it does where a file that is opened later takes its place.
///
/// # Errors
/// The refusal of one that is opened later in any case.
pub fn open_locked(
    locks: &HashMap<i32, Vec<(i32, Lock)>>,
    files: &mut [OpenFile],
    probes: &[Probe],
    context: &mut DumpContext,
) -> Result<()> {
    let held = locks.iter().flat_map(|(pid, locks)| locks.iter().map(|(fd, _)| (*pid, *fd)));
    let ids = held.filter_map(|place| context.descriptors.get(&place));
    let through = ids.filter_map(|id| probes.get(id.0 as usize));
    let locked: BTreeSet<(u64, u64)> = through.map(Probe::inode).collect();
    let files = files.iter_mut().zip(probes);
    for (file, probe) in files.filter(|(_, probe)| locked.contains(&probe.inode())) {
        match &file.inside {
            Some(inside) if file.object.is_made_with_mounts() => {
                let what =
                    format!("{}, in a tmpfs of its own, has a record lock (fcntl)", inside.path);
                let refusal = Refusal::passing(what, "unlock it while checkpoints are taken");
                let error = EngineError::from(refusal);
                return Err(error.at(probe.pid, &probe.comm, probe.fd));
            }
            Some(inside) if file.object.is_place() => {
                // One that no lock can be set through keeps its path, and nobody's locks are lost with it.
                if file.flags & libc::O_PATH == 0 {
                    let line =
                        format!("the lock of the folder {} is not in the image", inside.path);
                    context.warnings.push(line);
                }
            }
            _ => file.inside = None,
        }
    }
    Ok(())
}

/// Files that are registered with rings, which have them before processes are in their namespaces.
///
/// # Errors
/// The refusal of a folder.
pub fn open_registered(files: &mut [OpenFile], probes: &[Probe]) -> Result<()> {
    let mut registered = Vec::new();
    for (file, probe) in files.iter().zip(probes) {
        if let Object::Ring(ring) = &file.object {
            registered.extend(ring.registered().map(|id| (id, probe)));
        }
    }
    for (id, probe) in registered {
        let Some(file) = files.get_mut(id.0 as usize) else { continue };
        let opened = Early::Registered.open(file);
        opened.map_err(|error| error.at(probe.pid, &probe.comm, probe.fd))?;
    }
    Ok(())
}

/// Files of processes whose limit of open files leaves no number free to get them later.
///
/// # Errors
/// The refusal of a folder; a process that is gone.
pub fn open_limited(
    processes: &[(i32, Pid, String)],
    descriptors: &HashMap<i32, Vec<Descriptor>>,
    files: &mut [OpenFile],
) -> Result<()> {
    for (host_pid, pid, comm) in processes {
        let own = descriptors.get(host_pid).map_or(&[][..], Vec::as_slice);
        let is_later = |own: &&Descriptor| {
            files.get(own.file.0 as usize).is_some_and(|file| file.inside.is_some())
        };
        if !own.iter().any(|own| is_later(&own)) || !is_limited(*host_pid, own)? {
            continue;
        }
        for own in own {
            let Some(file) = files.get_mut(own.file.0 as usize) else { continue };
            let opened = Early::Limited.open(file);
            opened.map_err(|error: EngineError| error.at(*pid, comm, own.fd))?;
        }
    }
    Ok(())
}

fn is_limited(host_pid: i32, descriptors: &[Descriptor]) -> Result<bool> {
    let limits = resource_limits(host_pid)?;
    let mut limits = limits.into_iter();
    let limit = limits.find(|limit| limit.resource == Resource::RLIMIT_NOFILE as u32);
    let highest = descriptors.iter().map(|own| own.fd).max().unwrap_or_default();
    Ok(limit.is_some_and(|limit| limit.soft <= u64::from(highest.unsigned_abs()) + ROOM))
}
