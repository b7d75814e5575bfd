//! Puts processes into namespaces of their own, as the job had made them: while they have one thread, which both unshare(2)
//! and setns(2) ask for where users are concerned.

mod content;
mod inside;
mod mounts;
mod networks;
mod objects;
mod order;
mod time;
mod users;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;

use super::super::error::{EngineError, Result};
use super::super::graph::{
    Credentials, NamespaceContent, OwnNamespace, Pid, ProcessImage, TIME_OF_CHILDREN,
};
use super::super::names;
use super::super::objects::RestoreContext;
use super::super::sys::related::GET_PARENT;
use super::super::trace::Remote;
use super::{Helper, credentials};
pub use inside::{await_all as await_inside, name_programs, open_all as open_inside};
pub use networks::make as make_networks;
pub use objects::restore as restore_ipc;
use order::Step;

/// Most namespaces of one job.
const MOST: usize = 10_000;

/// Puts every helper into its namespaces. The first one that is in a namespace makes it, the others follow.
///
/// # Errors
/// Damage; namespaces that can't be made here.
pub fn enter_all(
    helpers: &mut [Helper<'_>],
    context: &RestoreContext<'_>,
    own: &Credentials,
) -> Result<()> {
    let all = &context.graph.namespaces;
    check(all)?;
    let mut made = Made::new();
    for (place, namespace) in &context.networks {
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        made.insert(*place, Where { path, pid: 0, around: false });
    }
    let images: Vec<&ProcessImage> = helpers.iter().map(|helper| helper.image).collect();
    let inside = images.iter().flat_map(|image| &image.namespaces).copied().collect();
    let (by_root, rehearsal) = (context.user.is_some(), context.rehearsal);
    let nodes = context.graph.processes.iter();
    let within = nodes.filter(|node| node.inside.is_some()).map(|node| node.pid).collect();
    let how = How { own, by_root, rehearsal, inside, within };
    for at in order::of_processes(&images, all, &how.within)? {
        let helper = &mut helpers[at];
        let steps = order::of_steps(all, helper.image)?;
        if !steps.is_empty() {
            enter(helper, all, &steps, &mut made, &how)?;
        }
    }
    Ok(())
}

/// What matters to all.
struct How<'c> {
    /// The restorer's credentials.
    own: &'c Credentials,
    /// Root restores a user's job.
    by_root: bool,
    rehearsal: bool,
    /// Namespaces that any process is in.
    inside: BTreeSet<u32>,
    /// Processes that are in PID namespaces of the job's own.
    within: BTreeSet<Pid>,
}

/// Where namespaces that have been made can be found.
type Made = BTreeMap<u32, Where>;

/// Where one is found.
#[derive(Debug, Clone)]
struct Where {
    /// Its file.
    path: String,
    /// The process that has made it; 0: this one, before there were any.
    pid: i32,
    /// It is the user namespace around that one.
    around: bool,
}

/// Who a helper is now: one that is in another user namespace than this process has other rights than those that it was
/// forked with.
///
/// # Errors
/// Where /proc does not tell.
pub fn credentials_of(
    helper: &Helper<'_>,
    all: &[OwnNamespace],
    own: &Credentials,
) -> Result<Credentials> {
    if !is_among_other_users(helper, all) {
        return Ok(own.clone());
    }
    let status = procfs::process::Process::new(helper.pid).and_then(|process| process.status());
    let status = status.map_err(|error| EngineError::odd("/proc/PID/status", error.to_string()))?;
    // Groups are told as this process's own namespace numbers them, which may have no numbers for some.
    let groups = helper.image.threads.first().map(|thread| thread.credentials.groups.clone());
    Ok(Credentials { groups: groups.unwrap_or_default(), ..Credentials::of_status(&status, 0) })
}

/// Whether a helper goes into a user namespace of the job's own.
pub fn is_among_other_users(helper: &Helper<'_>, all: &[OwnNamespace]) -> bool {
    has_own_users(helper.image, all)
}

/// Whether a process was in a user namespace of the job's own.
pub fn has_own_users(image: &ProcessImage, all: &[OwnNamespace]) -> bool {
    let places = image.namespaces.iter();
    places.filter_map(|place| all.get(*place as usize)).any(|one| one.content.is_user())
}

/// Refuses what no dump writes.
fn check(all: &[OwnNamespace]) -> Result<()> {
    let odd = |what: &str| Err(EngineError::Damaged(format!("namespaces: {what}")));
    if all.len() > MOST {
        return odd("too many");
    }
    for one in all {
        let owner = one.owner.map(|place| all.get(place as usize));
        let belongs = owner.is_none_or(|owner| owner.is_some_and(|owner| owner.content.is_user()));
        let within = owner.flatten().is_some_and(|owner| owner.owner.is_some());
        if !belongs || one.content.is_user() && within {
            return odd("an owner that is no user namespace of the job's");
        }
        content::check(&one.content)?;
    }
    Ok(())
}

