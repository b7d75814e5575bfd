//! Which address is where, as one instance sees it.

use std::net::{IpAddr, SocketAddr};

use protocol::cluster::NodeName;
use protocol::cluster::addresses::{AddressMap, KnownListener, LogicalAddresses, Place, PortRange};
use protocol::cluster::agent::MovedListener;

use super::sockaddr::canonical;

/// Where a process that connects to an address is to be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dial {
    /// To that address.
    AsAsked,
    /// To another one.
    To(SocketAddr),
    /// It is not known yet which of several machines has that listener; to this one, where nobody says.
    Unsure(SocketAddr),
}

/// The address address map, and whose eyes read it.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    nodes: Vec<LogicalAddresses>,
    logical: String,
    machine: String,
}

/// Where an instance is that has moved.
#[derive(Debug, Clone, Copy)]
pub struct Away<'b> {
    node: &'b LogicalAddresses,
    place: &'b Place,
    /// The ports that it connects from.
    pub source: PortRange,
}

impl Addresses {
    /// As an instance of that logical node on that machine sees it.
    pub fn new(addresses: AddressMap, logical: &str, machine: &NodeName) -> Self {
        Self {
            nodes: addresses.nodes.to_vec(),
            logical: logical.to_owned(),
            machine: machine.as_str().to_owned(),
        }
    }

    /// Whether every address is what it says.
    pub fn is_quiet(&self) -> bool {
        self.nodes.is_empty()
    }

    fn own(&self) -> Option<&LogicalAddresses> {
        self.nodes.iter().find(|node| node.name.as_str() == self.logical)
    }

