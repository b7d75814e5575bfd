//! Descriptions that refer to processes and threads, once all of these are there: descriptors of processes, and files of /proc
//! that show one.
//!
//! Until now each is a placeholder: one end of a pair of sockets. The init makes the real one, or has a holder make it, and
//! sends it to every holder through the placeholder itself (SCM_RIGHTS): a description is the same for all that hold it, and no right
//! to reach into another process is needed for that.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::super::arch::words::{WORD, to_words};
use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, Pid, ProcessImage};
use super::super::objects::{
    INIT, Object, ProcessDescriptor, ProcessFile, RestoreContext, reopen, wire_late,
};
use super::super::sys::pidfd::PidFd;
use super::super::trace::Remote;
use super::completing::{Furnished, put_at};
use super::image::Image;
use super::namespaces::is_among_other_mounts;
use super::numbers::Numbers;
use super::{rings, userfault};

/// Where the init sees processes.
const PROC: &str = "/proc";

/// Makes them in place of the placeholders, in this init.
///
/// # Errors
/// A process that is none; failed calls.
pub fn open_all(
    furnished: &mut [Furnished<'_>],
    image: &Image,
    context: &mut RestoreContext<'_>,
    numbers: &Numbers,
) -> Result<()> {
    let mut any = rings::make_polled(furnished, image, context)?;
    any |= userfault::make_all(furnished, image, context)?;
    let mut of_ended = Vec::new();
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        let made = match &file.object {
            _ if !context.needs(id) => continue,
            Object::ProcessDescriptor(descriptor) => match descriptor.pid {
                // This process.
                Some(INIT) => descriptor.open(std::process::id() as i32, file.flags)?,
                Some(pid) => descriptor.open(here(numbers, pid)?, file.flags)?,
                None => {
                    of_ended.push((id, file.flags, descriptor));
                    continue;
                }
            },
            Object::ProcessFile(shown) => {
                let made = open_file(shown, file.flags, id, furnished, context, numbers)?;
                shown.seek(&made)?;
                made
            }
            _ => continue,
        };
        context.park(id, made)?;
        any = true;
    }
    for (id, made) in ProcessDescriptor::open_ended(of_ended.into_iter())? {
        context.park(id, made)?;
        any = true;
    }
    if any { wire_late(&image.graph.files, context) } else { Ok(()) }
}

fn here(numbers: &Numbers, recorded: Pid) -> Result<Pid> {
    let none =
        || EngineError::Damaged(format!("a descriptor of process {recorded}, which is none"));
    numbers.here(recorded).ok_or_else(none)
}

/// Opens a file of /proc as its first holder, with that one's own rights.
fn open_file(
    file: &ProcessFile,
    flags: i32,
    id: FileId,
    furnished: &mut [Furnished<'_>],
    context: &RestoreContext<'_>,
    numbers: &Numbers,
) -> Result<OwnedFd> {
    let Some(pid) = file.pid else { return file.open_of_ended(flags, context) };
    let thread = file.thread.map(|thread| here(numbers, thread)).transpose()?;
    let path = file.path(here(numbers, pid)?, thread)?;
    // A namespace by whoever is in it: its holders may have come to others since, from which they can't look there.
    let opens = |one: &&mut Furnished<'_>| match file.is_namespace() {
        true => one.image.pid == pid,
        false => one.holds(id),
    };
    let holder = furnished.iter_mut().find(opens);
    let none = || EngineError::Damaged(format!("{path} is open in no process"));
    let holder = holder.ok_or_else(none)?;
    let is_apart = is_among_other_mounts(holder.image, &context.graph.namespaces);
    if is_apart && file.is_namespace() {
        // Whoever is in it need not hold it, and may see another /proc, with other numbers.
        return reopen::open(&path, file.wanted(flags)).map_err(|errno| file.unfit(errno));
    }
    let made = match is_apart || holder.image.root_directory.is_some() {
        // It may not see this /proc, or see another one there.
        true => {
            let folder = proc_of(holder, id, context)?;
            let made = open_in(holder, Some(folder), &path, file.wanted(flags))?;
            holder.remote()?.call("close", libc::SYS_close, &[folder])?;
            made
        }
        false => open_in(holder, None, &path, file.wanted(flags))?,
    };
    match made {
        Ok(made) => Ok(made),
        // What has ended, and was not waited for, has no memory to show any more.
        Err(Errno::ESRCH) => file.open_of_ended(flags, context),
        // It was opened before its holder gave up the rights to.
        Err(Errno::EACCES | Errno::EPERM) if context.user.is_none() => {
            reopen::open_as_told(&path, file.wanted(flags)).map_err(|errno| file.unfit(errno))
        }
        Err(errno) => Err(file.unfit(errno)),
    }
}

