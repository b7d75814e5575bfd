//! What every instance is told of the job's addresses: only what is not where the job believes it to be.

use super::Job;
use super::ledger::Ledger;
use crate::cluster::changes::Revision;
use crate::cluster::entry::InstanceRecord;
use crate::cluster::members::Members;
use crate::cluster::shared::Shared;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::{AddressMap, KnownListener, LogicalAddresses, Place, PortRange};
use protocol::cluster::agent::{MovedListener, ToAgent};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Ports below those that kernels give out by themselves (net.ipv4.ip_local_port_range).
const SOURCE_PORTS: PortRange = PortRange { first: 20_480, count: 12_288 };
/// Most ports of one logical node on one machine.
const MOST_SOURCE_PORTS: u16 = 1024;
/// Most listening sockets that are remembered of one instance.
const MOST_LISTENERS: usize = 4096;

/// Addresses of which the map is made.
trait Addresses {
    /// By which the job knows a logical node.
    fn known(&self, logical: &NodeName) -> Vec<IpAddr>;
    /// Those of a machine.
    fn machine(&self, machine: &NodeName) -> Vec<IpAddr>;
}

/// As the log and the members have them.
struct Recorded<'a>(&'a Ledger, &'a Members);

impl Addresses for Recorded<'_> {
    fn known(&self, logical: &NodeName) -> Vec<IpAddr> {
        let Self(ledger, members) = self;
        let known = ledger.addresses.get(logical);
        known.cloned().unwrap_or_else(|| of_machine(members, logical))
    }

    fn machine(&self, machine: &NodeName) -> Vec<IpAddr> {
        of_machine(self.1, machine)
    }
}

/// Where logical nodes are, and what the address map says of each. Only what may have changed is looked at again, so that an
/// instance more costs the same however many there are.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Whereabouts {
    /// Logical nodes with the machines that have instances of them, and how many.
    places: BTreeMap<NodeName, BTreeMap<NodeName, u32>>,
    /// Machines with the logical nodes that have instances there.
    guests: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// Listening sockets by logical node: of which instance, on which machine.
    listeners: BTreeMap<NodeName, Vec<(InstanceId, NodeName, MovedListener)>>,
    /// Logical nodes of which something is to be said.
    said: BTreeMap<NodeName, LogicalAddresses>,
    /// Logical nodes of which something else may have to be said.
    stale: BTreeSet<NodeName>,
    /// Whether something else is said since the map was told.
    is_news: bool,
    /// When members were looked at.
    seen: Revision,
}

impl Whereabouts {
    /// One more instance is there.
    pub(super) fn take_in(&mut self, record: &InstanceRecord) {
        let places = self.places.entry(record.logical_node.clone()).or_default();
        *places.entry(record.node.clone()).or_default() += 1;
        self.guests.entry(record.node.clone()).or_default().insert(record.logical_node.clone());
        self.doubt(&record.logical_node);
    }

    /// An instance has ended.
    pub(super) fn take_out(&mut self, record: &InstanceRecord) {
        let (logical, machine) = (&record.logical_node, &record.node);
        self.doubt(logical);
        let Some(places) = self.places.get_mut(logical) else { return };
        let Some(count) = places.get_mut(machine) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        places.remove(machine);
        if places.is_empty() {
            self.places.remove(logical);
        }
        if let Some(guests) = self.guests.get_mut(machine) {
            guests.remove(logical);
            if guests.is_empty() {
                self.guests.remove(machine);
            }
        }
    }

    /// Something about a logical node may have changed, and with it the ports of those on the same machines.
    fn doubt(&mut self, logical: &NodeName) {
        self.stale.insert(logical.clone());
        let machines = self.places.get(logical).into_iter().flat_map(BTreeMap::keys);
        let guests = machines.filter_map(|machine| self.guests.get(machine)).flatten();
        self.stale.extend(guests.filter(|guest| *guest != logical).cloned());
    }