fn enter(
    helper: &mut Helper<'_>,
    all: &[OwnNamespace],
    steps: &[Step],
    made: &mut Made,
    how: &How<'_>,
) -> Result<()> {
    let (pid, scratch) = (helper.pid, helper.scratch);
    let thread = helper.image.threads.first().ok_or(EngineError::Gone(pid))?;
    // Before the process is in another user namespace, from which it could not look at the one that has made them.
    let mut open = Vec::with_capacity(steps.len());
    for step in steps {
        let found = made.get(&step.place);
        open.push(found.map(|found| open_made(&mut helper.remote()?, found)).transpose()?);
    }
    // And before it is among mounts that may not show it.
    let needs_folder = |step: &Step| {
        let one = &all[step.place as usize];
        let is_within = one.content.is_user() && one.owner.is_some();
        (one.content.is_time() || is_within) && !made.contains_key(&step.place)
    };
    let folder = match steps.iter().any(needs_folder) {
        true => Some(open_in(&mut helper.remote()?, "/proc/self/ns")?),
        false => None,
    };
    let procs = match how.within.contains(&helper.image.pid) {
        true => make_procs(helper, all, steps, made)?,
        false => Vec::new(),
    };
    for (step, fd) in steps.iter().zip(open) {
        let OwnNamespace { owner, content } = &all[step.place as usize];
        if content.is_user() && owner.is_none() {
            let mut remote = helper.remote()?;
            credentials::change_ids(&mut remote, scratch, thread, how.own, how.by_root)?;
        }
        let flag = content.flag() as u64;
        match fd {
            Some(fd) => {
                let joined = join(&mut helper.remote()?, fd, flag);
                joined.map_err(|error| unfit(content, &error))?;
            }
            None if order::is_entered(all, &helper.image.namespaces, step.place) => {
                let what = "namespaces: one of a user namespace in which nobody makes it";
                return Err(EngineError::Damaged(what.to_owned()));
            }
            None => {
                let unshared = helper.remote()?.call("unshare", libc::SYS_unshare, &[flag]);
                unshared.map_err(|error| unfit(content, &error))?;
            }
        }
        if content.is_user() {
            // New rights have made it one that not even this process may look into, where that is no privileged one.
            let arguments = [libc::PR_SET_DUMPABLE as u64, 1];
            helper.remote()?.call("PR_SET_DUMPABLE", libc::SYS_prctl, &arguments)?;
        }
        if let Entry::Vacant(new) = made.entry(step.place) {
            let around = owner.and_then(|place| all.get(place as usize)).map(|one| &one.content);
            let filled = complete(helper, (content, around), *step, (folder, &procs), how);
            filled.map_err(|error| match error {
                EngineError::Unfit { .. } => error,
                error => unfit(content, &error),
            })?;
            let file = if step.for_children { TIME_OF_CHILDREN } else { content.file() };
            new.insert(Where { path: format!("/proc/{pid}/ns/{file}"), pid, around: false });
            if let Some(outer) = owner.filter(|_| content.is_user()) {
                // Whoever has made that one, too, has gone on from there.
                made.entry(outer).and_modify(|outer| outer.around |= outer.pid == pid);
            }
        }
    }
    if let Some(folder) = folder {
        helper.remote()?.call("close", libc::SYS_close, &[folder])?;
    }
    let is_mounts = |step: &Step| all[step.place as usize].content.flag() == libc::CLONE_NEWNS;
    if steps.iter().any(is_mounts) {
        let image = helper.image;
        enter_directory(&mut helper.remote()?, image)?;
    }
    Ok(())
}

/// Has a helper that is in a PID namespace of the job's own make each new /proc of mounts that it will have, if it enters a
/// user namespace before these.
fn make_procs(
    helper: &mut Helper<'_>,
    all: &[OwnNamespace],
    steps: &[Step],
    made: &Made,
) -> Result<Vec<u64>> {
    let contents = steps.iter().map(|step| (step.place, &all[step.place as usize].content));
    let own = contents.clone().find_map(|(place, content)| match content {
        NamespaceContent::OwnMounts { mounts, .. } if !made.contains_key(&place) => Some(mounts),
        _ => None,
    });
    let mut contents = contents.map(|(_, content)| content);
    let Some(own) = own.filter(|_| contents.any(NamespaceContent::is_user)) else {
        return Ok(Vec::new());
    };
    mounts::make_procs(&mut helper.remote()?, own)
}

