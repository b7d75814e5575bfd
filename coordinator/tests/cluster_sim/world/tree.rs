//! The command tree between the simulated agents: its real members, over connections that keep the order of
//! messages, take their time and break.

use super::{Happening, MILLI, World};
use command_tree::{Act, Line, Member, Own, Works};
use protocol::agent::AgentCommand;
use protocol::cluster::agent::{FromAgent, ToAgent};
use protocol::cluster::tree::{Operation, TreeMessage};
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// What an agent has of the tree.
#[derive(Debug)]
pub struct Part {
    member: Member,
    works: Works,
    /// Connections, by the line that each one is.
    lines: BTreeMap<Line, usize>,
    /// Whom it has been told of.
    pub peers: BTreeSet<NodeName>,
    clock: Option<u64>,
}

impl Part {
    pub fn new(node: NodeName) -> Self {
        Self {
            member: Member::new(node),
            works: Works::default(),
            lines: BTreeMap::new(),
            peers: BTreeSet::new(),
            clock: None,
        }
    }
}

/// One of an agent's connections to others for the tree.
#[derive(Debug)]
pub struct Wire {
    /// Who made it, who took it; and which of their agents.
    ends: [(usize, u64); 2],
    /// When the last of what is under way arrives at each end.
    last: [u64; 2],
    works: bool,
}

#[derive(Debug, Clone)]
pub enum Packet {
    Made,
    Message(TreeMessage),
}

impl World {
    /// What the coordinator says of the tree, or of what it is made of.
    pub(super) fn tree_told(&mut self, node: usize, message: &ToAgent) {
        let now = self.now;
        let part = &mut self.nodes[node].tree;
        let acts = match message {
            ToAgent::Tree(call) => {
                self.outcome.by_tree += 1;
                part.member.ordered(now, (**call).clone())
            }
            ToAgent::TreeReset(mark) => part.member.reset(mark.clone()),
            ToAgent::Instance { key, command: AgentCommand::Abandon { checkpoint } } => {
                part.member.abandoned(&key.job, *checkpoint)
            }
            ToAgent::Peers { peers } => {
                part.peers = peers.iter().map(|peer| peer.name.clone()).collect();
                self.close_lines(node)
            }
            ToAgent::PeersChanged { there, gone } => {
                part.peers.retain(|peer| !gone.contains(peer));
                part.peers.extend(there.iter().map(|peer| peer.name.clone()));
                self.close_lines(node)
            }
            _ => return,
        };
        self.do_for_tree(node, acts);
    }

    /// Whether an agent's report goes by the tree.
    pub(super) fn tells_tree(&mut self, node: usize, message: &FromAgent) -> bool {
        let works = &mut self.nodes[node].tree.works;
        let (own, goes) = match message {
            FromAgent::Instance { key, event } if works.awaits(key, event) => {
                (works.answered(key, event), true)
            }
            FromAgent::Empty { key } => (works.ended(key), false),
            _ => (None, false),
        };
        if let Some((operation, own)) = own {
            self.own_part(node, operation, own);
        }
        goes
    }

    fn own_part(&mut self, node: usize, operation: Operation, own: Own) {
        let acts = self.nodes[node].tree.member.own(operation, own);
        self.do_for_tree(node, acts);
    }