    /// All of an instance's listeners, in the place of those that it had. Those that it keeps stay where they are: who came
    /// first has a port.
    fn listen(
        &mut self,
        instance: InstanceId,
        record: &InstanceRecord,
        listeners: Vec<MovedListener>,
    ) {
        let all = self.listeners.entry(record.logical_node.clone()).or_default();
        all.retain(|(of, _, known)| *of != instance || listeners.contains(known));
        for listener in listeners.into_iter().take(MOST_LISTENERS) {
            if !all.iter().any(|(of, _, known)| *of == instance && *known == listener) {
                all.push((instance, record.node.clone(), listener));
            }
        }
        if all.is_empty() {
            self.listeners.remove(&record.logical_node);
        }
        self.stale.insert(record.logical_node.clone());
    }

    /// What has moved, as things stand.
    fn map(&mut self, ledger: &Ledger, members: &Members) -> AddressMap {
        self.look(ledger, members);
        AddressMap { nodes: self.said.values().cloned().collect::<Vec<_>>().into() }
    }

    /// The same, where something else is to be said than the last time.
    fn news(&mut self, ledger: &Ledger, members: &Members) -> Option<AddressMap> {
        self.look(ledger, members);
        std::mem::take(&mut self.is_news).then(|| self.map(ledger, members))
    }

    fn look(&mut self, ledger: &Ledger, members: &Members) {
        match members.changed_since(self.seen) {
            Some(changed) => {
                for machine in changed {
                    self.machine_changed(machine);
                }
            }
            None => self.stale.extend(self.places.keys().cloned()),
        }
        self.seen = members.revision();
        self.renew(&Recorded(ledger, members));
    }

    fn machine_changed(&mut self, machine: &NodeName) {
        let guests = self.guests.get(machine).cloned().unwrap_or_default();
        // A logical node is known by its machine's addresses where the log has none.
        let home = self.places.contains_key(machine).then_some(machine);
        guests.iter().chain(home).for_each(|logical| self.doubt(logical));
    }

    fn renew(&mut self, addresses: &impl Addresses) {
        for logical in std::mem::take(&mut self.stale) {
            let now = self.addresses_of(&logical, addresses);
            if now.as_ref() != self.said.get(&logical) {
                self.is_news = true;
                match now {
                    Some(now) => self.said.insert(logical, now),
                    None => self.said.remove(&logical),
                };
            }
        }
    }

    /// Whether a machine is what a logical node's processes believe it to be.
    fn is_home(logical: &NodeName, machine: &NodeName, addresses: &impl Addresses) -> bool {
        let is_here = || {
            let here = addresses.machine(machine);
            addresses.known(logical).iter().all(|ip| here.contains(ip))
        };
        logical == machine && is_here()
    }

    /// The ports that a logical node connects from on a machine that is not its own.
    fn source(
        &self,
        logical: &NodeName,
        machine: &NodeName,
        addresses: &impl Addresses,
    ) -> Option<PortRange> {
        let guests = self.guests.get(machine).into_iter().flatten();
        let guests: Vec<&NodeName> =
            guests.filter(|guest| !Self::is_home(guest, machine, addresses)).collect();
        let index = u16::try_from(guests.iter().position(|guest| *guest == logical)?).ok()?;
        let count = u16::try_from(guests.len()).ok()?;
        let each = (SOURCE_PORTS.count / count).min(MOST_SOURCE_PORTS);
        Some(PortRange { first: SOURCE_PORTS.first + index * each, count: each })
    }

    /// What is to be said of a logical node.
    fn addresses_of(
        &self,
        logical: &NodeName,
        addresses: &impl Addresses,
    ) -> Option<LogicalAddresses> {
        let machines = self.places.get(logical)?;
        let is_home = machines.keys().all(|machine| Self::is_home(logical, machine, addresses));
        let listeners: Vec<KnownListener> = self
            .listeners
            .get(logical)
            .into_iter()
            .flatten()
            .filter(|(_, _, listener)| {
                !is_home || listener.logical.port() != listener.actual.port()
            })
            .map(|(_, machine, listener)| KnownListener {
                logical: listener.logical,
                machine: machine.clone(),
                actual: listener.actual,
                v6_only: listener.v6_only,
                plain: listener.plain,
            })
            .collect();
        if is_home && listeners.is_empty() {
            return None;
        }
        let places = machines
            .keys()
            .map(|machine| Place {
                machine: machine.clone(),
                addresses: addresses.machine(machine),
                source: self.source(logical, machine, addresses),
            })
            .collect();
        Some(LogicalAddresses {
            name: logical.clone(),
            addresses: addresses.known(logical),
            places,
            listeners,
        })
    }
}

