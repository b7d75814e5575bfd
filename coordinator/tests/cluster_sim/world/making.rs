//! How instances are made: launched ones, and those that are restored from images.

use super::World;
use crate::machine::{AppState, Image, Instance, Life};
use ckpt_node::{Event, Lacking, Made, Record, Restore, shell_link};
use protocol::cluster::agent::{
    DEPARTED, DamagedCopy, LaunchOrder, OuterSocket, PrepareOrder, RelaySide,
};
use std::collections::BTreeSet;

/// A program's state when it has just been launched.
pub fn launched(order: &LaunchOrder) -> AppState {
    let mut app = AppState {
        root: order.is_root,
        pids: if order.is_root { vec![2, 3] } else { vec![2, 3, 4] },
        ..AppState::default()
    };
    if order.shell.is_some() {
        app.relays.push(RelaySide { relay: shell_link(&order.key), side: 1 });
    }
    if order.is_root {
        // Target and status are told by the world, through the environment.
        let value = |name: &str| -> u64 {
            let mut all = order.launch.environment.iter();
            let found = all.find(|(key, _)| key == name).unwrap();
            found.1.to_str().unwrap().parse().unwrap()
        };
        app.target = value("TARGET");
        app.status = u8::try_from(value("STATUS")).unwrap();
        for (_, node) in order.launch.environment.iter().filter(|(key, _)| key == "REMOTE") {
            app.next_call += 1;
            let node = node.to_str().unwrap().parse().unwrap();
            app.calls.insert(app.next_call, (node, false));
        }
    }
    app
}

/// The part of an image that is to be restored.
fn part_of(image: &Image, order: &PrepareOrder) -> AppState {
    let mut app = image.state.clone();
    app.pids.retain(|pid| order.assignment.get(pid) == Some(&order.part));
    assert!(image.state.root || !order.is_root, "a shell's program is taken for the job's");
    app.root = order.is_root;
    if order.part != 0 {
        // Objects go with the first part; a later one has what it needs by relays.
        app.relays.clear();
        app.sockets.clear();
        app.calls.clear();
    }
    assert_ne!(order.part, DEPARTED);
    if order.assignment.get(&2) == Some(&DEPARTED) {
        // The link to the remote shell was the daemon's; what a child writes for it to read
        // leads nowhere.
        app.orphaned = true;
        app.relays.retain(|side| side.side == 0 || !side.relay.ends_with("#link"));
        let relay = format!("{}@{}#pipe", order.key, order.checkpoint);
        app.relays.push(RelaySide { relay, side: 1 });
    }
    app
}

impl World {
    pub(super) fn prepare(&mut self, node: usize, order: PrepareOrder) {
        let key = order.key.clone();
        let name = (key.job.clone(), order.image, order.checkpoint);
        let found = self.find_image(node, &name, &order.holders);
        let machine = &self.nodes[node];
        let lacking = match &found {
            None => Some(Lacking::from("no holder has the image".to_owned())),
            Some(_) if self.random.chance(30) => Some(Lacking::from("no room".to_owned())),
            Some(_) => {
                // The memory of a daemon is damaged in this copy.
                let daemon = order.assignment.get(&2).filter(|_| order.assignment.contains_key(&4));
                let counts = order.holders.contains(&machine.name);
                // No chance is asked, so that the other histories stay as they are.
                let lot = key.epoch * 7
                    + u64::from(order.image.0) * 5
                    + order.checkpoint * 3
                    + u64::from(machine.index);
                let harmed =
                    counts && daemon.is_some_and(|part| *part != DEPARTED) && lot % 31 == 0;
                let reason = "read chunk 0: its hash does not match its bytes".to_owned();
                harmed.then(|| Lacking {
                    reason: reason.clone(),
                    damaged: vec![DamagedCopy {
                        node: machine.name.clone(),
                        processes: BTreeSet::from([2]),
                        useless: false,
                        reason,
                    }],
                })
            }
        };
        let (Some(image), None) = (found, &lacking) else {
            let lacking = lacking.unwrap_or_default();
            return self.step(node, Event::Prepared(key, Err(lacking)));
        };
        let app = part_of(&image, &order);
        let machine = &mut self.nodes[node];
        machine.disk.entry(name).or_insert(Image { waits: false, ..image });
        let sockets = app
            .sockets
            .iter()
            .map(|(file, local, peer, _)| OuterSocket {
                file: *file,
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            })
            .collect();
        machine.records.insert(key.clone(), Record::of_prepare(&order));
        self.agent(node).prepared.insert(key.clone(), app);
        self.step(node, Event::RunBy(key.clone(), super::agents::UID));
        self.step(node, Event::Prepared(key, Ok(sockets)));
    }

    pub(super) fn restore(&mut self, node: usize, restore: Restore) {
        let key = restore.order.key.clone();
        let Some(app) = self.agent(node).prepared.remove(&key) else { return };
        if self.random.chance(30) {
            let lacking = Lacking::from("process 3: no".to_owned());
            return self.step(node, Event::Made(key, Err(lacking)));
        }
        let is_pipe = |side: &RelaySide| side.relay.ends_with("#pipe");
        let (sinks, relays): (Vec<_>, Vec<_>) =
            app.relays.iter().cloned().partition(|side| is_pipe(side) && side.side == 0);
        let outputs = relays.iter().filter(|side| is_pipe(side)).cloned().collect();
        let machine = &mut self.nodes[node];
        let (life, lease) = (Life::Restored, restore.lease_until);
        let mut instance = Instance::new(key.clone(), app, life, lease, machine.moves);
        instance.rewired = restore.connections;
        machine.instances.insert(key.clone(), instance);
        let made = Made { init: 1, root: Some(2), relays, outputs, sinks, ..Made::default() };
        self.step(node, Event::Made(key, Ok(made)));
    }
}
