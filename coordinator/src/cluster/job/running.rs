//! A job that runs: its one-job machine, whose agents are the instances, and what that wants done.

use super::instances::Stage;
use super::tree_use::TreeUse;
use super::{Job, State};
use crate::checkpoint::JobMachine;
use crate::cluster::decisions;
use crate::cluster::entry::{Cause, ClusterEntry, ImageRecord};
use crate::cluster::event::Now;
use crate::cluster::members::Member;
use crate::cluster::shared::Shared;
use crate::cluster::text;
use crate::event::{Action, Event, Notice, Ticket};
use crate::history::Entry;
use crate::settings::{Interval, SECOND, Settings};
use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, InstanceEvent, InstanceId,
};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::image::ImageFacts;
use protocol::cluster::settings::{self, JobSettings};
use protocol::control::Reply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// Why a checkpoint can't be committed though every instance has written its part.
#[derive(Debug, Error)]
enum MissingImage {
    #[error("it has ended")]
    JobEnded,
    #[error("nothing is known of the image of instance {0}")]
    Unknown(u32),
}

/// An end that may be the sign of a loss: kept until every machine was heard after it.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct HeldEnd {
    /// On the clock of [`crate::Time::nanos`].
    pub(in crate::cluster) since: u64,
    pub(in crate::cluster) awaited: BTreeSet<NodeName>,
}

/// See the module.
#[derive(Debug)]
pub(in crate::cluster) struct Running {
    pub(in crate::cluster) machine: JobMachine,
    /// Images of the checkpoint in flight.
    images: BTreeMap<InstanceId, (CheckpointNumber, ImageRecord)>,
    pub(in crate::cluster) held: Option<HeldEnd>,
    pub(in crate::cluster) tree: TreeUse,
}

impl Running {
    /// Whether an end is held against which nothing speaks any more.
    pub(in crate::cluster) fn lets_end_count(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.awaited.is_empty() || self.machine.is_ending())
    }
}

fn one_job_settings(settings: &JobSettings, limits: crate::Limits) -> Settings {
    let interval = match settings.interval {
        settings::Interval::Auto => Interval::Auto,
        settings::Interval::Seconds(seconds) if seconds.is_finite() && seconds > 0.0 => {
            // Saturating; a fraction of a nanosecond is nothing.
            Interval::Every((seconds * SECOND as f64) as u64)
        }
        settings::Interval::Seconds(_) => Interval::OnDemand,
    };
    let keep = usize::try_from(settings.keep).unwrap_or(usize::MAX).max(1);
    Settings { interval, keep, copies: settings.copies.max(1), limits }
}

/// Takes the next action if it tells somebody else the same: whom.
fn same_command(actions: &mut VecDeque<Action>, command: &AgentCommand) -> Option<InstanceId> {
    match actions.front() {
        Some(Action::Tell { agent, command: next }) if next == command => {
            let agent = *agent;
            actions.pop_front();
            Some(agent)
        }
        _ => None,
    }
}

impl Job {
    /// The epoch is complete and runs: a one-job machine takes over. `adopted`: it ran already
    /// when this coordinator was started.
    pub(in crate::cluster) fn run(&mut self, now: Now, shared: &mut Shared, adopted: bool) {
        let machine = JobMachine::new(
            self.ledger.id.clone(),
            one_job_settings(self.ledger.settings(), shared.settings.limits),
            self.ledger.history.clone(),
            self.live.present().map(|(instance, _)| instance),
        );
        self.state = State::Running(Box::new(Running {
            machine,
            images: BTreeMap::new(),
            held: None,
            tree: TreeUse::default(),
        }));
        // Machines may have begun to leave while it was made.
        self.renew_partners(shared);
        self.note_paces(shared);
        self.hold_while_needed();
        self.note_readers();
        if adopted {
            let in_flight = self.ledger.in_flight;
            if let State::Running(running) = &mut self.state {
                let actions = running.machine.adopt(now, in_flight);
                self.obey(now, shared, actions);
            }
        } else {
            let restored_from = self.ledger.checkpoint;
            self.feed(now, shared, Event::Started { restored_from });
        }
        self.pass_input(shared);
        self.start_delayed(now, shared);
    }

    /// No checkpoint while the set of instances is about to change, or while the job has ended
    /// in a way that is not understood yet.
    pub(in crate::cluster) fn hold_while_needed(&mut self) {
        // An image of a remote program without its caller's would have two of it after a restart.
        let launching = self.live.is_launching() || !self.live.uncalled.is_empty();
        if let State::Running(running) = &mut self.state {
            let held = launching || self.live.root_end.is_some();
            running.machine.hold(held);
        }
    }

    /// Lets the one-job machine see what time it is.
    pub(in crate::cluster) fn tick(&mut self, now: Now, shared: &mut Shared) {
        self.feed(now, shared, Event::Clock);
    }

