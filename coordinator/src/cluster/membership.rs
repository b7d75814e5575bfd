//! Nodes come, are heard, fall silent and go.

use super::ClusterMachine;
use super::decisions;
use super::entry::{Cause, ClusterEntry};
use super::event::{ClusterAction, Now};
use super::job::instances::{EarlyEnd, Stage};
use super::job::{Job, State};
use super::leave::has_gone;
use super::members::Presence;
use super::shared::Shared;
use protocol::agent::{AgentCommand, ExitKind, InstanceId};
use protocol::cluster::agent::{HeldInstance, Holding, NodeProfile, Peer, ToAgent, Vitals};
use protocol::cluster::client::Answer;
use protocol::cluster::replica::ReplicaOrder;
use protocol::cluster::{NodeName, VERSIONS, Versions};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The longest version of a member, in bytes.
const LONGEST_VERSION: usize = 32;
/// Nodes that a cluster may have.
const MOST_MEMBERS: usize = 16_384;

impl ClusterMachine {
    /// A node says Hello over a new connection.
    #[allow(clippy::too_many_arguments)] // The fields of one message.
    pub(super) fn hello(
        &mut self,
        now: Now,
        node: &NodeName,
        connection: u64,
        version: Versions,
        mut profile: NodeProfile,
        instances: Vec<HeldInstance>,
        holdings: Vec<Holding>,
    ) {
        // It is shown to everybody.
        profile.version.retain(|letter| letter.is_ascii_graphic());
        profile.version.truncate(LONGEST_VERSION);
        if let Some(reason) = self.refusal(node, version) {
            return self.refuse(node, reason);
        }
        let known = self.shared.members.get(node);
        if known.and_then(|member| member.connection).is_some_and(|known| known > connection) {
            // A newer connection has said Hello already.
            return;
        }
        let leaver = known
            .filter(|member| member.dismissed || member.presence == Presence::Leaving)
            .map(|member| member.profile.started_ms == profile.started_ms);
        let lost = self.lost_address(node, &profile);
        self.forget_clients_of(node, connection);
        let before = self.shared.members.peer(node);
        let news = self.shared.members.know(node, profile.clone(), now).then(|| {
            let profile = Box::new(profile);
            ClusterEntry::NodeKnown { node: node.clone(), profile }
        });
        // Who reads that a machine has another address must find what follows from it in front of that: else a coordinator
        // that is killed in between would leave it undone.
        let (at_once, at_last) = if lost.is_some() { (None, news) } else { (news, None) };
        at_once.into_iter().for_each(|entry| self.shared.append(entry));
        if let Some(member) = self.shared.members.known(node, "connect a node") {
            member.connection = Some(connection);
            member.heard = now;
            member.answered.clear();
            member.holdings = holdings;
            member.connected_ms = now.unix_ms;
        }
        self.shared.send(node, self.welcome());
        if let Some(same) = leaver {
            self.leaver_is_back(now, node, same);
        }
        self.introduce(node, before);
        self.shared.renew_tree(now, node);
        for job in self.jobs.values_mut() {
            job.ask_again_ahead(node);
            if let Some(address) = lost {
                job.address_changed(now, &mut self.shared, node, address, &instances);
            }
            job.node_back(now, &mut self.shared, node, &instances);
        }
        at_last.into_iter().for_each(|entry| self.shared.append(entry));
        self.mark_holdings(node);
        self.sweep_holdings(node);
        self.members_changed(now);
    }

    /// Why a node can't be taken.
    fn refusal(&self, node: &NodeName, version: Versions) -> Option<String> {
        let members = &self.shared.members;
        if members.is_removed(node) {
            Some(format!("{node} was turned out of the cluster: join again with a new token"))
        } else if version.common(VERSIONS).is_none() {
            Some(format!("it speaks version {version}, the coordinator version {VERSIONS}"))
        } else if members.get(node).is_none() && members.len() >= MOST_MEMBERS {
            Some(format!("the cluster has {MOST_MEMBERS} nodes already"))
        } else {
            None
        }
    }

    fn refuse(&mut self, node: &NodeName, reason: String) {
        decisions::refused(node, &reason);
        // It is no member, and may be none: not by `send`, which is for those that are connected.
        self.shared.act(ClusterAction::Send {
            node: node.clone(),
            message: ToAgent::Refused { reason },
            body: Vec::new(),
        });
        self.shared.act(ClusterAction::Disconnect { node: node.clone() });
    }

    fn welcome(&self) -> ToAgent {
        let running = self.jobs.values().filter(|job| !job.is_over());
        let millis = |nanos: u64| nanos / 1_000_000;
        ToAgent::Welcome {
            coordinator: self.shared.coordinator.clone(),
            heartbeat_ms: millis(self.shared.settings.heartbeat()).max(1),
            lease_ms: millis(self.shared.settings.lease()).max(1),
            epochs: running.map(|job| (job.ledger.id.clone(), job.ledger.epoch)).collect(),
        }
    }

