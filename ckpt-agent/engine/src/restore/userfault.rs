//! Descriptors of missing pages, made by the process whose pages they are, when all its memory is there. From then on
//! nothing of the restore may touch a page that is missing: it would wait for whoever fills it.

use std::os::fd::{AsFd, OwnedFd};

use super::super::error::{EngineError, Result};
use super::super::graph::{Area, FileId, ProcessImage};
use super::super::objects::{Object, RestoreContext, Userfault, reopen};
use super::super::sys::page::page_size;
use super::super::sys::pidfd::PidFd;
use super::super::sys::userfault::{HANDSHAKE, MISSING, USER_MODE_ONLY, VERSION, WATCH};
use super::super::trace::Remote;
use super::completing::{Furnished, put_everywhere};
use super::image::Image;

/// MADV_POPULATE_READ (include/uapi/asm-generic/mman-common.h), since Linux 5.14.
const POPULATE_READ: u64 = 22;

/// Makes them. Whether there are any.
///
/// # Errors
/// A machine without; failed calls.
pub fn make_all(
    furnished: &mut [Furnished<'_>],
    image: &Image,
    context: &mut RestoreContext<'_>,
) -> Result<bool> {
    let mut any = false;
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        let Object::Userfault(object) = &file.object else { continue };
        if !context.needs(id) {
            continue;
        }
        let none = || EngineError::Damaged("a userfaultfd of no process".into());
        let holder = furnished.iter_mut().find(|one| one.holds(id)).ok_or_else(none)?;
        let made = make_in(holder, object, id, file.flags)?;
        reopen::set_status(made.as_fd(), file.flags)?;
        context.park(id, made)?;
        any = true;
    }
    Ok(any)
}

fn make_in(
    holder: &mut Furnished<'_>,
    object: &Userfault,
    id: FileId,
    flags: i32,
) -> Result<OwnedFd> {
    let process = PidFd::open(holder.pid())?;
    let image = holder.image;
    let mut remote = holder.remote()?;
    let number = open(&mut remote, flags)?;
    if let Some(features) = object.features {
        control(&mut remote, number, HANDSHAKE, &[VERSION, features, 0])?;
        // Of several descriptors of a process none watches anything.
        for area in image.areas.iter().filter(|area| area.advice.watched.is_some()) {
            leave_out(&mut remote, image, area)?;
            let range = [area.start, area.end - area.start, MISSING, 0];
            control(&mut remote, number, WATCH, &range)?;
        }
    }
    let copy = process.descriptor(number as i32)?;
    put_everywhere(&mut remote, image, id, number)?;
    Ok(copy)
}

/// Without privilege only for faults of the program's own code, which it may have been before.
fn open(remote: &mut Remote<'_>, flags: i32) -> Result<u64> {
    let flags = libc::O_CLOEXEC | (flags & libc::O_NONBLOCK);
    let mut answer = remote.raw(libc::SYS_userfaultfd, &[flags as u64])?;
    if answer == -i64::from(libc::EPERM) {
        answer = remote.raw(libc::SYS_userfaultfd, &[(flags | USER_MODE_ONLY) as u64])?;
    }
    remote.checked("userfaultfd", answer).map_err(|error| EngineError::Unfit {
        what: format!("the job has a userfaultfd, which can't be made here ({error})"),
        way_out: "restart it under a kernel that has it".into(),
    })
}

/// An ioctl(2) whose argument is made of 64-bit numbers.
fn control(remote: &mut Remote<'_>, number: u64, request: u64, words: &[u64]) -> Result<()> {
    let at = remote.scratch_data()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    remote.memory().write(at, &bytes)?;
    remote.call("ioctl", libc::SYS_ioctl, &[number, request, at]).map(drop)
}

/// Takes out what the image does not have, which the kernel may have put there beside what it has (huge pages), and
/// puts pages of zeros in that were there.
fn leave_out(remote: &mut Remote<'_>, image: &ProcessImage, area: &Area) -> Result<()> {
    let zeros = area.advice.watched.iter().flat_map(|watched| &watched.zeros).copied();
    let stored = image.pages.iter().flat_map(|window| window.runs(page_size()));
    let mut present: Vec<(u64, u64)> = stored
        .map(|(address, length)| (address, address + length))
        .filter(|(start, end)| *start < area.end && area.start < *end)
        .chain(zeros.clone())
        .collect();
    present.sort_unstable();
    let mut at = area.start;
    let mut missing = Vec::new();
    for (start, end) in present {
        if start > at {
            missing.push((at, start.min(area.end)));
        }
        at = at.max(end);
    }
    if at < area.end {
        missing.push((at, area.end));
    }
    for (start, end) in missing {
        let arguments = [start, end - start, libc::MADV_DONTNEED as u64];
        remote.call("madvise", libc::SYS_madvise, &arguments)?;
    }
    for (start, end) in zeros {
        remote.call("madvise", libc::SYS_madvise, &[start, end - start, POPULATE_READ])?;
    }
    Ok(())
}
