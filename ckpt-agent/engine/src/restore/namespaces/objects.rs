//! System V objects in IPC namespaces of processes' own. A child of the init enters each, and the user namespace that it belongs
//! to, and makes there what there was; the processes, which are in it by then, attach segments, and owe what they owed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, setgroups};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{
    Backing, CarriedInode, Graph, IdRange, InodeId, IpcObjects, NamespaceContent,
};
use super::super::super::inodes::segments;
use super::super::super::ipc;
use super::super::super::objects::RestoreContext;
use super::super::super::sys::prctl;
use super::super::super::sys::related::{GET_USER, related, user_name};
use super::super::{Helper, act_as_user};

/// Objects of each kind that a namespace may have (IPCMNI, include/linux/ipc_namespace.h).
const MOST: usize = 32_768;
/// Semaphores of one set (SEMMSL), and the highest value of one (SEMVMX).
const MOST_SEMAPHORES: usize = 32_000;
const HIGHEST: u16 = 32_767;
/// Bytes of a message and of a queue in a new namespace at most (MSGMAX, MSGMNB, include/uapi/linux/msg.h).
const LONGEST_MESSAGE: u64 = 8192;
const LARGEST_QUEUE: u64 = 16_384;

/// Refuses what no dump writes.
pub(super) fn check(objects: &IpcObjects) -> Result<()> {
    let IpcObjects { semaphores, queues } = objects;
    let sets_fit = semaphores.iter().all(|set| {
        (1..=MOST_SEMAPHORES).contains(&set.values.len())
            && set.values.len() == set.last.len()
            && set.values.iter().all(|value| *value <= HIGHEST)
    });
    let numbers = semaphores.iter().map(|set| set.identity.number);
    let others = queues.iter().map(|queue| queue.identity.number);
    let are_numbers = numbers.chain(others).all(|number| number >= 0);
    match sets_fit && are_numbers && semaphores.len() <= MOST && queues.len() <= MOST {
        true => Ok(()),
        false => Err(damaged("objects that no kernel has")),
    }
}

