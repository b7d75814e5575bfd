//! What a machine does on the coordinator's orders.

use super::{Fetch, ImageName, Life, Node, Out, launch_spec};
use crate::random::Random;
use protocol::agent::ExitKind;
use protocol::cluster::agent::{FromAgent, ShellCall, Stream, ToAgent};
use protocol::cluster::{Epoch, NodeName};
use std::collections::BTreeMap;

impl Node {
    pub fn handle(
        &mut self,
        now: u64,
        message: ToAgent,
        random: &mut Random,
        fetch: Fetch<'_>,
    ) -> Vec<Out> {
        let mut out = Vec::new();
        match message {
            ToAgent::Welcome { coordinator, heartbeat_ms, lease_ms, epochs } => {
                assert!(coordinator.term >= self.term, "a lost coordinator is obeyed");
                self.term = coordinator.term;
                self.heartbeat = heartbeat_ms * 1_000_000;
                self.lease = lease_ms * 1_000_000;
                self.welcome(&epochs, random, &mut out);
            }
            ToAgent::Heard { sequence } => {
                if let Some(sent) = self.sent_at.remove(&sequence) {
                    self.sent_at.retain(|other, _| *other > sequence);
                    self.lease_until = self.lease_until.max(sent + self.lease);
                }
            }
            ToAgent::Launch(order) => self.launch(*order, random, &mut out),
            ToAgent::Instance { key, command } => self.command(now, key, command, random, &mut out),
            ToAgent::Drain { key, checkpoint, .. } => {
                if let Some(instance) = self.instances.get(&key) {
                    let offset = instance.console.len() as u64;
                    out.push(Out::Send(FromAgent::Drained { key, checkpoint, offset }, Vec::new()));
                }
            }
            ToAgent::Partners { key, nodes } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.partners = nodes;
                }
            }
            ToAgent::Prepare(order) => self.prepare(*order, random, fetch, &mut out),
            ToAgent::Restore { key, connections, .. } => {
                self.restore(key, connections, random, &mut out);
            }
            ToAgent::Go { key, links, fallen } => self.go(key, links, fallen, &mut out),
            ToAgent::Links { key, links } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    for link in links {
                        if !instance.app.relays.contains(&link.side) {
                            instance.app.relays.push(link.side.clone());
                        }
                        instance.links.insert(link.side.clone(), link);
                    }
                }
            }
            // Its processes connect to nobody anew.
            ToAgent::Addresses { .. } => {}
            ToAgent::Kill { job, below } => {
                self.instances.retain(|key, _| key.job != job || key.epoch >= below);
                out.push(Out::Send(FromAgent::Killed { job, below }, Vec::new()));
            }
            ToAgent::Keep { job, images } => {
                self.disk.retain(|(of, instance, checkpoint), _| {
                    // What is newer than all that is named is under way.
                    let newest = images.values().flatten().max();
                    *of != job
                        || newest.is_some_and(|newest| checkpoint > newest)
                        || images.get(instance).is_some_and(|kept| kept.contains(checkpoint))
                });
            }
            ToAgent::ShellRuns { call, .. } => {
                if let Some(instance) = self.instances.get_mut(&call.caller) {
                    if let Some((_, answered)) = instance.app.calls.get_mut(&call.call) {
                        *answered = true;
                    }
                }
            }
            ToAgent::ShellFailed { call, .. } => self.call_again(&call, &mut out),
            ToAgent::ConsoleKept { key, offset } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.kept = instance.kept.max(offset);
                }
            }
            ToAgent::Copy { job, instance, checkpoint, holders, .. } => {
                let name = (job, instance, checkpoint);
                self.copy_of(name, &holders, random, fetch, &mut out);
            }
            ToAgent::Stay { .. } => self.leaves = false,
            ToAgent::Farewell => self.left = true,
            ToAgent::Refused { .. }
            | ToAgent::Replica(_)
            | ToAgent::Dmtcp(_)
            | ToAgent::Mark { .. }
            | ToAgent::Peers { .. }
            | ToAgent::PeersChanged { .. }
            | ToAgent::Tree(_)
            | ToAgent::TreeReset(_)
            | ToAgent::Input { .. }
            | ToAgent::Resize { .. }
            | ToAgent::Client { .. }
            | ToAgent::Look { .. }
            | ToAgent::Rehearse(_) => {}
        }
        out
    }

    /// The coordinator takes it: what it may not have heard is told again.
    fn welcome(
        &mut self,
        epochs: &BTreeMap<String, Epoch>,
        random: &mut Random,
        out: &mut Vec<Out>,
    ) {
        self.welcomed = true;
        self.instances
            .retain(|key, _| epochs.get(&key.job).is_some_and(|epoch| key.epoch >= *epoch));
        let tells_ends_again = self.tells_ends_again();
        for instance in self.instances.values_mut() {
            // Bytes that were not acknowledged come again.
            if instance.app.root && instance.life != Life::Prepared {
                let kept = usize::try_from(instance.kept).unwrap();
                if kept < instance.console.len() {
                    let bytes = instance.console[kept..].to_vec();
                    let (key, offset) = (instance.key.clone(), instance.kept);
                    let stream = Stream::Output;
                    out.push(Out::Send(FromAgent::Console { key, offset, stream }, bytes));
                }
                let again = random.chance(500) || tells_ends_again;
                if let (Some(status), true) = (instance.ended, again) {
                    let key = instance.key.clone();
                    out.push(Out::Send(FromAgent::RootEnded { key, status }, Vec::new()));
                }
            }
            if instance.life == Life::Ended && !instance.app.root {
                let key = instance.key.clone();
                out.push(Out::Send(FromAgent::Empty { key }, Vec::new()));
            }
            for (call, (logical_node, answered)) in &instance.app.calls {
                if !answered && instance.life == Life::Running {
                    let call = ShellCall {
                        caller: instance.key.clone(),
                        node: self.name.clone(),
                        call: *call,
                    };
                    let logical_node = logical_node.clone();
                    let launch = launch_spec();
                    let shell = FromAgent::Shell { call, logical_node, launch };
                    out.push(Out::Send(shell, Vec::new()));
                }
            }
        }
        if self.leaves {
            let reason = "told to end".to_owned();
            out.push(Out::Send(FromAgent::Leaving { reason }, Vec::new()));
        }
        for instance in self.instances.values().filter(|instance| instance.rests) {
            let rest = FromAgent::Rest { key: instance.key.clone(), waits: true };
            out.push(Out::Send(rest, Vec::new()));
        }
        for key in std::mem::take(&mut self.adopted) {
            let lost = self.instances.contains_key(&key) && random.chance(300);
            if lost && !self.has_succeeded(key.epoch) {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.relays_lost = true;
                }
                let reason = "its agent died".to_owned();
                out.push(Out::Send(FromAgent::RelaysLost { key, reason }, Vec::new()));
            }
        }
    }

    /// Whether the job's first process has ended here with success.
    fn has_succeeded(&self, epoch: Epoch) -> bool {
        let success = Some(ExitKind::Exited(0));
        let mut instances = self.instances.values();
        instances.any(|one| one.key.epoch == epoch && one.app.root && one.ended == success)
    }

    /// The remote shell that was refused is called for once more.
    fn call_again(&mut self, call: &ShellCall, out: &mut Vec<Out>) {
        if let Some(instance) = self.instances.get_mut(&call.caller) {
            if let Some((node, false)) = instance.app.calls.remove(&call.call) {
                instance.app.next_call += 1;
                let next = instance.app.next_call;
                instance.app.calls.insert(next, (node.clone(), false));
                let caller = call.caller.clone();
                let call = ShellCall { caller, node: self.name.clone(), call: next };
                let launch = launch_spec();
                let shell = FromAgent::Shell { call, logical_node: node, launch };
                out.push(Out::Send(shell, Vec::new()));
            }
        }
    }

    fn copy_of(
        &mut self,
        name: ImageName,
        holders: &[NodeName],
        random: &mut Random,
        fetch: Fetch<'_>,
        out: &mut Vec<Out>,
    ) {
        let found = self.disk.get(&name).cloned();
        let found = found.or_else(|| holders.iter().find_map(|holder| fetch(holder, &name)));
        let failure = match found.filter(|_| !random.chance(30)) {
            Some(image) => {
                self.disk.insert(name.clone(), image);
                None
            }
            None => Some("nobody gives it".to_owned()),
        };
        let (job, instance, checkpoint) = name;
        let copied = FromAgent::Copied { job, instance, checkpoint, failure };
        out.push(Out::Send(copied, Vec::new()));
    }
}
