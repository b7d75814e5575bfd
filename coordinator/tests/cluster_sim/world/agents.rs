//! Agents: the real node of each machine is fed with events, and the world does what it wants.

use super::engine::Task;
use super::{Happening, MILLI, PEACE, World};
use crate::common::{hello, stays};
use crate::machine::{Life, launch_spec};
use ckpt_node::{Action, Adopted, Call, Ending, Event, InstanceEvent, Kept, Made, RelayOrder, Tie};
use protocol::agent::{AgentCommand, InstanceId};
use protocol::cluster::agent::{FromAgent, RelayLink, ToAgent, Vitals};
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::VecDeque;

/// The number of the user of all processes.
pub const UID: u32 = 1000;

impl World {
    pub(super) fn index(&self, name: &NodeName) -> usize {
        self.nodes.iter().position(|node| node.name == *name).unwrap()
    }

    /// An agent begins: it finds what has outlived the one before.
    pub(super) fn start_agent(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        machine.keep_leases(self.now);
        machine.start_agent();
        let mut found = Vec::new();
        for (key, instance) in &mut machine.instances {
            instance.relays_lost |= !instance.app.relays.is_empty();
            let made = Made {
                init: 1,
                root: Some(2),
                relays: instance.app.relays.clone(),
                ..Made::default()
            };
            let adopted = Adopted {
                made,
                held: instance.held,
                lease_until: instance.lease_until,
                ended: instance.ended,
                empty: instance.life == Life::Ended,
                touched: instance.touched,
            };
            found.push(Event::Found(Box::new(machine.records[key].clone()), adopted));
        }
        let life = machine.life;
        for event in found {
            self.step(node, event);
        }
        self.step(node, Event::AllFound);
        self.later(1, 300, Happening::Beat { node, life });
        self.later(1, 100, Happening::Reconnect { node });
    }

    /// The coordinator's word arrives.
    pub(super) fn deliver(
        &mut self,
        node: usize,
        connection: u64,
        message: ToAgent,
        body: Vec<u8>,
    ) {
        if self.trace {
            let text: String = format!("{message:?}").chars().take(170).collect();
            eprintln!("{:>7} -> {}: {text}", self.now / MILLI, self.nodes[node].name);
        }
        match &message {
            ToAgent::Go { key, links, .. } => self.judge_go(key, links),
            ToAgent::Keep { images, .. } => self.judge_keep(images),
            ToAgent::Launch(order) => self.judge_alone(order.key.epoch),
            ToAgent::Tree(_) => self.outcome.by_tree += 1,
            ToAgent::Instance { key, command } => self.judge_step(node, key, command),
            _ => {}
        }
        let welcome = match &message {
            ToAgent::Welcome { coordinator, .. } => Some(coordinator.term),
            _ => None,
        };
        let stays = matches!(message, ToAgent::Stay { .. });
        self.bids_farewell = matches!(message, ToAgent::Farewell);
        self.step(node, Event::Coordinator { connection, message, body });
        self.bids_farewell = false;
        let machine = &mut self.nodes[node];
        if stays {
            machine.leaves = false;
        }
        if let Some(term) = welcome.filter(|_| machine.connection == Some(connection)) {
            assert!(term >= machine.followed.term, "a lost coordinator is obeyed");
            machine.welcomed = true;
            machine.welcomed_at = self.now;
        }
    }

