//! Images that go ahead of a move.
//!
//! A job that moves stands still until its images are where they are needed, so the bytes that have to travel decide for how
//! long. A checkpoint takes chunks from the one before the last (`ckpt-agent/store/src/known.rs`), its *base*; what a machine
//! has of that need not come to it again. So machines that would take something over fetch the base first, while the job
//! runs, and only then the job is parked: what has changed since is all that travels while it stands still. Where
//! checkpoints were committed meanwhile, there is one more round, of what has changed until then (Clark et al., "Live
//! Migration of Virtual Machines", NSDI 2005, do so with pages of memory).
//!
//! Nothing depends on it: what did not arrive is fetched when the job stands still. None of it is in the log but who holds
//! which image, so a coordinator that is started again begins it anew and finds most of it done.

use super::decisions;
use super::event::Now;
use super::job::ahead::{Ahead, Copy, Errand};
use super::job::{Job, State};
use super::shared::Shared;
use crate::history::CommittedState;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::image_key::Encryption;
use std::collections::BTreeSet;

/// Images that are sent ahead of one move.
const MOST_IMAGES: usize = 1000;

/// From which checkpoints the next two take their chunks.
#[derive(Debug, Clone, Copy)]
struct Bases {
    /// The next one that is begun, where none is in flight; else the one in flight.
    next: CheckpointNumber,
    /// The one after that.
    later: CheckpointNumber,
}

impl Job {
    /// Whether all is where it is needed for a move at the next checkpoint, as far as that can be had. If it is not, it is
    /// sent there. `takers`: machines that get a share. `begins`: a checkpoint begins at once, which is
    /// an ordinary one if the answer is no.
    pub(in crate::cluster) fn is_sent_ahead(
        &mut self,
        now: Now,
        shared: &mut Shared,
        errand: Errand,
        takers: &BTreeSet<NodeName>,
        begins: bool,
    ) -> bool {
        self.note_commits();
        if self.ahead.as_ref().is_some_and(|ahead| ahead.errand != errand) {
            // Who leaves does not wait for those that come.
            if errand == Errand::Share {
                return false;
            }
            self.drop_ahead();
        }
        let is_hasty = self.ledger.instances.nodes().any(|node| shared.members.is_leaving(node));
        let known = (self.newest_committed(), self.ledger.in_flight);
        let may_hurry =
            matches!(&self.state, State::Running(running) if running.machine.may_hurry());
        let may_begin = may_hurry || !self.has_interval();
        if let Some(ahead) = &mut self.ahead {
            if is_hasty {
                ahead.hasten(now);
            }
            if !ahead.awaited.is_empty() {
                return false;
            }
            if ahead.is_late(now) {
                return true;
            }
            // Nothing has changed, or nothing could begin now, as while a checkpoint is being cleared up.
            let is_clearing_up = known.1.is_none() && !may_begin;
            if !begins && (ahead.waits == Some(known) || is_clearing_up) {
                return false;
            }
        }
        let Some(bases) = self.bases().filter(|_| shared.settings.encryption != Encryption::Apart)
        else {
            // What comes next is stored as a whole.
            return true;
        };
        let Some(places) = self.destinations(shared, takers) else { return true };
        if self.lacking(shared, bases.next, &places).is_empty() {
            return true;
        }
        let goes_on = self.ahead.as_ref().is_none_or(|ahead| ahead.goes_on(bases.next));
        let is_later = begins || self.ledger.in_flight.is_some() || !goes_on;
        let base = if is_later { bases.later } else { bases.next };
        let mut copies = self.lacking(shared, base, &places);
        // Partners get each image by the checkpoint itself, which waits where another one comes to them.
        if self.has_interval() {
            copies.retain(|copy| !self.is_partner(copy));
        }
        let waits = if copies.is_empty() {
            // All comes with ordinary checkpoints, or is there for the one after the next one.
            self.await_ordinary(now, errand, base, known, begins)
        } else if self.ahead.as_ref().is_some_and(|ahead| ahead.has_had(0)) {
            false
        } else {
            self.send_ahead(now, shared, errand, base, copies);
            true
        };
        if let Some(ahead) = self.ahead.as_mut().filter(|_| is_hasty) {
            ahead.hasten(now);
        }
        !waits
    }