/// Gives a holder a descriptor of this process's /proc, through the placeholder; its number.
fn proc_of(holder: &mut Furnished<'_>, id: FileId, context: &RestoreContext<'_>) -> Result<u64> {
    let none = || EngineError::odd("a placeholder", "has no holder");
    let descriptor = holder.image.descriptors.iter().find(|one| one.file == id).ok_or_else(none)?;
    let folder =
        std::fs::File::open(PROC).map_err(|error| EngineError::system("open", PROC, error))?;
    send(id, folder.as_raw_fd(), context)?;
    receive(&mut holder.remote()?, descriptor.fd)
}

/// Opens a file below /proc, from a descriptor of that folder where there is one. The inner error is that of open(2).
fn open_in(
    holder: &mut Furnished<'_>,
    folder: Option<u64>,
    path: &str,
    flags: i32,
) -> Result<nix::Result<OwnedFd>> {
    let process = PidFd::open(holder.pid())?;
    let mut remote = holder.remote()?;
    let at = remote.scratch_data()?;
    let path = match folder {
        Some(_) => path.strip_prefix(PROC).unwrap_or(path).trim_start_matches('/'),
        None => path,
    };
    let mut bytes = path.as_bytes().to_vec();
    bytes.push(0);
    remote.memory().write(at, &bytes)?;
    let from = folder.unwrap_or(AT_FDCWD.as_raw_fd() as i64 as u64);
    let arguments = [from, at, flags as u64, 0];
    let answer = remote.raw(libc::SYS_openat, &arguments)?;
    let number = match remote.checked("openat", answer) {
        Ok(number) => number,
        Err(_) => return Ok(Err(Errno::from_raw(-answer as i32))),
    };
    let copy = process.descriptor(number as i32);
    remote.call("close", libc::SYS_close, &[number])?;
    copy.map(Ok)
}

/// Gives a process its own.
///
/// # Errors
/// Failed calls.
pub fn install(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let is_one = |id: FileId| {
        context.is_opened_later(id)
            || context.graph.object(id).is_some_and(|o| o.process().is_some())
    };
    for descriptor in image.descriptors.iter().filter(|one| is_one(one.file)) {
        if !context.needs(descriptor.file) {
            continue;
        }
        send(descriptor.file, context.parked(descriptor.file)?.as_raw_fd(), context)?;
        let copy = receive(remote, descriptor.fd)?;
        put_at(remote, copy, descriptor)?;
        remote.call("close", libc::SYS_close, &[copy])?;
    }
    Ok(())
}

/// Sends a descriptor through a placeholder.
fn send(id: FileId, sent: RawFd, context: &RestoreContext<'_>) -> Result<()> {
    let none = || EngineError::odd("a placeholder", "has no other end");
    let to = context.awaiting(id).ok_or_else(none)?.as_raw_fd();
    let rights = [sent];
    let rights = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(to, &[IoSlice::new(&[0])], &rights, MsgFlags::empty(), None)
        .map_err(|errno| EngineError::system("sendmsg", "a descriptor", errno))
        .map(drop)
}

/// struct cmsghdr: a length as long as a word, level, type (include/linux/socket.h).
const HEAD: usize = WORD + 8;

/// Receives a descriptor in the process; its number.
fn receive(remote: &mut Remote<'_>, placeholder: i32) -> Result<u64> {
    let at = remote.scratch_data()?;
    let control = [0_u8; HEAD + 8];
    let word = WORD as u64;
    // struct user_msghdr has seven words, then struct iovec two, then come a byte to read into and the ancillary data.
    let (part, byte, ancillary) = (at + 7 * word, at + 9 * word, at + 10 * word);
    let header = [0, 0, part, 1, ancillary, control.len() as u64, 0];
    let mut bytes = to_words(&header);
    bytes.extend(to_words(&[byte, 1, 0]));
    bytes.extend(control);
    remote.memory().write(at, &bytes)?;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as u64;
    remote.call("recvmsg", libc::SYS_recvmsg, &[placeholder as u64, at, flags])?;
    let mut filled = control;
    remote.memory().read(ancillary, &mut filled)?;
    let field = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&filled[at..at + 4]);
        i32::from_ne_bytes(four)
    };
    // Where the limit of open files leaves no number free, the message comes without what it carries.
    if (field(WORD), field(WORD + 4)) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        let what =
            "a descriptor of a process: its limit of open files leaves no number free".to_owned();
        return Err(EngineError::Unfit {
            what,
            way_out: "restart it with a higher limit".to_owned(),
        });
    }
    Ok(field(HEAD) as u64)
}
