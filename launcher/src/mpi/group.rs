//! Groups of ranks: a node is told to the launcher as several hosts, so that each group has a daemon of its own. Ranks of
//! one daemon have shared memory, those of different daemons speak over the network, and nothing but that holds ranks
//! together.

use super::hosts::Host;
use crate::cli::Placement;
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
    /// Two wishes.
    #[error(
        "--group N moves N ranks together, --placement node all of a node: leave one of them out"
    )]
    WholeNodes,
    /// Nobody to be told.
    #[error(
        "--group tells mpirun or mpiexec its hosts, and {0} is neither, or of no run time that ckptd knows"
    )]
    NoLauncher(String),
    /// The user tells him.
    #[error(
        "--group names hosts to the launcher: leave yours out, of its options and of its environment"
    )]
    Hosts,
    /// Nobody could tell the two apart.
    #[error(
        "--group would give a host the name of node {0}: names of nodes must not end in '--' and a number then"
    )]
    Taken(String),
}

impl Sharing {
    /// As the command line has it, of a job on a cluster.
    ///
    /// # Errors
    /// Both at once.
    pub fn of(group: Option<NonZeroU32>, placement: Option<Placement>) -> Result<Self, GroupError> {
        match (group, placement) {
            (Some(_), Some(Placement::Node)) => Err(GroupError::WholeNodes),
            (Some(size), _) => Ok(Self::Groups(size)),
            (None, Some(Placement::Node)) => Ok(Self::Nodes),
            (None, _) => Ok(Self::Apart),
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
    for node in nodes {
        let (mut left, mut number) = (node.slots, 1);
        while left > 0 {
            let slots = left.min(size);
            hosts.push(Host { name: host_of(&node.name, number), slots });
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
        assert_eq!(Sharing::of(two, Some(Placement::Node)), Err(GroupError::WholeNodes));
        assert_eq!(Sharing::of(None, Some(Placement::Node)), Ok(Sharing::Nodes));
        assert_eq!(Sharing::of(None, Some(Placement::Process)), Ok(Sharing::Apart));
        let groups = Sharing::Groups(two.unwrap());
        assert_eq!(Sharing::of(two, Some(Placement::Process)), Ok(groups));
        let mut environment = vec![(VARIABLE.into(), "7".into())];
        groups.tell(&mut environment);
        assert_eq!(environment, [(VARIABLE.into(), "2".into())]);
        Sharing::Apart.tell(&mut environment);
        assert!(environment.is_empty());
    }
}