    /// Whether a node comes back without the address by which it was known; then the one that it has now.
    fn lost_address(&self, node: &NodeName, profile: &NodeProfile) -> Option<IpAddr> {
        let before = self.shared.members.get(node)?.profile.address.ip().to_canonical();
        let now = profile.address.ip().to_canonical();
        let kept = before == now || profile.addresses.iter().any(|ip| ip.to_canonical() == before);
        (!kept).then_some(now)
    }

    /// Images that are committed, while their node does not know it: the coordinator was lost, or an agent,
    /// between the two. Unmarked they would be taken for unfinished ones.
    fn mark_holdings(&mut self, node: &NodeName) {
        let holdings = self.shared.members.holdings(node);
        let marked = |job: &str, instance: InstanceId, checkpoint| {
            holdings.iter().any(|held| {
                held.job == job
                    && held.instance == instance
                    && held.checkpoints.contains(&checkpoint)
            })
        };
        let mut marks = Vec::new();
        for job in self.jobs.values() {
            for (checkpoint, instance) in job.ledger.held_by(node) {
                let Some(record) = job.ledger.history.record(checkpoint) else { continue };
                let id = &job.ledger.id;
                if !marked(id, instance, checkpoint) {
                    let (job, record) = (id.clone(), record.clone());
                    marks.push(ToAgent::Mark { job, instance, record });
                }
            }
        }
        for mark in marks {
            self.shared.send(node, mark);
        }
    }

    /// Images that a node need not keep.
    fn sweep_holdings(&mut self, node: &NodeName) {
        let holdings = self.shared.members.holdings(node).iter();
        let held: BTreeSet<String> = holdings.map(|holding| holding.job.clone()).collect();
        for id in held {
            // What nobody has ever heard of is left alone: the log may be a lost one's successor.
            let images = match self.jobs.get(&id) {
                Some(job) if !job.has_checkpoint_in_flight() => job.ledger.kept(),
                None if self.removed_jobs.contains(&id) => Default::default(),
                _ => continue,
            };
            self.shared.send(node, ToAgent::Keep { job: id, images: images.into() });
        }
    }

