//! What goes wrong, and when all of it is mended.

use super::{Happening, MILLI, PEACE, SECOND, World, addresses_change};
use crate::machine::{Instance, Life};
use ckpt_node::Event;
use coordinator::cluster::{ClientId, ClusterEvent};
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::Ask;
use std::collections::BTreeSet;

impl World {
    pub(super) fn fault(&mut self) {
        if self.now >= PEACE - 4 * SECOND {
            self.make_peace();
            return;
        }
        self.later(100, 3000, Happening::Fault);
        let node = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
        let kind = if self.calm { 90 } else { self.random.below(100) };
        self.ended_well &= (70..90).contains(&kind);
        if self.trace {
            eprintln!("{:>7} fault {kind} at {}", self.now / MILLI, self.nodes[node].name);
        }
        match kind {
            0..25 => {
                if self.nodes[node].up {
                    self.lose_power(node);
                    self.later(200, 9000, Happening::Reboot { node });
                }
            }
            25..55 => {
                if !self.cut[node] {
                    self.cut[node] = true;
                    let reset = self.random.chance(500);
                    self.later(50, 8000, Happening::Heal { node, reset });
                }
            }
            55..70 => {
                if self.nodes[node].agent.is_some() {
                    self.kill_agent(node);
                }
            }
            70..76 => self.crash_coordinator(),
            76..80 => self.lose_coordinator(),
            80..85 => {
                self.stalled_coordinator = self.machine.is_some();
                self.later(100, 8000, Happening::CoordinatorGoesOn);
            }
            85..90 => {
                self.log_works = false;
                self.later(100, 2500, Happening::LogWorks);
            }
            90..95 if self.random.chance(500) => {
                // Several at once, as when a room is shut down.
                for node in 0..self.nodes.len() {
                    // Told twice, an agent ends at once.
                    let told = self.calm && self.nodes[node].told_to_end;
                    if self.random.chance(500) && self.nodes[node].welcomed && !told {
                        self.nodes[node].leaves = true;
                        self.nodes[node].told_to_end = true;
                        self.step(node, Event::Terminate);
                    }
                }
            }
            90..95 => {
                let name = self.nodes[node].name.clone();
                let client = ClientId { node: None, connection: 0, number: 500_000 };
                let root = JobUser { uid: 0, name: "root".to_owned() };
                let ask = Ask::Leave { node: Some(name) };
                self.feed(ClusterEvent::Asked { client, user: root, ask });
            }
            _ => {
                if self.nodes[node].connection.is_some() {
                    self.hang_up(node);
                    if addresses_change() && self.addresses.chance(500) {
                        self.change_address(node);
                    }
                    self.later(1, 200, Happening::Reconnect { node });
                }
            }
        }
    }

    /// A machine's power is gone. Nobody says so to the coordinator, unless a switch does.
    fn lose_power(&mut self, node: usize) {
        if !self.cut[node] && self.random.chance(500) {
            self.hang_up(node);
        }
        // What its kernel had not sent yet is lost.
        self.held_back[node].retain(|waiting| matches!(waiting, Happening::ToNode { .. }));
        if self.cut[node] {
            self.lose(|happening| {
                matches!(happening, Happening::ToCoordinator { node: of, .. } if *of == node)
            });
        }
        self.nodes[node].crash();
    }

    /// The network gives a machine another address.
    pub(super) fn change_address(&mut self, node: usize) {
        let runs = |instance: &&Instance| instance.life != Life::Ended;
        let others = self.nodes.iter().enumerate().filter(|(index, _)| *index != node);
        let elsewhere: BTreeSet<u64> = others
            .flat_map(|(_, other)| other.instances.values().filter(runs))
            .map(|instance| instance.key.epoch)
            .collect();
        let node = &mut self.nodes[node];
        node.moves += 1;
        // Who has nobody elsewhere has no connection that could break.
        let alone = |instance: &&mut Instance| !elsewhere.contains(&instance.key.epoch);
        for instance in node.instances.values_mut().filter(alone) {
            instance.connected = node.moves;
        }
        if self.trace {
            eprintln!("{:>7} {} has another address", self.now / MILLI, node.name);
        }
    }

    pub(super) fn make_peace(&mut self) {
        if self.trace {
            eprintln!("{:>7} peace", self.now / MILLI);
        }
        for node in 0..self.nodes.len() {
            self.heal(node, true);
            if !self.nodes[node].up {
                self.later(1, 1000, Happening::Reboot { node });
            } else if self.nodes[node].agent.is_none() {
                self.later(1, 1000, Happening::AgentStarts { node });
            }
        }
        self.log_works = true;
        if self.stalled_coordinator {
            self.later(1, 10, Happening::CoordinatorGoesOn);
        }
        if self.machine_lost {
            self.later(1, 10, Happening::TakeOver);
        } else if self.machine.is_none() {
            self.later(1, 10, Happening::CoordinatorStarts);
        }
    }
}
