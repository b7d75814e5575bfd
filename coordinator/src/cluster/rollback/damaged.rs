//! Copies of images that turned out to be damaged while an epoch was made: others are taken, or what is damaged is
//! done without.

use super::departed;
use crate::cluster::entry::{Cause, ImageRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::DamagedCopy;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of damage, by checkpoint and image, by the machine where the copy lies. It is not in the log: who
/// begins again finds it again.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct DamagedCopies {
    copies: BTreeMap<(CheckpointNumber, InstanceId), BTreeMap<NodeName, DamagedCopy>>,
}

/// Where an image can be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Whole, from these.
    Whole(Vec<NodeName>),
    /// From these, without some daemons.
    Without(Vec<NodeName>, BTreeSet<i32>),
    /// Not before these are there.
    Later(Vec<NodeName>),
    /// Nowhere.
    Lost,
}

/// How a machine is that holds a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Connected,
    Away,
    Gone,
}

impl DamagedCopies {
    /// Takes one more into account: whether that was not known.
    fn note(&mut self, checkpoint: CheckpointNumber, image: InstanceId, copy: DamagedCopy) -> bool {
        let known = self.copies.entry((checkpoint, image)).or_default();
        known.insert(copy.node.clone(), copy).is_none()
    }

    fn of(
        &self,
        checkpoint: CheckpointNumber,
        image: InstanceId,
        node: &NodeName,
    ) -> Option<&DamagedCopy> {
        self.copies.get(&(checkpoint, image))?.get(node)
    }

    /// The holders of an image whose copies are not known to be damaged.
    pub(super) fn sound(
        &self,
        checkpoint: CheckpointNumber,
        instance: InstanceId,
        image: &ImageRecord,
    ) -> Vec<NodeName> {
        let holders = image.holders.iter();
        holders.filter(|node| self.of(checkpoint, instance, node).is_none()).cloned().collect()
    }

    /// Where an image can be had: whole, if that is possible, or before long.
    pub(super) fn source(
        &self,
        checkpoint: CheckpointNumber,
        instance: InstanceId,
        images: &BTreeMap<InstanceId, ImageRecord>,
        presence: impl Fn(&NodeName) -> Presence,
    ) -> Source {
        let Some(image) = images.get(&instance) else { return Source::Lost };
        let sound = self.sound(checkpoint, instance, image);
        if sound.iter().any(|node| presence(node) == Presence::Connected) {
            return Source::Whole(sound);
        }
        let there: Vec<NodeName> =
            sound.into_iter().filter(|node| presence(node) != Presence::Gone).collect();
        if !there.is_empty() {
            return Source::Later(there);
        }
        let daemons = departed::dispensable(instance, images);
        let (mut usable, mut away) = (Vec::new(), Vec::new());
        for node in image.holders.iter().filter(|node| presence(node) != Presence::Gone) {
            let copy = self.of(checkpoint, instance, node);
            if copy.is_some_and(|copy| !copy.useless && copy.processes.is_subset(&daemons)) {
                let connected = presence(node) == Presence::Connected;
                let list = if connected { &mut usable } else { &mut away };
                list.push(node.clone());
            }
        }
        match (usable.is_empty(), away.is_empty()) {
            (false, _) => Source::Without(usable, daemons),
            (true, false) => Source::Later(away),
            (true, true) => Source::Lost,
        }
    }
}