/// Has a helper put in place what a namespace says that it has just made. `around`: the user namespace that it belongs to.
/// `folder`: its descriptor of /proc/self/ns; `procs`: those of each new /proc that it has made for this.
fn complete(
    helper: &mut Helper<'_>,
    (content, around): (&NamespaceContent, Option<&NamespaceContent>),
    step: Step,
    (folder, procs): (Option<u64>, &[u64]),
    how: &How<'_>,
) -> Result<()> {
    let pid = helper.pid;
    let mut remote = helper.remote()?;
    if let (true, Some(around), Some(folder)) = (content.is_user(), around, folder) {
        return users::map(&mut remote, folder, content, around);
    }
    content::fill(&mut remote, pid, content, how.rehearsal, procs)?;
    match (content, folder) {
        (NamespaceContent::Time { fixed, .. }, _) if step.for_children => {
            let is_empty = !how.inside.contains(&step.place);
            if *fixed && is_empty { time::fix(&mut remote) } else { Ok(()) }
        }
        (NamespaceContent::Time { .. }, Some(folder)) => time::enter_made(&mut remote, folder),
        _ => Ok(()),
    }
}

/// Whoever enters a mount namespace works in its root from then on (setns(2)), as does whoever gets another root.
fn enter_directory(remote: &mut Remote<'_>, image: &ProcessImage) -> Result<()> {
    let path = &image.working_directory;
    if path.len() >= libc::PATH_MAX as usize || path.contains('\0') {
        return Err(EngineError::Damaged("a working directory that no path leads to".to_owned()));
    }
    if image.removed_directory.is_some() {
        return Ok(());
    }
    let at = remote.scratch_data()?;
    remote.memory().write(at, &[&*names::bytes(path), &[0]].concat())?;
    let entered = remote.call("chdir", libc::SYS_chdir, &[at]);
    entered.map(drop).map_err(|error| EngineError::Unfit {
        what: format!("process {}: its directory {path} cannot be entered: {error}", image.pid),
        way_out: "put the directory in place, and restart it as the user who ran it".into(),
    })
}

/// Whether a process is among mounts of the job's own, where paths lead elsewhere than in the job's own mount namespace.
pub fn is_among_other_mounts(image: &ProcessImage, all: &[OwnNamespace]) -> bool {
    let places = image.namespaces.iter();
    places.filter_map(|place| all.get(*place as usize)).any(|one| one.content.has_own_mounts())
}

fn unfit(content: &NamespaceContent, error: &EngineError) -> EngineError {
    EngineError::Unfit {
        what: format!(
            "a namespace of the job's own ({}) cannot be made here: {error}",
            content.file()
        ),
        way_out:
            "restart it where it may make such namespaces; `ckptd doctor` says what is allowed"
                .into(),
    }
}

fn open_made(remote: &mut Remote<'_>, found: &Where) -> Result<u64> {
    let fd = open_in(remote, &found.path)?;
    if !found.around {
        return Ok(fd);
    }
    let outer = remote.call("NS_GET_PARENT", libc::SYS_ioctl, &[fd, GET_PARENT, 0])?;
    remote.call("close", libc::SYS_close, &[fd])?;
    Ok(outer)
}

/// Opens a namespace in a process that is to enter it; the number of the descriptor.
///
/// # Errors
/// The call's failure.
pub fn open_in(remote: &mut Remote<'_>, path: &str) -> Result<u64> {
    open_with(remote, path, libc::O_RDONLY | libc::O_CLOEXEC)
}

fn open_with(remote: &mut Remote<'_>, path: &str, flags: i32) -> Result<u64> {
    let at = remote.scratch_data()?;
    remote.memory().write(at, format!("{path}\0").as_bytes())?;
    let here = i64::from(libc::AT_FDCWD) as u64;
    remote.call("openat", libc::SYS_openat, &[here, at, flags as u64, 0])
}

/// Has a process enter a namespace that it has open, and close that.
///
/// # Errors
/// The call's failure.
pub fn join(remote: &mut Remote<'_>, fd: u64, flag: u64) -> Result<()> {
    remote.call("setns", libc::SYS_setns, &[fd, flag])?;
    remote.call("close", libc::SYS_close, &[fd]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> OwnNamespace {
        let content =
            NamespaceContent::User { uids: Vec::new(), gids: Vec::new(), may_set_groups: false };
        OwnNamespace { owner: None, content }
    }

    fn of(owner: Option<u32>, content: NamespaceContent) -> OwnNamespace {
        OwnNamespace { owner, content }
    }

    #[test]
    fn owners_are_user_namespaces_of_the_job() {
        use NamespaceContent::{Ipc, Mounts};
        assert!(check(&[of(Some(1), Mounts), user(), of(None, Ipc)]).is_ok());
        let within = |owner| OwnNamespace { owner: Some(owner), ..user() };
        assert!(check(&[within(1), user(), of(Some(0), Ipc)]).is_ok());
        for all in [
            vec![of(Some(0), Mounts)],
            vec![of(Some(7), Mounts)],
            vec![of(None, Ipc), of(Some(0), Mounts)],
            vec![OwnNamespace { owner: Some(0), ..user() }],
            vec![user(), within(0), within(1)],
        ] {
            assert!(check(&all).is_err(), "{all:?}");
        }
    }
}
