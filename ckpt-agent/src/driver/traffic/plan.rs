//! What is encrypted, and what is not: a pure function of who is a member and where.
//!
//! A member says itself which addresses it has. So that nobody draws others' traffic to itself, an address belongs to the
//! member whose agent is reached there, before all who only say that they have it, too; one that several claim alike
//! belongs to none, and what is sent there goes nowhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use ckpt_engine::sys::rtnetlink::{Family, Match, Rule, Transport, Verdict};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{JobTraffic, Peer};

/// Whose rules and routes they are, as the kernel notes it (rtm_protocol): a number that nobody else has.
pub const OWNER: u8 = 199;
/// The table of routes.
pub const TABLE: u32 = 17070;
/// Rules for what stays as it is lead over those that lead into the table.
const CLEAR: u32 = 17070;
const ENCRYPTED: u32 = 17071;
const BEHIND: u32 = 17072;

/// What this machine is.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its name.
    pub name: NodeName,
    /// Where its agent is reached.
    pub address: SocketAddr,
    /// All its addresses.
    pub addresses: Vec<IpAddr>,
    /// Where the coordinator is looked for, HOST:PORT.
    pub coordinators: Vec<String>,
    /// Ports that the operator leaves as they are.
    pub clear_ports: BTreeSet<u16>,
}

/// Who has which address, and what may come from there.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// By address, the member to whom packets for it go, and from whom packets of it come.
    pub members: HashMap<IpAddr, NodeName>,
    /// This machine's addresses.
    pub own: HashSet<IpAddr>,
    /// Ports here for which no packet comes.
    pub closed: HashSet<u16>,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// For the packets themselves.
    pub table: Table,
    /// Addresses to which nothing goes unencrypted, and from which address, if the sender has chosen none.
    pub routed: BTreeMap<IpAddr, Option<IpAddr>>,
    /// Rules for the kernel.
    pub rules: BTreeSet<Rule>,
    /// How members encrypt.
    pub offers: BTreeMap<NodeName, (SocketAddr, JobTraffic)>,
}

/// Plans. `kept`: addresses to which nothing goes unencrypted, whoever has them.
#[must_use]
pub fn plan(own: &Own, peers: &[Peer], kept: &BTreeSet<IpAddr>) -> Plan {
    let owners = owners(own, peers);
    let local: Vec<IpAddr> = own.addresses.iter().map(IpAddr::to_canonical).collect();
    let addresses = owners.keys().chain(kept).filter(|address| !local.contains(address));
    let routed = addresses.map(|address| (*address, source(*address, &local))).collect();
    let members = owners.into_iter().filter_map(|(address, owner)| Some((address, owner?)));
    let encrypting = peers.iter().filter(|peer| peer.name != own.name);
    let offers =
        encrypting.filter_map(|peer| Some((peer.name.clone(), (peer.address, peer.job_traffic?))));
    Plan {
        table: Table {
            members: members.collect(),
            own: local.iter().copied().collect(),
            closed: closed(own, &local),
        },
        routed,
        rules: rules(own, peers, &local),
        offers: offers.collect(),
    }
}

/// By address, the member that has it; None: several say so.
fn owners(own: &Own, peers: &[Peer]) -> BTreeMap<IpAddr, Option<NodeName>> {
    let others = || peers.iter().filter(|peer| peer.name != own.name);
    let first = |peer: &Peer| peer.address.ip().to_canonical();
    let mut owners = BTreeMap::new();
    let claim = |owners: &mut BTreeMap<IpAddr, Option<NodeName>>, address, peer: &Peer| {
        let same = |owner: &Option<NodeName>| owner.as_ref() == Some(&peer.name);
        let owner = owners.entry(address).or_insert_with(|| Some(peer.name.clone()));
        if !same(owner) {
            *owner = None;
        }
    };
    for peer in others().filter(|peer| peer.job_traffic.is_some()) {
        claim(&mut owners, first(peer), peer);
    }
    let reached: HashSet<IpAddr> = others().map(first).collect();
    for peer in others().filter(|peer| peer.job_traffic.is_some()) {
        let more = peer.addresses.iter().map(IpAddr::to_canonical);
        for address in more.filter(|address| !reached.contains(address)) {
            claim(&mut owners, address, peer);
        }
    }
    let clear: HashSet<IpAddr> =
        others().filter(|peer| peer.job_traffic.is_none()).map(first).collect();
    let local: HashSet<IpAddr> = own.addresses.iter().map(IpAddr::to_canonical).collect();
    owners.retain(|address, _| {
        is_single(*address) && !clear.contains(address) && !local.contains(address)
    });
    owners
}

