//! What only a thread of the job can ask a ring.

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{Descriptor, FileId, OpenFile, RegisteredRing};
use super::super::objects::{MOST_GROUPS, Object, Ring};
use super::super::sys::uring::{
    BY_PLACE, ENTER, EVENT, GROUP_STATUS, MOST_RINGS, NOWHERE, REGISTER, STATUS,
};
use super::super::trace::{Batch, Remote};

/// How many groups of provided buffers are asked for in one go: as many answers fit into the room for data.
const AT_ONCE: usize = 1024;

/// Whether any of these is a ring's.
pub fn any(descriptors: &[Descriptor], files: &[OpenFile]) -> bool {
    let object = |own: &Descriptor| files.get(own.file.0 as usize).map(|file| &file.object);
    descriptors.iter().any(|own| matches!(object(own), Some(Object::Ring(_))))
}

/// Asks a thread for the rings that it has registered, and rings that answer it alone for what is registered with them.
///
/// # Errors
/// Refusals of what can't be told or made again; failed calls.
pub fn ask(
    remote: &mut Remote<'_>,
    descriptors: &[Descriptor],
    files: &mut [OpenFile],
) -> Result<Vec<RegisteredRing>> {
    let mut rings: Vec<(i32, FileId)> = Vec::new();
    for own in descriptors {
        let Some(Object::Ring(ring)) = files.get(own.file.0 as usize).map(|file| &file.object)
        else {
            continue;
        };
        if rings.iter().any(|(_, known)| *known == own.file) {
            continue;
        }
        if ring.is_single() {
            ask_alone(remote, own.fd, own.file, files)?;
        }
        rings.push((own.fd, own.file));
    }
    if rings.is_empty() {
        return Ok(Vec::new());
    }
    let mut batch = Batch::new();
    for place in 0..MOST_RINGS {
        // It does nothing but look for the ring.
        batch.add(ENTER, &[u64::from(place), 0, 0, u64::from(BY_PLACE), 0, 0]);
    }
    let answers = remote.run(&batch)?;
    let nobody = [libc::EBADF, libc::EINVAL].map(|errno| -i64::from(errno));
    let places = (0..MOST_RINGS).zip(answers).filter(|(_, answer)| !nobody.contains(answer));
    let file = |(place, _)| match rings.as_slice() {
        [(_, file)] => Ok(RegisteredRing { place, file: *file }),
        _ => {
            let what = "an io_uring that a thread has registered (IORING_REGISTER_RING_FDS), one of several";
            let refusal = Refusal::new(what, "use its descriptor, or one ring in each process");
            Err(EngineError::from(refusal))
        }
    };
    places.map(file).collect()
}

/// Asks a ring that may answer this thread alone (IORING_SETUP_SINGLE_ISSUER).
fn ask_alone(remote: &mut Remote<'_>, fd: i32, file: FileId, files: &mut [OpenFile]) -> Result<()> {
    let arguments = [fd as u64, u64::from(EVENT), NOWHERE as u64, 1];
    let answer = -remote.raw(REGISTER, &arguments)?;
    if answer == i64::from(libc::EEXIST) {
        return Ok(());
    }
    if answer == i64::from(libc::EBUSY) {
        if let Some(Object::Ring(ring)) = files.get_mut(file.0 as usize).map(|f| &mut f.object) {
            ring.has_event()?;
        }
    }
    // As from outside: a kernel that does not know the question says so of the last one.
    let last = groups(remote, fd, u16::MAX, 1)?;
    if last != [-i64::from(libc::ENOENT)] {
        return match last.first() {
            Some(0) => Err(Ring::refuse_groups()),
            _ => Ok(()),
        };
    }
    for first in (0..MOST_GROUPS).step_by(AT_ONCE) {
        let answers = groups(remote, fd, first, AT_ONCE)?;
        if answers.iter().any(|answer| *answer != -i64::from(libc::ENOENT)) {
            return Err(Ring::refuse_groups());
        }
    }
    Ok(())
}

/// What the ring says of so many groups of provided buffers.
fn groups(remote: &mut Remote<'_>, fd: i32, first: u16, count: usize) -> Result<Vec<i64>> {
    let at = remote.scratch_data()?;
    let mut bytes = vec![0; count * STATUS];
    let mut batch = Batch::new();
    let places = bytes.chunks_exact_mut(STATUS).zip(u32::from(first)..);
    for ((status, group), place) in places.zip((at..).step_by(STATUS)) {
        status[..4].copy_from_slice(&group.to_ne_bytes());
        batch.add(REGISTER, &[fd as u64, u64::from(GROUP_STATUS), place, 1]);
    }
    remote.memory().write(at, &bytes)?;
    remote.run(&batch)
}
