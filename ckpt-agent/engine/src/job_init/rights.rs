//! Whom a restore by root may make a process of: nobody gets more than the user has for whom it is done.

use std::collections::BTreeSet;

use super::super::error::{EngineError, Result};
use super::super::graph::{Credentials, IdRange, NamespaceContent, OwnNamespace, ProcessImage};
use super::super::restore::{Image, Processes};
use super::UserOrder;

/// SECBIT_KEEP_CAPS (include/uapi/linux/securebits.h): the one that everybody may set (PR_SET_KEEPCAPS(2const)).
const KEEP_CAPS: u32 = 1 << 4;

/// Refuses an image of what the user's own processes can't be.
///
/// # Errors
/// [`EngineError::Unfit`], with the process named.
pub(super) fn check_user(image: &Image, processes: &Processes, user: &UserOrder) -> Result<()> {
    let mut own_networks = BTreeSet::new();
    for process in processes.values() {
        let Some(in_own) = user_namespace(process, &image.graph.namespaces, user) else {
            return Err(has_not(process, user, "namespaces or a root directory"));
        };
        let threads = process.threads.iter();
        if !threads.map(|thread| &thread.credentials).all(|all| are_own(all, user, in_own)) {
            return Err(has_not(process, user, "rights"));
        }
        if in_own {
            own_networks.extend(process.namespaces.iter().copied());
        }
    }
    // Root makes them and their sockets.
    let networks = image.graph.files.iter().filter_map(|file| file.network);
    match networks.into_iter().find(|place| !own_networks.contains(place)) {
        None => Ok(()),
        Some(_) => Err(EngineError::Damaged("a network in which none of the user's is".to_owned())),
    }
}

fn has_not(process: &ProcessImage, user: &UserOrder, what: &str) -> EngineError {
    EngineError::Unfit {
        what: format!("process {} has {what} that user {} has not", process.pid, user.uid),
        way_out: "only a job of that user's own processes can be brought back".into(),
    }
}

/// Whether these are credentials that the user's own processes can have. Rights in a user namespace of their own (`in_own`)
/// are none outside of it.
fn are_own(credentials: &Credentials, user: &UserOrder, in_own: bool) -> bool {
    let [inheritable, permitted, effective, _, ambient] = credentials.capabilities;
    credentials.uids.iter().all(|uid| *uid == user.uid)
        && credentials.gids.iter().all(|gid| *gid == user.gid)
        && credentials.groups.iter().all(|group| user.groups.contains(group))
        && (in_own || inheritable | permitted | effective | ambient == 0)
        // All others take CAP_SETPCAP, and make set-user-ID programs fail to give root up.
        && (in_own || credentials.securebits & !KEEP_CAPS == 0)
}

/// Whether a process is in a user namespace of its own; `None`: it is in one, or in another namespace, or has a root directory,
/// that the user has no right to. What belongs to the job's user namespace is root's to make: set-user-ID programs would
/// find in it what the user has put there.
fn user_namespace(process: &ProcessImage, all: &[OwnNamespace], user: &UserOrder) -> Option<bool> {
    let mut own = process.threads.iter().filter_map(|thread| thread.directories.as_ref());
    let has_root = own.any(|own| own.root_directory.is_some()) || process.root_directory.is_some();
    let (mut in_own, mut needs_own) = (false, has_root);
    for place in process.namespaces.iter().chain(&process.time_of_children) {
        let one = all.get(*place as usize)?;
        if !one.content.is_user() {
            // One with sockets is made for the job's user namespace, whomever it belonged to. Who is in a user namespace of
            // the user's gets no rights of root's by any program.
            let is_made_early = matches!(one.content, NamespaceContent::OwnNetwork { .. });
            needs_own |= is_made_early;
            if one.owner.is_none() && !is_made_early {
                return None;
            }
            // Entered from outside of the user namespace that it belongs to, which takes a right over that and the job's.
            if !is_within(&process.namespaces, all, *place) {
                return None;
            }
            continue;
        }
        if !may_make(one, all, user) {
            return None;
        }
        in_own = true;
    }
    (in_own || !needs_own).then_some(in_own)
}

/// Whether the user namespace that a namespace belongs to is the job's, a process's own, or the one around that.
fn is_within(own: &[u32], all: &[OwnNamespace], place: u32) -> bool {
    let around = |owner: u32| {
        let mut own = own.iter().filter_map(|place| all.get(*place as usize));
        own.any(|own| own.content.is_user() && own.owner == Some(owner))
    };
    let one = all.get(place as usize).filter(|one| !one.content.is_user());
    one.and_then(|one| one.owner).is_none_or(|owner| own.contains(&owner) || around(owner))
}

