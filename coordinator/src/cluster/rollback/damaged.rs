//! Copies of images that turned out to be damaged while an epoch was made: others are taken, or what is damaged is
//! done without.

use super::departed;
use crate::cluster::entry::{Cause, ImageRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::{Job, State};
use crate::cluster::members::Members;
use crate::cluster::rollback::Beginning;
use crate::cluster::shared::Shared;
use protocol::agent::{AgentId, CheckpointNumber};
use protocol::cluster::NodeName;
use protocol::cluster::agent::DamagedCopy;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of damage, by checkpoint and image, by the machine where the copy lies. It is not in the log: who
/// begins again finds it again.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct DamagedCopies {
    copies: BTreeMap<(CheckpointNumber, AgentId), BTreeMap<NodeName, DamagedCopy>>,
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

impl DamagedCopies {
    /// Takes one more into account: whether that was not known.
    fn note(&mut self, checkpoint: CheckpointNumber, image: AgentId, copy: DamagedCopy) -> bool {
        let known = self.copies.entry((checkpoint, image)).or_default();
        known.insert(copy.node.clone(), copy).is_none()
    }

    fn of(
        &self,
        checkpoint: CheckpointNumber,
        image: AgentId,
        node: &NodeName,
    ) -> Option<&DamagedCopy> {
        self.copies.get(&(checkpoint, image))?.get(node)
    }

    /// The holders of an image whose copies are not known to be damaged.
    pub(super) fn sound(
        &self,
        checkpoint: CheckpointNumber,
        instance: AgentId,
        image: &ImageRecord,
    ) -> Vec<NodeName> {
        let holders = image.holders.iter();
        holders.filter(|node| self.of(checkpoint, instance, node).is_none()).cloned().collect()
    }

    /// Where an image can be had: whole, if that is possible, or before long.
    pub(super) fn source(
        &self,
        checkpoint: CheckpointNumber,
        instance: AgentId,
        images: &BTreeMap<AgentId, ImageRecord>,
        members: &Members,
    ) -> Source {
        let Some(image) = images.get(&instance) else { return Source::Lost };
        let sound = self.sound(checkpoint, instance, image);
        if sound.iter().any(|node| members.is_connected(node)) {
            return Source::Whole(sound);
        }
        let there: Vec<NodeName> =
            sound.into_iter().filter(|node| !members.is_gone(node)).collect();
        if !there.is_empty() {
            return Source::Later(there);
        }
        let daemons = departed::dispensable(instance, images);
        let (mut usable, mut away) = (Vec::new(), Vec::new());
        for node in image.holders.iter().filter(|node| !members.is_gone(node)) {
            let copy = self.of(checkpoint, instance, node);
            if copy.is_some_and(|copy| !copy.useless && copy.processes.is_subset(&daemons)) {
                let list = if members.is_connected(node) { &mut usable } else { &mut away };
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
        instance: AgentId,
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
        let mut damaged = making.damaged.clone();
        let mut lines = Vec::new();
        for copy in copies.into_iter().filter(|copy| holders.contains(&copy.node)) {
            let line = format!(
                "the copy on {} of the image of instance {} at checkpoint {checkpoint} is damaged: {}",
                copy.node, image.0, copy.reason
            );
            if damaged.note(checkpoint, image, copy) {
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return self.not_made(now, shared, instance, reason);
        }
        let begin = Beginning {
            cause: Cause::Again { reason: reason.to_owned() },
            checkpoint: Some(checkpoint),
            failures: self.ledger.failures,
            record: making.record.clone(),
            failed_makes: making.failed_makes,
            avoid: making.avoid.clone(),
            damaged,
            force: making.force,
        };
        for line in lines {
            self.say(shared, &format!("warning: {line}"));
        }
        self.begin_epoch(now, shared, begin);
    }
}
