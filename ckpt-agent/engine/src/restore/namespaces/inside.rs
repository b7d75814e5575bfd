//! Files among mounts of the job's own. A restart opens each by the job's mounts first, which shows whether it is there and
//! the right one. Once a process is among the others, the same file is opened there, and takes its place: so its path is
//! the one that the job knows, and what lies around a folder is what lies around it there.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as nix_open};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek64};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{
    FileId, Graph, Inside, OpenFile, OwnNamespace, Pid, ProcessImage,
};
use super::super::super::locks;
use super::super::super::objects::{Object, RestoreContext, open_within, reopen};
use super::super::super::sys::memory_map::Means;
use super::super::super::sys::stat::identity;
use super::super::mapped::MappedFiles;
use super::super::{Helper, act_as_user, memory_map};
use super::mounts::is_path;
use super::open_with;

/// Why a file is not opened.
const ANOTHER: &str = "another file is there than among the job's own mounts";
const NOBODY: &str = "no process is among these";
/// A program that is no file, to whose opening something may listen.
const NO_FILE: &str = "it is no regular file";

/// Puts placeholders where files are opened later, and refuses programs that no dump tells of. `processes`: those that are
/// made here.
///
/// # Errors
/// Damage; failed calls.
pub fn await_all<'i>(
    processes: impl Iterator<Item = (&'i Pid, &'i ProcessImage)> + Clone,
    context: &mut RestoreContext<'_>,
) -> Result<()> {
    let graph = context.graph;
    for (_, image) in processes.clone() {
        if let Some(path) = &image.executable_inside {
            check_program(path, &image.namespaces, &graph.namespaces, context.user.is_some())?;
        }
    }
    for (id, file, inside) in all(graph) {
        check(file, inside, graph)?;
        if !context.needs(id) {
            continue;
        }
        let is_there =
            |(_, image): (&Pid, &ProcessImage)| image.namespaces.contains(&inside.namespace);
        let any = processes.clone().any(is_there);
        // A rehearsal has stand-ins over files, which the others do not show. It ends before a folder is looked around.
        let is_late = file.object.is_made_with_mounts();
        if (context.rehearsal && !is_late) || (!any && !is_late && !file.object.is_place()) {
            continue;
        }
        if !any {
            return Err(unfit(&inside.path, NOBODY));
        }
        if !is_late {
            context.open_later(id)?;
        }
    }
    Ok(())
}

fn all(graph: &Graph) -> impl Iterator<Item = (FileId, &OpenFile, &Inside)> {
    let files = graph.files.iter().enumerate();
    files.filter_map(|(index, file)| Some((FileId(index as u32), file, file.inside.as_ref()?)))
}

/// Refuses what no dump writes.
fn check(file: &OpenFile, inside: &Inside, graph: &Graph) -> Result<()> {
    let namespace = graph.namespaces.get(inside.namespace as usize);
    let is_mounts = namespace.is_some_and(|one| one.content.flag() == libc::CLONE_NEWNS);
    match is_mounts && is_path(&inside.path) && file.object.opens_inside() {
        true => Ok(()),
        false => {
            Err(EngineError::Damaged("a file among mounts of its own that is none".to_owned()))
        }
    }
}

/// Refuses a program that its process would open among the job's own mounts, with the rights of whoever restarts it.
/// `of_user`: root restarts a user's job, who makes mount namespaces within user namespaces alone.
fn check_program(path: &str, places: &[u32], all: &[OwnNamespace], of_user: bool) -> Result<()> {
    let own = || places.iter().filter_map(|place| all.get(*place as usize));
    let mounts = own().find(|one| one.content.flag() == libc::CLONE_NEWNS);
    let may_open = |mounts: &OwnNamespace| {
        !of_user || mounts.owner.is_some() && own().any(|one| one.content.is_user())
    };
    match is_path(path) && mounts.is_some_and(may_open) {
        true => Ok(()),
        false => {
            Err(EngineError::Damaged("a program among mounts of its own that is none".to_owned()))
        }
    }
}

fn unfit(path: &str, why: &str) -> EngineError {
    EngineError::Unfit {
        what: format!("{path} cannot be opened among mounts of the job's own: {why}"),
        way_out: "restart it where the same is mounted as it was for the job".into(),
    }
}

