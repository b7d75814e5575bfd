//! Who goes where is decided, and images are sent to where they are needed.

use super::damaged::DamagedCopies;
use super::departed::{self, Departing};
use super::making::{Arrival, Attempts, Gathering, Stage};
use super::plan::{self, Parts};
use super::sources::{Copies, Unavailable, names};
use crate::cluster::entry::{Cause, ClusterEntry, ImageRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::Job;
use crate::cluster::job::instances::Stage as InstanceStage;
use crate::cluster::placement::NoMachine;
use crate::cluster::shared::Shared;
use crate::cluster::text;
use crate::fault;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{OuterSocket, PrepareOrder, ToAgent};
use protocol::cluster::settings::Daemons;
use std::collections::{BTreeMap, BTreeSet};

impl Job {
    /// Decides who goes where, and sends the images there.
    pub(super) fn prepare(
        &mut self,
        now: Now,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        attempts: &Attempts,
    ) {
        let Some(images) = self.ledger.images.get(&checkpoint) else {
            let reason = format!("nothing is known of the images of checkpoint {checkpoint}");
            self.give_up(now, shared, &reason);
            return;
        };
        let mut departing = self.departing(shared, checkpoint, images, &attempts.damaged);
        let copies = Copies { checkpoint, images, damaged: &attempts.damaged };
        let images = match copies.sources(&shared.members, &mut departing) {
            Ok(images) => images,
            Err(Unavailable::Later { holders }) => {
                let reason = format!("only {} has an image that is needed", names(&holders));
                self.wait_for(now, shared, reason);
                return;
            }
            Err(Unavailable::Lost { what, back }) => {
                self.go_further_back(now, shared, checkpoint, &what, back);
                return;
            }
        };
        let parts = match self.places(shared, &images, &mut departing, &attempts.avoid) {
            Ok(parts) => parts,
            Err(error) => {
                self.wait_for(now, shared, error.to_string());
                return;
            }
        };
        for line in parts.left_out.iter().chain(&departing.kept) {
            self.console.say(shared, &format!("warning: {line}"));
        }
        self.let_depart(shared, &images, &departing);
        self.occupy(shared, &parts);
        let limit = shared.settings.rollback.prepare;
        self.enter(Stage::Preparing(Gathering::of(parts.instances.keys().copied())), now, limit);
        if let Some(making) = self.state.making("note who moves") {
            making.record.moves = parts.moves;
            making.record.checkpoint = Some(checkpoint);
        }
        for (instance, record) in parts.instances {
            let partners = self.choose_partners(shared, &record.node);
            self.live.insert(instance, record, InstanceStage::Restoring, partners);
        }
        self.send_prepare(shared, checkpoint, &images, attempts.force);
    }

    /// Plans who goes where. Without daemons that run nowhere the others can go on: they depart.
    fn places(
        &self,
        shared: &Shared,
        images: &BTreeMap<InstanceId, ImageRecord>,
        departing: &mut Departing,
        avoid: &BTreeSet<NodeName>,
    ) -> Result<Parts, NoMachine> {
        let busy = shared.busy(None);
        let on = images.values().map(|image| image.node.clone()).collect();
        let plan::Offered { mut machines, mut waiting } =
            plan::machines(&self.ledger, &shared.members, &busy, avoid, &on);
        let takers = self.ledger.cause.takers().into_iter().collect();
        loop {
            match plan::parts(&self.ledger, images, &machines, departing, &takers) {
                // None of the others will do.
                Err(_) if !waiting.is_empty() => machines.append(&mut waiting),
                Err(error) if departed::is_daemons_only(error.instance, images) => {
                    if let Some(image) = images.get(&error.instance) {
                        departing.take_whole(error.instance, image);
                    }
                }
                planned => return planned,
            }
        }
    }

    /// From here on the machines have this epoch's instances, and their load.
    fn occupy(&mut self, shared: &mut Shared, parts: &Parts) {
        let job = self.ledger.id.clone();
        let instances = parts.instances.clone();
        self.record(shared, ClusterEntry::Instances { job: job.clone(), instances });
        let occupied = shared.occupied.entry(job).or_default();
        for (instance, load) in &parts.load {
            if let Some(record) = parts.instances.get(instance) {
                *occupied.entry(record.node.clone()).or_default() += load;
            }
        }
    }

    /// Daemons that are not to be brought back.
    fn departing(
        &self,
        shared: &Shared,
        checkpoint: CheckpointNumber,
        images: &BTreeMap<InstanceId, ImageRecord>,
        damaged: &DamagedCopies,
    ) -> Departing {
        let mut departing = match self.ledger.settings().daemons {
            // One that says goodbye takes nothing with it.
            Daemons::Fallback => departed::fallback(images, |node| {
                let goes = self.ledger.cause.is_move() && !shared.members.is_gone(node);
                goes || shared.members.is_usable(node)
            }),
            Daemons::Restore => Departing::default(),
        };
        for (instance, image) in images {
            let sound = damaged.sound(checkpoint, *instance, image);
            let lost = sound.iter().all(|holder| shared.members.is_gone(holder));
            if lost && departed::is_daemons_only(*instance, images) {
                departing.take_whole(*instance, image);
            }
        }
        departing
    }

    fn let_depart(
        &mut self,
        shared: &mut Shared,
        images: &BTreeMap<InstanceId, ImageRecord>,
        departing: &Departing,
    ) {
        let daemons = departing.daemons(images);
        let Some(making) = self.state.making("tell of daemons that are left out") else { return };
        if !daemons.is_empty() {
            let told = std::mem::replace(&mut making.attempts.told_departed, daemons.clone());
            if told != daemons {
                let names = text::daemons(&daemons);
                let line = format!("not restored: {names}; their children go on without them");
                self.console.say(shared, &line);
            }
            let job = self.ledger.id.clone();
            self.record(shared, ClusterEntry::Departed { job, daemons });
        }
    }

    fn send_prepare(
        &mut self,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        images: &BTreeMap<InstanceId, ImageRecord>,
        force: bool,
    ) {
        let hosts = self.live.hosts.content(&self.ledger, &shared.members);
        for (instance, found) in &self.live.instances {
            let record = &found.record;
            let Origin::Image { instance: image, assignment, part } = &record.origin else {
                continue;
            };
            let mut holders: Vec<NodeName> =
                images.get(image).map_or_else(Vec::new, |image| image.holders.clone());
            holders.retain(|holder| !shared.members.is_gone(holder));
            holders.sort_by_key(|holder| {
                (*holder != record.node, !shared.members.is_connected(holder))
            });
            let order = PrepareOrder {
                key: self.key(*instance),
                image: *image,
                checkpoint,
                holders,
                digest: images
                    .get(image)
                    .map_or_else(String::new, |image| image.facts.digest.clone()),
                assignment: assignment.clone(),
                part: *part,
                logical_node: record.logical_node.clone(),
                hosts: hosts.clone(),
                is_root: record.root,
                user: self.ledger.user.clone(),
                settings: self.instance_settings(),
                partners: found.partners.clone(),
                force,
                window: self.console.window(),
            };
            shared.send(&record.node, ToAgent::Prepare(Box::new(order)));
        }
    }

    /// The images of a checkpoint are lost: an older one will do, if there is one.
    fn go_further_back(
        &mut self,
        now: Now,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        what: &str,
        back: Option<String>,
    ) {
        let Some(older) = self.older_checkpoint(shared, checkpoint) else {
            let back = back.map_or(String::new(), |back| format!(": {back}"));
            self.give_up(now, shared, &format!("{what}{back}"));
            return;
        };
        self.console.say(shared, &format!("warning: {what}; going back to checkpoint {older}"));
        let Some(making) = self.state.made("go further back") else { return };
        let cause = Cause::Again { reason: what.to_owned() };
        let begin = making.again(cause, Some(older), self.ledger.failures);
        self.begin_epoch(now, shared, begin);
    }

    /// An image is where it is needed.
    pub(in crate::cluster) fn prepared(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        sockets: Vec<OuterSocket>,
    ) {
        match self.state.arrival(|making| making.prepared(instance, sockets)) {
            Arrival::Stale => {}
            Arrival::Counted => self.note_holder(shared, instance),
            Arrival::Last(sockets) => {
                self.note_holder(shared, instance);
                self.restore(now, shared, &sockets);
            }
        }
    }

    fn note_holder(&mut self, shared: &mut Shared, instance: InstanceId) {
        let Some(found) = self.live.known(instance, "note where an image is") else { return };
        let (Origin::Image { instance: image, .. }, Some(checkpoint)) =
            (&found.record.origin, self.ledger.checkpoint)
        else {
            return fault::tell("note where an image is", "an image that an instance comes from");
        };
        let image = *image;
        let node = found.record.node.clone();
        shared.members.note_image(&node, &self.ledger.id, image, checkpoint);
        let known = self.ledger.images.get(&checkpoint).and_then(|images| images.get(&image));
        if known.is_some_and(|image| !image.holders.contains(&node)) {
            let job = self.ledger.id.clone();
            self.record(shared, ClusterEntry::Held { job, checkpoint, instance: image, node });
        }
    }
}
