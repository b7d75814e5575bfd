//! Which ends belong together: sockets by their addresses, relays by their ids.

use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{OuterSocket, RelaySide};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A socket whose peer is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// The new instance that has it.
    pub(super) instance: InstanceId,
    /// The machine on which its image was taken: what a loopback address means depends on it.
    pub(super) machine: NodeName,
    pub(super) socket: OuterSocket,
}

type Address = (IpAddr, u16);

/// An IPv4 address that a socket for both families has is the same as in one for IPv4 alone.
fn canonical(address: SocketAddr) -> Address {
    (address.ip().to_canonical(), address.port())
}

/// Pairs of indices whose addresses are each other's. On the same machine is looked first; a
/// loopback address is nobody else's.
pub(super) fn sockets(ends: &[End]) -> Vec<(usize, usize)> {
    let mut waiting: BTreeMap<(Address, Address), Vec<usize>> = BTreeMap::new();
    for (index, end) in ends.iter().enumerate() {
        let key = (canonical(end.socket.local), canonical(end.socket.peer));
        waiting.entry(key).or_default().push(index);
    }
    let mut paired = vec![false; ends.len()];
    let mut pairs = Vec::new();
    for near in [true, false] {
        for (index, end) in ends.iter().enumerate() {
            let (local, peer) = (canonical(end.socket.local), canonical(end.socket.peer));
            let loopback = local.0.is_loopback() || peer.0.is_loopback();
            if paired[index] || local == peer || (!near && loopback) {
                continue;
            }
            let candidates = waiting.get(&(peer, local)).map_or(&[][..], Vec::as_slice);
            let other = candidates.iter().copied().find(|other| {
                !paired[*other] && *other != index && (!near || ends[*other].machine == end.machine)
            });
            if let Some(other) = other {
                paired[index] = true;
                paired[other] = true;
                pairs.push((index.min(other), index.max(other)));
            }
        }
    }
    pairs
}

/// A side of a relay, and the instance that has it.
pub(super) type Side = (InstanceId, RelaySide);

/// The two sides of every relay that has both: ((instance, side), (instance, side)).
pub(super) fn relays(sides: &BTreeMap<InstanceId, Vec<RelaySide>>) -> Vec<(Side, Side)> {
    let mut first: BTreeMap<&str, (InstanceId, &RelaySide)> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (instance, of) in sides {
        for side in of {
            match first.get(side.relay.as_str()) {
                Some((other, known)) if known.side != side.side => {
                    pairs.push(((*other, (*known).clone()), (*instance, side.clone())));
                }
                Some(_) => {}
                None => {
                    first.insert(&side.relay, (*instance, side));
                }
            }
        }
    }
    pairs
}

/// The sides that belong to none of these pairs.
pub(super) fn lonely(
    sides: &BTreeMap<InstanceId, Vec<RelaySide>>,
    pairs: &[(Side, Side)],
) -> Vec<Side> {
    let paired: BTreeSet<(InstanceId, &RelaySide)> =
        pairs.iter().flat_map(|(one, other)| [(one.0, &one.1), (other.0, &other.1)]).collect();
    sides
        .iter()
        .flat_map(|(instance, of)| of.iter().map(|side| (*instance, side)))
        .filter(|side| !paired.contains(side))
        .map(|(instance, side)| (instance, side.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(instance: u32, machine: &str, file: u32, local: &str, peer: &str) -> End {
        End {
            instance: InstanceId(instance),
            machine: machine.parse().unwrap(),
            socket: OuterSocket {
                file,
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            },
        }
    }

    #[test]
    fn ends_find_each_other() {
        let ends = [
            end(1, "a", 1, "10.0.0.1:5000", "10.0.0.2:1024"),
            end(2, "b", 1, "127.0.0.1:40000", "127.0.0.1:1024"),
            end(3, "b", 7, "[::ffff:10.0.0.2]:1024", "[::ffff:10.0.0.1]:5000"),
            end(4, "c", 3, "127.0.0.1:1024", "127.0.0.1:40000"),
            end(5, "b", 3, "127.0.0.1:1024", "127.0.0.1:40000"),
            end(6, "b", 9, "192.0.2.1:80", "10.0.0.2:9"),
        ];
        let mut pairs = sockets(&ends);
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 2), (1, 4)]);
    }

    #[test]
    fn an_address_that_two_machines_have_is_looked_for_at_home_first() {
        let ends = [
            end(1, "a", 1, "172.17.0.1:5000", "172.17.0.1:80"),
            end(2, "b", 1, "172.17.0.1:80", "172.17.0.1:5000"),
            end(3, "b", 2, "172.17.0.1:5000", "172.17.0.1:80"),
            end(4, "a", 2, "172.17.0.1:80", "172.17.0.1:5000"),
        ];
        let mut pairs = sockets(&ends);
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 3), (1, 2)]);
    }

    #[test]
    fn a_relay_needs_both_sides() {
        let side = |relay: &str, side| RelaySide { relay: relay.to_owned(), side };
        let sides = BTreeMap::from([
            (InstanceId(1), vec![side("x", 0), side("y", 0)]),
            (InstanceId(2), vec![side("x", 1), side("z", 1)]),
            (InstanceId(3), vec![side("y", 0)]),
        ]);
        let pairs = relays(&sides);
        assert_eq!(pairs, [((InstanceId(1), side("x", 0)), (InstanceId(2), side("x", 1)))]);
        let lonely = lonely(&sides, &pairs);
        let expected = [(1, side("y", 0)), (2, side("z", 1)), (3, side("y", 0))];
        assert_eq!(lonely, expected.map(|(instance, side)| (InstanceId(instance), side)));
    }
}
