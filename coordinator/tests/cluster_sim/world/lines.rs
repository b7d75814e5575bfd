//! The command tree's connections between the agents: they keep the order of messages, take their time and break.

use super::{Happening, MILLI, World};
use ckpt_node::{Event, LineEvent};
use command_tree::Line;
use protocol::cluster::NodeName;
use protocol::cluster::tree::TreeMessage;

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
    pub(super) fn agent_clock(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life {
            self.step(node, Event::Clock);
        }
    }

    pub(super) fn open_line(&mut self, maker: usize, to: &NodeName) {
        let taker = self.index(to);
        let wire = self.wires.len();
        let ends = [maker, taker].map(|node| (node, self.nodes[node].life));
        let known = self.agent(maker).peers.contains(to);
        self.wires.push(Wire { ends, last: [self.now; 2], works: true });
        self.agent(maker).lines.insert(Line { node: to.clone(), ours: true }, wire);
        if known && self.is_whole(wire) {
            self.carry(wire, 1, Packet::Made);
        } else {
            self.cut_wire(wire);
        }
    }

    pub(super) fn send_line(&mut self, node: usize, line: &Line, message: TreeMessage) {
        if let Some(wire) = self.agent(node).lines.get(line).copied() {
            self.carry(wire, usize::from(line.ours), Packet::Message(message));
        }
    }

    /// Whether both agents are there, and nothing is between them.
    fn is_whole(&self, wire: usize) -> bool {
        self.wires[wire].ends.iter().all(|(node, life)| {
            let known = &self.nodes[*node];
            known.up && known.agent.is_some() && known.life == *life && !self.cut[*node]
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
        let lines = &mut self.agent(node).lines;
        let event = match packet {
            Packet::Made => {
                lines.insert(line, wire);
                LineEvent::Accepted(from)
            }
            Packet::Message(message) if lines.get(&line) == Some(&wire) => {
                LineEvent::Heard(line, Box::new(message))
            }
            // Of a connection that was replaced.
            Packet::Message(_) => return,
        };
        self.step(node, Event::Line(event));
    }

    /// Both ends notice it some time.
    pub(super) fn cut_wire(&mut self, wire: usize) {
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
        if self.nodes[node].life != life {
            return;
        }
        let Some(agent) = &mut self.nodes[node].agent else { return };
        if agent.lines.get(&line) == Some(&wire) {
            agent.lines.remove(&line);
            self.step(node, Event::Line(LineEvent::Broken(line)));
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
                one.agent.as_ref().is_some_and(|agent| agent.peers.contains(&other.name)),
                "{} is not told of {}",
                one.name,
                other.name
            );
        }
    }
}
