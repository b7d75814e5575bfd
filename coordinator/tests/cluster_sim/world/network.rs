//! Between the coordinator and the agents: messages that keep their order, connections that end, links that are cut and healed.

use super::{Happening, World, addresses_change};
use ckpt_node::Event;
use protocol::cluster::agent::FromAgent;
use std::net::{IpAddr, SocketAddr};

impl World {
    pub(super) fn send(&mut self, node: usize, message: FromAgent, body: Vec<u8>) {
        let Some(connection) = self.nodes[node].connection else { return };
        let delay = self.random.millis(0, 20);
        let when = (self.now + delay).max(self.last_to_coordinator[node] + 1);
        self.last_to_coordinator[node] = when;
        self.at(when, Happening::ToCoordinator { node, connection, message, body });
    }

    pub(super) fn reconnect(&mut self, node: usize) {
        let machine = &mut self.nodes[node];
        if !machine.up || machine.agent.is_none() || machine.connection.is_some() {
            return;
        }
        if self.machine.is_none() || self.cut[node] {
            return self.later(50, 300, Happening::Reconnect { node });
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        machine.connection = Some(connection);
        machine.welcomed = false;
        machine.hello_sent = self.now;
        let host = IpAddr::from([10, 0, machine.moves, machine.index]);
        let address = SocketAddr::new(host, 7000);
        self.step(node, Event::Connected { connection, address, addresses: vec![host] });
    }

    /// A connection ends; the coordinator sees it after what had been sent before.
    pub(super) fn hang_up(&mut self, node: usize) {
        let Some(connection) = self.nodes[node].connection.take() else { return };
        self.nodes[node].welcomed = false;
        self.step(node, Event::Disconnected { connection });
        let when = self.last_to_coordinator[node].max(self.now) + 1;
        self.last_to_coordinator[node] = when;
        self.at(when, Happening::Disconnected { node, connection });
    }

    /// What is on its way, and never comes.
    pub(super) fn lose(&mut self, is_lost: impl Fn(&Happening) -> bool) {
        let lost = self.happenings.values_mut().filter(|happening| is_lost(happening));
        lost.for_each(|happening| *happening = Happening::Nothing);
    }

    pub(super) fn heal(&mut self, node: usize, reset: bool) {
        if !self.cut[node] {
            return;
        }
        self.cut[node] = false;
        let waiting = std::mem::take(&mut self.held_back[node]);
        if reset {
            // What is on its way was sent after what is lost here: it does not come either.
            self.lose(|happening| {
                matches!(happening,
                    Happening::ToCoordinator { node: of, .. } | Happening::ToNode { node: of, .. }
                    if *of == node)
            });
            self.hang_up(node);
            if addresses_change() && self.addresses.chance(200) {
                self.change_address(node);
            }
            self.later(1, 100, Happening::Reconnect { node });
        } else {
            let mut waiting = waiting;
            // What was sent later comes later.
            for happening in self.happenings.values_mut() {
                let of_link = match happening {
                    Happening::ToCoordinator { node: of, .. }
                    | Happening::ToNode { node: of, .. }
                    | Happening::Disconnected { node: of, .. } => *of == node,
                    _ => false,
                };
                if of_link {
                    waiting.push(std::mem::replace(happening, Happening::Nothing));
                }
            }
            for happening in waiting {
                let to_node = matches!(happening, Happening::ToNode { .. });
                let last =
                    if to_node { &mut self.last_to_node } else { &mut self.last_to_coordinator };
                last[node] = last[node].max(self.now) + 1;
                let when = last[node];
                self.at(when, happening);
            }
        }
    }
}
