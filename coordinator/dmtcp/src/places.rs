//! Where the images of a checkpoint are kept, and where they are restarted. Pure.

use super::machine::Image;
use protocol::cluster::NodeName;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A node whose agent is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node's name in the cluster.
    pub name: NodeName,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is the coordinator's own machine.
    pub is_here: bool,
}

impl Member {
    fn is_at(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || (self.is_here && address.is_loopback())
    }
}

/// The images of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The node that takes them in.
    pub node: NodeName,
    /// Which, by their place in the checkpoint.
    pub images: Vec<usize>,
    /// Nodes that may get a copy, in order of preference.
    pub partners: Vec<NodeName>,
}

/// Where a checkpoint is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// By agents.
    pub kept: Vec<Share>,
    /// On machines without an agent.
    pub left: Vec<usize>,
}

/// Shares the images of a checkpoint out: each machine's go to its own agent, known by the address from which the
/// processes were connected.
#[must_use]
pub fn shares(images: &[Image], members: &[Member]) -> Shares {
    let mut shares = Shares::default();
    let mut at: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, image) in images.iter().enumerate() {
        let remote = IpAddr::V4(image.remote);
        match members.iter().position(|member| member.is_at(remote)) {
            Some(member) => at.entry(member).or_default().push(index),
            None => shares.left.push(index),
        }
    }
    for (member, images) in at {
        // Each has another one first, so that no node gets all copies.
        let others = (1..members.len()).map(|step| (member + step) % members.len());
        shares.kept.push(Share {
            node: members[member].name.clone(),
            images,
            partners: others.map(|other| members[other].name.clone()).collect(),
        });
    }
    shares
}

/// What is kept of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptShare {
    /// The machine's number in the job.
    pub instance: u32,
    /// Its node at the checkpoint.
    pub node: NodeName,
    /// Nodes that hold its images.
    pub holders: Vec<NodeName>,
}

/// Where each machine's processes are restarted: on their own node, else on the one among the holders that has the fewest. DMTCP
/// can't split the processes of one machine.
///
/// # Errors
/// The node whose images nobody holds who is there.
pub fn placement(
    shares: &[KeptShare],
    there: &[NodeName],
) -> Result<Vec<(u32, NodeName)>, NodeName> {
    let mut given: BTreeMap<&NodeName, usize> = BTreeMap::new();
    let mut placed = Vec::new();
    let (home, moved): (Vec<_>, Vec<_>) =
        shares.iter().partition(|share| there.contains(&share.node));
    for share in home {
        *given.entry(&share.node).or_default() += 1;
        placed.push((share.instance, share.node.clone()));
    }
    for share in moved {
        let holders = share.holders.iter().filter(|holder| there.contains(holder));
        let fewest = holders.min_by_key(|holder| given.get(holder).copied().unwrap_or(0));
        let node = fewest.ok_or_else(|| share.node.clone())?;
        *given.entry(node).or_default() += 1;
        placed.push((share.instance, node.clone()));
    }
    placed.sort();
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Identity, ImageName};
    use std::net::Ipv4Addr;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn member(number: u8) -> Member {
        Member {
            name: node(&format!("n{number}")),
            addresses: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))],
            is_here: number == 1,
        }
    }

    fn image(remote: Ipv4Addr) -> Image {
        Image {
            name: ImageName {
                host: String::new(),
                shell: String::new(),
                path: "/c/a.dmtcp".into(),
            },
            identity: Identity::default(),
            program: "p".into(),
            remote,
            owner: None,
        }
    }

    #[test]
    fn each_machine_keeps_its_own_and_strangers_are_left() {
        let at = |number| image(Ipv4Addr::new(10, 0, 0, number));
        let images = [at(2), at(9), image(Ipv4Addr::LOCALHOST), at(2), at(3)];
        let shares = shares(&images, &[member(1), member(2), member(3)]);
        assert_eq!(shares.left, [1]);
        let found: Vec<(&str, &[usize], &str)> = shares
            .kept
            .iter()
            .map(|share| (share.node.as_str(), share.images.as_slice(), share.partners[0].as_str()))
            .collect();
        assert_eq!(found, [("n1", &[2][..], "n2"), ("n2", &[0, 3], "n3"), ("n3", &[4], "n1")]);
        assert_eq!(super::shares(&images, &[]).left.len(), 5);
        let alone = super::shares(&images[..1], &[member(2)]);
        assert!(alone.kept[0].partners.is_empty() && alone.left.is_empty());
    }

    #[test]
    fn the_lost_go_where_copies_are_and_not_all_to_one() {
        let share = |instance, home: &str, holders: &[&str]| KeptShare {
            instance,
            node: node(home),
            holders: holders.iter().map(|holder| node(holder)).collect(),
        };
        let all = [
            share(1, "n1", &["n1", "n2"]),
            share(2, "n2", &["n2", "n3", "n1"]),
            share(3, "n4", &["n4", "n3", "n1"]),
        ];
        let there = [node("n1"), node("n3")];
        let placed = placement(&all, &there).unwrap();
        assert_eq!(placed, [(1, node("n1")), (2, node("n3")), (3, node("n3"))]);
        assert_eq!(placement(&all, &[node("n3")]), Err(node("n1")));
    }
}
