//! What every instance is told of the job's addresses: only what is not where the job believes it to be.

use super::Job;
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

/// What the address map is made of.
struct Whereabouts<'a> {
    /// Logical nodes with the machines that have instances of them.
    places: BTreeMap<&'a NodeName, BTreeSet<&'a NodeName>>,
    /// Listening sockets: of which logical node, on which machine.
    listeners: Vec<(&'a NodeName, &'a NodeName, MovedListener)>,
    /// The addresses by which the job knows a logical node.
    known: BTreeMap<&'a NodeName, Vec<IpAddr>>,
    /// The addresses of machines.
    machines: BTreeMap<&'a NodeName, Vec<IpAddr>>,
}

impl Whereabouts<'_> {
    /// Whether a machine is what a logical node's processes believe it to be.
    fn is_home(&self, logical: &NodeName, machine: &NodeName) -> bool {
        let here = self.machines.get(machine).map_or(&[][..], Vec::as_slice);
        let known = self.known.get(logical).map_or(&[][..], Vec::as_slice);
        logical == machine && known.iter().all(|ip| here.contains(ip))
    }

    /// The ports that a logical node connects from on a machine that is not its own.
    fn source(&self, logical: &NodeName, machine: &NodeName) -> Option<PortRange> {
        let guests: Vec<&NodeName> = self
            .places
            .iter()
            .filter(|(guest, places)| places.contains(machine) && !self.is_home(guest, machine))
            .map(|(guest, _)| *guest)
            .collect();
        let index = u16::try_from(guests.iter().position(|guest| *guest == logical)?).ok()?;
        let count = u16::try_from(guests.len()).ok()?;
        let each = (SOURCE_PORTS.count / count).min(MOST_SOURCE_PORTS);
        Some(PortRange { first: SOURCE_PORTS.first + index * each, count: each })
    }

    fn addresses(&self) -> AddressMap {
        let mut nodes = Vec::new();
        for (logical, machines) in &self.places {
            let is_home = machines.iter().all(|machine| self.is_home(logical, machine));
            let listeners: Vec<KnownListener> = self
                .listeners
                .iter()
                .filter(|(of, _, listener)| {
                    of == logical && (!is_home || listener.logical.port() != listener.actual.port())
                })
                .map(|(_, machine, listener)| KnownListener {
                    logical: listener.logical,
                    machine: (*machine).clone(),
                    actual: listener.actual,
                    v6_only: listener.v6_only,
                    plain: listener.plain,
                })
                .collect();
            if is_home && listeners.is_empty() {
                continue;
            }
            let places = machines
                .iter()
                .map(|machine| Place {
                    machine: (*machine).clone(),
                    addresses: self.machines.get(machine).cloned().unwrap_or_default(),
                    source: self.source(logical, machine),
                })
                .collect();
            nodes.push(LogicalAddresses {
                name: (*logical).clone(),
                addresses: self.known.get(logical).cloned().unwrap_or_default(),
                places,
                listeners,
            });
        }
        AddressMap { nodes }
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
    pub(in crate::cluster) fn addresses(&self, shared: &Shared) -> AddressMap {
        if !self.ledger.settings().rewire_connect {
            return AddressMap::default();
        }
        let mut places: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
        for (_, instance) in self.live.present() {
            let record = &instance.record;
            places.entry(&record.logical_node).or_default().insert(&record.node);
        }
        let record = |instance: &InstanceId| {
            self.live.instances.get(instance).map(|instance| &instance.record)
        };
        let listeners = self
            .live
            .listeners
            .iter()
            .filter_map(|(instance, listener)| {
                let record = record(instance)?;
                Some((&record.logical_node, &record.node, *listener))
            })
            .collect();
        let machines = places
            .values()
            .flatten()
            .map(|machine| (*machine, of_machine(&shared.members, machine)))
            .collect();
        let known = places
            .keys()
            .map(|logical| match self.ledger.addresses.get(*logical) {
                Some(addresses) => (*logical, addresses.clone()),
                None => (*logical, of_machine(&shared.members, logical)),
            })
            .collect();
        Whereabouts { places, listeners, known, machines }.addresses()
    }

    /// Tells all instances what has moved, if that is news.
    pub(in crate::cluster) fn tell_addresses(&mut self, shared: &mut Shared) {
        let addresses = self.addresses(shared);
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
        note(&mut self.live.listeners, instance, listeners);
    }
}

/// All of an instance's listeners, in the place of those that it had. Those that it keeps stay where they are: who came
/// first has a port.
fn note(
    all: &mut Vec<(InstanceId, MovedListener)>,
    instance: InstanceId,
    listeners: Vec<MovedListener>,
) {
    all.retain(|(of, known)| *of != instance || listeners.contains(known));
    for listener in listeners.into_iter().take(MOST_LISTENERS) {
        if !all.contains(&(instance, listener)) {
            all.push((instance, listener));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn whereabouts<'a>(names: &'a [NodeName; 4], places: &[(usize, &[usize])]) -> Whereabouts<'a> {
        let all = || names.iter().enumerate().map(|(index, name)| (name, at(index + 1)));
        Whereabouts {
            places: places
                .iter()
                .map(|(logical, machines)| {
                    (&names[*logical], machines.iter().map(|machine| &names[*machine]).collect())
                })
                .collect(),
            listeners: Vec::new(),
            known: all().collect(),
            machines: all().collect(),
        }
    }

    #[test]
    fn nothing_is_said_of_what_has_not_moved() {
        let names = names();
        let mut all = whereabouts(&names, &[(0, &[0]), (1, &[1])]);
        all.listeners.push((&names[0], &names[0], listener("0.0.0.0:7600", "0.0.0.0:7600")));
        assert_eq!(all.addresses(), AddressMap::default());
        // A guest's port that gave way.
        all.listeners.push((&names[0], &names[0], listener("0.0.0.0:7700", "0.0.0.0:40000")));
        let addresses = all.addresses();
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
        let mut all = Vec::new();
        note(&mut all, one, vec![first]);
        note(&mut all, other, vec![later]);
        note(&mut all, one, vec![more, first]);
        assert_eq!(all, [(one, first), (other, later), (one, more)]);
        note(&mut all, other, Vec::new());
        assert_eq!(all, [(one, first), (one, more)]);
    }

    #[test]
    fn guests_of_one_machine_have_ports_of_their_own() {
        let names = names();
        let all = whereabouts(&names, &[(0, &[0]), (1, &[0, 1]), (2, &[0, 1]), (3, &[0])]);
        let addresses = all.addresses();
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
    }

    #[test]
    fn a_machine_that_has_another_address_now_is_not_home() {
        let names = names();
        let mut all = whereabouts(&names, &[(0, &[0])]);
        all.known.insert(&names[0], at(9));
        let addresses = all.addresses();
        assert_eq!(addresses.nodes[0].addresses, at(9));
        assert_eq!(addresses.nodes[0].places[0].addresses, at(1));
        assert!(addresses.nodes[0].places[0].source.is_some());
    }
}
