//! Names by which a launcher of MPI jobs is told one node as several hosts, each for a group of ranks.

use super::NodeName;
use super::name::NameError;

/// Between a node's name and the group's number. Open MPI takes no underscore, and what follows a dot for a domain.
const MARK: &str = "--";

/// Tells `ckptd rsh` that hosts are named so: a node may be called as a group is. Its value is the size of the groups.
pub const VARIABLE: &str = "CKPTD_GROUP";

/// The host of one of a node's groups, which are numbered from 1. The first one is the node's own, so that what takes
/// rank 0's host for an address finds it everywhere.
#[must_use]
pub fn host_of(node: &str, group: u32) -> String {
    match group {
        0 | 1 => node.to_owned(),
        _ => format!("{node}{MARK}{group}"),
    }
}

/// The node of such a host, and the host's own name if that is another.
///
/// # Errors
/// Where it can't be a node's.
pub fn node_of(host: &str) -> Result<(NodeName, Option<NodeName>), NameError> {
    match group_in(host) {
        Some(node) => Ok((node.parse()?, Some(host.parse()?))),
        None => Ok((host.parse()?, None)),
    }
}

/// Whether a host that is called so is a group other than the first.
#[must_use]
pub fn is_group(host: &str) -> bool {
    group_in(host).is_some()
}

fn group_in(host: &str) -> Option<&str> {
    let (node, group) = host.rsplit_once(MARK)?;
    let number: u32 = group.parse().ok()?;
    (number > 1 && host_of(node, number) == host).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lead_back_to_their_nodes() {
        for node in ["node1", "my-phone", "a--2", "7"] {
            for group in [1, 2, 17] {
                let host = host_of(node, group);
                assert_eq!(is_group(&host), group > 1 || node == "a--2", "{host}");
                if is_group(&host) {
                    let (found, own) = node_of(&host).unwrap();
                    let expected = if group > 1 { node } else { "a" };
                    assert_eq!(found.as_str(), expected);
                    assert_eq!(own.unwrap().as_str(), host);
                }
            }
        }
        let (node, own) = node_of("node1").unwrap();
        assert_eq!((node.as_str(), own), ("node1", None));
    }

    #[test]
    fn other_names_are_nodes() {
        for name in ["a--1", "a--0", "a--02", "a--+2", "a-2", "a2", "a--x", "a--4294967296"] {
            assert!(!is_group(name), "{name}");
        }
        node_of("--2").unwrap_err();
        node_of(&format!("{}--2", "x".repeat(62))).unwrap_err();
    }
}
