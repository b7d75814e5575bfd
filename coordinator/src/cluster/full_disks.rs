//! Members whose disks stay full. What runs there has its images with partners alone, and could not be restarted there. So it
//! moves to other members, if these have room: from a checkpoint behind which it stands still, as for a departure.

use super::entry::Cause;
use super::event::Now;
use super::job::Job;
use super::shared::Shared;
use crate::event::Event;
use crate::settings::SECOND;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::image::ImageFacts;
use std::collections::BTreeSet;

/// For how long a disk is full before anything moves for it, in nanoseconds: somebody may be about to make room.
const STAYS: u64 = 60 * SECOND;
/// From one attempt to the next, in nanoseconds: each stops the whole job for a moment.
const PAUSE: u64 = 300 * SECOND;
/// What is to be free where an image comes to, beside what it may take, in bytes.
const RESERVE: u64 = 512 << 20;

impl Job {
    /// A member has been heard. Where its disk stays full, and the newest image of what runs there is elsewhere alone, the
    /// job is parked to move away, as soon as it has a place where all of it fits.
    pub(super) fn leave_full_disk(&mut self, now: Now, shared: &mut Shared, node: &NodeName) {
        let since = shared.members.get(node).and_then(|member| member.full_since);
        let is_long = since.is_some_and(|since| now.nanos.saturating_sub(since) >= STAYS);
        if !is_long || now.nanos < self.full_again || !self.may_be_parked() {
            return;
        }
        let full = self.without_own_images(shared);
        if !full.contains(node) || !self.fits_elsewhere(shared, &full) {
            return;
        }
        self.full_again = now.nanos.saturating_add(PAUSE);
        let mut full = full.into_iter();
        let Some(first) = full.next() else { return };
        self.drained_for = Some(Cause::Full { node: first, with: full.collect() });
        self.feed(now, shared, Event::Park);
    }

    /// Members with full disks that the job is on, and that do not hold the newest images of what runs there.
    fn without_own_images(&self, shared: &Shared) -> BTreeSet<NodeName> {
        let newest = self.last_checkpoint().and_then(|number| self.ledger.images.get(&number));
        let images = newest.into_iter().flat_map(|images| images.values());
        let lacking = images.filter(|image| {
            !image.holders.contains(&image.node)
                && shared.members.is_full(&image.node)
                && self.ledger.instances.is_on(&image.node)
        });
        lacking.map(|image| image.node.clone()).collect()
    }

    /// Whether all of the job would have a place, and room for its images, without these members.
    fn fits_elsewhere(&self, shared: &Shared, full: &BTreeSet<NodeName>) -> bool {
        let newest = self.last_checkpoint().and_then(|number| self.ledger.images.get(&number));
        let (Some(images), Some(places)) = (newest, self.destinations(shared, &BTreeSet::new()))
        else {
            return false;
        };
        let fits = |(instance, node): &(InstanceId, NodeName)| {
            let Some(image) = images.get(instance) else { return false };
            let room = shared.members.get(node).and_then(|member| member.vitals.room);
            let needed = memory(&image.facts).saturating_add(RESERVE);
            // One that does not tell is believed to have it.
            let has_room = room.is_none_or(|room| room.free >= needed);
            !full.contains(node) && (image.holders.contains(node) || has_room)
        };
        places.iter().all(fits)
    }
}

/// No image takes much more than the memory of its processes.
fn memory(facts: &ImageFacts) -> u64 {
    facts.processes.iter().fold(0, |sum: u64, process| sum.saturating_add(process.bytes))
}
