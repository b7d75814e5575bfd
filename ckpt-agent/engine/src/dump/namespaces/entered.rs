//! Processes in namespaces that belong to a user namespace in which they are not: they have entered those of another process
//! (setns(2)).

use super::super::super::error::EngineError;
use super::super::super::graph::OwnNamespace;
use super::{Own, refuse};

/// Why a namespace that nobody would make again is refused.
pub(super) const NOBODY: &str =
    "is in a namespace of a user namespace in which no other process with it is";

/// The user namespace around that of a process, which it has come through.
fn outer(all: &[OwnNamespace], places: &[u32]) -> Option<u32> {
    let own = places.iter().filter_map(|place| all.get(*place as usize));
    own.filter(|one| one.content.is_user()).find_map(|one| one.owner)
}

impl Own {
    /// A restart has a process enter them again once another one, which is in their user namespace, has made them.
    ///
    /// # Errors
    /// A refusal, with the number of its process on this machine.
    pub(super) fn check_entered(&self) -> Result<(), (i32, EngineError)> {
        let is_within = |places: &[u32], owner: u32| {
            places.contains(&owner) || outer(&self.all, places) == Some(owner)
        };
        for (pid, places) in &self.of {
            for place in places {
                let one = &self.all[*place as usize];
                let Some(owner) = one.owner.filter(|_| !one.content.is_user()) else { continue };
                if is_within(places, owner) {
                    continue;
                }
                let makes = |places: &Vec<u32>| places.contains(place) && is_within(places, owner);
                let is_mounts = one.content.flag() == libc::CLONE_NEWNS;
                let why = if is_mounts || one.content.is_time() {
                    "is in a mount or time namespace of a user namespace in which it is not"
                } else if self.of_children.contains_key(pid) {
                    "has made a time namespace for its children, and is in a namespace of a user namespace in which it is not"
                } else if !self.of.values().any(makes) {
                    NOBODY
                } else {
                    continue;
                };
                return Err((*pid, refuse(why.to_owned())));
            }
        }
        Ok(())
    }
}
