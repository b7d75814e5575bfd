//! The engine of each machine: what it was told takes its time, is done in order for each instance, and fails at times.

use super::{Happening, PEACE, World};
use crate::common::ImageName;
use crate::machine::{Image, Instance, Life, facts};
use ckpt_node::{Copied, CopyImage, Event, InstanceEvent, Lacking, Launch, Made, Record, Restore};
use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, ExitKind, ImageSummary, Step};
use protocol::cluster::agent::PrepareOrder;
use protocol::cluster::{InstanceKey, NodeName};

/// Something that takes its time.
#[derive(Debug, Clone)]
pub enum Task {
    Launch(Box<Launch>),
    Prepare(Box<PrepareOrder>),
    Restore(Box<Restore>),
    Go,
    Hold,
    Release,
    Kill,
    Command(AgentCommand),
    PauseRelays(CheckpointNumber),
    Copy(Box<CopyImage>),
    MarkCopies { key: InstanceKey, checkpoint: CheckpointNumber, holders: Vec<NodeName> },
    Fetch { name: ImageName, holders: Vec<NodeName> },
}

/// Stopping all threads of an instance whose lease is over takes no longer: less than what is between that and the moment
/// when the coordinator begins it anew elsewhere, in milliseconds.
const HOLD_LIMIT: u64 = 500;

impl World {
    /// Tells an instance's engine something: it is done behind all that it was told before.
    pub(super) fn order(&mut self, node: usize, key: InstanceKey, task: Task) {
        let is_hold = matches!(task, Task::Hold);
        let takes = if is_hold { self.random.millis(0, HOLD_LIMIT) } else { self.duration() };
        let soonest = self.now + takes;
        let last = self.agent(node).busy_until.entry(key.clone()).or_default();
        // Threads are stopped whatever else is being done.
        let when = if is_hold { soonest } else { soonest.max(*last + 1) };
        *last = when.max(*last);
        let life = self.nodes[node].life;
        self.at(when, Happening::Engine { node, life, key: Some(key), task });
    }

    /// Something that is done beside all engines.
    pub(super) fn beside(&mut self, node: usize, task: Task) {
        let when = self.now + self.duration();
        let life = self.nodes[node].life;
        self.at(when, Happening::Engine { node, life, key: None, task });
    }

    fn duration(&mut self) -> u64 {
        let slow = self.now < PEACE && !self.calm && self.random.chance(10);
        self.random.millis(0, if slow { 1500 } else { 15 })
    }

    pub(super) fn work(&mut self, node: usize, life: u64, key: Option<InstanceKey>, task: Task) {
        let machine = &self.nodes[node];
        // Its agent has died meanwhile.
        if machine.agent.is_none() || machine.life != life {
            return;
        }
        match (key, task) {
            (Some(_), Task::Launch(launch)) => self.launch(node, *launch),
            (Some(_), Task::Prepare(order)) => self.prepare(node, *order),
            (Some(_), Task::Restore(restore)) => self.restore(node, *restore),
            (Some(key), Task::Go) => {
                let instance = self.nodes[node].instances.get_mut(&key);
                if let Some(instance) = instance.filter(|one| one.life != Life::Ended) {
                    instance.life = Life::Running;
                    instance.held = false;
                }
                self.step(node, Event::Running(key, Ok(())));
            }
            (Some(key), Task::Hold) => self.set_held(node, &key, true),
            (Some(key), Task::Release) => self.set_held(node, &key, false),
            (Some(key), Task::Kill) => {
                self.nodes[node].instances.remove(&key);
                self.step(node, Event::Killed(key));
            }
            (Some(key), Task::Command(command)) => self.command(node, &key, command),
            (Some(key), Task::PauseRelays(number)) => {
                let stands = !self.random.chance(10);
                let result = stands.then(Vec::new).ok_or_else(|| "it did not stand".to_owned());
                self.step(node, Event::RelaysPaused(key, number, result));
            }
            (None, Task::Copy(copy)) => self.copy_image(node, *copy),
            (None, Task::MarkCopies { key, checkpoint, holders }) => {
                let name = (key.job.clone(), key.instance, checkpoint);
                for holder in holders {
                    let holder = self.index(&holder);
                    if self.reaches(node, holder) {
                        if let Some(image) = self.nodes[holder].disk.get_mut(&name) {
                            image.waits = false;
                        }
                    }
                }
                self.step(node, Event::Marked(key, checkpoint, Ok(())));
            }
            (None, Task::Fetch { name, holders }) => self.fetch(node, name, &holders),
            (key, task) => unreachable!("{key:?} is not for {task:?}"),
        }
    }