/// Whether a user may make a user namespace, and the one around it; the maps of both are in the job's numbers.
fn may_make(one: &OwnNamespace, all: &[OwnNamespace], user: &UserOrder) -> bool {
    let around = one.owner.map(|place| all.get(place as usize));
    [Some(Some(one)), around].into_iter().flatten().all(|one| {
        let Some(NamespaceContent::User { uids, gids, may_set_groups }) =
            one.map(|one| &one.content)
        else {
            return false;
        };
        let sets_groups = *may_set_groups && !gids.is_empty();
        maps_alone(uids, user.uid) && maps_alone(gids, user.gid) && !sets_groups
    })
}

/// Whether a map has no number but this one: that is what a user may write without a right (user_namespaces(7)).
fn maps_alone(ranges: &[IdRange], id: u32) -> bool {
    match ranges {
        [] => true,
        [IdRange(_, outside, count)] => (*outside, *count) == (id, 1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> UserOrder {
        UserOrder { uid: 1000, gid: 100, groups: vec![101, 102] }
    }

    fn own() -> Credentials {
        Credentials {
            uids: [1000; 4],
            gids: [100; 4],
            groups: vec![102],
            capabilities: [0, 0, 0, u64::MAX, 0],
            securebits: 0,
        }
    }

    #[test]
    fn nobody_comes_back_with_rights_that_they_do_not_have() {
        let (user, own) = (user(), own());
        assert!(are_own(&own, &user, false));
        assert!(are_own(&Credentials { securebits: KEEP_CAPS, ..own.clone() }, &user, false));
        for index in 0..4 {
            let mut other = own.clone();
            other.uids[index] = 0;
            assert!(!are_own(&other, &user, true), "uid {index}");
            let mut other = own.clone();
            other.gids[index] = 0;
            assert!(!are_own(&other, &user, true), "gid {index}");
        }
        for set in [0, 1, 2, 4] {
            let mut other = own.clone();
            other.capabilities[set] = 1;
            assert!(!are_own(&other, &user, false), "capabilities {set}");
            assert!(are_own(&other, &user, true), "capabilities {set}");
        }
        assert!(!are_own(&Credentials { groups: vec![0], ..own.clone() }, &user, true));
        for bit in (0..32).filter(|bit| 1 << bit != KEEP_CAPS) {
            let other = Credentials { securebits: 1 << bit, ..own.clone() };
            assert!(!are_own(&other, &user, false), "secure bit {bit}");
        }
    }

    #[test]
    fn what_is_around_a_user_namespace_is_the_users_too() {
        let of = |uid: u32, owner: Option<u32>| {
            let (uids, gids) = (vec![IdRange(0, uid, 1)], vec![IdRange(0, 100, 1)]);
            let content = NamespaceContent::User { uids, gids, may_set_groups: false };
            OwnNamespace { owner, content }
        };
        let uts = NamespaceContent::Uts { host: String::new(), domain: String::new() };
        let all = [of(1000, None), of(0, None), OwnNamespace { owner: None, content: uts }];
        let may = |one: &OwnNamespace| may_make(one, &all, &user());
        assert!(may(&all[0]) && may(&of(1000, Some(0))));
        for other in [of(0, None), of(0, Some(0)), of(1000, Some(1)), of(1000, Some(2))] {
            assert!(!may(&other), "{other:?}");
        }
        assert!(!may(&of(1000, Some(9))));
    }

    #[test]
    fn nobody_enters_namespaces_of_users_in_which_they_are_not() {
        let content =
            || NamespaceContent::User { uids: vec![], gids: vec![], may_set_groups: false };
        let own = |owner| OwnNamespace { owner, content: content() };
        let inner = OwnNamespace { owner: Some(0), content: NamespaceContent::Ipc };
        let all = [own(None), inner, own(None), own(Some(0))];
        let within = |places: &[u32]| places.iter().all(|place| is_within(places, &all, *place));
        assert!(within(&[0, 1]) && within(&[3, 1]) && within(&[2]));
        assert!(!within(&[1]) && !within(&[2, 1]));
    }

    #[test]
    fn a_user_maps_no_other_number() {
        assert!(maps_alone(&[], 1000));
        assert!(maps_alone(&[IdRange(0, 1000, 1)], 1000));
        for ranges in [
            &[IdRange(0, 0, 1)][..],
            &[IdRange(0, 1000, 2)],
            &[IdRange(0, 999, 2)],
            &[IdRange(0, 1000, 1), IdRange(1, 0, 1)],
        ] {
            assert!(!maps_alone(ranges, 1000), "{ranges:?}");
        }
    }
}