/// Whether it can be the address of one machine, known by it to others.
fn is_single(address: IpAddr) -> bool {
    let common = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let of_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        // fe80::/10
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    !common && !of_link
}

/// Of the own addresses, that with most in common with another one: one of the same network, if there is one.
fn source(to: IpAddr, own: &[IpAddr]) -> Option<IpAddr> {
    let common = |address: &IpAddr| match (address, to) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        _ => None,
    };
    // The first one of several.
    own.iter().rev().filter(|address| common(address).is_some()).max_by_key(|a| common(a)).copied()
}

/// Ports here for which nothing comes from members.
fn closed(own: &Own, local: &[IpAddr]) -> HashSet<u16> {
    let mut ports: HashSet<u16> = own.clear_ports.iter().copied().collect();
    ports.insert(own.address.port());
    ports.extend(own.coordinators.iter().filter_map(|at| is_here(at, local)));
    ports
}

/// The coordinator's port, if that is on this machine.
fn is_here(coordinator: &str, local: &[IpAddr]) -> Option<u16> {
    let at: SocketAddr = coordinator.parse().ok()?;
    let ip = at.ip().to_canonical();
    (ip.is_loopback() || local.contains(&ip)).then(|| at.port())
}

fn rules(own: &Own, peers: &[Peer], local: &[IpAddr]) -> BTreeSet<Rule> {
    let rule = |family, priority, of, verdict| Rule { family, priority, owner: OWNER, of, verdict };
    let mut clear: Vec<Match> = Vec::new();
    for port in &own.clear_ports {
        for transport in Transport::ALL {
            clear.extend([Match::To(transport, *port, None), Match::From(transport, *port)]);
        }
    }
    clear.push(Match::From(Transport::Tcp, own.address.port()));
    let encrypting =
        peers.iter().filter(|peer| peer.name != own.name && peer.job_traffic.is_some());
    for address in encrypting.map(|peer| peer.address) {
        let ip = address.ip().to_canonical();
        clear.push(Match::To(Transport::Tcp, address.port(), Some(ip)));
    }
    for at in &own.coordinators {
        clear.extend(coordinator(at));
        clear.extend(is_here(at, local).map(|port| Match::From(Transport::Tcp, port)));
    }
    let mut rules = BTreeSet::new();
    for family in Family::ALL {
        let fits = |of: &&Match| match of {
            Match::To(_, _, Some(ip)) => Family::of(*ip) == family,
            _ => true,
        };
        let clear = clear.iter().filter(fits);
        rules.extend(clear.map(|of| rule(family, CLEAR, *of, Verdict::Goto(BEHIND))));
        for transport in Transport::ALL {
            let of = Match::Transport(transport);
            rules.insert(rule(family, ENCRYPTED, of, Verdict::Table(TABLE)));
        }
        let any = Match::Transport(Transport::Tcp);
        rules.insert(rule(family, BEHIND, any, Verdict::Next));
    }
    rules
}