/// Makes all objects. `attach`: has a process attach the segments of its namespace.
///
/// # Errors
/// Damage; what can't be made here.
pub fn restore(
    helpers: &mut [Helper<'_>],
    context: &mut RestoreContext<'_>,
    mut attach: impl FnMut(&mut Helper<'_>) -> Result<()>,
) -> Result<()> {
    let graph = context.graph;
    let inodes = by_namespace(graph)?;
    let mut filled = BTreeMap::new();
    for helper in helpers.iter() {
        let own = graph.own_ipc_of(helper.image);
        check_areas(helper, own.map(|(place, _)| place), graph)?;
        if let Some((place, NamespaceContent::OwnIpc { objects })) = own {
            filled.entry(place).or_insert((helper.pid, objects));
        }
    }
    for (place, (pid, objects)) in &filled {
        let own = inodes.get(place).map_or(&[][..], Vec::as_slice);
        inside(*pid, is_of_job(graph, *place), context, |context| {
            raise_limits(objects);
            ipc::make_here(objects, context)?;
            own.iter().try_for_each(|inode| segments::make(inode, context))
        })?;
    }
    for helper in helpers.iter_mut() {
        let Some((place, _)) = graph.own_ipc_of(helper.image) else { continue };
        let Some((_, objects)) = filled.get(&place) else { continue };
        attach(helper)?;
        let (image, scratch) = (helper.image, helper.scratch);
        ipc::owe_undo(&mut helper.remote()?, scratch, objects, &image.undo)?;
    }
    for (place, (pid, _)) in &filled {
        let own = inodes.get(place).map_or(&[][..], Vec::as_slice);
        if own.iter().any(|inode| segments::is_marked(inode)) {
            inside(*pid, is_of_job(graph, *place), context, |_| {
                own.iter().try_for_each(|inode| segments::destroy_marked(inode))
            })?;
        }
    }
    Ok(())
}

/// Raises the limits of a new namespace as far as what is put into its queues asks for. Where that is forbidden, making these
/// says so.
fn raise_limits(objects: &IpcObjects) {
    let lengths = objects.queues.iter().flat_map(|queue| &queue.messages);
    let longest = lengths.map(|(_, length)| u64::from(*length)).max();
    let largest = objects.queues.iter().map(|queue| queue.capacity).max();
    for (limit, least, wanted) in [
        ("/proc/sys/kernel/msgmax", LONGEST_MESSAGE, longest),
        ("/proc/sys/kernel/msgmnb", LARGEST_QUEUE, largest),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted > least) {
            let _ = std::fs::write(limit, wanted.to_string());
        }
    }
}

/// Segments by the IPC namespaces that they are in, but the job's.
fn by_namespace(graph: &Graph) -> Result<BTreeMap<u32, Vec<&CarriedInode>>> {
    let (mut found, mut numbers) = (BTreeMap::<u32, Vec<_>>::new(), BTreeSet::new());
    for inode in &graph.inodes {
        let (Some(place), Some(number)) =
            (segments::namespace_of(inode), segments::number_of(inode))
        else {
            continue;
        };
        let content = graph.namespaces.get(place as usize).map(|one| &one.content);
        if !matches!(content, Some(NamespaceContent::OwnIpc { .. })) {
            return Err(damaged("a segment in a namespace that has none"));
        }
        if number < 0 || !numbers.insert((place, number)) {
            return Err(damaged("segments that no kernel has"));
        }
        found.entry(place).or_default().push(inode);
    }
    match found.values().all(|all| all.len() <= MOST) {
        true => Ok(found),
        false => Err(damaged("more segments than a kernel has")),
    }
}

/// A process attaches segments of its own namespace, and of the job's.
fn check_areas(helper: &Helper<'_>, own: Option<u32>, graph: &Graph) -> Result<()> {
    let of =
        |InodeId(index): InodeId| graph.inodes.get(index as usize).and_then(segments::namespace_of);
    let fits = helper.image.areas.iter().all(|area| match area.backing {
        Backing::Carried { inode, .. } => of(inode).is_none_or(|place| own == Some(place)),
        _ => true,
    });
    match fits {
        true => Ok(()),
        false => Err(damaged("a segment of another namespace")),
    }
}

fn is_of_job(graph: &Graph, place: u32) -> bool {
    graph.namespaces.get(place as usize).is_some_and(|one| one.owner.is_none())
}

fn damaged(what: &str) -> EngineError {
    EngineError::Damaged(format!("IPC namespaces: {what}"))
}

/// Has a child do something in the IPC namespace of a process. `of_job`: it belongs to the job's user namespace.
fn inside(
    pid: i32,
    of_job: bool,
    context: &mut RestoreContext<'_>,
    act: impl FnOnce(&mut RestoreContext<'_>) -> Result<()>,
) -> Result<()> {
    let failed = |call: &'static str| {
        move |errno: Errno| EngineError::system(call, "an IPC namespace of the job's own", errno)
    };
    let (hear, tell) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed("pipe"))?;
    // SAFETY: this process has one thread, so the child may go on as ordinary code; it leaves by _exit.
    match unsafe { fork() }.map_err(failed("fork"))? {
        ForkResult::Child => {
            drop(hear);
            let before = context.warnings.len();
            let done = enter(pid)
                .and_then(|()| if of_job { act_as_user(context) } else { Ok((None, None)) })
                .and_then(|_acting| act(context));
            let warnings = context.warnings.iter().skip(before);
            let mut lines: Vec<String> = warnings.map(|line| format!("w{line}")).collect();
            lines.extend(done.as_ref().err().map(|error| format!("e{error}")));
            let told = File::from(tell).write_all(lines.join("\0").as_bytes());
            let status = i32::from(done.is_err() || told.is_err());
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => {
            drop(tell);
            let text = hear_out(child, File::from(hear));
            let ended = wait(child).map_err(failed("wait"))?;
            let text =
                text.map_err(|error| EngineError::system("read", "a child of the init", error))?;
            for line in text.split('\0').filter_map(|line| line.strip_prefix('w')) {
                context.warn(line);
            }
            if ended == WaitStatus::Exited(child, 0) {
                return Ok(());
            }
            let what = text.split('\0').find_map(|line| line.strip_prefix('e'));
            Err(EngineError::Unfit {
                what: format!(
                    "objects in an IPC namespace of the job's own cannot be made here: {}",
                    what.unwrap_or("a child of the job's init has ended")
                ),
                way_out: "restart it where it may make them; `ckptd doctor` says what is allowed"
                    .into(),
            })
        }
    }
}

/// The longest that a child has to say.
const LONGEST: usize = 1 << 20;
/// Between two looks whether it stands.
const LOOK: u16 = 200;

/// What a child says until its end. Whoever may send it signals could stop it for ever: then it is killed.
fn hear_out(child: Pid, mut from: File) -> std::io::Result<String> {
    let (mut text, mut room) = (Vec::new(), [0_u8; 4096]);
    loop {
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, LOOK) {
            Ok(0) => {
                // Its end is for `wait`.
                let state = waitid(Id::Pid(child), WaitPidFlag::WNOHANG | WaitPidFlag::WSTOPPED);
                if matches!(state, Ok(WaitStatus::Stopped(..))) {
                    let _ = kill(child, Signal::SIGKILL);
                }
                continue;
            }
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
        let length = from.read(&mut room)?;
        if length == 0 || text.len() + length > LONGEST {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&room[..length]);
    }
}

fn wait(child: Pid) -> nix::Result<WaitStatus> {
    loop {
        match waitpid(child, Some(WaitPidFlag::WUNTRACED)) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Stopped(..)) => drop(kill(child, Signal::SIGKILL)),
            ended => return ended,
        }
    }
}