/// All addresses of a machine, known or not; canonical.
pub(in crate::cluster) fn of_machine(members: &Members, machine: &NodeName) -> Vec<IpAddr> {
    let Some(member) = members.get(machine) else { return Vec::new() };
    let mut addresses = vec![member.profile.address.ip().to_canonical()];
    for ip in &member.profile.addresses {
        if !addresses.contains(&ip.to_canonical()) {
            addresses.push(ip.to_canonical());
        }
    }
    addresses
}

impl Job {
    /// What has moved, as things stand.
    pub(in crate::cluster) fn addresses(&mut self, shared: &Shared) -> AddressMap {
        if !self.ledger.settings().rewire_connect {
            return AddressMap::default();
        }
        self.live.whereabouts.map(&self.ledger, &shared.members)
    }

    /// Tells all instances what has moved, if that is news.
    pub(in crate::cluster) fn tell_addresses(&mut self, shared: &mut Shared) {
        let addresses = if self.ledger.settings().rewire_connect {
            let news = self.live.whereabouts.news(&self.ledger, &shared.members);
            let Some(addresses) = news else { return };
            addresses
        } else {
            AddressMap::default()
        };
        if addresses == self.live.addresses {
            return;
        }
        self.live.addresses.clone_from(&addresses);
        let present: Vec<(InstanceId, NodeName)> = self
            .live
            .present()
            .map(|(number, instance)| (number, instance.record.node.clone()))
            .collect();
        for (number, node) in present {
            let message =
                ToAgent::Addresses { key: self.key(number), addresses: addresses.clone() };
            shared.send(&node, message);
        }
    }

    /// An instance's sockets that listen, or have the port at which they will.
    pub(in crate::cluster) fn listens(
        &mut self,
        shared: &mut Shared,
        instance: InstanceId,
        listeners: Vec<MovedListener>,
    ) {
        self.note_listeners(instance, listeners);
        if self.is_running() {
            self.tell_addresses(shared);
        }
    }