    fn do_for_tree(&mut self, node: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Open(to) => self.open(node, &to),
                Act::Send(line, message) => {
                    if let Some(wire) = self.nodes[node].tree.lines.get(&line) {
                        self.carry(*wire, usize::from(line.ours), Packet::Message(message));
                    }
                }
                // Nothing waits here: all that was sent is on its way.
                Act::Clear(_) => {}
                Act::Report(answer) => {
                    self.outcome.tree_failed += u32::from(!answer.failures.is_empty());
                    self.send(node, FromAgent::Tree(answer), Vec::new());
                }
                Act::Work(order, _) if !self.nodes[node].welcomed => {
                    let reason = "it has no connection to the coordinator".to_owned();
                    let own = Own::Failed { passing: true, reason };
                    self.own_part(node, order.operation, own);
                }
                Act::Work(order, instances) => {
                    let command = order.step.command(order.checkpoint);
                    for key in self.nodes[node].tree.works.begin(order, instances) {
                        self.deliver(node, ToAgent::Instance { key, command: command.clone() });
                    }
                }
                Act::Forget(operation) => self.nodes[node].tree.works.forget(operation),
            }
        }
        let deadline = self.nodes[node].tree.member.deadline();
        if deadline != self.nodes[node].tree.clock {
            self.nodes[node].tree.clock = deadline;
            if let Some(deadline) = deadline {
                let life = self.nodes[node].life;
                self.at(deadline.max(self.now + 1), Happening::TreeClock { node, life });
            }
        }
    }

    pub(super) fn tree_clock(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life {
            let acts = self.nodes[node].tree.member.pass_time(self.now);
            self.do_for_tree(node, acts);
        }
    }

    fn open(&mut self, maker: usize, to: &NodeName) {
        let taker = self.index(to);
        let wire = self.wires.len();
        let ends = [maker, taker].map(|node| (node, self.nodes[node].life));
        let known = self.nodes[maker].tree.peers.contains(to);
        self.wires.push(Wire { ends, last: [self.now; 2], works: true });
        self.nodes[maker].tree.lines.insert(Line { node: to.clone(), ours: true }, wire);
        if known && self.is_whole(wire) {
            self.carry(wire, 1, Packet::Made);
        } else {
            self.cut_wire(wire);
        }
    }

    /// Whether both agents are there, and nothing is between them.
    fn is_whole(&self, wire: usize) -> bool {
        self.wires[wire].ends.iter().all(|(node, life)| {
            let known = &self.nodes[*node];
            known.up && known.agent && known.life == *life && !self.cut[*node]
        })
    }

    fn carry(&mut self, wire: usize, end: usize, packet: Packet) {
        // At times something is long on its way: so long that it is not wanted any more.
        let slow = self.now < super::PEACE && !self.calm && self.random.chance(20);
        let delay = self.random.millis(0, if slow { 4000 } else { 20 });
        let last = &mut self.wires[wire].last[end];
        let when = (self.now + delay).max(*last + 1);
        *last = when;
        self.at(when, Happening::Wire { wire, end, packet });
    }

    pub(super) fn arrives(&mut self, wire: usize, end: usize, packet: Packet) {
        if !self.wires[wire].works {
            return;
        }
        if !self.is_whole(wire) {
            return self.cut_wire(wire);
        }
        let (node, _) = self.wires[wire].ends[end];
        let (from, _) = self.wires[wire].ends[1 - end];
        let from = self.nodes[from].name.clone();
        let line = Line { node: from.clone(), ours: end == 0 };
        let part = &mut self.nodes[node].tree;
        let acts = match packet {
            Packet::Made => {
                part.lines.insert(line, wire);
                part.member.accepted(from)
            }
            Packet::Message(message) if part.lines.get(&line) == Some(&wire) => {
                part.member.heard(self.now, &line, message)
            }
            // Of a connection that was replaced.
            Packet::Message(_) => return,
        };
        self.do_for_tree(node, acts);
    }

    /// Both ends notice it some time.
    fn cut_wire(&mut self, wire: usize) {
        if std::mem::replace(&mut self.wires[wire].works, false) {
            for end in 0..2 {
                self.later(0, 3000, Happening::WireBroken { wire, end });
            }
        }
    }

    /// Connections do not outlive their agents, and rarely a cut.
    pub(super) fn wear_wires(&mut self) {
        for wire in 0..self.wires.len() {
            let works = self.wires[wire].works;
            if works && !self.is_whole(wire) && self.random.chance(50) {
                self.cut_wire(wire);
            }
        }
    }

    pub(super) fn wire_broken(&mut self, wire: usize, end: usize) {
        let (node, life) = self.wires[wire].ends[end];
        let other = self.nodes[self.wires[wire].ends[1 - end].0].name.clone();
        let line = Line { node: other, ours: end == 0 };
        let is_same = self.nodes[node].life == life;
        let part = &mut self.nodes[node].tree;
        if is_same && part.lines.get(&line) == Some(&wire) {
            part.lines.remove(&line);
            let acts = part.member.broken(&line);
            self.do_for_tree(node, acts);
        }
    }

    /// Lines to nodes that are no members any more are closed.
    fn close_lines(&mut self, node: usize) -> Vec<Act> {
        let part = &self.nodes[node].tree;
        let closed: Vec<(Line, usize)> = part
            .lines
            .iter()
            .filter(|(line, _)| !part.peers.contains(&line.node))
            .map(|(line, wire)| (line.clone(), *wire))
            .collect();
        let mut acts = Vec::new();
        for (line, wire) in closed {
            self.cut_wire(wire);
            let part = &mut self.nodes[node].tree;
            part.lines.remove(&line);
            acts.extend(part.member.broken(&line));
        }
        acts
    }

    /// What the coordinator has given up is not begun any more, whoever passes it on.
    pub(super) fn judge_step(&mut self, node: usize, key: &InstanceKey, command: &AgentCommand) {
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

    /// Everybody who has been there for a while knows of everybody else.
    pub(super) fn judge_peers(&self) {
        let settled = |index: &usize| {
            let node = &self.nodes[*index];
            node.welcomed && node.hello_sent + 1000 * MILLI < self.now && !self.cut[*index]
        };
        let there: Vec<usize> = (0..self.nodes.len()).filter(settled).collect();
        for (one, other) in there.iter().flat_map(|one| there.iter().map(move |other| (one, other)))
        {
            let (one, other) = (&self.nodes[*one], &self.nodes[*other]);
            assert!(
                one.tree.peers.contains(&other.name),
                "{} is not told of {}",
                one.name,
                other.name
            );
        }
    }
}