    /// `None`: this instance is on its logical node's own machine.
    pub fn away(&self) -> Option<Away<'_>> {
        let node = self.own()?;
        let place = node.places.iter().find(|place| place.machine.as_str() == self.machine)?;
        Some(Away { node, place, source: place.source? })
    }

    /// Whether several machines have instances of the own logical node.
    pub fn is_split(&self) -> bool {
        self.own().is_some_and(|node| node.places.len() > 1)
    }

    /// Where to connect to.
    pub fn dial(&self, asked: SocketAddr) -> Dial {
        let asked = canonical(asked);
        if asked.ip().is_loopback() || asked.ip().is_unspecified() {
            return self.dial_loopback(asked);
        }
        for node in self.nodes.iter().filter(|node| knows(&node.addresses, asked.ip())) {
            // One of the own family comes first, as in the kernel.
            let found = [true, false].into_iter().find_map(|same| {
                let mut known = node.listeners.iter().rev().filter(|listener| {
                    same == (canonical(listener.logical).is_ipv4() == asked.is_ipv4())
                });
                known.find_map(|listener| {
                    reaches(listener, listener.logical, asked)
                        .then(|| reach(node, listener, asked))?
                })
            });
            if let Some(to) = found {
                return as_asked_or(asked, to);
            }
        }
        // A process that began after a move may have published the machine's own address.
        let has_plain = self.nodes.iter().any(|node| {
            let here = |listener: &&KnownListener| {
                node.places.iter().any(|place| {
                    place.machine == listener.machine && knows(&place.addresses, asked.ip())
                })
            };
            node.listeners.iter().filter(here).any(|listener| {
                listener.logical.port() == listener.actual.port()
                    && reaches(listener, listener.actual, asked)
            })
        });
        if has_plain {
            return Dial::AsAsked;
        }
        let Some(node) = self.nodes.iter().find(|node| knows(&node.addresses, asked.ip())) else {
            return Dial::AsAsked;
        };
        let to = |place: &Place| {
            nearest(&place.addresses, asked.ip()).map(|ip| SocketAddr::new(ip, asked.port()))
        };
        let own = node.places.iter().find(|place| place.source.is_none());
        match own.or(node.places.first()).and_then(to) {
            None => Dial::AsAsked,
            Some(to) if node.places.len() > 1 => Dial::Unsure(to),
            Some(to) => as_asked_or(asked, to),
        }
    }

    /// The loopback is the machine's: of the own logical node, what is on this machine is reached.
    fn dial_loopback(&self, asked: SocketAddr) -> Dial {
        let moved = self.own().and_then(|node| {
            node.listeners.iter().rev().find(|listener| {
                let ip = listener.logical.ip().to_canonical();
                listener.machine.as_str() == self.machine
                    && listener.logical.port() == asked.port()
                    && (ip.is_unspecified() || ip.is_loopback())
            })
        });
        match moved.map(|listener| listener.actual.port()) {
            Some(port) if port != asked.port() => Dial::To(SocketAddr::new(asked.ip(), port)),
            _ => Dial::AsAsked,
        }
    }

    /// As whom a connection that comes from this address is known. `None`: by this address.
    pub fn caller(&self, from: SocketAddr) -> Option<SocketAddr> {
        let from = canonical(from);
        self.nodes.iter().find_map(|node| {
            let here = node.places.iter().any(|place| {
                place.source.is_some_and(|source| source.contains(from.port()))
                    && knows(&place.addresses, from.ip())
            });
            let ip = nearest(&node.addresses, from.ip()).filter(|_| here)?;
            Some(SocketAddr::new(ip, from.port()))
        })
    }

    /// By which address a socket of this instance is known that has this one. `None`: by this one.
    pub fn own_address(&self, local: SocketAddr) -> Option<SocketAddr> {
        let local = canonical(local);
        let port = self.own().and_then(|node| {
            let moved = node.listeners.iter().rev().find(|listener| {
                listener.machine.as_str() == self.machine
                    && listener.actual.port() == local.port()
                    && listener.logical.port() != local.port()
            });
            moved.map(|listener| listener.logical.port())
        });
        let ip = self.away().and_then(|away| {
            let there = knows(&away.place.addresses, local.ip());
            nearest(&away.node.addresses, local.ip()).filter(|_| there)
        });
        let known = SocketAddr::new(ip.unwrap_or(local.ip()), port.unwrap_or(local.port()));
        (known != local).then_some(known)
    }

    /// Where the own logical node has a listener at this address: it is taken, although it may be free here. Of
    /// another machine's `None`, of this one's the port that it has here.
    pub fn holders(&self, asked: SocketAddr) -> impl Iterator<Item = Option<u16>> {
        let asked = canonical(asked);
        let listeners = self.own().map_or(&[][..], |node| node.listeners.as_slice());
        listeners.iter().filter_map(move |listener| {
            let logical = canonical(listener.logical);
            let same = logical.port() == asked.port()
                && logical.is_ipv4() == asked.is_ipv4()
                && (logical.ip() == asked.ip()
                    || logical.ip().is_unspecified()
                    || asked.ip().is_unspecified());
            let here = listener.machine.as_str() == self.machine;
            let loopback = logical.ip().is_loopback() || asked.ip().is_loopback();
            (same && (here || !loopback)).then_some(here.then_some(listener.actual.port()))
        })
    }

    /// Whether nobody of the own logical node has said before this socket's owner that a port is its. Of those on this
    /// machine `is_bound` tells by their ports who still has it. `None`: it is not known yet.
    pub fn is_first(&self, claim: MovedListener, is_bound: impl Fn(u16) -> bool) -> Option<bool> {
        let all = self.own().map_or(&[][..], |node| node.listeners.as_slice());
        let at = all.iter().position(|known| self.is_own(known, claim))?;
        let before = Self {
            nodes: vec![LogicalAddresses {
                listeners: all.get(..at)?.to_vec(),
                ..self.own()?.clone()
            }],
            ..self.clone()
        };
        let mut holders = before.holders(claim.logical);
        Some(!holders.any(|here| here.is_none_or(&is_bound)))
    }

    /// Whether a port of this machine is held by a logical node that has come here, or that has given way to one,
    /// and that is known by another address.
    pub fn is_guests_port(&self, port: u16) -> bool {
        self.nodes.iter().filter(|node| node.name.as_str() != self.logical).any(|node| {
            node.listeners.iter().any(|listener| {
                listener.machine.as_str() == self.machine
                    && listener.actual.port() == port
                    && !listener.plain
            })
        })
    }

    /// Whether a listener of the machine's own logical node, which has given way to a guest, is known by that port.
    pub fn is_name_of_home(&self, port: u16) -> bool {
        self.nodes.iter().filter(|node| node.name.as_str() == self.machine).any(|node| {
            node.listeners.iter().any(|listener| {
                listener.machine.as_str() == self.machine
                    && listener.logical.port() == port
                    && listener.actual.port() != port
            })
        })
    }

    /// Whether others know of a listener of the own logical node on this machine.
    pub fn has(&self, listener: MovedListener) -> bool {
        self.own()
            .is_some_and(|node| node.listeners.iter().any(|known| self.is_own(known, listener)))
    }

    fn is_own(&self, known: &KnownListener, listener: MovedListener) -> bool {
        known.machine.as_str() == self.machine
            && known.logical == listener.logical
            && known.actual == listener.actual
    }
}

