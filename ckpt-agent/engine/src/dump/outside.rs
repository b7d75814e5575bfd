//! Sessions, process groups and the terminal of processes that ckptd has not started, which strangers may lead.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::Stat;

use crate::graph::{Pid, ProcessNode};
use crate::objects::StrangersTerminal;
use crate::proc::{Tree, start_time};
use crate::sys::tty::SLAVE_MAJORS;

/// Whoever is in the session or group of a stranger gets into the first process's: it leads a session after a restart, as
/// the first process of a job that ckptd starts does. `nodes`: by their numbers on this machine. The strangers' sessions and
/// groups.
pub(super) fn lead(tree: &Tree, nodes: &mut BTreeMap<i32, ProcessNode>) -> BTreeSet<i32> {
    let mut taken = BTreeSet::new();
    let Some(root) = nodes.get(&tree.root()) else { return taken };
    let (root, session, group) = (root.pid, root.sid, root.pgid);
    let members: BTreeSet<Pid> = nodes.values().map(|node| node.pid).collect();
    // One that has ended and led members alone is nobody's any more.
    let is_strangers =
        |leader: Pid| !members.contains(&leader) && (leader <= 0 || start_time(leader).is_some());
    let leads = session == root;
    for node in nodes.values_mut() {
        let is_roots = !leads && node.sid == session;
        if !(is_roots || is_strangers(node.sid)) {
            continue;
        }
        taken.insert(node.sid);
        node.sid = root;
        let is_roots = node.pid == root || node.pgid == group;
        if is_roots || is_strangers(node.pgid) {
            taken.insert(node.pgid);
            node.pgid = root;
        }
    }
    taken
}

/// The session that the terminal `index` controls, and its foreground group, as far as they are of the job. `stats`: of the
/// same processes.
pub(super) fn terminal(
    index: u32,
    nodes: &BTreeMap<i32, ProcessNode>,
    stats: &BTreeMap<i32, Stat>,
) -> StrangersTerminal {
    let mut found = StrangersTerminal { index, session: None, foreground: None };
    let mut groups = BTreeMap::new();
    let mut foreground = None;
    for (host_pid, stat) in stats {
        let node = &nodes[host_pid];
        groups.insert(stat.pgrp, node.pgid);
        let (major, minor) = stat.tty_nr();
        let is_slave = u32::try_from(major).is_ok_and(|major| SLAVE_MAJORS.contains(&major));
        if is_slave && u32::try_from(minor) == Ok(index) {
            found.session = Some(node.sid);
            foreground = Some(stat.tpgid);
        }
    }
    found.foreground = foreground.and_then(|group| groups.get(&group).copied());
    found
}