impl Job {
    /// A machine could not make an instance, because copies of its image are damaged: another one is tried, as
    /// often as there are copies.
    pub(in crate::cluster) fn copies_damaged(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        copies: Vec<DamagedCopy>,
        reason: &str,
    ) {
        let origin = self.live.instances.get(&instance).map(|found| found.record.origin.clone());
        let (State::Making(making), Some(Origin::Image { instance: image, .. }), Some(checkpoint)) =
            (&self.state, origin, self.ledger.checkpoint)
        else {
            return self.not_made(now, shared, instance, reason);
        };
        let known = self.ledger.images.get(&checkpoint).and_then(|images| images.get(&image));
        let holders = known.map_or(&[][..], |image| &image.holders);
        let cause = Cause::Again { reason: reason.to_owned() };
        let mut begin = making.again(cause, Some(checkpoint), self.ledger.failures);
        let mut lines = Vec::new();
        for copy in copies.into_iter().filter(|copy| holders.contains(&copy.node)) {
            let line = format!(
                "the copy on {} of the image of instance {} at checkpoint {checkpoint} is damaged: {}",
                copy.node, image.0, copy.reason
            );
            if begin.attempts.damaged.note(checkpoint, image, copy) {
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return self.not_made(now, shared, instance, reason);
        }
        for line in lines {
            self.console.say(shared, &format!("warning: {line}"));
        }
        self.begin_epoch(now, shared, begin);
    }
}

#[cfg(test)]
mod tests {
    use super::super::departed::tests::mpi;
    use super::*;

    fn name(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn copy(node: &str, processes: &[i32], useless: bool) -> DamagedCopy {
        let processes = processes.iter().copied().collect();
        DamagedCopy { node: name(node), processes, useless, reason: "a chunk".to_owned() }
    }

    /// Image 2 of `mpi` at checkpoint 5 is on node2 and node3; its daemons are 2 and 3.
    fn source(damaged: &[DamagedCopy], presence: impl Fn(&str) -> Presence) -> Source {
        let mut images = mpi();
        images.get_mut(&InstanceId(2)).unwrap().holders = vec![name("node2"), name("node3")];
        let mut copies = DamagedCopies::default();
        for copy in damaged {
            assert!(copies.note(5, InstanceId(2), copy.clone()));
            assert!(!copies.note(5, InstanceId(2), copy.clone()));
        }
        copies.source(5, InstanceId(2), &images, |node| presence(node.as_str()))
    }

    const ALL: fn(&str) -> Presence = |_| Presence::Connected;

    #[test]
    fn whole_copies_come_first() {
        assert_eq!(source(&[], ALL), Source::Whole(vec![name("node2"), name("node3")]));
        let one = [copy("node2", &[3], false)];
        assert_eq!(source(&one, ALL), Source::Whole(vec![name("node3")]));
        let away = |node: &str| match node {
            "node3" => Presence::Away,
            _ => Presence::Connected,
        };
        assert_eq!(source(&one, away), Source::Later(vec![name("node3")]));
    }

    #[test]
    fn daemons_are_done_without_where_no_copy_has_them() {
        let both = [copy("node2", &[3], false), copy("node3", &[2, 3], false)];
        let daemons = BTreeSet::from([2, 3]);
        let expected = Source::Without(vec![name("node2"), name("node3")], daemons.clone());
        assert_eq!(source(&both, ALL), expected);
        // The other copy is gone, or a rank's memory is damaged in it, too.
        let gone = |node: &str| match node {
            "node3" => Presence::Gone,
            _ => Presence::Connected,
        };
        let expected = Source::Without(vec![name("node2")], daemons);
        assert_eq!(source(&both[..1], gone), expected);
        let worse = [both[0].clone(), copy("node3", &[3, 4], false)];
        assert_eq!(source(&worse, ALL), expected);
        let away = |_: &str| Presence::Away;
        assert_eq!(source(&worse, away), Source::Later(vec![name("node2")]));
    }

    #[test]
    fn ranks_are_not_done_without() {
        let ranks = [copy("node2", &[4], false), copy("node3", &[3, 5], false)];
        assert_eq!(source(&ranks, ALL), Source::Lost);
        let useless = [copy("node2", &[], true), copy("node3", &[], true)];
        assert_eq!(source(&useless, ALL), Source::Lost);
        assert_eq!(source(&[], |_| Presence::Gone), Source::Lost);
    }
}