impl Away<'_> {
    /// The machine's address in the place of one that the logical node has and the machine has not.
    pub fn here(self, asked: IpAddr) -> Option<IpAddr> {
        let asked = asked.to_canonical();
        let moved = knows(&self.node.addresses, asked) && !knows(&self.place.addresses, asked);
        nearest(&self.place.addresses, asked).filter(|_| moved)
    }

    /// The logical node's address in the place of one that the machine has and it has not.
    pub fn known_as(self, found: IpAddr) -> Option<IpAddr> {
        nearest(&self.node.addresses, found).filter(|_| self.is_machines_own(found))
    }

    /// Whether this is an address of the machine that the logical node has not.
    pub fn is_machines_own(self, asked: IpAddr) -> bool {
        let asked = asked.to_canonical();
        knows(&self.place.addresses, asked) && !knows(&self.node.addresses, asked)
    }
}

fn as_asked_or(asked: SocketAddr, to: SocketAddr) -> Dial {
    if to == asked { Dial::AsAsked } else { Dial::To(to) }
}

fn knows(addresses: &[IpAddr], ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    addresses.iter().any(|known| known.to_canonical() == ip)
}

/// Whether a listener that is at `at` accepts connections to `asked`, an address of its machine or logical node.
fn reaches(listener: &KnownListener, at: SocketAddr, asked: SocketAddr) -> bool {
    let at = canonical(at);
    let any = at.ip().is_unspecified()
        && (at.is_ipv4() == asked.is_ipv4() || at.is_ipv6() && !listener.v6_only);
    at.port() == asked.port() && (any || at.ip() == asked.ip())
}

fn reach(
    node: &LogicalAddresses,
    listener: &KnownListener,
    asked: SocketAddr,
) -> Option<SocketAddr> {
    let actual = canonical(listener.actual);
    let ip = if actual.ip().is_unspecified() {
        let place = node.places.iter().find(|place| place.machine == listener.machine)?;
        nearest(&place.addresses, asked.ip())?
    } else {
        actual.ip()
    };
    Some(SocketAddr::new(ip, actual.port()))
}

