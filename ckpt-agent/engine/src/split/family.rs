//! The processes of a part, and those that stand in for processes of other parts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::graph::{Graph, Pid, ProcessNode, ProcessState, RelayEnd, RelayKind};
use super::{Leg, PartOrder, SplitError};

/// The processes of a part.
pub(super) struct Family {
    pub(super) members: BTreeSet<Pid>,
    pub(super) nodes: Vec<ProcessNode>,
    pub(super) links: Vec<Leg>,
}

pub(super) fn is_alive(node: &ProcessNode) -> bool {
    node.state == ProcessState::Alive
}

fn is_zombie(node: &ProcessNode) -> bool {
    matches!(node.state, ProcessState::Zombie { .. })
}

/// Finds members, zombies, stand-ins and links. Stand-ins are: children of members that live
/// elsewhere; all ancestors, session leaders and process group leaders of whoever is here. With
/// these the tree is one that a kernel has seen, but for processes that could have ended.
pub(super) fn family(graph: &Graph, order: &PartOrder) -> Result<Family, SplitError> {
    let nodes: BTreeMap<Pid, &ProcessNode> =
        graph.processes.iter().map(|node| (node.pid, node)).collect();
    let mut members = BTreeSet::new();
    for node in graph.processes.iter().filter(|node| is_alive(node)) {
        if order.part_of(node.pid)? == order.part {
            members.insert(node.pid);
        }
    }
    let mut here = members.clone();
    for node in &graph.processes {
        let with_parent = match nodes.get(&node.ppid) {
            Some(_) => members.contains(&node.ppid),
            None => is_zombie(node) && order.part == order.first(),
        };
        if with_parent {
            here.insert(node.pid);
        }
    }
    let mut new: Vec<Pid> = here.iter().copied().collect();
    while let Some(node) = new.pop().and_then(|pid| nodes.get(&pid)) {
        for needed in [node.ppid, node.sid, node.pgid] {
            let living = nodes.get(&needed).is_some_and(|node| !is_zombie(node));
            if living && here.insert(needed) {
                new.push(needed);
            }
        }
    }
    let here: Vec<ProcessNode> = graph
        .processes
        .iter()
        .filter(|node| here.contains(&node.pid))
        .map(|node| {
            let mut node = node.clone();
            if !members.contains(&node.pid) && !is_zombie(&node) {
                node.state = ProcessState::StandIn;
                // It would adopt what is not its own.
                node.subreaper = false;
            }
            node
        })
        .collect();
    let links = links(graph, order, &nodes, &members, &here)?;
    Ok(Family { members, nodes: here, links })
}

fn links(
    graph: &Graph,
    order: &PartOrder,
    nodes: &BTreeMap<Pid, &ProcessNode>,
    members: &BTreeSet<Pid>,
    here: &[ProcessNode],
) -> Result<Vec<Leg>, SplitError> {
    let mut links = Vec::new();
    for node in here {
        let stand_in = node.state == ProcessState::StandIn;
        // Side 0 has the parent, side 1 the child.
        let (side, other) = if stand_in && members.contains(&node.ppid) {
            (0, node.pid)
        } else if members.contains(&node.pid)
            && nodes.contains_key(&node.ppid)
            && !members.contains(&node.ppid)
        {
            (1, node.ppid)
        } else {
            continue;
        };
        let kind = RelayKind::Link { parent: node.ppid, child: node.pid };
        let lives = nodes.get(&other).is_some_and(|other| is_alive(other));
        if lives {
            let id = format!("{}#link{}", order.origin, node.pid);
            let peer_part = Some(order.part_of(other)?);
            links.push(Leg { end: RelayEnd { id, side, kind }, peer_part });
        } else {
            // It was a stand-in before, and keeps its link if that is still there.
            let known = graph.relays.iter().map(|relay| &relay.end);
            let known = known.filter(|end| end.kind == kind && end.side == side);
            links.extend(known.map(|end| Leg { end: end.clone(), peer_part: None }));
        }
    }
    Ok(links)
}