/// Enters the IPC namespace of a process, and the user namespace that it belongs to.
fn enter(pid: i32) -> Result<()> {
    let failed = |call: &'static str| {
        move |errno: Errno| EngineError::system(call, "an IPC namespace of the job's own", errno)
    };
    let path = format!("/proc/{pid}/ns/ipc");
    let namespace =
        File::open(&path).map_err(|error| EngineError::system("open", path.as_str(), error))?;
    let users = related(&namespace, GET_USER)?;
    let own = std::fs::read_link("/proc/self/ns/user");
    let own = own.map_err(|error| EngineError::system("readlink", "/proc/self/ns/user", error))?;
    let others = own.to_str() != Some(user_name(&users)?.as_str());
    if others {
        match setgroups(&[]) {
            // A user's own groups are no more than the user has.
            Ok(()) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(failed("setgroups")(errno)),
        }
        setns(users, CloneFlags::CLONE_NEWUSER).map_err(failed("setns"))?;
    }
    setns(namespace, CloneFlags::CLONE_NEWIPC).map_err(failed("setns"))?;
    if others { become_inner() } else { Ok(()) }
}

/// Becomes root of this user namespace, or where it has none its first user: nothing there is made by somebody outside. By that,
/// nobody may trace this process (PR_SET_DUMPABLE): the user has all rights in there, and this is root's init's memory.
fn become_inner() -> Result<()> {
    let map = |name: &str| -> Result<Vec<IdRange>> {
        let path = format!("/proc/self/{name}");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| EngineError::system("read", path.as_str(), error))?;
        Ok(text.lines().filter_map(IdRange::of_line).collect())
    };
    let (users, groups) = (map("uid_map")?, map("gid_map")?);
    let (Some(user), Some(group)) = (inner(&users), inner(&groups)) else {
        return Err(damaged("objects in a user namespace that has no users"));
    };
    // The group first: afterwards there may be no right to change it.
    let failed = |errno| EngineError::system("setresgid", format!("group {group}"), errno);
    let id = Gid::from_raw(group);
    nix::unistd::setresgid(id, id, id).map_err(failed)?;
    let failed = |errno| EngineError::system("setresuid", format!("user {user}"), errno);
    let id = Uid::from_raw(user);
    nix::unistd::setresuid(id, id, id).map_err(failed)?;
    // Whoever keeps all numbers is as traceable as before, and whoever does not as fs.suid_dumpable says.
    let failed = |errno| EngineError::system("PR_SET_DUMPABLE", "a child of the init", errno);
    prctl::set_dumpable(false).map_err(failed)
}

/// The number to become: root's, which keeps all rights in there, else the first.
fn inner(ranges: &[IdRange]) -> Option<u32> {
    match ranges.iter().any(|range| range.has(0)) {
        true => Some(0),
        false => ranges.first().map(|IdRange(first, ..)| *first),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::graph::{IpcIdentity, SemaphoreSet};
    use super::*;

    fn objects(number: i32, values: Vec<u16>, last: usize) -> IpcObjects {
        let identity = IpcIdentity { number, ..IpcIdentity::default() };
        let set = SemaphoreSet { identity, values, last: vec![0; last] };
        IpcObjects { semaphores: vec![set], ..IpcObjects::default() }
    }

    #[test]
    fn what_no_kernel_has_is_damage() {
        assert!(
            check(&IpcObjects::default()).is_ok()
                && check(&objects(0, vec![1, HIGHEST], 2)).is_ok()
        );
        assert!(check(&objects(-1, vec![1], 1)).is_err());
        assert!(check(&objects(0, Vec::new(), 0)).is_err());
        assert!(check(&objects(0, vec![1, 2], 1)).is_err());
        assert!(check(&objects(0, vec![HIGHEST + 1], 1)).is_err());
        assert!(check(&objects(0, vec![0; MOST_SEMAPHORES + 1], MOST_SEMAPHORES + 1)).is_err());
    }

    #[test]
    fn somebody_inside_is_root_or_the_first_user() {
        assert_eq!(inner(&[IdRange(5, 1000, 2), IdRange(0, 2000, 1)]), Some(0));
        assert_eq!(inner(&[IdRange(0, 100_000, 65_536)]), Some(0));
        assert_eq!(inner(&[IdRange(5, 1000, 2), IdRange(9, 2000, 1)]), Some(5));
        assert_eq!(inner(&[]), None);
    }
}