    pub(super) fn disconnected(&mut self, now: Now, node: &NodeName, connection: u64) {
        if self.shared.members.of_connection(node, connection).is_none() {
            return;
        }
        let Some(member) = self.shared.members.known(node, "disconnect a node") else { return };
        member.connection = None;
        let dismissed = member.dismissed;
        self.forget_clients_of(node, connection.saturating_add(1));
        for job in self.jobs.values_mut() {
            job.node_unheard(now, &mut self.shared, node);
        }
        self.tree_lost(now, node);
        if dismissed {
            // It was free to go, and has gone.
            self.declare_gone(now, node);
        } else {
            self.members_changed(now);
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        now: Now,
        node: &NodeName,
        (sequence, answered): (u64, Option<u64>),
        vitals: Vitals,
    ) {
        let was_full = self.shared.members.is_full(node);
        let is_altered = self.shared.members.hear(now, node, vitals);
        if self.shared.members.is_full(node) != was_full {
            self.fullness_changed(node, !was_full);
        }
        let sent_after = self.shared.members.answer_heartbeat(now, node, sequence, answered);
        self.shared.send(node, ToAgent::Heard { sequence });
        for job in self.jobs.values_mut() {
            if let Some(sent_after) = sent_after {
                job.heard(now, &mut self.shared, node, sent_after.nanos);
            }
            if is_altered || job.migration.is_altered(node) {
                job.note_pace(now, &mut self.shared, node);
            }
        }
    }

    /// A disk has become full, or is so no more: copies go elsewhere, or there again.
    fn fullness_changed(&mut self, node: &NodeName, is_full: bool) {
        decisions::fullness(node, is_full);
        self.shared.members.note_change(node);
        for job in self.jobs.values_mut().filter(|job| job.is_running()) {
            job.renew_partners(&mut self.shared);
        }
    }

    /// Declares those gone whose grace is over.
    pub(super) fn check_grace(&mut self, now: Now) {
        for node in self.shared.members.overdue(now, self.shared.settings.grace) {
            self.declare_gone(now, &node);
        }
    }

    fn declare_gone(&mut self, now: Now, node: &NodeName) {
        let Some(member) = self.shared.members.known(node, "declare a node gone") else { return };
        member.presence = Presence::Gone;
        let connection = member.connection.take();
        let at_ms = now.unix_ms;
        member.gone_ms = at_ms;
        decisions::gone(node, member.dismissed);
        self.shared.append(ClusterEntry::NodeGone { node: node.clone(), at_ms });
        if let Some(connection) = connection {
            self.forget_clients_of(node, connection.saturating_add(1));
            self.shared.act(ClusterAction::Disconnect { node: node.clone() });
        }
        self.node_is_gone(now, node);
    }

    /// A node has joined with a token. One that was turned out is taken again: to give a token for it was a
    /// decision of the cluster's owner.
    pub(super) fn invited(&mut self, node: &NodeName) {
        if self.shared.members.readmit(node) {
            self.shared.append(ClusterEntry::NodeReadmitted { node: node.clone() });
        }
    }

    /// Turns a node out, until it is invited again.
    pub(super) fn turn_out(&mut self, now: Now, node: &NodeName) {
        let connected = self.shared.members.is_connected(node);
        let removed = ClusterEntry::NodeRemoved { node: node.clone() };
        let ended = self.record(removed);
        self.close_ended(&ended, "a member that had a part in it was turned out");
        self.shared.act(ClusterAction::Revoke { node: node.clone() });
        if connected {
            // It takes the authority's key along otherwise, and with it the cluster.
            self.shared.send(node, ToAgent::Replica(ReplicaOrder::Drop));
            let reason = format!("{node} was turned out of the cluster");
            self.shared.send(node, ToAgent::Refused { reason });
            self.shared.act(ClusterAction::Disconnect { node: node.clone() });
        }
        self.forget_clients_of(node, u64::MAX);
        self.forget_drain(node, "it was turned out of the cluster");
        self.shared.members.remove(node);
        self.shared.powers.remove(node);
        self.node_is_gone(now, node);
    }

    fn node_is_gone(&mut self, now: Now, node: &NodeName) {
        if let Some(leaving) = self.leaving.remove(node) {
            let free = self.nothing_runs_on(node);
            for client in leaving.clients {
                if free {
                    let text = Some(has_gone(node));
                    self.shared.answer_last(&client, Answer::Done { text });
                } else {
                    let reason = format!("let {node} go: it went before its processes had moved");
                    self.shared.fail(&client, reason);
                }
            }
        }
        let expelled =
            if self.shared.members.is_removed(node) { vec![node.clone()] } else { Vec::new() };
        self.shared.broadcast(ToAgent::PeersChanged {
            there: Vec::new(),
            gone: vec![node.clone()],
            expelled,
        });
        self.tree_lost(now, node);
        for job in self.jobs.values_mut() {
            job.ledger.familiar.remove(node);
            job.holder_gone(node);
            job.node_gone(now, &mut self.shared, node);
        }
        self.members_changed(now);
    }

    /// Tells a node of all members, and all members of it where that is news.
    fn introduce(&mut self, node: &NodeName, before: Option<Peer>) {
        let peer = self.shared.members.peer(node);
        let peers = self.shared.members.peers();
        let expelled = self.shared.members.removed();
        self.shared.send(node, ToAgent::Peers { peers, expelled });
        if let Some(peer) = peer.filter(|peer| before.as_ref() != Some(peer)) {
            let (there, gone, expelled) = (vec![peer], Vec::new(), Vec::new());
            let message = ToAgent::PeersChanged { there, gone, expelled };
            self.shared.act(ClusterAction::Broadcast { message, except: Some(node.clone()) });
        }
    }

    pub(super) fn members_changed(&mut self, now: Now) {
        for job in self.jobs.values_mut() {
            job.plan_if_waiting(now, &mut self.shared);
            if job.is_running() {
                job.renew_partners(&mut self.shared);
            }
        }
    }
}

impl Job {
    fn has_checkpoint_in_flight(&self) -> bool {
        self.ledger.in_flight.is_some()
    }

    /// A node's connection is gone: nobody stands still for its sake.
    fn node_unheard(&mut self, now: Now, shared: &mut Shared, node: &NodeName) {
        let there: Vec<InstanceId> = self.live.present_on(node).map(|(number, _)| number).collect();
        let reason = format!("the connection to {node} was lost");
        for number in there {
            if let State::Running(running) = &mut self.state {
                let actions = running.machine.agent_unheard(now, number, &reason);
                self.obey(now, shared, actions);
            }
        }
    }

