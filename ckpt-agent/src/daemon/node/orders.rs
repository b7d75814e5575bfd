//! What the coordinator wants.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, InstanceId, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{FromAgent, RelayLink, ToAgent};

use super::{Node, Verdict};
use crate::daemon::console::ConsoleOrder;
use crate::daemon::control::ControlEvent;
use crate::daemon::copies;
use crate::daemon::folders::is_job_id;
use crate::daemon::relay::Order;

impl Node {
    pub(super) fn obey(&mut self, message: ToAgent, body: Vec<u8>) -> Verdict {
        if self.coordinator.as_ref().is_some_and(|known| !known.welcome)
            && !matches!(message, ToAgent::Welcome { .. } | ToAgent::Refused { .. })
        {
            tracing::warn!("the coordinator said something before its welcome");
            return Verdict::GoOn;
        }
        match message {
            ToAgent::Welcome { coordinator, heartbeat_ms, lease_ms, epochs } => {
                let millis = Duration::from_millis;
                self.welcome(&coordinator, millis(heartbeat_ms), millis(lease_ms), &epochs);
            }
            ToAgent::Refused { reason } => {
                // It may have been told to keep no copy any more, which must not end with this process.
                self.parts.replica.settle();
                return Verdict::Refused(reason);
            }
            ToAgent::Heard { sequence } => self.heard(sequence),
            ToAgent::Peers { peers } => {
                self.parts.members.set(peers.iter().map(|peer| peer.name.clone()));
                self.parts.peers.set(&peers);
                self.tree_members_changed();
            }
            ToAgent::PeersChanged { there, gone } => {
                let known = self.parts.peers.change(there, &gone);
                self.parts.members.set(known);
                self.tree_members_changed();
            }
            ToAgent::Launch(order) => self.launch(*order),
            ToAgent::Instance { key, command } => {
                if let AgentCommand::Abandon { checkpoint } = command {
                    self.tree_abandoned(&key.job, checkpoint);
                }
                self.command(&key, command);
            }
            ToAgent::Tree(call) => self.tree_ordered(*call),
            ToAgent::TreeReset(mark) => self.tree_reset(mark),
            ToAgent::Drain { key, checkpoint, parks } => self.drain(&key, checkpoint, parks),
            ToAgent::Partners { key, nodes } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.record.partners = nodes;
                    if let Err(error) = instance.write_record() {
                        tracing::warn!(%key, %error, "the instance's record can't be written");
                    }
                }
            }
            ToAgent::Prepare(order) => self.prepare(*order),
            ToAgent::Restore { key, connections, skipped } => {
                self.restore(&key, connections, skipped);
            }
            ToAgent::Go { key, links, fallen } => {
                self.links(&key, links);
                if let Some(fallen) = fallen {
                    self.fall_back(&key, fallen);
                }
                self.go(&key);
            }
            ToAgent::Links { key, links } => self.links(&key, links),
            ToAgent::Addresses { key, book } => {
                if let Some(instance) = self.instances.get(&key) {
                    instance.control.book(book);
                }
            }
            ToAgent::Kill { job, below } => {
                crate::fault::point("kill");
                self.kill_below(job, below);
            }
            ToAgent::Mark { job, instance, record } => self.mark(&job, instance, &record),
            ToAgent::Keep { job, images } => self.keep(&job, &images),
            ToAgent::ShellRuns { call, instance, node } => self.shell_runs(&call, instance, node),
            ToAgent::ShellFailed { call, reason } => self.shell_failed(&call, reason),
            ToAgent::ConsoleKept { key, offset } => {
                self.to_console(&key, ConsoleOrder::Kept(offset));
            }
            ToAgent::Input { key } => self.to_console(&key, ConsoleOrder::Input(body)),
            ToAgent::Resize { key, window } => {
                self.to_console(&key, ConsoleOrder::Resize(window));
            }
            ToAgent::Client { client, line } => self.clients.answer(client, line),
            ToAgent::Rehearse(order) => self.rehearse(*order),
            ToAgent::Look { client, job, images, look } => self.look(client, &job, images, look),
            ToAgent::Replica(order) => self.parts.replica.order(order, body),
            ToAgent::Copy { job, instance, checkpoint, holders, digest } => {
                self.fetch_copy(job, instance, checkpoint, holders, digest);
            }
            ToAgent::Dmtcp(order) => self.dmtcp(order),
            ToAgent::Stay { reason } => self.stay(&reason),
            ToAgent::Farewell => {
                tracing::info!("free to go");
                return Verdict::End;
            }
        }
        Verdict::GoOn
    }

    pub(super) fn to_console(&self, key: &InstanceKey, order: ConsoleOrder) {
        if let Some(console) = self.instances.get(key).and_then(|known| known.console.as_ref()) {
            console.order(order);
        }
    }

    fn drain(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber, parks: bool) {
        let withheld = self.withhold_outputs(key);
        let order = ConsoleOrder::Drain { checkpoint, parks };
        match self.instances.get(key).map(|instance| instance.console.as_ref()) {
            Some(Some(console)) => match withheld {
                Some(withheld) => console.order_after(withheld, order),
                None => console.order(order),
            },
            _ => {
                let reason = "the job's console is not here".to_owned();
                self.fail(key, checkpoint, Step::Drain, reason);
            }
        }
    }

    /// Says that a step failed, for an instance that can't say it itself.
    pub(super) fn fail(
        &self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        step: Step,
        reason: String,
    ) {
        let event = AgentEvent::Failed { checkpoint, step, reason, passing: false };
        self.tell(FromAgent::Instance { key: key.clone(), event });
    }

    pub(super) fn command(&mut self, key: &InstanceKey, command: AgentCommand) {
        let Some(instance) = self.instances.get_mut(key).filter(|known| known.lives()) else {
            self.refuse(key, &command);
            return;
        };
        match command {
            AgentCommand::Freeze { .. } => {
                instance.control.machines(self.parts.peers.machines());
                instance.control.command(command);
            }
            AgentCommand::Quiesce { checkpoint } => self.pause_relays(key, checkpoint),
            AgentCommand::Commit { checkpoint, ref record } => {
                let record = record.clone();
                instance.control.command(command);
                self.commit_copies(key, checkpoint, &record);
            }
            AgentCommand::Abandon { checkpoint } => {
                instance.control.command(command);
                self.abandon_copies(key, checkpoint);
            }
            AgentCommand::Kill => {
                let key = key.clone();
                self.kill_instances(&[key]);
            }
            other => instance.control.command(other),
        }
    }

    /// The instance is not here, or not yet.
    fn refuse(&self, key: &InstanceKey, command: &AgentCommand) {
        let step = match command {
            AgentCommand::Freeze { checkpoint } => Some((*checkpoint, Step::Freeze)),
            AgentCommand::Quiesce { checkpoint } => Some((*checkpoint, Step::Quiesce)),
            AgentCommand::Snapshot { checkpoint } => Some((*checkpoint, Step::Snapshot)),
            AgentCommand::Resume { checkpoint } => Some((*checkpoint, Step::Resume)),
            AgentCommand::Write { checkpoint } => Some((*checkpoint, Step::Write)),
            AgentCommand::Commit { checkpoint, .. } => Some((*checkpoint, Step::Commit)),
            AgentCommand::Abandon { checkpoint } => {
                let event = AgentEvent::Abandoned { checkpoint: *checkpoint };
                self.tell(FromAgent::Instance { key: key.clone(), event });
                None
            }
            _ => None,
        };
        if let Some((checkpoint, step)) = step {
            let reason = format!("instance {key} is not on {}", self.parts.name);
            self.fail(key, checkpoint, step, reason);
        }
    }

    fn links(&mut self, key: &InstanceKey, links: Vec<RelayLink>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        for link in links {
            match instance.relays.iter().find(|relay| relay.side == link.side) {
                Some(relay) => relay.order(Order::Link(link)),
                None => instance.links.push(link),
            }
        }
    }

    /// An image is committed, and nobody has said so here. Making the mark durable may take a while, so it is done beside the
    /// event loop; until then the image counts as one that waits for its commit, and nothing removes it.
    fn mark(&mut self, job: &str, number: InstanceId, record: &CommitRecord) {
        if !is_job_id(job) {
            return;
        }
        let checkpoint = record.checkpoint;
        let here = self
            .instances
            .iter()
            .find(|(key, instance)| key.job == job && key.instance == number && instance.lives());
        if let Some((key, _)) = here {
            // It may be the one that has it open.
            let key = key.clone();
            self.command(&key, AgentCommand::Commit { checkpoint, record: record.clone() });
            return;
        }
        let folder = self.parts.folders.instance(job, number);
        let (busy, record) = (self.parts.busy.clone(), record.clone());
        busy.await_commit(&folder, checkpoint);
        tokio::spawn(async move {
            let lock = busy.fetching(&folder);
            let _alone = lock.lock().await;
            let place = folder.clone();
            let marked = tokio::task::spawn_blocking(move || {
                crate::store::commit_copy(&place, checkpoint, &record)
                    .map_err(|error| error.to_string())
            });
            // As of a disk that was lost.
            if let Err(error) = marked.await.unwrap_or_else(|error| Err(error.to_string())) {
                tracing::warn!(%error, folder = %folder.display(), checkpoint, "no mark");
            }
            busy.settle(&folder, checkpoint);
        });
    }

    /// Everything of the job goes but these images, and what runs.
    fn keep(&mut self, job: &str, images: &BTreeMap<InstanceId, Vec<CheckpointNumber>>) {
        if !is_job_id(job) {
            return;
        }
        let mut removals = Vec::new();
        for number in self.parts.folders.instances(job) {
            let folder = self.parts.folders.instance(job, number);
            let running =
                self.instances.iter().find(|(key, _)| key.job == job && key.instance == number);
            let alone = self.parts.busy.removing(&folder);
            let kept = images.get(&number).filter(|kept| !kept.is_empty());
            // One that is being made was not known yet when this was said.
            let kept = kept.map(|kept| {
                let newest = kept.iter().max().copied().unwrap_or_default();
                let all = copies::checkpoints(&folder).into_iter();
                let newer = all.filter(|number| *number > newest);
                kept.iter().copied().chain(newer).collect::<Vec<_>>()
            });
            match (running, kept) {
                (Some((_, instance)), Some(kept)) if instance.lives() => {
                    instance.control.command(AgentCommand::Collect { keep: kept });
                }
                (Some(_), _) => {}
                // A copy that comes or waits for its commit would be taken for a leftover.
                (None, kept) => removals.extend(alone.map(|alone| (number, folder, kept, alone))),
            }
        }
        let (folders, job) = (self.parts.folders.clone(), job.to_owned());
        tokio::task::spawn_blocking(move || {
            for (number, folder, kept, _alone) in removals {
                let Some(kept) = kept else {
                    if let Err(error) = folders.remove_instance(&job, number) {
                        tracing::warn!(%error, folder = %folder.display(), "not removed");
                    }
                    continue;
                };
                match crate::store::collect(&folder, &kept) {
                    Ok(_) => copies::prune(&folder),
                    Err(error) => {
                        tracing::warn!(%error, folder = %folder.display(), "not collected");
                    }
                }
            }
            copies::forget_files(&folders, &job);
        });
    }

    pub(super) fn instance_event(&mut self, key: &InstanceKey, event: ControlEvent) {
        match event {
            ControlEvent::Agent(event) => self.agent_event(key, event),
            ControlEvent::RootEnded(status) => self.root_ended(key, status),
            ControlEvent::Empty => self.emptied(key),
            ControlEvent::Listens(listeners) => {
                if let Some(instance) = self.instances.get_mut(key) {
                    instance.listeners.clone_from(&listeners);
                    self.tell(FromAgent::Listens { key: key.clone(), listeners });
                }
            }
        }
    }
}
