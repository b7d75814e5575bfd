//! In which order processes enter their namespaces, and each process its own.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{OwnNamespace, Pid, ProcessImage};

/// A namespace that a process enters, or makes for its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Its place in the list.
    pub place: u32,
    /// It is the time namespace of the process's children, and not its own.
    pub for_children: bool,
}

fn odd(what: &str) -> EngineError {
    EngineError::Damaged(format!("namespaces of a process: {what}"))
}

/// Those that belong to the job's user namespace need its rights, and the others come with the rights in their own; a user
/// namespace within another one comes after what belongs to that. What is for children comes after the process's own of that kind, since setns(2) sets both.
pub(super) fn of_steps(all: &[OwnNamespace], image: &ProcessImage) -> Result<Vec<Step>> {
    in_order(all, &image.namespaces, image.time_of_children)
}

fn in_order(
    all: &[OwnNamespace],
    places: &[u32],
    time_of_children: Option<u32>,
) -> Result<Vec<Step>> {
    let mut kinds = BTreeSet::new();
    let mut order = Vec::with_capacity(places.len());
    let outer = outer(all, places);
    if let Some(place) = outer {
        order.push((rank(all, place, outer), false, place));
    }
    let own = places.iter().map(|place| (*place, false));
    for (place, for_children) in own.chain(time_of_children.map(|place| (place, true))) {
        let one = all.get(place as usize).ok_or_else(|| odd("one that is none"))?;
        if for_children && (!one.content.is_time() || places.contains(&place)) {
            return Err(odd("a time of its children that is none"));
        }
        if !for_children && !kinds.insert(one.content.flag()) {
            return Err(odd("two of a kind"));
        }
        let is_entered = is_entered(all, places, place);
        let is_mounts = one.content.flag() == libc::CLONE_NEWNS;
        if is_entered && (for_children || is_mounts || one.content.is_time()) {
            return Err(odd("one of another user namespace"));
        }
        let rank = if is_entered { 0 } else { rank(all, place, outer) };
        order.push((rank, for_children, place));
    }
    order.sort_unstable();
    let founds = order.iter().position(|(.., for_children, _)| *for_children);
    let is_time = |(.., place): &(u8, bool, u32)| all[*place as usize].content.is_time();
    if founds.is_some_and(|at| order[at + 1..].iter().any(is_time)) {
        return Err(odd("a time of its children that comes before its own"));
    }
    Ok(order.into_iter().map(|(.., for_children, place)| Step { place, for_children }).collect())
}

/// The user namespace around that of a process, which it has come through.
pub(super) fn outer(all: &[OwnNamespace], places: &[u32]) -> Option<u32> {
    let own = places.iter().filter_map(|place| all.get(*place as usize));
    let outer = own.filter(|one| one.content.is_user()).find_map(|one| one.owner);
    outer.filter(|place| (*place as usize) < all.len())
}

/// Whether a process with these namespaces has come to one of them from outside of the user namespace that it belongs to: another
/// process makes it.
pub(super) fn is_entered(all: &[OwnNamespace], places: &[u32], place: u32) -> bool {
    let Some(one) = all.get(place as usize).filter(|one| !one.content.is_user()) else {
        return false;
    };
    one.owner.is_some_and(|owner| !places.contains(&owner) && outer(all, places) != Some(owner))
}

fn rank(all: &[OwnNamespace], place: u32, outer: Option<u32>) -> u8 {
    let one = &all[place as usize];
    match (one.owner, one.content.is_user()) {
        (None, false) => 0,
        (None, true) => 1,
        (owner, false) if owner == outer => 2,
        (Some(_), true) => 3,
        (Some(_), false) => 4,
    }
}

/// Processes by their places: one that is in a time namespace that another one has made for its children comes after that
/// one, which could not make it for them alone once it is there.
///
/// Those that enter namespaces of a user namespace in which they are not come after all others, one of which makes these.
/// Those that are `within` PID namespaces of the job's own come before others: a /proc of their mounts must be made by them.
pub(super) fn of_processes(
    images: &[&ProcessImage],
    all: &[OwnNamespace],
    within: &BTreeSet<Pid>,
) -> Result<Vec<usize>> {
    let is_time = |place: &&u32| all.get(**place as usize).is_some_and(|one| one.content.is_time());
    let mut places: Vec<usize> = (0..images.len()).collect();
    let enters = |image: &ProcessImage| {
        image.namespaces.iter().any(|place| is_entered(all, &image.namespaces, *place))
    };
    places.sort_by_key(|place| {
        let image = images[*place];
        (enters(image), !within.contains(&image.pid))
    });
    let times = places.iter().map(|place| images[*place]).map(|image| {
        (image.namespaces.iter().find(|place| is_time(place)).copied(), image.time_of_children)
    });
    let order = founders_first(&times.collect::<Vec<_>>())?;
    Ok(order.into_iter().map(|at| places[at]).collect())
}

