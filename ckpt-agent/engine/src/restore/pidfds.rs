//! Descriptors of processes and threads, once all of these are there.

use std::os::fd::AsRawFd;

use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, Pid, ProcessImage};
use super::super::objects::{Object, RestoreContext, wire_late};
use super::super::trace::Remote;
use super::image::Image;
use super::numbers::Numbers;

/// Opens them in place of the placeholders, in this init.
///
/// # Errors
/// A process that is none; failed calls.
pub fn open_all(image: &Image, context: &mut RestoreContext<'_>, numbers: &Numbers) -> Result<()> {
    let mut any = false;
    for (index, file) in image.graph.files.iter().enumerate() {
        let (id, Object::ProcessDescriptor(descriptor)) = (FileId(index as u32), &file.object)
        else {
            continue;
        };
        if context.needs(id) {
            let number = descriptor.pid.map(|pid| here(numbers, pid)).transpose()?;
            context.park(id, descriptor.open(number, file.flags)?)?;
            any = true;
        }
    }
    if any { wire_late(&image.graph.files, context) } else { Ok(()) }
}

fn here(numbers: &Numbers, recorded: Pid) -> Result<Pid> {
    let none =
        || EngineError::Damaged(format!("a descriptor of process {recorded}, which is none"));
    numbers.here(recorded).ok_or_else(none)
}

/// Gives a process its own, as copies of the init's (pidfd_getfd(2)): a description is the same for all that hold it.
///
/// # Errors
/// Failed calls.
pub fn install(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let is_one =
        |id: FileId| matches!(context.graph.object(id), Some(Object::ProcessDescriptor(_)));
    let mut own = image.descriptors.iter().filter(|one| is_one(one.file)).peekable();
    if own.peek().is_none() {
        return Ok(());
    }
    let init =
        remote.call("pidfd_open", libc::SYS_pidfd_open, &[u64::from(std::process::id()), 0])?;
    for descriptor in own.filter(|one| context.needs(one.file)) {
        let parked = context.parked(descriptor.file)?.as_raw_fd() as u64;
        let copy = remote.call("pidfd_getfd", libc::SYS_pidfd_getfd, &[init, parked, 0])?;
        let flags = if descriptor.close_on_exec { libc::O_CLOEXEC as u64 } else { 0 };
        remote.call("dup3", libc::SYS_dup3, &[copy, descriptor.fd as u64, flags])?;
        remote.call("close", libc::SYS_close, &[copy])?;
    }
    remote.call("close", libc::SYS_close, &[init]).map(drop)
}
