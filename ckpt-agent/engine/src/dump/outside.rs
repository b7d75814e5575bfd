//! Sessions, process groups and the terminal of processes that ckptd has not started, which strangers may lead.

use std::collections::{BTreeMap, BTreeSet};

use super::process;
use crate::error::Result;
use crate::graph::{Pid, ProcessNode};
use crate::objects::StrangersTerminal;
use crate::proc::Tree;

/// Whoever is in the session or group of a stranger gets into the first process's: it leads a session after a restart, as
/// the first process of a job that ckptd starts does. `nodes`: by their numbers on this machine. The strangers' sessions and
/// groups.
pub(super) fn lead(tree: &Tree, nodes: &mut BTreeMap<i32, ProcessNode>) -> BTreeSet<i32> {
    let mut taken = BTreeSet::new();
    let Some(root) = nodes.get(&tree.root()) else { return taken };
    let (root, session, group) = (root.pid, root.sid, root.pgid);
    let members: Vec<Pid> = nodes.values().map(|node| node.pid).collect();
    // One that has ended and led members alone is nobody's any more.
    let is_strangers = |leader: Pid| {
        !members.contains(&leader) && (leader <= 0 || process::stat_and_status(leader).is_ok())
    };
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

/// The session that the terminal `index` controls, and its foreground group, as far as they are of the job.
///
/// # Errors
/// Where /proc does not tell.
pub(super) fn terminal(
    index: u32,
    nodes: &BTreeMap<i32, ProcessNode>,
) -> Result<StrangersTerminal> {
    let mut found = StrangersTerminal { index, session: None, foreground: None };
    let mut groups = BTreeMap::new();
    let mut foreground = None;
    for (host_pid, node) in nodes {
        let (stat, _) = process::stat_and_status(*host_pid)?;
        groups.insert(stat.pgrp, node.pgid);
        let (major, minor) = stat.tty_nr();
        if (136..=143).contains(&major) && u32::try_from(minor) == Ok(index) {
            found.session = Some(node.sid);
            foreground = Some(stat.tpgid);
        }
    }
    found.foreground = foreground.and_then(|group| groups.get(&group).copied());
    Ok(found)
}
