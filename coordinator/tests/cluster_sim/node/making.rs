//! How a machine makes instances: launched ones, and those that are restored from images.

use super::{AppState, Fetch, Instance, Life, Node, Out, launch_spec};
use crate::random::Random;
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{
    DEPARTED, DamagedCopy, Fallen, FromAgent, LaunchOrder, OuterSocket, PrepareOrder, RelayLink,
    RelaySide, Rewire, ShellCall,
};
use std::collections::BTreeSet;

impl Node {
    pub(super) fn launch(&mut self, order: LaunchOrder, random: &mut Random, out: &mut Vec<Out>) {
        if !order.is_root && random.chance(30) {
            let reason = "no room".to_owned();
            out.push(Out::Send(FromAgent::NotMade { key: order.key, reason }, Vec::new()));
            return;
        }
        let mut app = AppState {
            root: order.is_root,
            pids: if order.is_root { vec![2, 3] } else { vec![2, 3, 4] },
            ..AppState::default()
        };
        if order.is_root {
            // Target and status are told by the world, through the environment.
            let value = |name: &str| -> u64 {
                let mut all = order.launch.environment.iter();
                let found = all.find(|(key, _)| key == name).unwrap();
                found.1.to_str().unwrap().parse().unwrap()
            };
            app.target = value("TARGET");
            app.status = u8::try_from(value("STATUS")).unwrap();
            for (key, node) in &order.launch.environment {
                if key == "REMOTE" {
                    app.next_call += 1;
                    let node = node.to_str().unwrap().parse().unwrap();
                    app.calls.insert(app.next_call, (node, false));
                }
            }
        }
        let instance =
            Instance::new(order.key.clone(), app, Life::Running, order.partners, self.moves);
        out.push(Out::Send(FromAgent::Launched { key: order.key.clone(), root: 2 }, Vec::new()));
        for (call, (logical_node, _)) in &instance.app.calls {
            let call =
                ShellCall { caller: order.key.clone(), node: self.name.clone(), call: *call };
            let logical_node = logical_node.clone();
            let shell = FromAgent::Shell { call, logical_node, launch: launch_spec() };
            out.push(Out::Send(shell, Vec::new()));
        }
        self.instances.insert(order.key, instance);
    }

    pub(super) fn prepare(
        &mut self,
        order: PrepareOrder,
        random: &mut Random,
        fetch: Fetch<'_>,
        out: &mut Vec<Out>,
    ) {
        let name = (order.key.job.clone(), order.image, order.checkpoint);
        let here = self.disk.get(&name).cloned();
        let image = here.or_else(|| order.holders.iter().find_map(|holder| fetch(holder, &name)));
        let Some(image) = image.filter(|_| !random.chance(30)) else {
            let reason = "no holder has the image".to_owned();
            out.push(Out::Send(FromAgent::NotMade { key: order.key, reason }, Vec::new()));
            return;
        };
        // The memory of a daemon is damaged in this copy.
        let daemon = order.assignment.get(&2).filter(|_| order.assignment.contains_key(&4));
        let counts = order.holders.contains(&self.name);
        // No chance is asked, so that the other histories stay as they are.
        let lot = order.key.epoch * 7
            + u64::from(order.image.0) * 5
            + order.checkpoint * 3
            + u64::from(self.index);
        if counts && daemon.is_some_and(|part| *part != DEPARTED) && lot % 31 == 0 {
            let reason = "read chunk 0: its hash does not match its bytes".to_owned();
            let copies = vec![DamagedCopy {
                node: self.name.clone(),
                processes: BTreeSet::from([2]),
                useless: false,
                reason: reason.clone(),
            }];
            let damaged = FromAgent::Damaged { key: order.key, copies, reason };
            out.push(Out::Send(damaged, Vec::new()));
            return;
        }
        self.disk.insert(name, image.clone());
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
        let sockets = app
            .sockets
            .iter()
            .map(|(file, local, peer, _)| OuterSocket {
                file: *file,
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            })
            .collect();
        let key = order.key.clone();
        self.instances.insert(
            key.clone(),
            Instance::new(key.clone(), app, Life::Prepared, order.partners, self.moves),
        );
        out.push(Out::Send(FromAgent::Prepared { key, sockets }, Vec::new()));
    }

    pub(super) fn restore(
        &mut self,
        key: InstanceKey,
        connections: Vec<Rewire>,
        random: &mut Random,
        out: &mut Vec<Out>,
    ) {
        let Some(instance) = self.instances.get_mut(&key) else { return };
        if random.chance(30) {
            self.instances.remove(&key);
            let reason = "process 3: no".to_owned();
            out.push(Out::Send(FromAgent::NotMade { key, reason }, Vec::new()));
            return;
        }
        instance.rewired = connections;
        instance.connected = self.moves;
        instance.life = Life::Restored;
        let relays = instance.app.relays.clone();
        let mut outputs = relays.clone();
        outputs.retain(|side| side.side == 1 && side.relay.ends_with("#pipe"));
        out.push(Out::Send(
            FromAgent::Restored {
                key,
                relays,
                outputs,
                listeners: Vec::new(),
                warnings: Vec::new(),
            },
            Vec::new(),
        ));
    }

    pub(super) fn go(
        &mut self,
        key: InstanceKey,
        links: Vec<RelayLink>,
        fallen: Option<Fallen>,
        out: &mut Vec<Out>,
    ) {
        let Some(instance) = self.instances.get_mut(&key) else { return };
        instance.life = Life::Running;
        let fallen = fallen.unwrap_or_default();
        for link in &fallen.outputs {
            assert!(instance.app.root, "output at an instance without a console");
            assert!(!instance.app.relays.contains(&link.side), "output twice");
            instance.app.relays.push(link.side.clone());
        }
        let links = links.into_iter().chain(fallen.outputs);
        instance.links = links.map(|link| (link.side.clone(), link)).collect();
        instance.silent = fallen.silent.into_iter().collect();
        let calls = instance.app.calls.clone();
        out.push(Out::Send(FromAgent::Running { key: key.clone() }, Vec::new()));
        for (call, (logical_node, answered)) in calls {
            if !answered {
                let call = ShellCall { caller: key.clone(), node: self.name.clone(), call };
                let shell = FromAgent::Shell { call, logical_node, launch: launch_spec() };
                out.push(Out::Send(shell, Vec::new()));
            }
        }
    }
}