    pub(in crate::cluster) fn note_listeners(
        &mut self,
        instance: InstanceId,
        listeners: Vec<MovedListener>,
    ) {
        if let Some(found) = self.live.instances.get(&instance) {
            self.live.whereabouts.listen(instance, &found.record, listeners);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::entry::Origin;

    fn names() -> [NodeName; 4] {
        ["node1", "node2", "node3", "node4"].map(|name| name.parse().unwrap())
    }

    fn at(number: usize) -> Vec<IpAddr> {
        vec![
            format!("10.0.0.{number}").parse().unwrap(),
            format!("fd00::{number}").parse().unwrap(),
        ]
    }

    fn listener(logical: &str, actual: &str) -> MovedListener {
        let (logical, actual) = (logical.parse().unwrap(), actual.parse().unwrap());
        MovedListener { logical, actual, v6_only: false, plain: false }
    }

    /// What logical nodes and machines have for addresses, each node that is not named its usual ones.
    #[derive(Default)]
    struct Known(BTreeMap<NodeName, Vec<IpAddr>>);

    impl Addresses for Known {
        fn known(&self, logical: &NodeName) -> Vec<IpAddr> {
            self.0.get(logical).cloned().unwrap_or_else(|| self.machine(logical))
        }

        fn machine(&self, machine: &NodeName) -> Vec<IpAddr> {
            names().iter().position(|name| name == machine).map_or_else(Vec::new, |at_| at(at_ + 1))
        }
    }

    fn record(logical: &NodeName, machine: &NodeName) -> InstanceRecord {
        let (node, logical_node) = (machine.clone(), logical.clone());
        let origin = Origin::Run;
        InstanceRecord { node, logical_node, root: false, origin, addresses: Vec::new() }
    }

    fn whereabouts(names: &[NodeName; 4], places: &[(usize, &[usize])]) -> Whereabouts {
        let mut all = Whereabouts::default();
        for (logical, machines) in places {
            for machine in *machines {
                all.take_in(&record(&names[*logical], &names[*machine]));
            }
        }
        all
    }

    fn map(all: &mut Whereabouts, known: &Known) -> AddressMap {
        all.renew(known);
        AddressMap { nodes: all.said.values().cloned().collect::<Vec<_>>().into() }
    }

    #[test]
    fn nothing_is_said_of_what_has_not_moved() {
        let names = names();
        let mut all = whereabouts(&names, &[(0, &[0]), (1, &[1])]);
        let (here, kept) = (record(&names[0], &names[0]), listener("0.0.0.0:7600", "0.0.0.0:7600"));
        all.listen(InstanceId(1), &here, vec![kept]);
        assert_eq!(map(&mut all, &Known::default()), AddressMap::default());
        assert!(!all.is_news);
        // A guest's port that gave way.
        all.listen(InstanceId(1), &here, vec![kept, listener("0.0.0.0:7700", "0.0.0.0:40000")]);
        let addresses = map(&mut all, &Known::default());
        assert!(std::mem::take(&mut all.is_news));
        assert_eq!(addresses.nodes.len(), 1);
        assert_eq!(addresses.nodes[0].listeners.len(), 1);
        assert_eq!(addresses.nodes[0].places[0].source, None);
    }

    #[test]
    fn listeners_keep_the_order_of_their_coming() {
        let (one, other) = (InstanceId(1), InstanceId(2));
        let first = listener("0.0.0.0:1024", "0.0.0.0:40001");
        let later = listener("0.0.0.0:1024", "0.0.0.0:40002");
        let more = listener("0.0.0.0:1025", "0.0.0.0:40003");
        let names = names();
        let here = record(&names[0], &names[0]);
        let mut all = Whereabouts::default();
        let of = |all: &Whereabouts| -> Vec<(InstanceId, MovedListener)> {
            let known = all.listeners.get(&names[0]).into_iter().flatten();
            known.map(|(of, _, listener)| (*of, *listener)).collect()
        };
        all.listen(one, &here, vec![first]);
        all.listen(other, &here, vec![later]);
        all.listen(one, &here, vec![more, first]);
        assert_eq!(of(&all), [(one, first), (other, later), (one, more)]);
        all.listen(other, &here, Vec::new());
        assert_eq!(of(&all), [(one, first), (one, more)]);
    }

    #[test]
    fn guests_of_one_machine_have_ports_of_their_own() {
        let names = names();
        let mut all = whereabouts(&names, &[(0, &[0]), (1, &[0, 1]), (2, &[0, 1]), (3, &[0])]);
        let addresses = map(&mut all, &Known::default());
        let of = |name: &NodeName| addresses.nodes.iter().find(|node| node.name == *name);
        assert!(of(&names[0]).is_none());
        let source = |logical: usize, machine: usize| {
            let node = of(&names[logical]).unwrap();
            node.places.iter().find(|place| place.machine == names[machine]).unwrap().source
        };
        // node2 is split between its own machine and node1.
        assert_eq!(source(1, 1), None);
        let guests = [source(1, 0).unwrap(), source(2, 0).unwrap(), source(3, 0).unwrap()];
        for (index, one) in guests.iter().enumerate() {
            assert!(one.count >= 1000 && SOURCE_PORTS.contains(one.first));
            assert!(SOURCE_PORTS.contains(one.first + (one.count - 1)));
            for other in &guests[index + 1..] {
                assert!(!one.contains(other.first) && !other.contains(one.first));
            }
        }
        assert_eq!(source(2, 1).unwrap().first, SOURCE_PORTS.first);
        // One that goes leaves its ports to the others.
        all.take_out(&record(&names[1], &names[0]));
        let after = map(&mut all, &Known::default());
        let node3 = after.nodes.iter().find(|node| node.name == names[2]).unwrap();
        assert_eq!(node3.places[0].source.unwrap().first, SOURCE_PORTS.first);
        let again = whereabouts(&names, &[(0, &[0]), (1, &[1]), (2, &[0, 1]), (3, &[0])]);
        assert_eq!(after, map(&mut { again }, &Known::default()));
    }

    #[test]
    fn a_machine_that_has_another_address_now_is_not_home() {
        let names = names();
        let mut all = whereabouts(&names, &[(0, &[0])]);
        let known = Known(BTreeMap::from([(names[0].clone(), at(9))]));
        let addresses = map(&mut all, &known);
        assert_eq!(addresses.nodes[0].addresses, at(9));
        assert_eq!(addresses.nodes[0].places[0].addresses, at(1));
        assert!(addresses.nodes[0].places[0].source.is_some());
    }
}