/// The way to a coordinator; by its port alone, where a name stands for its address.
fn coordinator(at: &str) -> Option<Match> {
    match at.parse::<SocketAddr>() {
        Ok(at) => Some(Match::To(Transport::Tcp, at.port(), Some(at.ip().to_canonical()))),
        Err(_) => Some(Match::To(Transport::Tcp, at.rsplit_once(':')?.1.parse().ok()?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::transport::Fingerprint;

    fn own() -> Own {
        Own {
            name: "own".parse().unwrap(),
            address: "10.0.0.1:17070".parse().unwrap(),
            addresses: ["10.0.0.1", "192.168.5.1", "fd00::1"].map(|ip| ip.parse().unwrap()).into(),
            coordinators: vec!["10.0.0.9:7070".to_owned(), "head.example:7071".to_owned()],
            clear_ports: BTreeSet::from([22]),
        }
    }

    fn peer(name: &str, address: &str, traffic: Option<u16>, addresses: &[&str]) -> Peer {
        Peer {
            name: name.parse().unwrap(),
            address: address.parse().unwrap(),
            key: Fingerprint::default(),
            job_traffic: traffic.map(|port| JobTraffic { port }),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    fn owner(plan: &Plan, address: &str) -> Option<String> {
        plan.table.members.get(&address.parse().unwrap()).map(ToString::to_string)
    }

    fn is_routed(plan: &Plan, address: &str) -> bool {
        plan.routed.contains_key(&address.parse().unwrap())
    }

    #[test]
    fn all_addresses_of_those_who_encrypt_are_routed_and_no_others() {
        let peers = [
            peer("own", "10.0.0.1:17070", Some(1), &["10.0.0.1"]),
            peer("a", "10.0.0.2:17070", Some(2), &["10.0.0.2", "192.168.5.2", "fd00::2"]),
            peer("b", "10.0.0.3:17070", None, &[]),
        ];
        let plan = plan(&own(), &peers, &BTreeSet::new());
        let routed: Vec<String> = plan.routed.keys().map(ToString::to_string).collect();
        assert_eq!(routed, ["10.0.0.2", "192.168.5.2", "fd00::2"]);
        let from = |to: &str| plan.routed[&to.parse().unwrap()].unwrap().to_string();
        assert_eq!(from("10.0.0.2"), "10.0.0.1");
        assert_eq!(from("192.168.5.2"), "192.168.5.1");
        assert_eq!(from("fd00::2"), "fd00::1");
        assert_eq!(owner(&plan, "192.168.5.2").as_deref(), Some("a"));
        assert_eq!(plan.offers.len(), 1);
    }

    #[test]
    fn nobody_draws_to_itself_what_is_sent_to_others() {
        let everything = &["10.0.0.2", "10.0.0.3", "10.0.0.1", "127.0.0.1", "224.0.0.1", "8.8.8.8"];
        let peers = [
            peer("a", "10.0.0.2:17070", Some(2), &["10.0.0.2", "8.8.8.8"]),
            peer("clear", "10.0.0.3:17070", None, &[]),
            peer("bad", "10.0.0.4:17070", Some(3), everything),
        ];
        let plan = plan(&own(), &peers, &BTreeSet::new());
        assert_eq!(owner(&plan, "10.0.0.2").as_deref(), Some("a"));
        assert!(!is_routed(&plan, "10.0.0.3") && !is_routed(&plan, "10.0.0.1"));
        assert!(!is_routed(&plan, "127.0.0.1") && !is_routed(&plan, "224.0.0.1"));
        // Two say so: it goes nowhere.
        assert!(is_routed(&plan, "8.8.8.8") && owner(&plan, "8.8.8.8").is_none());
        // Nor does anything by the address of the agent itself.
        let peers = [peers[0].clone(), peer("bad", "10.0.0.2:1", Some(3), &[])];
        let plan = super::plan(&own(), &peers, &BTreeSet::new());
        assert!(is_routed(&plan, "10.0.0.2") && owner(&plan, "10.0.0.2").is_none());
    }

    #[test]
    fn addresses_that_are_kept_stay_routed_without_a_member() {
        let kept = BTreeSet::from(["10.0.0.7".parse().unwrap(), "10.0.0.1".parse().unwrap()]);
        let plan = plan(&own(), &[], &kept);
        assert!(is_routed(&plan, "10.0.0.7") && !is_routed(&plan, "10.0.0.1"));
        assert!(plan.table.members.is_empty());
    }

    #[test]
    fn own_ports_stay_as_they_are() {
        let peers = [peer("a", "10.0.0.2:5000", Some(2), &[])];
        let found = plan(&own(), &peers, &BTreeSet::new());
        let leads = |of: Match| {
            found.rules.iter().any(|rule| rule.of == of && rule.verdict == Verdict::Goto(BEHIND))
        };
        let ip = |text: &str| Some(text.parse().unwrap());
        assert!(leads(Match::To(Transport::Tcp, 5000, ip("10.0.0.2"))));
        assert!(leads(Match::To(Transport::Tcp, 7070, ip("10.0.0.9"))));
        assert!(leads(Match::To(Transport::Tcp, 7071, None)));
        assert!(
            leads(Match::From(Transport::Tcp, 17070)) && leads(Match::From(Transport::Udp, 22))
        );
        assert!(!leads(Match::From(Transport::Tcp, 7070)));
        assert_eq!(found.table.closed, HashSet::from([22, 17070]));
        // With the coordinator on this machine.
        let own = Own { coordinators: vec!["10.0.0.1:7070".to_owned()], ..own() };
        let found = plan(&own, &peers, &BTreeSet::new());
        assert!(found.rules.iter().any(|rule| rule.of == Match::From(Transport::Tcp, 7070)));
        assert!(found.table.closed.contains(&7070));
    }
}