    /// A machine has another address. Connections with others over the one that it had carry nothing any more, and what was
    /// on its way over them can't be had back: the job goes back to where it has all of it. Everybody keeps his part.
    fn address_changed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
        address: IpAddr,
        held: &[HeldInstance],
    ) {
        if !self.is_running() {
            // What is being made is made again when a connection was lost meanwhile.
            return;
        }
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            self.live.present().partition(|(_, instance)| instance.record.node == *node);
        if here.is_empty() {
            return;
        }
        let ended_well = held.iter().any(|held| {
            held.key.job == self.ledger.id
                && held.key.epoch == self.ledger.epoch
                && Some(held.key.instance) == self.ledger.root()
                && held.ended == Some(ExitKind::Exited(0))
        });
        if elsewhere.is_empty() || ended_well || self.has_succeeded() {
            self.tell_addresses(shared);
        } else {
            self.roll_back(now, shared, Cause::Address { node: node.clone(), address });
        }
    }

    /// A node is back: what it holds is compared with what it should.
    fn node_back(&mut self, now: Now, shared: &mut Shared, node: &NodeName, held: &[HeldInstance]) {
        if self.nodes_with_stale_instances.contains(node) {
            let below = self.ledger.epoch.saturating_add(u64::from(self.is_over()));
            self.kill_below(shared, node, below);
        }
        if self.is_over() {
            return;
        }
        self.end_strangers(shared, node, held);
        let expected: Vec<(InstanceId, Stage)> =
            self.live.present_on(node).map(|(number, instance)| (number, instance.stage)).collect();
        if expected.is_empty() {
            return;
        }
        if let State::Making(_) = &self.state {
            // Orders or answers may have been lost on the way.
            let reason = format!("the connection to {node} was lost");
            self.roll_back(now, shared, Cause::Again { reason });
            return;
        }
        let held: Vec<&HeldInstance> = held.iter().filter(|held| self.is_current(held)).collect();
        let root = self.ledger.root();
        let end = held.iter().find(|held| Some(held.key.instance) == root && held.ended.is_some());
        if let Some((end, status)) = end.and_then(|end| Some((end, end.ended?))) {
            let (since, comes_again) = (now.nanos, end.flushes);
            self.live.early_end = Some(EarlyEnd { status, since, comes_again });
        }
        for (number, stage) in expected {
            if !self.is_running() {
                // The word of the one before has ended the job, or sent it back.
                return;
            }
            let found = held.iter().find(|held| held.key.instance == number);
            match (found, stage) {
                (None, Stage::Launching { .. }) => {
                    // The order may have arrived, and be under way there.
                    shared.command(node, self.key(number), AgentCommand::Kill);
                    let reason = format!("the connection to {node} was lost");
                    self.shell_failed(now, shared, number, &reason);
                }
                (None, _) if self.has_succeeded_without(number) => {}
                (None, _) => {
                    let reason = format!("instance {} is not there any more", number.0);
                    self.roll_back(now, shared, Cause::Broken { node: node.clone(), reason });
                    return;
                }
                (Some(found), _) => self.found_again(now, shared, node, found, stage),
            }
        }
        self.remind_calls(shared, node);
        self.pass_input(shared);
    }

    fn is_current(&self, held: &HeldInstance) -> bool {
        held.key.job == self.ledger.id && held.key.epoch == self.ledger.epoch
    }

    /// Has a node end what it holds of this job and should not, and let go what has ended.
    fn end_strangers(&mut self, shared: &mut Shared, node: &NodeName, held: &[HeldInstance]) {
        // Those of a lower epoch are gone by its own doing. A higher one was begun by a coordinator that is
        // no more, without a copy of its log that says so.
        let of_job = held.iter().filter(|held| held.key.job == self.ledger.id);
        for stranger in of_job.filter(|held| held.key.epoch > self.ledger.epoch) {
            shared.command(node, stranger.key.clone(), AgentCommand::Kill);
        }
        let current: Vec<_> = held.iter().filter(|held| self.is_current(held)).collect();
        for found in current {
            let instance = found.key.instance;
            let known = self.live.instances.get(&instance);
            match known.filter(|known| known.record.node == *node) {
                None => shared.command(node, found.key.clone(), AgentCommand::Kill),
                // It may not have heard that it is let go.
                Some(known) if known.stage == Stage::Ended => self.release(shared, instance),
                Some(_) => {}
            }
        }
    }

    /// An instance that a node still has: both sides say again what may have been lost with the connection.
    fn found_again(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
        found: &HeldInstance,
        stage: Stage,
    ) {
        let instance = found.key.instance;
        if matches!(stage, Stage::Launching { .. }) {
            self.shell_launched(now, shared, instance, None);
        }
        self.remind(shared, instance);
        if found.adopted && !self.has_succeeded() {
            self.await_calls(now, instance);
        }
        if let State::Running(running) = &mut self.state {
            let mut actions = Vec::new();
            if found.adopted {
                let reason = format!("the agent of {node} was started again");
                actions.extend(running.machine.agent_unheard(now, instance, &reason));
            }
            actions.extend(running.machine.agent_heard(instance));
            self.obey(now, shared, actions);
        }
    }
}
