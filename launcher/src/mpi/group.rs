//! Groups of ranks: a node is told to the launcher as several hosts, so that each group has a daemon of its own. Ranks of
//! one daemon have shared memory, those of different daemons speak over the network, and nothing but that holds ranks
//! together.

use super::hosts::Host;
use protocol::cluster::NodeName;
use protocol::cluster::group::{VARIABLE, host_of, is_group};
use std::ffi::OsString;
use std::num::NonZeroU32;
use thiserror::Error;

/// Which ranks have memory in common, and so move together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// None, where the run time can do without.
    #[default]
    Apart,
    /// So many of a node's.
    Groups(NonZeroU32),
    /// All of a node's.
    Nodes,
}

/// Why there can be no groups.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GroupError {
    /// Nothing is to be placed.
    #[error(
        "--group is for jobs on a cluster, and this machine belongs to none: 'ckptd agent --join-file FILE' joins one"
    )]
    NoCluster,
    /// Another engine takes the checkpoints.
    #[error("--group is for the native engine: leave it or --engine dmtcp out")]
    Engine,
    /// Groups, and whole nodes.
    #[error(
        "--group N moves N ranks together, --placement node all of a node: leave one of them out"
    )]
    WholeNodes,
    /// There is no launcher that could be told its hosts.
    #[error(
        "--group tells mpirun or mpiexec its hosts, and {0} is neither, or of no run time that ckptd knows"
    )]
    NoLauncher(String),
    /// The launcher's hosts are the user's choice already.
    #[error(
        "--group names hosts to the launcher: leave yours out, of its options and of its environment"
    )]
    Hosts,
    /// Nothing would tell the two apart.
    #[error(
        "--group would give a host the name of node {0}: names of nodes must not end in '--' and a number then"
    )]
    Taken(String),
    /// A group's name would be none.
    #[error(
        "--group would give a host the name of node {0} with an ending, which is too long for a name"
    )]
    TooLong(String),
    /// They don't fit into an argument (execve(2), MAX_ARG_STRLEN).
    #[error("--group {0} makes more hosts than a launcher can be told of: choose larger groups")]
    TooMany(u64),
}

/// Bytes that all hosts may take, of the 128 KiB that Linux allows for one argument.
const MOST_TEXT: u64 = 120 << 10;
/// What a host takes beside its name: a colon, its slots and a comma.
const BESIDE_NAME: u64 = 8;

impl Sharing {
    /// As the command line has it, of a job on a cluster: whether whole nodes stay together.
    ///
    /// # Errors
    /// Both at once.
    pub fn of(group: Option<NonZeroU32>, whole_nodes: bool) -> Result<Self, GroupError> {
        match (group, whole_nodes) {
            (Some(_), true) => Err(GroupError::WholeNodes),
            (Some(size), false) => Ok(Self::Groups(size)),
            (None, true) => Ok(Self::Nodes),
            (None, false) => Ok(Self::Apart),
        }
    }

    /// Tells `ckptd rsh` whether hosts are groups, whatever a job around this one has told it.
    pub(super) fn tell(self, environment: &mut Vec<(OsString, OsString)>) {
        environment.retain(|(name, _)| name != VARIABLE);
        if let Self::Groups(size) = self {
            environment.push((VARIABLE.into(), size.to_string().into()));
        }
    }
}

/// A host for each group: as many whole groups as a node has slots for, and one of what is left.
pub(super) fn divide(nodes: &[Host], size: NonZeroU32) -> Result<Vec<Host>, GroupError> {
    if let Some(node) = nodes.iter().find(|node| is_group(&node.name)) {
        return Err(GroupError::Taken(node.name.clone()));
    }
    let size = u64::from(size.get());
    let mut hosts = Vec::new();
    let text = nodes.iter().map(|node| {
        let longest = host_of(&node.name, u32::MAX).len() as u64 + BESIDE_NAME;
        node.slots.div_ceil(size).saturating_mul(longest)
    });
    if text.fold(0, u64::saturating_add) > MOST_TEXT {
        return Err(GroupError::TooMany(size));
    }
    for node in nodes {
        let (mut left, mut number) = (node.slots, 1);
        while left > 0 {
            let slots = left.min(size);
            let name = host_of(&node.name, number);
            if name.parse::<NodeName>().is_err() {
                return Err(GroupError::TooLong(node.name.clone()));
            }
            hosts.push(Host { name, slots });
            left -= slots;
            number += 1;
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(nodes: &[(&str, u64)], size: u32) -> Result<String, GroupError> {
        let host = |(name, slots): &(&str, u64)| Host { name: (*name).into(), slots: *slots };
        let nodes: Vec<Host> = nodes.iter().map(host).collect();
        let hosts = divide(&nodes, NonZeroU32::new(size).unwrap())?;
        let hosts = hosts.iter().map(|host| format!("{}:{}", host.name, host.slots));
        Ok(hosts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_node_becomes_a_host_for_each_group() {
        let nodes = [("a", 4), ("b", 2)];
        assert_eq!(divided(&nodes, 2).unwrap(), "a:2 a--2:2 b:2");
        assert_eq!(divided(&nodes, 1).unwrap(), "a:1 a--2:1 a--3:1 a--4:1 b:1 b--2:1");
        assert_eq!(divided(&nodes, 3).unwrap(), "a:3 a--2:1 b:2", "what is left is a group, too");
        assert_eq!(divided(&nodes, 9).unwrap(), "a:4 b:2");
    }

    #[test]
    fn a_node_may_not_be_called_as_a_group_is() {
        let nodes = [("a", 4), ("a--2", 4)];
        assert_eq!(divided(&nodes, 2), Err(GroupError::Taken("a--2".into())));
    }

    #[test]
    fn groups_and_whole_nodes_exclude_each_other() {
        let two = NonZeroU32::new(2);
        assert_eq!(Sharing::of(two, true), Err(GroupError::WholeNodes));
        assert_eq!(Sharing::of(None, true), Ok(Sharing::Nodes));
        assert_eq!(Sharing::of(None, false), Ok(Sharing::Apart));
        let groups = Sharing::Groups(two.unwrap());
        assert_eq!(Sharing::of(two, false), Ok(groups));
        let mut environment = vec![(VARIABLE.into(), "7".into())];
        groups.tell(&mut environment);
        assert_eq!(environment, [(VARIABLE.into(), "2".into())]);
        Sharing::Apart.tell(&mut environment);
        assert!(environment.is_empty());
    }
}