    /// Feeds an agent, and does what it wants. It may die between any two actions.
    pub(super) fn step(&mut self, node: usize, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let machine = &mut self.nodes[node];
            let life = machine.life;
            let Some(agent) = &mut machine.agent else { return };
            let actions = agent.node.step(machine.clock.shows(self.now), event);
            for action in actions {
                let dies = self.now < PEACE && !self.calm;
                if dies && self.random.chance(1) && self.random.chance(50) {
                    self.kill_agent(node);
                }
                if self.nodes[node].agent.is_none() || self.nodes[node].life != life {
                    return;
                }
                self.perform(node, action, &mut events);
            }
        }
    }

    pub(super) fn kill_agent(&mut self, node: usize) {
        if self.trace {
            eprintln!("{:>7} the agent of {} is killed", self.now / MILLI, self.nodes[node].name);
        }
        self.ended_well = false;
        self.hang_up(node);
        self.nodes[node].kill_agent();
        self.later(50, 4000, Happening::AgentStarts { node });
    }

    fn perform(&mut self, node: usize, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Tell(message, body) => self.tell(node, *message, body),
            Action::Hello { followed, profile, instances } => {
                let hello = hello(followed, *profile, instances, self.nodes[node].disk.keys());
                self.send(node, hello, Vec::new());
            }
            Action::Beat { sequence, answered, .. } => {
                // Now and then a machine is throttled for a while.
                let index = u64::from(self.nodes[node].index);
                let slow = (sequence / 16 + index) % 7 == 0;
                let capacity = slow.then_some(0.4);
                let vitals = Vitals { capacity, achieved: slow, ..Vitals::default() };
                self.send(node, FromAgent::Heartbeat { sequence, answered, vitals }, Vec::new());
            }
            Action::BeatEvery(period) => {
                self.agent(node).beat = u64::try_from(period.as_nanos()).unwrap();
            }
            Action::GiveUp(number) => {
                if number.is_some() && self.nodes[node].connection == number {
                    self.hang_up(node);
                    self.later(1, 100, Happening::Reconnect { node });
                }
            }
            Action::SetPeers { peers, .. } => {
                self.agent(node).peers = peers.iter().map(|peer| peer.name.clone()).collect();
            }
            Action::ChangePeers { there, gone, .. } => {
                let peers = &mut self.agent(node).peers;
                peers.retain(|peer| !gone.contains(peer));
                peers.extend(there.into_iter().map(|peer| peer.name));
            }
            Action::NoteFollowed { followed, asker } => {
                self.nodes[node].followed = followed.clone();
                events.push_back(Event::FollowedNoted { followed, asker, failure: None });
            }
            Action::End(ending) => self.end_agent(node, &ending),

            Action::Launch(launch) => {
                let key = launch.order.key.clone();
                self.order(node, key, Task::Launch(launch));
            }
            Action::Prepare(order) => {
                let key = order.key.clone();
                self.order(node, key, Task::Prepare(order));
            }
            Action::Restore(restore) => {
                let key = restore.order.key.clone();
                self.order(node, key, Task::Restore(restore));
            }
            Action::Tie(tie) => {
                let tied = self.tie(node, &tie);
                events.push_back(Event::Tied(tie.key, tied));
            }
            Action::Go(key) => self.order(node, key, Task::Go),
            Action::Hold(key) => self.order(node, key, Task::Hold),
            Action::Release(key) => self.order(node, key, Task::Release),
            Action::Lease(key, until) => {
                if let Some(instance) = self.nodes[node].instances.get_mut(&key) {
                    instance.lease_until = until;
                }
            }
            Action::Kill(kills) => {
                for kill in kills {
                    self.order(node, kill.key, Task::Kill);
                }
            }
            Action::Forget(key) => self.forget(node, &key),
            Action::WriteRecord(record) => {
                self.nodes[node].records.insert(record.key.clone(), *record);
            }
            Action::Command(key, command) => {
                self.judge_step(node, &key, &command);
                self.order(node, key, Task::Command(command));
            }
            Action::RelayStates(..) | Action::Addresses(..) | Action::CloseEnd(..) => {}

            Action::Console(key, order) => {
                if let Some(instance) = self.nodes[node].instances.get_mut(&key) {
                    let reports = instance.console.obey(order);
                    events.extend(reports.into_iter().map(|it| Event::Console(key.clone(), it)));
                }
            }
            Action::Relay(key, side, order) => {
                if let Some(instance) = self.nodes[node].instances.get_mut(&key) {
                    match order {
                        RelayOrder::Link(link) => drop(instance.links.insert(side, link)),
                        RelayOrder::Silence => drop(instance.silent.insert(side)),
                        RelayOrder::Resume | RelayOrder::Deserted | RelayOrder::Open => {}
                    }
                }
            }
            Action::PauseRelays(key, number) => self.order(node, key, Task::PauseRelays(number)),
            Action::Sink(key, link) => {
                if let Some(instance) = self.nodes[node].instances.get_mut(&key) {
                    assert!(instance.app.root, "output at an instance without a console");
                    assert!(!instance.app.relays.contains(&link.side), "output twice");
                    instance.app.relays.push(link.side.clone());
                    instance.links.insert(link.side.clone(), link);
                }
            }
            Action::WatchRest(key) => {
                if let Some(instance) = self.nodes[node].instances.get_mut(&key) {
                    instance.watched = true;
                }
            }

            Action::ReadEfforts(..) => {}
            Action::CopyImage(copy) => {
                self.agent(node).copying.insert(copy.key.clone());
                self.beside(node, Task::Copy(copy));
            }
            Action::StopCopying(key) => drop(self.agent(node).copying.remove(&key)),
            Action::MarkCopies { key, record, holders } => {
                self.beside(node, Task::MarkCopies { key, checkpoint: record.checkpoint, holders });
            }
            Action::Mark { job, instance, record } => {
                let name = (job, instance, record.checkpoint);
                if let Some(image) = self.nodes[node].disk.get_mut(&name) {
                    image.waits = false;
                }
            }
            Action::Keep(kept) => self.keep(node, &kept),
            Action::FetchCopy { job, instance, checkpoint, holders, .. } => {
                self.beside(node, Task::Fetch { name: (job, instance, checkpoint), holders });
            }

            Action::CallAgain(number) | Action::DropCall(number) => {
                self.agent(node).callers.remove(&number);
            }
            Action::FailCall(number, _) => self.fail_call(node, number),
            Action::TieCaller { number, key, peer, node: at } => {
                self.tie_caller(node, number, (&key, peer, at), events);
            }

            Action::OpenLine(to) => self.open_line(node, &to),
            Action::SendLine(line, message) => self.send_line(node, &line, message),
            Action::CloseLine(line) => {
                if let Some(wire) = self.agent(node).lines.remove(&line) {
                    self.cut_wire(wire);
                }
            }
            // Nothing waits here: all that was sent is on its way.
            Action::ClearLine(_) => {}
            Action::Clock(at) => {
                let machine = &self.nodes[node];
                let (life, at) = (machine.life, machine.clock.when(at));
                self.at(at.max(self.now + 1), Happening::AgentClock { node, life });
            }

            // Local commands, rehearsals, DMTCP and the addresses of machines are not in this world; the copies of the
            // coordinator's folder are the world's own.
            Action::OwnAddressChanged
            | Action::AnswerSuccessor(..)
            | Action::Dmtcp(_)
            | Action::Rehearse(_)
            | Action::Look { .. }
            | Action::Give { .. }
            | Action::Adopt(_)
            | Action::StopLook(_)
            | Action::Answer(..)
            | Action::RefuseClient(..)
            | Action::CloseClients
            | Action::TellShell(..)
            | Action::Replica(..)
            | Action::AwaitReplica => {}
        }
    }

    pub(super) fn agent(&mut self, node: usize) -> &mut crate::machine::Agent {
        self.nodes[node].agent.as_mut().unwrap()
    }

    fn tell(&mut self, node: usize, message: FromAgent, body: Vec<u8>) {
        if let FromAgent::Tree(answer) = &message {
            self.outcome.tree_failed += u32::from(!answer.failures.is_empty());
        }
        self.send(node, message, body);
    }

    /// The agent ends as it wants to, with the coordinator's farewell or without.
    fn end_agent(&mut self, node: usize, ending: &Ending) {
        assert_eq!(*ending, Ending::InOrder, "{} is not wanted", self.nodes[node].name);
        if self.bids_farewell {
            return self.bid_farewell(node);
        }
        self.ended_well = false;
        self.hang_up(node);
        self.nodes[node].kill_agent();
        self.later(50, 4000, Happening::AgentStarts { node });
    }

    /// Somebody starts it again later, at times with another disk.
    fn bid_farewell(&mut self, node: usize) {
        let others_stay = self.judge_farewell(node);
        self.hang_up(node);
        self.nodes[node].kill_agent();
        self.nodes[node].instances.clear();
        self.nodes[node].records.clear();
        if others_stay && self.random.chance(300) {
            self.nodes[node].disk.clear();
        }
        self.outcome.farewells += 1;
        self.later(1000, 5000, Happening::AgentStarts { node });
    }

    fn tie(&mut self, node: usize, tie: &Tie) -> Result<bool, String> {
        let fails = self.now < PEACE && self.random.chance(3);
        let machine = &mut self.nodes[node];
        let instance = machine.instances.get_mut(&tie.key).unwrap();
        if fails && !instance.relays_lost {
            return Err("no descriptors left".to_owned());
        }
        if let Some((peer, at)) = &tie.shell {
            for side in instance.app.relays.clone() {
                let (peer, node) = (peer.clone(), at.clone());
                instance.links.insert(side.clone(), RelayLink { side, peer, node });
            }
        }
        Ok(instance.app.root)
    }

    fn forget(&mut self, node: usize, key: &InstanceKey) {
        let machine = &mut self.nodes[node];
        machine.records.remove(key);
        if let Some(agent) = &mut machine.agent {
            agent.prepared.remove(key);
            agent.busy_until.remove(key);
            agent.callers.retain(|_, (of, _)| of != key);
        }
        assert!(!machine.instances.contains_key(key), "{key} is forgotten while it is there");
    }

    /// Everything goes that neither is kept nor waits for its commit, unless its instance is being made or ends.
    fn keep(&mut self, node: usize, kept: &Kept) {
        let disk = &mut self.nodes[node].disk;
        let waiting: Vec<InstanceId> = disk
            .iter()
            .filter(|(_, image)| image.waits)
            .map(|((_, number, _), _)| *number)
            .collect();
        disk.retain(|name, _| stays(kept, name) || waiting.contains(&name.1));
    }

    /// Processes that want a program to be started elsewhere, and have not said so to this agent.
    pub(super) fn call(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        let Some(agent) = &mut machine.agent else { return };
        let mut calls = Vec::new();
        for (key, instance) in machine.instances.iter().filter(|(_, one)| one.goes()) {
            for (call, (logical_node, _)) in instance.app.calls.iter().filter(|(_, call)| !call.1) {
                let caller = (key.clone(), *call);
                if agent.callers.values().any(|known| *known == caller) {
                    continue;
                }
                agent.next_caller += 1;
                agent.callers.insert(agent.next_caller, caller);
                calls.push(Call {
                    number: agent.next_caller,
                    identity: *call,
                    inside: Some(key.clone()),
                    uid: UID,
                    node: logical_node.clone(),
                    launch: launch_spec(),
                });
            }
        }
        for call in calls {
            self.step(node, Event::Called(Box::new(call)));
        }
    }

    /// A caller ends without its program; another process tries it.
    fn fail_call(&mut self, node: usize, number: u64) {
        let Some((key, call)) = self.agent(node).callers.remove(&number) else { return };
        let Some(instance) = self.nodes[node].instances.get_mut(&key) else { return };
        if let Some(call) = instance.app.calls.remove(&call) {
            instance.app.next_call += 1;
            instance.app.calls.insert(instance.app.next_call, call);
        }
    }

    fn tie_caller(
        &mut self,
        node: usize,
        number: u64,
        (key, peer, at): (&InstanceKey, InstanceKey, NodeName),
        events: &mut VecDeque<Event>,
    ) {
        let Some((_, call)) = self.agent(node).callers.remove(&number) else { return };
        let Some(instance) = self.nodes[node].instances.get_mut(key) else { return };
        if let Some((_, answered)) = instance.app.calls.get_mut(&call) {
            *answered = true;
        }
        let relay = ckpt_node::shell_link(&peer);
        let side = protocol::cluster::agent::RelaySide { relay, side: 0 };
        instance.app.relays.push(side.clone());
        instance.links.insert(side.clone(), RelayLink { side: side.clone(), peer, node: at });
        events.push_back(Event::CallerTied(key.clone(), vec![side]));
    }

    /// An instance says something, if anybody listens.
    pub(super) fn report(&mut self, node: usize, key: &InstanceKey, event: InstanceEvent) {
        self.step(node, Event::Instance(key.clone(), event));
    }

    /// What the coordinator has given up is not begun any more, whoever passes it on.
    fn judge_step(&mut self, node: usize, key: &InstanceKey, command: &AgentCommand) {
        let given_up = &mut self.nodes[node].given_up;
        let known = given_up.get(&key.job).copied().unwrap_or(0);
        match command {
            AgentCommand::Abandon { checkpoint } => {
                given_up.insert(key.job.clone(), known.max(*checkpoint));
            }
            AgentCommand::Freeze { checkpoint } => {
                assert!(
                    *checkpoint > known,
                    "{key} is frozen for {checkpoint}, which was given up"
                );
            }
            _ => {}
        }
    }
}
