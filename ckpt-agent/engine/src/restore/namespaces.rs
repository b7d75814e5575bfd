//! Puts processes into namespaces of their own, as the job had made them: while they have one thread, which both unshare(2)
//! and setns(2) ask for where users are concerned.

mod content;
mod mounts;

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::{EngineError, Result};
use super::super::graph::{Credentials, NamespaceContent, OwnNamespace, ProcessImage};
use super::super::objects::RestoreContext;
use super::super::trace::Remote;
use super::{Helper, credentials};

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
    let mut made = BTreeMap::new();
    for helper in helpers {
        let places = in_order(all, &helper.image.namespaces)?;
        if !places.is_empty() {
            let how = (context.user.is_some(), context.rehearsal);
            enter(helper, all, &places, &mut made, own, how)?;
        }
    }
    Ok(())
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
    let places = helper.image.namespaces.iter();
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
        if !belongs || one.content.is_user() && one.owner.is_some() {
            return odd("an owner that is no user namespace of the job's");
        }
        content::check(&one.content)?;
    }
    Ok(())
}

/// Places in the order in which they are entered: those that belong to the job's user namespace need its rights, and the
/// others come with the rights in their own.
fn in_order(all: &[OwnNamespace], places: &[u32]) -> Result<Vec<u32>> {
    let odd = |what: &str| EngineError::Damaged(format!("namespaces of a process: {what}"));
    let mut kinds = BTreeSet::new();
    let mut order = Vec::with_capacity(places.len());
    for place in places {
        let one = all.get(*place as usize).ok_or_else(|| odd("one that is none"))?;
        if !kinds.insert(one.content.flag()) {
            return Err(odd("two of a kind"));
        }
        if one.owner.is_some_and(|owner| !places.contains(&owner)) {
            return Err(odd("one of another user namespace"));
        }
        order.push((one.owner.is_some(), one.content.is_user(), *place));
    }
    order.sort_unstable();
    Ok(order.into_iter().map(|(.., place)| place).collect())
}

fn enter(
    helper: &mut Helper<'_>,
    all: &[OwnNamespace],
    places: &[u32],
    made: &mut BTreeMap<u32, i32>,
    own: &Credentials,
    (by_root, rehearsal): (bool, bool),
) -> Result<()> {
    let (pid, scratch) = (helper.pid, helper.scratch);
    let thread = helper.image.threads.first().ok_or(EngineError::Gone(pid))?;
    // Before the process is in another user namespace, from which it could not look at the one that has made them.
    let mut open = Vec::with_capacity(places.len());
    for place in places {
        let maker = made.get(place);
        let content = &all[*place as usize].content;
        let path = maker.map(|maker| format!("/proc/{maker}/ns/{}", content.file()));
        open.push(path.map(|path| open_in(&mut helper.remote()?, &path)).transpose()?);
    }
    for (place, fd) in places.iter().zip(open) {
        let content = &all[*place as usize].content;
        if content.is_user() {
            let mut remote = helper.remote()?;
            credentials::change_ids(&mut remote, scratch, thread, own, by_root)?;
        }
        let flag = content.flag() as u64;
        match fd {
            Some(fd) => {
                let joined = join(&mut helper.remote()?, fd, flag);
                joined.map_err(|error| unfit(content, &error))?;
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
        if !made.contains_key(place) {
            let filled = content::fill(&mut helper.remote()?, pid, content, rehearsal);
            filled.map_err(|error| match error {
                EngineError::Unfit { .. } => error,
                error => unfit(content, &error),
            })?;
            made.insert(*place, pid);
        }
    }
    if places.iter().any(|place| all[*place as usize].content.flag() == libc::CLONE_NEWNS) {
        let image = helper.image;
        enter_directory(&mut helper.remote()?, image)?;
    }
    Ok(())
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
    remote.memory().write(at, format!("{path}\0").as_bytes())?;
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

/// Opens a namespace in a process that is to enter it; the number of the descriptor.
///
/// # Errors
/// The call's failure.
pub fn open_in(remote: &mut Remote<'_>, path: &str) -> Result<u64> {
    let at = remote.scratch_data()?;
    remote.memory().write(at, format!("{path}\0").as_bytes())?;
    let here = i64::from(libc::AT_FDCWD) as u64;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    remote.call("openat", libc::SYS_openat, &[here, at, flags, 0])
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
    fn those_of_the_job_are_entered_first() {
        use NamespaceContent::{Cgroup, Ipc, Mounts};
        let all = [of(Some(2), Mounts), of(None, Ipc), user(), of(Some(2), Cgroup)];
        assert!(check(&all).is_ok());
        assert_eq!(in_order(&all, &[0, 1, 2, 3]).unwrap(), [1, 2, 0, 3]);
        assert_eq!(in_order(&all, &[2, 0]).unwrap(), [2, 0]);
        assert!(in_order(&all, &[]).unwrap().is_empty());
    }

    #[test]
    fn what_no_dump_writes_is_damage() {
        use NamespaceContent::{Ipc, Mounts};
        let all = [of(Some(1), Mounts), user(), of(None, Ipc), of(None, Ipc)];
        for places in [&[0][..], &[7], &[2, 2], &[2, 3]] {
            assert!(in_order(&all, places).is_err(), "{places:?}");
        }
        for all in [
            vec![of(Some(0), Mounts)],
            vec![of(Some(7), Mounts)],
            vec![of(None, Ipc), of(Some(0), Mounts)],
            vec![user(), OwnNamespace { owner: Some(0), ..user() }],
        ] {
            assert!(check(&all).is_err(), "{all:?}");
        }
    }
}