/// Each one's time namespace, and that of its children.
fn founders_first(times: &[(Option<u32>, Option<u32>)]) -> Result<Vec<usize>> {
    let mut founders = BTreeMap::new();
    for (at, (_, of_children)) in times.iter().enumerate() {
        let twice = of_children.is_some_and(|place| founders.insert(place, at).is_some());
        if twice {
            return Err(odd("a time of children that two have made"));
        }
    }
    let (mut order, mut done) = (Vec::with_capacity(times.len()), BTreeSet::new());
    for at in 0..times.len() {
        let mut before = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next.filter(|at| !done.contains(at)) {
            if before.len() == times.len() {
                return Err(odd("times that are made by those in them"));
            }
            before.push(at);
            next = times[at].0.and_then(|place| founders.get(&place)).copied();
        }
        for at in before.into_iter().rev() {
            done.insert(at);
            order.push(at);
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NamespaceContent;

    fn user() -> OwnNamespace {
        let content =
            NamespaceContent::User { uids: Vec::new(), gids: Vec::new(), may_set_groups: false };
        of(None, content)
    }

    fn time(owner: Option<u32>) -> OwnNamespace {
        of(owner, NamespaceContent::Time { monotonic_ns: 0, boottime_ns: 0, fixed: true })
    }

    fn of(owner: Option<u32>, content: NamespaceContent) -> OwnNamespace {
        OwnNamespace { owner, content }
    }

    #[test]
    fn one_within_another_is_entered_last() {
        use NamespaceContent::{Cgroup, Ipc, Mounts};
        let inner = OwnNamespace { owner: Some(2), ..user() };
        let all = [inner, of(Some(2), Mounts), user(), of(Some(0), Ipc), of(None, Cgroup)];
        assert_eq!(places(&all, &[0, 1, 3, 4], None), [4, 2, 1, 0, 3]);
        // One that has stayed outside.
        assert_eq!(places(&all, &[2, 1], None), [2, 1]);
        // One that has come from there to what belongs to the inner one.
        assert_eq!(places(&all, &[2, 3], None), [3, 2]);
    }

    #[test]
    fn what_others_make_is_entered_first() {
        use NamespaceContent::{Ipc, Mounts, Uts};
        let uts = || Uts { host: String::new(), domain: String::new() };
        let all = [user(), of(Some(0), uts()), of(Some(0), Ipc), user(), of(Some(3), Ipc)];
        assert_eq!(places(&all, &[1, 2], None), [1, 2]);
        assert_eq!(places(&all, &[3, 4, 1], None), [1, 3, 4]);
        let entered = |own: &[u32]| own.iter().filter(|one| is_entered(&all, own, **one)).count();
        assert_eq!(entered(&[1, 2]), 2);
        assert_eq!(entered(&[0, 1, 2]), 0);
        assert_eq!(entered(&[3, 4, 1]), 1);
        let mounts = [user(), of(Some(0), Mounts), time(Some(0))];
        for own in [&[1][..], &[2]] {
            assert!(in_order(&mounts, own, None).is_err(), "{own:?}");
        }
    }

    fn places(all: &[OwnNamespace], own: &[u32], time_of_children: Option<u32>) -> Vec<u32> {
        let steps = in_order(all, own, time_of_children).unwrap();
        steps.iter().map(|step| step.place).collect()
    }

    #[test]
    fn those_of_the_job_are_entered_first() {
        use NamespaceContent::{Cgroup, Ipc, Mounts};
        let all = [of(Some(2), Mounts), of(None, Ipc), user(), of(Some(2), Cgroup)];
        assert_eq!(places(&all, &[0, 1, 2, 3], None), [1, 2, 0, 3]);
        assert_eq!(places(&all, &[2, 0], None), [2, 0]);
        assert!(places(&all, &[], None).is_empty());
    }

    #[test]
    fn what_no_dump_writes_is_damage() {
        use NamespaceContent::{Ipc, Mounts};
        let all = [of(Some(1), Mounts), user(), of(None, Ipc), of(None, Ipc)];
        for places in [&[0][..], &[7], &[2, 2], &[2, 3]] {
            assert!(in_order(&all, places, None).is_err(), "{places:?}");
        }
        assert!(in_order(&all, &[], Some(2)).is_err());
        assert!(in_order(&all, &[], Some(7)).is_err());
    }

    #[test]
    fn the_time_of_children_comes_after_the_own() {
        let all = [time(None), time(None), user(), time(Some(2)), time(Some(2))];
        assert_eq!(places(&all, &[1], Some(0)), [1, 0]);
        assert_eq!(places(&all, &[2], Some(0)), [0, 2]);
        assert_eq!(places(&all, &[2, 0], Some(3)), [0, 2, 3]);
        assert_eq!(places(&all, &[2, 4], Some(3)), [2, 4, 3]);
        for (own, of_children) in [(&[2, 3][..], 0), (&[0], 0), (&[], 3), (&[], 2)] {
            assert!(in_order(&all, own, Some(of_children)).is_err(), "{own:?}");
        }
    }

    #[test]
    fn who_has_made_a_time_comes_before_those_in_it() {
        assert_eq!(founders_first(&[(None, None), (Some(0), None)]).unwrap(), [0, 1]);
        let chain = [(Some(1), None), (Some(0), Some(1)), (None, Some(0)), (Some(1), Some(2))];
        assert_eq!(founders_first(&chain).unwrap(), [2, 1, 0, 3]);
        assert!(founders_first(&[(None, Some(0)), (None, Some(0))]).is_err());
        assert!(founders_first(&[(Some(1), Some(0)), (Some(0), Some(1))]).is_err());
        assert!(founders_first(&[(Some(0), Some(0))]).is_err());
    }
}