/// Of the same family, the one that has most leading bits in common: of a machine in two networks, its address in
/// the right one.
fn nearest(addresses: &[IpAddr], like: IpAddr) -> Option<IpAddr> {
    let common = |ip: IpAddr| match (ip, like.to_canonical()) {
        (IpAddr::V4(ip), IpAddr::V4(like)) => Some((ip.to_bits() ^ like.to_bits()).leading_zeros()),
        (IpAddr::V6(ip), IpAddr::V6(like)) => Some((ip.to_bits() ^ like.to_bits()).leading_zeros()),
        _ => None,
    };
    addresses
        .iter()
        .map(|ip| ip.to_canonical())
        .filter_map(|ip| Some((common(ip)?, ip)))
        // Of equal ones the first.
        .rev()
        .max_by_key(|(common, _)| *common)
        .map(|(_, ip)| ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    fn place(machine: &str, number: u8, first: Option<u16>) -> Place {
        Place {
            machine: name(machine),
            addresses: [format!("10.0.0.{number}"), format!("fd00::{number}")]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            source: first.map(|first| PortRange { first, count: 100 }),
        }
    }

    fn listener(logical: &str, machine: &str, actual: &str) -> KnownListener {
        let (logical, actual) = (at(logical), at(actual));
        let v6_only = actual.port() == 43000;
        KnownListener { logical, machine: name(machine), actual, v6_only, plain: false }
    }

    /// node3 is on node1 and node2, node4 on node1.
    fn addresses(logical: &str, machine: &str) -> Addresses {
        let addresses = |number| place("x", number, None).addresses;
        let split = LogicalAddresses {
            name: name("node3"),
            addresses: addresses(3),
            places: vec![place("node1", 1, Some(21000)), place("node2", 2, Some(22000))],
            listeners: vec![
                listener("0.0.0.0:7600", "node1", "0.0.0.0:40000"),
                listener("[::]:7700", "node2", "[::]:7700"),
                listener("10.0.0.3:7800", "node2", "0.0.0.0:7800"),
                listener("0.0.0.0:7850", "node2", "0.0.0.0:42000"),
                listener("[::]:7860", "node2", "[::]:43000"),
                listener("[::]:7850", "node2", "[::]:43000"),
                listener("127.0.0.1:7900", "node1", "127.0.0.1:41000"),
            ],
        };
        let whole = LogicalAddresses {
            name: name("node4"),
            addresses: addresses(4),
            places: vec![place("node1", 1, Some(21100))],
            listeners: vec![listener("0.0.0.0:8000", "node1", "0.0.0.0:8000")],
        };
        Addresses::new(AddressMap { nodes: vec![split, whole].into() }, logical, &name(machine))
    }

    #[test]
    fn listeners_are_reached_where_they_are() {
        let addresses = addresses("node2", "node2");
        for (asked, to) in [
            ("10.0.0.3:7600", Dial::To(at("10.0.0.1:40000"))),
            ("[::ffff:10.0.0.3]:7600", Dial::To(at("10.0.0.1:40000"))),
            ("10.0.0.3:7700", Dial::To(at("10.0.0.2:7700"))),
            ("[fd00::3]:7700", Dial::To(at("[fd00::2]:7700"))),
            ("10.0.0.3:7800", Dial::To(at("10.0.0.2:7800"))),
            ("10.0.0.3:1", Dial::Unsure(at("10.0.0.1:1"))),
            ("[fd00::4]:1", Dial::To(at("[fd00::1]:1"))),
            ("10.0.0.2:7600", Dial::AsAsked),
            ("10.0.0.3:7850", Dial::To(at("10.0.0.2:42000"))),
            ("[fd00::3]:7850", Dial::To(at("[fd00::2]:43000"))),
            ("[fd00::3]:7860", Dial::To(at("[fd00::2]:43000"))),
            // A socket for IPv6 alone is not reached by IPv4.
            ("10.0.0.3:7860", Dial::Unsure(at("10.0.0.1:7860"))),
            ("10.0.0.1:7600", Dial::AsAsked),
            ("10.0.0.1:8000", Dial::AsAsked),
            ("192.0.2.1:7600", Dial::AsAsked),
            ("127.0.0.1:7900", Dial::AsAsked),
        ] {
            assert_eq!(addresses.dial(at(asked)), to, "{asked}");
        }
    }

    #[test]
    fn the_loopback_is_the_own_logical_nodes() {
        let near = addresses("node3", "node1");
        assert_eq!(near.dial(at("127.0.0.1:7900")), Dial::To(at("127.0.0.1:41000")));
        assert_eq!(near.dial(at("127.0.0.1:7600")), Dial::To(at("127.0.0.1:40000")));
        assert_eq!(near.dial(at("127.0.0.1:7700")), Dial::AsAsked);
        assert_eq!(addresses("node1", "node1").dial(at("127.0.0.1:7900")), Dial::AsAsked);
    }

    #[test]
    fn callers_are_known_by_their_ports() {
        let addresses = addresses("node1", "node1");
        assert_eq!(addresses.caller(at("10.0.0.1:21005")), Some(at("10.0.0.3:21005")));
        assert_eq!(addresses.caller(at("[fd00::2]:22099")), Some(at("[fd00::3]:22099")));
        assert_eq!(addresses.caller(at("[::ffff:10.0.0.1]:21100")), Some(at("10.0.0.4:21100")));
        assert_eq!(addresses.caller(at("10.0.0.2:21005")), None);
        assert_eq!(addresses.caller(at("10.0.0.1:40000")), None);
    }

    #[test]
    fn own_addresses_are_the_logical_nodes() {
        let moved = addresses("node3", "node1");
        assert_eq!(moved.own_address(at("10.0.0.1:5000")), Some(at("10.0.0.3:5000")));
        assert_eq!(moved.own_address(at("0.0.0.0:40000")), Some(at("0.0.0.0:7600")));
        assert_eq!(moved.own_address(at("127.0.0.1:5000")), None);
        assert_eq!(addresses("node1", "node1").own_address(at("10.0.0.1:5000")), None);
        let away = moved.away().unwrap();
        assert_eq!(away.here("10.0.0.3".parse().unwrap()), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(away.here("10.0.0.1".parse().unwrap()), None);
        assert!(away.is_machines_own("10.0.0.1".parse().unwrap()));
        assert_eq!(away.known_as("10.0.0.1".parse().unwrap()), Some("10.0.0.3".parse().unwrap()));
        assert_eq!(away.known_as("127.0.0.1".parse().unwrap()), None);
        assert!(addresses("node1", "node1").away().is_none());
    }

    #[test]
    fn a_port_that_another_part_has_is_taken() {
        let moved = addresses("node3", "node1");
        let holders = |asked| moved.holders(at(asked)).collect::<Vec<_>>();
        assert_eq!(holders("[::]:7700"), [None]);
        assert_eq!(holders("10.0.0.3:7800"), [None]);
        assert_eq!(holders("0.0.0.0:7600"), [Some(40000)]);
        for free in ["0.0.0.0:7700", "127.0.0.1:7850", "0.0.0.0:8000", "0.0.0.0:1"] {
            assert_eq!(holders(free), [], "{free}");
        }
        assert!(moved.is_guests_port(8000) && !moved.is_guests_port(40000));
    }

    #[test]
    fn ports_of_this_machine_that_mean_something_else() {
        let mut known = listener("0.0.0.0:1024", "node1", "0.0.0.0:1024");
        let mut nodes = addresses("node1", "node1").nodes;
        nodes[1].listeners.push(known.clone());
        let addresses = |nodes: &[LogicalAddresses]| Addresses {
            nodes: nodes.to_vec(),
            logical: "node1".to_owned(),
            machine: "node1".to_owned(),
        };
        assert!(addresses(&nodes).is_guests_port(1024));
        // One that is known by this machine's address has the port, and its name.
        known.plain = true;
        *nodes[1].listeners.last_mut().unwrap() = known;
        assert!(!addresses(&nodes).is_guests_port(1024));
        let home = LogicalAddresses {
            name: name("node1"),
            addresses: Vec::new(),
            places: Vec::new(),
            listeners: vec![listener("0.0.0.0:1025", "node1", "0.0.0.0:36031")],
        };
        nodes.push(home);
        let addresses = addresses(&nodes);
        assert!(addresses.is_name_of_home(1025) && !addresses.is_name_of_home(36031));
        assert!(!addresses.is_name_of_home(8000));
    }

    #[test]
    fn who_asks_first_has_a_port() {
        let claim = |actual: &str| MovedListener {
            logical: at("0.0.0.0:1024"),
            actual: at(actual),
            v6_only: false,
            plain: false,
        };
        let (one, other) = (claim("0.0.0.0:21001"), claim("0.0.0.0:22001"));
        let seen_by = |machine: &str, claims: &[(&str, MovedListener)]| {
            let mut addresses = addresses("node3", machine);
            let node =
                addresses.nodes.iter_mut().find(|node| node.name.as_str() == "node3").unwrap();
            node.listeners.extend(claims.iter().map(|(machine, claim)| KnownListener {
                logical: claim.logical,
                machine: name(machine),
                actual: claim.actual,
                v6_only: false,
                plain: false,
            }));
            addresses
        };
        let is_bound = |_| true;
        assert_eq!(seen_by("node1", &[]).is_first(one, is_bound), None);
        assert_eq!(seen_by("node1", &[("node1", one)]).is_first(one, is_bound), Some(true));
        let both = [("node1", one), ("node2", other)];
        assert_eq!(seen_by("node1", &both).is_first(one, is_bound), Some(true));
        assert_eq!(seen_by("node2", &both).is_first(other, is_bound), Some(false));
        // Two instances on one machine; the first one's socket is closed by then.
        let here = [("node1", one), ("node1", other)];
        assert_eq!(seen_by("node1", &here).is_first(other, is_bound), Some(false));
        assert_eq!(seen_by("node1", &here).is_first(other, |_| false), Some(true));
    }
}
