//! The steps of making an epoch, from the plan to the last instance that runs.

use super::damaged::{Presence, Source};
use super::departed::{self, Departing};
use super::making::{RelayEnds, Stage};
use super::{pairing, plan};
use crate::cluster::entry::{Cause, ClusterEntry, ImageRecord, InstanceRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::instances::Stage as InstanceStage;
use crate::cluster::job::{Job, State, addresses, hosts};
use crate::cluster::rollback::Beginning;
use crate::cluster::shared::Shared;
use crate::cluster::text;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{
    Fallen, LaunchOrder, MovedListener, OuterSocket, PrepareOrder, RelayLink, RelaySide, Rewire,
    Skipped, ToAgent,
};
use protocol::cluster::settings::Daemons;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

impl Job {
    /// Nothing older is left: decides who goes where, or waits.
    pub(super) fn plan(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("plan an epoch") else { return };
        making.record.planned_ms = Some(now.unix_ms);
        if shared.members.usable().next().is_none() {
            let reason = "no machine of the cluster can take processes".to_owned();
            if !self.leavers_needed(&shared.members).is_empty() {
                // They were let go while the job was being made elsewhere.
                self.stuck = Some(reason.clone());
            }
            self.wait_for(now, shared, reason);
            return;
        }
        match self.ledger.checkpoint {
            None => self.launch(now, shared),
            Some(checkpoint) => self.prepare(now, shared, checkpoint),
        }
    }

    /// Starts the job's first process: where it was asked for, if that machine takes processes.
    fn launch(&mut self, now: Now, shared: &mut Shared) {
        let avoided = |node: &NodeName| match &self.state {
            State::Making(making) => making.avoid.contains(node),
            _ => false,
        };
        let asked = self.ledger.client_node.clone().filter(|node| shared.members.is_usable(node));
        let mut usable: Vec<NodeName> = asked.into_iter().collect();
        usable.extend(shared.members.usable().map(|(node, _)| node.clone()));
        let found = usable.iter().find(|node| !avoided(node)).or_else(|| usable.first());
        let Some(node) = found.cloned() else { return };
        let instance = self.ledger.next_instance();
        let record = InstanceRecord {
            node: node.clone(),
            logical_node: node.clone(),
            root: true,
            origin: Origin::Run,
            addresses: addresses::of_machine(&shared.members, &node),
        };
        let instances = BTreeMap::from([(instance, record.clone())]);
        let job = self.ledger.id.clone();
        self.record(shared, ClusterEntry::Instances { job: job.clone(), instances });
        shared.occupied.insert(job, BTreeMap::from([(node.clone(), 1)]));
        let partners = self.choose_partners(shared, &node);
        let deadline = now.nanos.saturating_add(shared.settings.rollback.launch);
        let stage = InstanceStage::Launching { deadline };
        self.live.insert(instance, record, stage, partners.clone());
        let mut launch = self.ledger.request.launch.clone();
        launch.window = self.console.window().or(launch.window);
        let order = LaunchOrder {
            key: self.key(instance),
            logical_node: node.clone(),
            hosts: hosts::content(&self.ledger, &shared.members),
            launch,
            is_root: true,
            user: self.ledger.user.clone(),
            settings: self.instance_settings(),
            partners,
            shell: None,
            addresses: AddressMap::default(),
        };
        self.enter(Stage::Launching, Some(deadline));
        self.cut_log_back(shared);
        shared.send(&node, ToAgent::Launch(Box::new(order)));
    }

    fn enter(&mut self, stage: Stage, deadline: Option<u64>) {
        if let State::Making(making) = &mut self.state {
            making.stage = stage;
            making.deadline = deadline;
        }
    }

    /// The job's first process runs.
    pub(in crate::cluster) fn launched(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        pid: Option<i32>,
    ) {
        let making =
            matches!(&self.state, State::Making(making) if making.stage == Stage::Launching);
        if making && self.ledger.root() == Some(instance) {
            if let Some(found) = self.live.instances.get_mut(&instance) {
                found.stage = InstanceStage::Running;
                found.pid = pid;
            }
            self.complete(now, shared);
        } else {
            self.shell_launched(now, shared, instance, pid);
        }
    }

    /// An instance could not be made.
    pub(in crate::cluster) fn not_made(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        reason: &str,
    ) {
        let node = self.live.node(instance).cloned();
        match &self.state {
            State::Making(_) => {
                let reason = match &node {
                    Some(node) => format!("{node}: {reason}"),
                    None => reason.to_owned(),
                };
                self.make_failed(now, shared, node.as_ref(), &reason);
            }
            State::Running(_) => self.shell_failed(now, shared, instance, reason),
            State::Over => {}
        }
    }

    /// Sends the images to where they are needed.
    fn prepare(&mut self, now: Now, shared: &mut Shared, checkpoint: CheckpointNumber) {
        let Some(mut images) = self.ledger.images.get(&checkpoint).cloned() else {
            let reason = format!("nothing is known of the images of checkpoint {checkpoint}");
            self.give_up(now, shared, &reason);
            return;
        };
        let Some(making) = self.state.made("place an epoch") else { return };
        let damaged = making.damaged.clone();
        let mut departing = self.departing(shared, checkpoint, &images);
        let mut sources = BTreeMap::new();
        let members = &shared.members;
        let presence = |node: &NodeName| match members.is_connected(node) {
            true => Presence::Connected,
            false if members.is_gone(node) => Presence::Gone,
            false => Presence::Away,
        };
        for (instance, image) in &images {
            if departing.is_whole(*instance, image) {
                continue;
            }
            match damaged.source(checkpoint, *instance, &images, presence) {
                Source::Whole(holders) => {
                    sources.insert(*instance, holders);
                }
                Source::Without(holders, daemons) => {
                    departing.pids.entry(*instance).or_default().extend(daemons);
                    sources.insert(*instance, holders);
                }
                Source::Later(holders) => {
                    let reason = format!("only {} has an image that is needed", names(&holders));
                    self.wait_for(now, shared, reason);
                    return;
                }
                Source::Lost => {
                    let sound = damaged.sound(checkpoint, *instance, image);
                    let how = match sound.len() == image.holders.len() {
                        true => format!("gone with {}", names(&sound)),
                        false => format!("gone or damaged ({})", names(&image.holders)),
                    };
                    let what = format!(
                        "every copy of the image of instance {} at checkpoint {checkpoint} is {how}",
                        instance.0
                    );
                    let needed = images.iter().filter(|(number, image)| {
                        !departing.is_whole(**number, image)
                            && damaged.source(checkpoint, **number, &images, presence)
                                == Source::Lost
                    });
                    let needed =
                        needed.map(|(number, image)| damaged.sound(checkpoint, *number, image));
                    let back = text::must_be_back(&needed.collect());
                    self.go_further_back(now, shared, checkpoint, &what, back);
                    return;
                }
            }
        }
        for (instance, holders) in sources {
            if let Some(image) = images.get_mut(&instance) {
                image.holders = holders;
            }
        }
        let mut busy: BTreeMap<NodeName, u32> = BTreeMap::new();
        for occupied in shared.occupied.values() {
            for (node, count) in occupied {
                *busy.entry(node.clone()).or_default() += count;
            }
        }
        let Some(making) = self.state.made("find places") else { return };
        let machines = plan::machines(&shared.members, &busy, &making.avoid);
        let takers = self.ledger.cause.takers().into_iter().collect();
        let parts = loop {
            match plan::parts(&self.ledger, &images, &machines, &departing, &takers) {
                Ok(parts) => break parts,
                // Without daemons that run nowhere the others can go on.
                Err(error) if departed::is_daemons_only(error.instance, &images) => {
                    if let Some(image) = images.get(&error.instance) {
                        departing.take_whole(error.instance, image);
                    }
                }
                Err(error) => {
                    self.wait_for(now, shared, error.to_string());
                    return;
                }
            }
        };
        for line in parts.left_out.iter().chain(&departing.kept) {
            self.console.say(shared, &format!("warning: {line}"));
        }
        self.let_depart(shared, &images, &departing);
        let job = self.ledger.id.clone();
        let instances = parts.instances.clone();
        self.record(shared, ClusterEntry::Instances { job: job.clone(), instances });
        let occupied = shared.occupied.entry(job).or_default();
        for (instance, load) in &parts.load {
            if let Some(record) = parts.instances.get(instance) {
                *occupied.entry(record.node.clone()).or_default() += load;
            }
        }
        let awaited: BTreeSet<InstanceId> = parts.instances.keys().copied().collect();
        let deadline = now.nanos.saturating_add(shared.settings.rollback.prepare);
        self.enter(Stage::Preparing { awaited }, Some(deadline));
        if let State::Making(making) = &mut self.state {
            making.record.moves.clone_from(&parts.moves);
            making.record.checkpoint = Some(checkpoint);
        }
        for (instance, record) in parts.instances {
            let partners = self.choose_partners(shared, &record.node);
            self.live.insert(instance, record, InstanceStage::Restoring, partners);
        }
        self.send_prepare(shared, checkpoint, &images);
    }

    /// Daemons that are not to be brought back.
    fn departing(
        &self,
        shared: &Shared,
        checkpoint: CheckpointNumber,
        images: &BTreeMap<InstanceId, ImageRecord>,
    ) -> Departing {
        let mut departing = match self.ledger.settings().daemons {
            // One that says goodbye takes nothing with it.
            Daemons::Fallback => departed::fallback(images, |node| {
                let goes = self.ledger.cause.is_move() && !shared.members.is_gone(node);
                goes || shared.members.is_usable(node)
            }),
            Daemons::Restore => Departing::default(),
        };
        let Some(making) = self.state.made("leave daemons out") else { return departing };
        for (instance, image) in images {
            let sound = making.damaged.sound(checkpoint, *instance, image);
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
            let told = std::mem::replace(&mut making.told_departed, daemons.clone());
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
        &self,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        images: &BTreeMap<InstanceId, ImageRecord>,
    ) {
        let Some(making) = self.state.made("order images") else { return };
        let hosts = hosts::content(&self.ledger, &shared.members);
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
                force: making.force,
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
        let begin = Beginning {
            cause: Cause::Again { reason: what.to_owned() },
            checkpoint: Some(older),
            failures: self.ledger.failures,
            record: making.record.clone(),
            failed_makes: making.failed_makes,
            avoid: making.avoid.clone(),
            damaged: making.damaged.clone(),
            told_departed: making.told_departed.clone(),
            force: making.force,
        };
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
        // An agent may say it once more after a reconnection, or after the job was given up.
        let State::Making(making) = &mut self.state else { return };
        let Stage::Preparing { awaited } = &mut making.stage else { return };
        if !awaited.remove(&instance) {
            return;
        }
        making.sockets.insert(instance, sockets);
        let complete = awaited.is_empty();
        self.note_holder(shared, instance);
        if complete {
            self.restore(now, shared);
        }
    }

    fn note_holder(&mut self, shared: &mut Shared, instance: InstanceId) {
        let Some(found) = self.live.instances.get(&instance) else { return };
        let Origin::Image { instance: image, .. } = found.record.origin else { return };
        let Some(checkpoint) = self.ledger.checkpoint else { return };
        let node = found.record.node.clone();
        shared.members.note_image(&node, &self.ledger.id, image, checkpoint);
        let known = self.ledger.images.get(&checkpoint).and_then(|images| images.get(&image));
        if known.is_some_and(|image| !image.holders.contains(&node)) {
            let job = self.ledger.id.clone();
            self.record(shared, ClusterEntry::Held { job, checkpoint, instance: image, node });
        }
    }

    /// All images are there: orders how connections are made, and the restore.
    fn restore(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("restore an epoch") else { return };
        making.record.images_ms = Some(now.unix_ms);
        let images = self.ledger.checkpoint.and_then(|number| self.ledger.images.get(&number));
        let mut ends = Vec::new();
        for (instance, sockets) in &making.sockets {
            let Some(found) = self.live.instances.get(instance) else { continue };
            let Origin::Image { instance: image, .. } = &found.record.origin else { continue };
            let Some(image) = images.and_then(|images| images.get(image)) else { continue };
            ends.extend(sockets.iter().map(|socket| pairing::End {
                instance: *instance,
                machine: image.node.clone(),
                socket: *socket,
            }));
        }
        let mut orders: BTreeMap<InstanceId, Vec<Rewire>> =
            self.live.instances.keys().map(|instance| (*instance, Vec::new())).collect();
        let pairs = pairing::sockets(&ends);
        let mut skipped = self.skipped(shared, &ends, &pairs);
        for (passive, active) in pairs {
            let (passive, active) = (&ends[passive], &ends[active]);
            let secret = hexadecimal(&shared.secrets.secret());
            let wire = self
                .live
                .node(passive.instance)
                .and_then(|node| shared.members.get(node))
                .map(|member| member.profile.wire);
            let Some(wire) = wire else { continue };
            for (end, connect_to) in [(passive, None), (active, Some(wire))] {
                orders.entry(end.instance).or_default().push(Rewire {
                    file: end.socket.file,
                    secret: secret.clone(),
                    connect_to,
                });
            }
        }
        let awaited = self.live.instances.keys().copied().collect();
        let deadline = now.nanos.saturating_add(shared.settings.rollback.restore);
        self.enter(Stage::Restoring { awaited }, Some(deadline));
        for (instance, connections) in orders {
            if let Some(node) = self.live.node(instance).cloned() {
                let skipped = skipped.remove(&instance).unwrap_or_default();
                let key = self.key(instance);
                shared.send(&node, ToAgent::Restore { key, connections, skipped });
            }
        }
    }

    /// In a job that does without some of its daemons: sockets that have nobody at the other end, who
    /// was on a machine of the cluster. All others' peers were never part of the job.
    fn skipped(
        &self,
        shared: &Shared,
        ends: &[pairing::End],
        pairs: &[(usize, usize)],
    ) -> BTreeMap<InstanceId, Vec<Skipped>> {
        let mut skipped: BTreeMap<InstanceId, Vec<Skipped>> = BTreeMap::new();
        if self.ledger.departed.is_empty() {
            return skipped;
        }
        // Machines may have other addresses by now than those over which the job was connected.
        let known = self.ledger.addresses.values().flatten().copied();
        let now = shared.members.iter().map(|(_, member)| member.profile.address.ip());
        let addresses: BTreeSet<IpAddr> = known.chain(now).map(|ip| ip.to_canonical()).collect();
        let paired: BTreeSet<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        for (_, end) in ends.iter().enumerate().filter(|(index, _)| !paired.contains(index)) {
            let peer = end.socket.peer.ip().to_canonical();
            if !peer.is_loopback() && !addresses.contains(&peer) {
                continue;
            }
            let Some(found) = self.live.instances.get(&end.instance) else { continue };
            let home = &found.record.logical_node;
            // The last of them is the daemon itself, those before are shells that started it.
            let mut daemons = self.ledger.departed.iter().rev();
            let parent = daemons.find(|daemon| daemon.logical_node == *home && !found.record.root);
            let daemon = parent.map(|daemon| daemon.name.clone());
            skipped.entry(end.instance).or_default().push(Skipped {
                file: end.socket.file,
                daemon,
                loopback: peer.is_loopback(),
            });
        }
        skipped
    }

    /// An instance is complete and stands still.
    pub(in crate::cluster) fn restored(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        ends: RelayEnds,
        listeners: Vec<MovedListener>,
        warnings: Vec<String>,
    ) {
        // As in `prepared`.
        let State::Making(making) = &mut self.state else { return };
        let Stage::Restoring { awaited } = &mut making.stage else { return };
        if !awaited.remove(&instance) {
            return;
        }
        making.sides.insert(instance, ends.sides);
        making.outputs.insert(instance, ends.outputs);
        let complete = awaited.is_empty();
        self.note_listeners(instance, listeners);
        for warning in warnings {
            self.console.say(shared, &format!("warning: {warning}"));
        }
        if complete {
            self.let_go(now, shared);
        }
    }

    /// Everything is complete: tells where relays lead to, and lets everything run.
    fn let_go(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("let an epoch go") else { return };
        making.record.restored_ms = Some(now.unix_ms);
        making.record.rewired_ms = Some(now.unix_ms);
        let pairs = pairing::relays(&making.sides);
        let lonely = pairing::lonely(&making.sides, &pairs);
        let outputs = std::mem::take(&mut making.outputs);
        for ((one, its_side), (other, other_side)) in pairs {
            for (instance, side, peer) in [(one, its_side, other), (other, other_side, one)] {
                let node = self.live.node(peer).cloned();
                let key = protocol::cluster::InstanceKey {
                    job: self.ledger.id.clone(),
                    epoch: self.ledger.epoch,
                    instance: peer,
                };
                if let (Some(found), Some(node)) = (self.live.instances.get_mut(&instance), node) {
                    found.links.push(RelayLink { side, peer: key, node });
                }
            }
        }
        let mut fallen = self.fallen(lonely, &outputs);
        self.cut_log_back(shared);
        self.tell_addresses(shared);
        let awaited = self.live.instances.keys().copied().collect();
        let deadline = now.nanos.saturating_add(shared.settings.rollback.start);
        self.enter(Stage::Starting { awaited }, Some(deadline));
        for (instance, found) in &self.live.instances {
            let (key, links) = (self.key(*instance), found.links.clone());
            let go = ToAgent::Go { key, links, fallen: fallen.remove(instance) };
            shared.send(&found.record.node, go);
        }
    }

    /// In a job that does without some of its daemons: relays that lead to them. What comes out of
    /// processes becomes output of the job, everything else is silent.
    fn fallen(
        &mut self,
        lonely: Vec<pairing::Side>,
        outputs: &BTreeMap<InstanceId, Vec<RelaySide>>,
    ) -> BTreeMap<InstanceId, Fallen> {
        if self.ledger.departed.is_empty() {
            return BTreeMap::new();
        }
        let mut fallen: BTreeMap<InstanceId, Fallen> =
            self.live.instances.keys().map(|instance| (*instance, Fallen::default())).collect();
        let root = self.ledger.root().zip(self.root_node());
        for (instance, side) in lonely {
            let is_output = outputs.get(&instance).is_some_and(|sides| sides.contains(&side));
            let node = self.live.node(instance).cloned();
            let (Some((root, root_node)), Some(node), true) = (&root, node, is_output) else {
                fallen.entry(instance).or_default().silent.push(side);
                continue;
            };
            let other = RelaySide { relay: side.relay.clone(), side: 1 - side.side.min(1) };
            let to_root = RelayLink { side, peer: self.key(*root), node: root_node.clone() };
            let from_root = RelayLink { side: other, peer: self.key(instance), node };
            if let Some(found) = self.live.instances.get_mut(&instance) {
                found.links.push(to_root);
            }
            fallen.entry(*root).or_default().outputs.push(from_root);
        }
        fallen
    }

    /// An instance runs.
    pub(in crate::cluster) fn runs(&mut self, now: Now, shared: &mut Shared, instance: InstanceId) {
        // As in `prepared`.
        let State::Making(making) = &mut self.state else { return };
        let Stage::Starting { awaited } = &mut making.stage else { return };
        if awaited.remove(&instance) && awaited.is_empty() {
            self.complete(now, shared);
        }
    }
}

fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
