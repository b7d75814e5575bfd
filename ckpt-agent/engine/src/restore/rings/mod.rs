//! What processes have to do with io_urings: their memory, which they map where it was; buffers of theirs that are
//! registered; and the rings that a thread of the kernel's serves, which their process makes itself.

mod place;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::super::arch::words::to_words;
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, FileId, ProcessImage};
use super::super::objects::{Object, RestoreContext, Ring, reopen};
use super::super::sys::pidfd::PidFd;
use super::super::sys::uring::{
    BUFFERS, PARAMETERS, Places, REGISTER, RINGS, SETUP, SUBMIT_ALL, Shape,
};
use super::super::trace::Remote;
use super::completing::{Furnished, put_everywhere};
use super::image::Image;

fn of<'g>(context: &RestoreContext<'g>, file: FileId) -> Option<&'g Ring> {
    match context.graph.object(file) {
        Some(Object::Ring(ring)) => Some(ring),
        _ => None,
    }
}

/// Maps the memory of rings that the init has made, while the process has the init's descriptors.
///
/// # Errors
/// No room where it was.
pub fn map(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let mut wanted: Vec<(&Area, u64)> = Vec::new();
    for area in &image.areas {
        let made = area.ring().filter(|file| of(context, *file).is_some_and(|r| !r.is_polled()));
        if let Some(file) = made {
            wanted.push((area, context.parked(file)?.as_raw_fd() as u64));
        }
    }
    place::place(remote, &wanted)
}

/// Makes the rings that are served by a thread of the kernel's: that is a thread of the process which makes them,
/// with its rights. Whether there are any.
///
/// # Errors
/// A machine without; failed calls.
pub fn make_polled(
    furnished: &mut [Furnished<'_>],
    image: &Image,
    context: &mut RestoreContext<'_>,
) -> Result<bool> {
    let mut any = false;
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        let Object::Ring(ring) = &file.object else { continue };
        if !ring.is_polled() || !context.needs(id) {
            continue;
        }
        let none = || EngineError::Damaged("a ring with a thread in no process".into());
        let holder = furnished.iter_mut().find(|one| one.holds(id)).ok_or_else(none)?;
        let made = make_in(holder, ring, id, context)?;
        reopen::set_status(made.as_fd(), file.flags)?;
        context.park(id, made)?;
        ring.register(context.parked(id)?, context)?;
        any = true;
    }
    Ok(any)
}

/// In this process, which is the only one that has it.
fn make_in(
    holder: &mut Furnished<'_>,
    ring: &Ring,
    id: FileId,
    context: &RestoreContext<'_>,
) -> Result<OwnedFd> {
    let process = PidFd::open(holder.pid())?;
    let image = holder.image;
    let mut remote = holder.remote()?;
    let (number, places) = set_up(&mut remote, ring.shape())?;
    let copy = process.descriptor(number as i32)?;
    ring.fill(copy.as_fd(), places, context)?;
    let mine = image.areas.iter().filter(|area| area.ring() == Some(id));
    let wanted: Vec<(&Area, u64)> = mine.map(|area| (area, number)).collect();
    place::place(&mut remote, &wanted)?;
    put_everywhere(&mut remote, image, id, number)?;
    Ok(copy)
}

fn set_up(remote: &mut Remote<'_>, shape: Shape) -> Result<(u64, Places)> {
    let at = remote.scratch_data()?;
    let mut set_up = |shape: Shape| -> Result<i64> {
        let words = shape.parameters();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        remote.memory().write(at, &bytes)?;
        remote.raw(SETUP, &[u64::from(shape.requests), at])
    };
    let mut answer = set_up(shape)?;
    if answer == -i64::from(libc::EINVAL) {
        // Before Linux 5.18.
        answer = set_up(Shape { flags: shape.flags & !SUBMIT_ALL, ..shape })?;
    }
    if answer < 0 {
        return Err(Ring::unfit(nix::errno::Errno::from_raw(-answer as i32)));
    }
    let mut bytes = [0; 4 * PARAMETERS];
    remote.memory().read(at, &mut bytes)?;
    let mut words = [0; PARAMETERS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let places = Places::of(&words).ok_or_else(|| Ring::unfit(nix::errno::Errno::ENOSYS))?;
    Ok((answer as u64, places))
}

/// Registers buffers again, in the first process that holds the ring: their pages are held from then on, so that
/// nothing may come to lie there afterwards.
///
/// # Errors
/// Memory that is not there, or that the user may not hold.
pub fn register_buffers(
    furnished: &mut [Furnished<'_>],
    image: &Image,
    context: &RestoreContext<'_>,
) -> Result<()> {
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        let Object::Ring(ring) = &file.object else { continue };
        if ring.buffers().is_empty() || !context.needs(id) {
            continue;
        }
        // Parents come before their children.
        let holder = image.graph.processes.iter().find_map(|node| {
            furnished.iter().enumerate().find_map(|(place, one)| {
                let own = one.image.descriptors.iter().find(|own| own.file == id)?;
                (one.image.pid == node.pid).then_some((place, own.fd))
            })
        });
        let Some((place, fd)) = holder else { continue };
        let mut remote = furnished[place].remote()?;
        let at = remote.scratch_data()?;
        let (none, ring) = ((0, 0), ring.buffers());
        let words: Vec<u64> =
            ring.iter().flat_map(|buffer| <[u64; 2]>::from(buffer.unwrap_or(none))).collect();
        remote.memory().write(at, &to_words(&words))?;
        let arguments = [fd as u64, u64::from(BUFFERS), at, ring.len() as u64];
        remote.call("io_uring_register", REGISTER, &arguments)?;
    }
    Ok(())
}

/// Has threads register rings under the numbers by which they call them.
///
/// # Errors
/// Failed calls; damage.
pub fn register_places(
    furnished: &mut [Furnished<'_>],
    context: &RestoreContext<'_>,
) -> Result<()> {
    for one in furnished {
        let image = one.image;
        for (thread, saved) in image.threads.iter().enumerate() {
            for ring in saved.rings.iter().filter(|ring| context.needs(ring.file)) {
                let own = image.descriptors.iter().find(|own| own.file == ring.file);
                let none = || EngineError::Damaged("a registered ring that is not open".into());
                let fd = own.ok_or_else(none)?.fd as u64;
                let mut remote = one.remote_of(thread)?;
                let at = remote.scratch_data()?;
                // struct io_uring_rsrc_update: place, room, and the descriptor in 64 bits.
                let mut bytes = ring.place.to_ne_bytes().to_vec();
                bytes.extend([0; 4]);
                bytes.extend(fd.to_ne_bytes());
                remote.memory().write(at, &bytes)?;
                let arguments = [fd, u64::from(RINGS), at, 1];
                remote.call("io_uring_register", REGISTER, &arguments)?;
            }
        }
    }
    Ok(())
}