    fn has_interval(&self) -> bool {
        matches!(&self.state, State::Running(running) if running.machine.has_interval())
    }

    fn is_partner(&self, (instance, node): &Copy) -> bool {
        let found = self.live.instances.get(instance);
        found.is_some_and(|found| found.partners.contains(node))
    }

    /// Keeps up with what was committed, of which older ones may be collected before the next look.
    fn note_commits(&mut self) {
        let newest = self.newest_committed();
        if let Some(ahead) = &mut self.ahead {
            if ahead.committed.last().is_some_and(|last| *last < newest) {
                ahead.committed.push(newest);
            }
        }
    }

    fn newest_committed(&self) -> CheckpointNumber {
        self.last_checkpoint().unwrap_or(0)
    }

    /// The newest two checkpoints of this epoch: agents take chunks only from what they have written since they made it.
    fn bases(&self) -> Option<Bases> {
        let mut of_epoch = self.of_epoch().rev();
        let later = of_epoch.next()?;
        let next = of_epoch.next()?;
        Some(Bases { next, later })
    }

    fn of_epoch(&self) -> impl DoubleEndedIterator<Item = CheckpointNumber> {
        let from = self.ledger.checkpoint.unwrap_or(0);
        let committed = self.ledger.history.committed();
        committed
            .filter(move |(record, state)| {
                *state == CommittedState::Current && record.checkpoint > from
            })
            .map(|(record, _)| record.checkpoint)
    }

    /// Which of a checkpoint's images are not where they would be needed; none, where it is not worth the while.
    fn lacking(
        &self,
        shared: &Shared,
        checkpoint: CheckpointNumber,
        places: &BTreeSet<Copy>,
    ) -> Vec<Copy> {
        let Some(images) = self.ledger.images.get(&checkpoint) else { return Vec::new() };
        let members = &shared.members;
        let failed = self.ahead.as_ref().map(|ahead| &ahead.failed);
        let mut copies = Vec::new();
        let mut bytes = 0_u64;
        for (instance, node) in places {
            let Some(image) = images.get(instance) else { continue };
            let can_be_had = image.holders.iter().any(|holder| members.is_connected(holder));
            if image.holders.contains(node)
                || !can_be_had
                || !members.is_connected(node)
                || failed.is_some_and(|failed| failed.contains(node))
            {
                continue;
            }
            let memory = image.facts.processes.iter().map(|process| process.bytes);
            bytes = memory.fold(bytes, u64::saturating_add);
            copies.push((*instance, node.clone()));
        }
        if bytes < shared.settings.ahead_from {
            copies.clear();
        }
        copies.truncate(MOST_IMAGES);
        copies
    }

    /// Waits until the next checkpoint is committed, which is brought forward; whether one comes.
    fn await_ordinary(
        &mut self,
        now: Now,
        errand: Errand,
        base: CheckpointNumber,
        known: (CheckpointNumber, Option<CheckpointNumber>),
        begins: bool,
    ) -> bool {
        let in_flight = self.ledger.in_flight.is_some();
        let has_had = self.ahead.as_ref().is_some_and(|ahead| ahead.has_had(1));
        if !self.has_interval() {
            // Nobody knows when there is one.
            return false;
        }
        let State::Running(running) = &mut self.state else { return false };
        let hurries = !begins && !in_flight && running.machine.may_hurry();
        if hurries {
            if has_had {
                return false;
            }
            running.machine.hurry(now);
        }
        let committed = self.of_epoch().collect();
        let ahead = self.ahead.get_or_insert_with(|| Ahead::new(now, errand, base, committed));
        // Not for ever, where none can be taken.
        ahead.rounds += u32::from(hurries);
        ahead.base = base;
        ahead.waits = (hurries || begins || in_flight).then_some(known);
        self.note_readers();
        true
    }