    /// Whether one machine reaches the other's agent.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let there = self.nodes[to].up && self.nodes[to].agent.is_some();
        from == to || (there && !self.cut[from] && !self.cut[to])
    }

    /// An image that is here, or that another machine gives.
    pub(super) fn find_image(
        &self,
        node: usize,
        name: &ImageName,
        holders: &[NodeName],
    ) -> Option<Image> {
        let own = self.nodes[node].disk.get(name);
        let others = holders.iter().map(|holder| self.index(holder));
        let found = own.or_else(|| {
            others
                .filter(|holder| self.reaches(node, *holder))
                .find_map(|holder| self.nodes[holder].disk.get(name))
        });
        found.cloned()
    }

    fn set_held(&mut self, node: usize, key: &InstanceKey, held: bool) {
        if let Some(instance) = self.nodes[node].instances.get_mut(key) {
            instance.held = held && instance.life == Life::Running;
        }
    }

    fn fetch(&mut self, node: usize, name: ImageName, holders: &[NodeName]) {
        let found = self.find_image(node, &name, holders).filter(|_| !self.random.chance(30));
        let result = match found {
            Some(image) => {
                self.nodes[node].disk.insert(name.clone(), Image { waits: false, ..image });
                Ok(())
            }
            None => Err("nobody gives it".to_owned()),
        };
        let (job, instance, checkpoint) = name;
        self.step(node, Event::Fetched(job, instance, checkpoint, result));
    }

    fn copy_image(&mut self, node: usize, copy: CopyImage) {
        let CopyImage { key, checkpoint, summary, partners, copies, .. } = copy;
        if !self.agent(node).copying.remove(&key) {
            return;
        }
        let name = (key.job.clone(), key.instance, checkpoint);
        let image = self.nodes[node].disk.get(&name).cloned();
        let facts = image.as_ref().map(|image| image.facts.clone());
        let mut holders = vec![self.nodes[node].name.clone()];
        for partner in partners {
            let to = self.index(&partner);
            if holders.len() <= copies && self.reaches(node, to) {
                if let Some(image) = &image {
                    let image = Image { waits: true, ..image.clone() };
                    self.nodes[to].disk.insert(name.clone(), image);
                    holders.push(partner);
                }
            }
        }
        let facts = facts.ok_or_else(|| "its image is not here".to_owned());
        let copied = Copied { key, checkpoint, summary, facts, holders, warnings: Vec::new() };
        self.step(node, Event::Copied(Box::new(copied)));
    }

    fn command(&mut self, node: usize, key: &InstanceKey, command: AgentCommand) {
        let fails = self.random.chance(20);
        let passing = self.random.chance(300);
        let now = self.now;
        let machine = &mut self.nodes[node];
        let Some(instance) = machine.instances.get_mut(key) else { return };
        // What was written can be committed all the same.
        if instance.life == Life::Ended && !matches!(command, AgentCommand::Commit { .. }) {
            return;
        }
        let stands = |instance: &Instance, checkpoint: CheckpointNumber| {
            instance.frozen.is_some_and(|(number, _)| number == checkpoint)
        };
        let failed = |instance: &mut Instance, checkpoint, step| {
            instance.frozen = None;
            instance.quiesced = false;
            instance.snapshot = None;
            let reason = "process 7: no".to_owned();
            AgentEvent::Failed { checkpoint, step, reason, passing }
        };
        let event = match command {
            AgentCommand::Freeze { checkpoint } if fails => {
                failed(instance, checkpoint, Step::Freeze)
            }
            AgentCommand::Freeze { checkpoint } if instance.ended.is_none() => {
                let since = instance.frozen.map_or(now, |(_, since)| since);
                instance.frozen = Some((checkpoint, since));
                instance.quiesced = false;
                AgentEvent::Frozen { checkpoint, processes: 2, threads: 2 }
            }
            AgentCommand::Quiesce { checkpoint } if fails => {
                failed(instance, checkpoint, Step::Quiesce)
            }
            AgentCommand::Quiesce { checkpoint } if stands(instance, checkpoint) => {
                instance.quiesced = true;
                AgentEvent::Quiesced { checkpoint }
            }
            AgentCommand::Snapshot { checkpoint } if fails => {
                failed(instance, checkpoint, Step::Snapshot)
            }
            AgentCommand::Snapshot { checkpoint } if stands(instance, checkpoint) => {
                instance.snapshot = Some((checkpoint, instance.app.clone()));
                AgentEvent::SnapshotTaken { checkpoint }
            }
            AgentCommand::Resume { checkpoint } => {
                if stands(instance, checkpoint) {
                    instance.frozen = None;
                    instance.quiesced = false;
                }
                AgentEvent::Resumed { checkpoint, pause_us: 1000 }
            }
            AgentCommand::Write { checkpoint } if fails => {
                failed(instance, checkpoint, Step::Write)
            }
            AgentCommand::Write { checkpoint } => {
                let name = (key.job.clone(), key.instance, checkpoint);
                if let Some((_, state)) =
                    instance.snapshot.take().filter(|(number, _)| *number == checkpoint)
                {
                    let image = Image { facts: facts(&state), state, waits: true };
                    machine.disk.insert(name, image);
                } else if !machine.disk.contains_key(&name) {
                    return;
                }
                AgentEvent::Written { checkpoint, summary: ImageSummary::default() }
            }
            AgentCommand::Commit { checkpoint, .. } => {
                let name = (key.job.clone(), key.instance, checkpoint);
                if let Some(image) = machine.disk.get_mut(&name) {
                    image.waits = false;
                }
                AgentEvent::Committed { checkpoint }
            }
            AgentCommand::Abandon { checkpoint } => {
                if stands(instance, checkpoint) {
                    instance.frozen = None;
                    instance.quiesced = false;
                }
                instance.snapshot.take_if(|(number, _)| *number == checkpoint);
                AgentEvent::Abandoned { checkpoint }
            }
            AgentCommand::Signal { signal } | AgentCommand::Forward { signal } => {
                if instance.app.root {
                    self.end_instance(node, key, ExitKind::Signalled(signal));
                }
                return;
            }
            // A step for a checkpoint that was given up, or something of which this world has nothing.
            _ => return,
        };
        self.report(node, key, InstanceEvent::Agent(event));
    }

    /// The first process of the job's root ends, and all others with it.
    pub(super) fn end_instance(&mut self, node: usize, key: &InstanceKey, status: ExitKind) {
        let Some(instance) = self.nodes[node].instances.get_mut(key) else { return };
        instance.ended = Some(status);
        instance.end();
        self.report(node, key, InstanceEvent::RootEnded(status));
        self.report(node, key, InstanceEvent::Empty);
    }

    fn launch(&mut self, node: usize, launch: Launch) {
        let Launch { order, lease_until } = launch;
        let key = order.key.clone();
        if !order.is_root && self.random.chance(30) {
            let lacking = Lacking::from("no room".to_owned());
            return self.step(node, Event::Made(key, Err(lacking)));
        }
        let app = super::making::launched(&order);
        let relays = app.relays.clone();
        let machine = &mut self.nodes[node];
        let instance = Instance::new(key.clone(), app, Life::Running, lease_until, machine.moves);
        machine.instances.insert(key.clone(), instance);
        machine.records.insert(key.clone(), Record::of_launch(&order));
        self.step(node, Event::RunBy(key.clone(), super::agents::UID));
        let made = Made { init: 1, root: Some(2), relays, ..Made::default() };
        self.step(node, Event::Made(key, Ok(made)));
    }
}