    /// Gives the one-job machine an event and does what it says.
    pub(in crate::cluster) fn feed(&mut self, now: Now, shared: &mut Shared, event: Event) {
        let begins = match &self.state {
            // Of one that is parked for a move it was decided before.
            State::Running(running) => {
                !running.machine.is_parking()
                    && (running.machine.is_due(now) || matches!(event, Event::Request { .. }))
            }
            _ => false,
        };
        if begins {
            self.evaluate_migration(now, shared, true);
        }
        self.advance(now, shared, event);
    }

    /// The same, where it is known already whether a checkpoint that begins is to be the beginning of a move.
    pub(in crate::cluster) fn advance(&mut self, now: Now, shared: &mut Shared, event: Event) {
        if let State::Running(running) = &mut self.state {
            let actions = running.machine.step(now, event);
            self.obey(now, shared, actions);
        }
    }

    pub(in crate::cluster) fn obey(&mut self, now: Now, shared: &mut Shared, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Tell { agent, command } => {
                    let mut agents = vec![agent];
                    while let Some(agent) = same_command(&mut actions, &command) {
                        agents.push(agent);
                    }
                    if !self.tell_by_tree(now, shared, &agents, &command) {
                        for agent in agents {
                            self.tell(shared, agent, command.clone());
                        }
                    }
                }
                Action::DrainConsole { checkpoint } => {
                    let parks = matches!(&self.state, State::Running(r) if r.machine.is_parked());
                    if let (Some(key), Some(node)) = (self.root_key(), self.root_node()) {
                        shared.send(&node, ToAgent::Drain { key, checkpoint, parks });
                    }
                }
                Action::Append(entry) => {
                    if let Some(failed) = self.append_own(shared, entry) {
                        if let State::Running(running) = &mut self.state {
                            actions.extend(running.machine.step(now, failed));
                        }
                    }
                }
                Action::Reply { ticket, reply } => self.reply(shared, ticket, reply),
                Action::Notify(notice) => self.notified(now, shared, notice),
                Action::Parked { .. } => {
                    let known = self.ledger.parked.clone();
                    let cause = self.moves_for(&shared.members).or(known);
                    // Without one, it goes on where it was.
                    let none = || Cause::Again { reason: "nothing to move for is left".to_owned() };
                    self.go_on_elsewhere(now, shared, cause.unwrap_or_else(none));
                    return;
                }
                Action::Finish(outcome) => {
                    self.finish(now, shared, outcome);
                    return;
                }
            }
        }
        self.release_ended(shared);
        self.start_delayed(now, shared);
    }

    fn tell(&mut self, shared: &mut Shared, instance: InstanceId, command: AgentCommand) {
        match command {
            // One order to every machine says it for all instances.
            AgentCommand::Collect { .. } => return,
            // Daemons get their signals from the job's first process.
            AgentCommand::Signal { .. } | AgentCommand::Forward { .. }
                if self.ledger.root() != Some(instance) =>
            {
                return;
            }
            _ => {}
        }
        if let Some(node) = self.live.node(instance).cloned() {
            shared.command(&node, self.key(instance), command);
        }
    }

    /// An entry of the one-job machine. What comes of it at once.
    fn append_own(&mut self, shared: &mut Shared, entry: Entry) -> Option<Event> {
        let job = self.ledger.id.clone();
        let epoch = self.ledger.epoch;
        match entry {
            Entry::Committed(record) => {
                let checkpoint = record.checkpoint;
                let images = match self.images_of(&record) {
                    Ok(images) => images,
                    Err(error) => {
                        let reason = error.to_string();
                        return Some(Event::RecordFailed { checkpoint, reason });
                    }
                };
                let parks = matches!(&self.state, State::Running(r) if r.machine.is_parked());
                let none = || Cause::Again { reason: "nothing to move for is left".to_owned() };
                let parked = parks.then(|| self.moves_for(&shared.members).unwrap_or_else(none));
                let entry = ClusterEntry::Committed { job: job.clone(), record, images, parked };
                decisions::of_job(&self.ledger, &entry);
                shared.append_for_checkpoint(entry, &job, epoch, checkpoint);
                None
            }
            Entry::Begun { checkpoint } => {
                let entry = ClusterEntry::Job { job: job.clone(), entry };
                decisions::of_job(&self.ledger, &entry);
                self.ledger.apply(&entry);
                shared.append_for_checkpoint(entry, &job, epoch, checkpoint);
                None
            }
            entry => {
                self.record(shared, ClusterEntry::Job { job, entry });
                None
            }
        }
    }

    fn images_of(
        &self,
        record: &CommitRecord,
    ) -> Result<BTreeMap<InstanceId, ImageRecord>, MissingImage> {
        let State::Running(running) = &self.state else { return Err(MissingImage::JobEnded) };
        record
            .agents
            .iter()
            .map(|instance| match running.images.get(instance) {
                Some((checkpoint, image)) if *checkpoint == record.checkpoint => {
                    Ok((*instance, image.clone()))
                }
                _ => Err(MissingImage::Unknown(instance.0)),
            })
            .collect()
    }

    /// Whether a machine has, or is to have, an image of the checkpoint in flight: its commit will say so.
    pub(in crate::cluster) fn is_taking_images_to(&self, node: &NodeName) -> bool {
        let (State::Running(running), Some(number)) = (&self.state, self.ledger.in_flight) else {
            return false;
        };
        let mut images = running.images.values().filter(|(checkpoint, _)| *checkpoint == number);
        images.any(|(_, image)| image.holders.contains(node))
            || self.live.present().any(|(_, instance)| instance.partners.contains(node))
    }

    /// Facts of an image, and where it is.
    pub(in crate::cluster) fn image(
        &mut self,
        shared: &Shared,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
        mut facts: ImageFacts,
        mut holders: Vec<NodeName>,
    ) {
        let Some(found) = self.live.known(instance, "note an image") else { return };
        // A remote shell's first process is not the job's: with its end the others go on.
        facts.root = facts.root.filter(|_| found.record.root);
        // They are kept for as long as the image.
        facts.processes.shrink_to_fit();
        facts.units.shrink_to_fit();
        // Only of a job that runs images are taken; an agent's word for it is not believed.
        let State::Running(running) = &mut self.state else { return };
        let node = found.record.node.clone();
        if !holders.contains(&node) {
            holders.push(node.clone());
        }
        holders.retain(|holder| !shared.members.is_gone(holder));
        holders.sort();
        holders.dedup();
        let copies = u32::try_from(holders.len()).unwrap_or(u32::MAX);
        running.machine.copied(instance, checkpoint, copies);
        let logical_node = found.record.logical_node.clone();
        let speed = shared.members.get(&node).map_or(1.0, Member::speed_all);
        let speed_permille = (speed * 1e3).round().clamp(1.0, 1e9) as u32;
        let image = ImageRecord { node, logical_node, holders, speed_permille, facts };
        running.images.insert(instance, (checkpoint, image));
    }

    /// A node is gone: a copy of an image that is being written does not count there.
    pub(in crate::cluster) fn holder_gone(&mut self, node: &NodeName) {
        // Only a job that runs has a checkpoint in flight.
        let State::Running(running) = &mut self.state else { return };
        let Running { machine, images, .. } = running.as_mut();
        for (instance, (checkpoint, image)) in images {
            if image.node != *node && image.holders.contains(node) {
                image.holders.retain(|holder| holder != node);
                let copies = u32::try_from(image.holders.len()).unwrap_or(u32::MAX);
                machine.copied(*instance, *checkpoint, copies);
            }
        }
    }

    /// The log has a commit or the beginning of a checkpoint.
    pub(in crate::cluster) fn recorded(
        &mut self,
        now: Now,
        shared: &mut Shared,
        epoch: u64,
        entry: &ClusterEntry,
    ) {
        if let ClusterEntry::Committed { record, .. } = entry {
            self.ledger.apply(entry);
            if epoch == self.ledger.epoch {
                let checkpoint = record.checkpoint;
                self.feed(now, shared, Event::Recorded { checkpoint });
            }
        }
    }

    /// An agent's report about one of its instances.
    pub(in crate::cluster) fn reported(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        event: AgentEvent,
    ) {
        match event {
            AgentEvent::Ended { status } if self.ledger.root() == Some(instance) => {
                self.root_ended(now, shared, status);
            }
            AgentEvent::Ended { .. } => self.emptied(now, shared, instance),
            // Nothing is adopted on a cluster, whose agents tell their end otherwise.
            AgentEvent::Lost { .. } => {}
            event => {
                if let AgentEvent::Progress { checkpoint, .. } = event {
                    shared.tree.progressed(now.nanos, &self.ledger.id, checkpoint);
                }
                self.feed(now, shared, Event::Agent { agent: instance, event });
            }
        }
    }

    /// What the engine of an instance says of it.
    pub(in crate::cluster) fn instance_event(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        event: InstanceEvent,
    ) {
        match event {
            InstanceEvent::Agent(event) => self.reported(now, shared, instance, event),
            // The end of another instance's first process is known where its caller is.
            InstanceEvent::RootEnded(status) if self.ledger.root() == Some(instance) => {
                self.root_ended(now, shared, status);
            }
            InstanceEvent::RootEnded(_) => {}
            InstanceEvent::Empty => self.emptied(now, shared, instance),
            InstanceEvent::Listens(listeners) => self.listens(shared, instance, listeners),
        }
    }

    /// The console is empty.
    pub(in crate::cluster) fn drained(
        &mut self,
        now: Now,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        offset: u64,
    ) {
        let event = if offset == self.console.offset() {
            Event::ConsoleDrained { checkpoint, log_length: self.console.length() }
        } else {
            let reason = "a part of the job's output is still to come".to_owned();
            Event::DrainFailed { checkpoint, reason }
        };
        self.feed(now, shared, event);
    }

    /// No process is left in an instance.
    pub(in crate::cluster) fn emptied(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
    ) {
        // The end of the first process is told by itself, and is the job's.
        if self.ledger.root() == Some(instance) {
            return;
        }
        let Some(found) = self.live.known(instance, "note an end") else { return };
        match found.stage {
            Stage::Ended => return self.release(shared, instance),
            Stage::Launching { .. } => {
                // It ran, and ended at once.
                let pid = found.pid;
                self.shell_launched(now, shared, instance, pid);
            }
            Stage::Restoring | Stage::Running => {}
        }
        self.live.end(instance);
        if self.is_running() {
            self.remove_ended(now, shared, instance);
        }
    }

    /// Takes an instance that has ended out of the job.
    pub(in crate::cluster) fn remove_ended(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
    ) {
        if !self.ledger.instances.contains_key(&instance) {
            return;
        }
        let job = self.ledger.id.clone();
        self.record(shared, ClusterEntry::InstanceEnded { job, instance });
        self.note_listeners(instance, Vec::new());
        if let Some(found) = self.live.instances.get(&instance) {
            self.live.hosts.doubt(&found.record.logical_node);
        }
        self.tell_addresses(shared);
        if let State::Running(running) = &mut self.state {
            let actions = running.machine.remove_agent(now, instance);
            self.obey(now, shared, actions);
        }
        self.release(shared, instance);
        self.await_no_more(now, shared, None);
    }

    /// Lets go of all that have ended and of which nothing is needed any more.
    fn release_ended(&mut self, shared: &mut Shared) {
        for instance in std::mem::take(&mut self.live.awaiting_release) {
            self.release(shared, instance);
        }
    }

    /// Whether a machine still has an image of the checkpoint in flight in hand, of an instance that has ended.
    pub(in crate::cluster) fn awaits_release_on(&self, node: &NodeName) -> bool {
        self.live.awaiting_release.iter().any(|instance| self.live.node(*instance) == Some(node))
    }

    /// Lets an instance go whose end is in the log: until then its machine holds it, and tells of it to any
    /// coordinator that does not know.
    pub(in crate::cluster) fn release(&mut self, shared: &mut Shared, instance: InstanceId) {
        if self.ledger.instances.contains_key(&instance) {
            return;
        }
        // Its machine would throw away the image that it writes, and the checkpoint would wait for that in vain.
        let needed = |running: &Running| running.machine.has_in_hand(instance);
        if matches!(&self.state, State::Running(running) if needed(running)) {
            self.live.awaiting_release.insert(instance);
            return;
        }
        if let Some(node) = self.live.node(instance).cloned() {
            shared.command(&node, self.key(instance), AgentCommand::Kill);
        }
    }

    fn reply(&mut self, shared: &mut Shared, ticket: Ticket, reply: Reply) {
        self.tickets.answer(shared, ticket, reply.into());
    }

    fn notified(&mut self, _now: Now, shared: &mut Shared, notice: Notice) {
        match notice {
            Notice::Committed { record, .. } => {
                // What is behind a checkpoint from which the job goes on at once would be cut off again.
                if self.ledger.parked.is_none() {
                    self.mark(shared, &text::committed(&record));
                }
                self.console.committed(shared, &record);
                self.keep(shared);
                if let State::Running(running) = &mut self.state {
                    running.tree.committed();
                    running.images.retain(|_, (checkpoint, _)| *checkpoint > record.checkpoint);
                }
            }
            Notice::Abandoned { checkpoint, step, reason, again, .. } => {
                let line = format!("checkpoint {checkpoint} abandoned: {step}: {reason}");
                // Once; 'ckptd status' tells it of the newest one.
                if !again {
                    self.tell_user(shared, &line);
                }
                // What was kept back while it was to be moved.
                self.pass_input(shared);
            }
            Notice::Warning(text) => self.tell_user(shared, &format!("warning: {text}")),
            Notice::Ending { signal } => self.mark(shared, &format!("sent signal {signal}")),
        }
    }

    /// Tells every machine which images stay.
    pub(in crate::cluster) fn keep(&self, shared: &mut Shared) {
        let message =
            ToAgent::Keep { job: self.ledger.id.clone(), images: self.ledger.kept().into() };
        shared.broadcast(message);
    }
}