    fn send_ahead(
        &mut self,
        now: Now,
        shared: &mut Shared,
        errand: Errand,
        base: CheckpointNumber,
        copies: Vec<Copy>,
    ) {
        let job = self.ledger.id.clone();
        let committed = self.of_epoch().collect();
        let ahead = self.ahead.get_or_insert_with(|| Ahead::new(now, errand, base, committed));
        ahead.rounds += 1;
        ahead.base = base;
        (ahead.waits, ahead.hurried) = (None, false);
        ahead.awaited = copies.iter().cloned().collect();
        decisions::sent_ahead(&job, base, &ahead.describe().unwrap_or_default());
        self.note_readers();
        let images = self.ledger.images.get(&base);
        for (instance, node) in copies {
            let Some(image) = images.and_then(|images| images.get(&instance)) else { continue };
            let mut holders = image.holders.clone();
            holders.retain(|holder| shared.members.is_connected(holder));
            let digest = image.facts.digest.clone();
            let (job, checkpoint) = (job.clone(), base);
            shared.send(&node, ToAgent::Copy { job, instance, checkpoint, holders, digest });
        }
    }

    /// A machine has fetched an image, or could not. False: nobody waits for it here.
    pub(in crate::cluster) fn came_ahead(
        &mut self,
        node: &NodeName,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
        failure: Option<&str>,
    ) -> bool {
        let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.base == checkpoint) else {
            return false;
        };
        if !ahead.awaited.remove(&(instance, node.clone())) {
            return false;
        }
        if let Some(reason) = failure {
            decisions::not_ahead(&self.ledger.id, checkpoint, node, reason);
            ahead.failed.insert(node.clone());
        }
        true
    }

    /// Looks after images that go ahead: of machines that are not there nothing comes, and where nothing is to be moved any
    /// more nothing need go. When all have come that were for a share, the next checkpoint is brought forward.
    pub(in crate::cluster) fn check_ahead(&mut self, now: Now, shared: &Shared) {
        self.note_commits();
        let members = &shared.members;
        let Some(goes_away) = self.ahead.as_ref().map(|ahead| ahead.errand == Errand::Away) else {
            return;
        };
        let is_from = |node: &NodeName| members.is_leaving(node) || members.is_drained(node);
        if goes_away && !self.ledger.instances.nodes().any(is_from) {
            return self.drop_ahead();
        }
        let (Some(ahead), State::Running(running)) = (&mut self.ahead, &mut self.state) else {
            return self.drop_ahead();
        };
        ahead.awaited.retain(|(_, node)| members.is_connected(node));
        if now.nanos >= ahead.until {
            ahead.awaited.clear();
            ahead.waits = None;
        }
        if !goes_away && ahead.awaited.is_empty() && !ahead.hurried && running.machine.may_hurry() {
            ahead.hurried = true;
            running.machine.hurry(now);
        }
    }

    /// A machine has connected anew: what it had to tell meanwhile is lost, and it is asked again.
    pub(in crate::cluster) fn ask_again_ahead(&mut self, node: &NodeName) {
        if let Some(ahead) = &mut self.ahead {
            let before = ahead.awaited.len();
            ahead.awaited.retain(|(_, other)| other != node);
            // Not all has come: no checkpoint is brought forward for it.
            ahead.hurried |= ahead.awaited.is_empty() && before > 0;
        }
    }

    /// Nothing goes ahead any more.
    pub(in crate::cluster) fn drop_ahead(&mut self) {
        if self.ahead.take().is_some() {
            self.note_readers();
        }
    }

    /// The same, of what was for that.
    pub(in crate::cluster) fn drop_ahead_for(&mut self, errand: Errand) {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.errand == errand) {
            self.drop_ahead();
        }
    }
}
