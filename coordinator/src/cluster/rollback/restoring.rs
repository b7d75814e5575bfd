//! All images are there: sockets are paired and connected, until every instance is complete and stands still.

use super::making::{Arrival, Gathering, RelayEnds, Stage};
use super::pairing;
use crate::cluster::entry::Origin;
use crate::cluster::event::Now;
use crate::cluster::job::Job;
use crate::cluster::shared::Shared;
use protocol::agent::InstanceId;
use protocol::cluster::agent::{MovedListener, OuterSocket, Rewire, Skipped, ToAgent};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

impl Job {
    /// All images are there: orders how connections are made, and the restore.
    pub(super) fn restore(
        &mut self,
        now: Now,
        shared: &mut Shared,
        sockets: &BTreeMap<InstanceId, Vec<OuterSocket>>,
    ) {
        let Some(making) = self.state.making("restore an epoch") else { return };
        making.record.images_ms = Some(now.unix_ms);
        let images = self.ledger.checkpoint.and_then(|number| self.ledger.images.get(&number));
        let mut ends = Vec::new();
        for (instance, sockets) in sockets {
            let Some(found) = self.live.instances.get(instance) else { continue };
            let Origin::Image { instance: image, .. } = &found.record.origin else { continue };
            let Some(image) = images.and_then(|images| images.get(image)) else { continue };
            ends.extend(sockets.iter().map(|socket| pairing::End {
                instance: *instance,
                machine: image.node.clone(),
                socket: *socket,
            }));
        }
        let mut orders: BTreeMap<InstanceId, Vec<Rewire>> =
            self.live.instances.keys().map(|instance| (*instance, Vec::new())).collect();
        let pairs = pairing::sockets(&ends);
        let mut skipped = self.skipped(shared, &ends, &pairs);
        for (passive, active) in pairs {
            let (passive, active) = (&ends[passive], &ends[active]);
            let secret = hexadecimal(&shared.secrets.secret());
            let to = self
                .live
                .node(passive.instance)
                .and_then(|node| shared.members.get(node))
                .map(|member| member.profile.address);
            let Some(to) = to else { continue };
            for (end, connect_to) in [(passive, None), (active, Some(to))] {
                orders.entry(end.instance).or_default().push(Rewire {
                    file: end.socket.file,
                    secret: secret.clone(),
                    connect_to,
                });
            }
        }
        let gathering = Gathering::of(self.live.instances.keys().copied());
        self.enter(Stage::Restoring(gathering), now, shared.settings.rollback.restore);
        for (instance, connections) in orders {
            if let Some(node) = self.live.node(instance).cloned() {
                let skipped = skipped.remove(&instance).unwrap_or_default();
                let key = self.key(instance);
                shared.send(&node, ToAgent::Restore { key, connections, skipped });
            }
        }
        if let Some(making) = self.state.making("note that connections are ordered") {
            making.record.rewired_ms = Some(now.unix_ms);
        }
    }

    /// In a job that does without some of its daemons: sockets that have nobody at the other end, who
    /// was on a machine of the cluster. All others' peers were never part of the job.
    fn skipped(
        &self,
        shared: &Shared,
        ends: &[pairing::End],
        pairs: &[(usize, usize)],
    ) -> BTreeMap<InstanceId, Vec<Skipped>> {
        let mut skipped: BTreeMap<InstanceId, Vec<Skipped>> = BTreeMap::new();
        if self.ledger.departed.is_empty() {
            return skipped;
        }
        // Machines may have other addresses by now than those over which the job was connected.
        let known = self.ledger.addresses.values().flatten().copied();
        let now = shared.members.iter().map(|(_, member)| member.profile.address.ip());
        let addresses: BTreeSet<IpAddr> = known.chain(now).map(|ip| ip.to_canonical()).collect();
        let paired: BTreeSet<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        for (_, end) in ends.iter().enumerate().filter(|(index, _)| !paired.contains(index)) {
            let peer = end.socket.peer.ip().to_canonical();
            if !peer.is_loopback() && !addresses.contains(&peer) {
                continue;
            }
            let Some(found) = self.live.instances.get(&end.instance) else { continue };
            let home = &found.record.logical_node;
            // The last of them is the daemon itself, those before are shells that started it.
            let mut daemons = self.ledger.departed.iter().rev();
            let parent = daemons.find(|daemon| daemon.logical_node == *home && !found.record.root);
            let daemon = parent.map(|daemon| daemon.name.clone());
            skipped.entry(end.instance).or_default().push(Skipped {
                file: end.socket.file,
                daemon,
                loopback: peer.is_loopback(),
            });
        }
        skipped
    }

    /// An instance is complete and stands still.
    pub(in crate::cluster) fn restored(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        ends: RelayEnds,
        listeners: Vec<MovedListener>,
        warnings: Vec<String>,
    ) {
        let complete = match self.state.arrival(|making| making.restored(instance, ends)) {
            Arrival::Stale => return,
            Arrival::Counted => None,
            Arrival::Last(ends) => Some(ends),
        };
        self.note_listeners(instance, listeners);
        for warning in warnings {
            self.console.say(shared, &format!("warning: {warning}"));
        }
        if let Some(ends) = complete {
            self.let_go(now, shared, ends);
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