/// Opens them as the first process sees them that is among these mounts.
///
/// # Errors
/// Failed opens; another file under the same path.
pub fn open_all(helpers: &[Helper<'_>], context: &mut RestoreContext<'_>) -> Result<()> {
    for (id, file, inside) in all(context.graph) {
        let early = context.opened_early(id);
        if early.is_none() && !(file.object.is_made_with_mounts() && context.is_opened_later(id)) {
            continue;
        }
        let is_there = |one: &&Helper<'_>| one.image.namespaces.contains(&inside.namespace);
        let helper = helpers.iter().find(is_there);
        let helper = helper.ok_or_else(|| unfit(&inside.path, NOBODY))?;
        let made = match &early {
            Some(early) => open(helper.pid, file, inside, early, context)?,
            None => open_first(helper.pid, file, inside, context)?,
        };
        drop(early);
        if file.flags & libc::O_PATH == 0 {
            reopen::set_status(made.as_fd(), file.flags)?;
        }
        for lock in &file.locks {
            locks::restore_of_description(made.as_fd(), lock)?;
        }
        context.park(id, made)?;
    }
    Ok(())
}

/// Has processes show programs that lie on mounts of their own: each opens its own there.
///
/// # Errors
/// Failed opens; another program under the same path.
pub fn name_programs(
    helpers: &mut [Helper<'_>],
    files: &MappedFiles,
    rehearsal: bool,
) -> Result<()> {
    for helper in helpers.iter_mut().filter(|_| !rehearsal && files.means() == Means::Whole) {
        let (image, pid, at) = (helper.image, helper.pid, helper.scratch.data());
        let Some(path) = &image.executable_inside else { continue };
        let unfit = |why: &str| unfit(path, why);
        let Some(known) = files.program(&image.executable.path) else { continue };
        let known = nix::sys::stat::fstat(known).map(|stat| identity(&stat));
        let mut remote = helper.remote()?;
        // Nothing but the program itself is opened, and that without waiting: opening a device or a FIFO acts upon it.
        let mut open = |flags: i32| {
            let opened = open_with(&mut remote, path, flags | libc::O_NOFOLLOW | libc::O_CLOEXEC);
            let opened = opened.map_err(|error| unfit(&error.to_string()))?;
            let found = nix::sys::stat::stat(format!("/proc/{pid}/fd/{opened}").as_str());
            match found {
                Ok(found) if known != Ok(identity(&found)) => Err(unfit(ANOTHER)),
                Ok(found) if found.st_mode & libc::S_IFMT != libc::S_IFREG => Err(unfit(NO_FILE)),
                Ok(_) => Ok(opened),
                Err(errno) => Err(unfit(errno.desc())),
            }
        };
        let place = open(libc::O_PATH)?;
        let opened = open(libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        remote.call("close", libc::SYS_close, &[place])?;
        memory_map::set_with(&mut remote, image, files.means(), at, opened as i32)?;
        remote.call("close", libc::SYS_close, &[opened])?;
    }
    Ok(())
}

fn open(
    pid: i32,
    file: &OpenFile,
    inside: &Inside,
    early: &OwnedFd,
    context: &RestoreContext<'_>,
) -> Result<OwnedFd> {
    let failed = |errno: Errno| unfit(&inside.path, errno.desc());
    let root = format!("/proc/{pid}/root");
    let place = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let root = nix_open(root.as_str(), folder, Mode::empty()).map_err(failed)?;
    let _acting = act_as_user(context)?;
    let path = format!("/proc/self/fd/{}{}", root.as_raw_fd(), inside.path);
    let found = nix_open(path.as_str(), place, Mode::empty()).map_err(failed)?;
    let of = |fd: &OwnedFd| nix::sys::stat::fstat(fd).map(|stat| identity(&stat)).map_err(failed);
    if of(&found)? != of(early)? {
        return Err(unfit(&inside.path, ANOTHER));
    }
    if file.flags & libc::O_PATH != 0 {
        return Ok(found);
    }
    let made = reopen::reopen(&found, file.flags).map_err(failed)?;
    let offset = lseek64(early, 0, Whence::SeekCur).map_err(failed)?;
    lseek64(&made, offset, Whence::SeekSet).map_err(failed)?;
    Ok(made)
}

/// Opens what nobody could open before these mounts were there.
fn open_first(
    pid: i32,
    file: &OpenFile,
    inside: &Inside,
    context: &RestoreContext<'_>,
) -> Result<OwnedFd> {
    let _acting = act_as_user(context)?;
    let made = open_within(&format!("/proc/{pid}/root"), &inside.path, file.flags);
    let made = made.map_err(|errno| unfit(&inside.path, errno.desc()))?;
    if let Object::MountedFile(mounted) = &file.object {
        mounted.seek(&made, file.flags)?;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NamespaceContent;

    #[test]
    fn programs_lie_among_mounts_of_their_processes() {
        use NamespaceContent::{Ipc, Mounts};
        let users =
            NamespaceContent::User { uids: Vec::new(), gids: Vec::new(), may_set_groups: false };
        let of = |owner, content| OwnNamespace { owner, content };
        let all = [of(None, users), of(Some(0), Mounts), of(None, Mounts), of(None, Ipc)];
        let check = |path: &str, places: &[u32], of_user| {
            check_program(path, places, &all, of_user).is_ok()
        };
        assert!(check("/usr/bin/a", &[2], false) && check("/usr/bin/a", &[0, 1], true));
        assert!(check("/usr/bin/a", &[0, 1], false));
        for of_user in [false, true] {
            for places in [&[][..], &[3], &[0], &[7]] {
                assert!(!check("/dev/watchdog", places, of_user), "{places:?}");
            }
            for path in ["", "a", "/usr/../a", "/a\0b"] {
                assert!(!check(path, &[0, 1], of_user), "{path:?}");
            }
        }
        assert!(!check("/dev/watchdog", &[2], true));
        assert!(!check("/dev/watchdog", &[0, 2], true));
    }
}
