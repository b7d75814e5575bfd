//! Copies of descriptors that a program has inherited and never been told of.
//!
//! Hydra, MPICH's process manager, starts its proxies and ranks without closing its own pipes and sockets in them. Taken
//! for real, these would bind all ranks of a node together. What a rank is meant to have, its daemon has closed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::graph::{FileId, Graph, Pid, ProcessImage};
use super::super::objects::Object;

/// Programs that leave their descriptors to others.
const DAEMONS: [&str; 2] = ["mpiexec.hydra", "hydra_pmi_proxy"];
/// Standard streams are always meant.
const LAST_STREAM: i32 = 2;

/// Descriptions that each process has got from such a daemon among its ancestors, under the numbers that the daemon
/// still has them under, and that it has under no other.
pub fn idle(graph: &Graph, images: &[&ProcessImage]) -> BTreeMap<Pid, BTreeSet<FileId>> {
    let parents: BTreeMap<Pid, Pid> =
        graph.processes.iter().map(|node| (node.pid, node.ppid)).collect();
    let daemons: BTreeMap<Pid, &ProcessImage> =
        images.iter().filter(|image| is_daemon(image)).map(|image| (image.pid, *image)).collect();
    let mut found = BTreeMap::new();
    if daemons.is_empty() {
        return found;
    }
    for image in images {
        let above = ancestors(&parents, image.pid);
        let above = above.iter().filter_map(|pid| daemons.get(pid));
        // A fork that has not called exec yet is the daemon still.
        let above = above.filter(|daemon| daemon.executable.path != image.executable.path);
        let left: BTreeSet<(i32, FileId)> =
            above.flat_map(|daemon| &daemon.descriptors).map(|one| (one.fd, one.file)).collect();
        let meant: BTreeSet<FileId> = image
            .descriptors
            .iter()
            .filter(|one| one.fd <= LAST_STREAM || !left.contains(&(one.fd, one.file)))
            .map(|one| one.file)
            .collect();
        let idle: BTreeSet<FileId> = image
            .descriptors
            .iter()
            .map(|one| one.file)
            .filter(|file| !meant.contains(file) && graph.object(*file).is_some_and(can_be_idle))
            .collect();
        if !idle.is_empty() {
            found.insert(image.pid, idle);
        }
    }
    found
}

fn is_daemon(image: &ProcessImage) -> bool {
    let name = Path::new(&image.executable.path).file_name();
    name.is_some_and(|name| DAEMONS.iter().any(|daemon| name == *daemon))
}

fn ancestors(parents: &BTreeMap<Pid, Pid>, pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut at = pid;
    while let Some(&parent) = parents.get(&at) {
        if found.len() >= parents.len() {
            break;
        }
        found.push(parent);
        at = parent;
    }
    found
}

fn can_be_idle(object: &Object) -> bool {
    matches!(object, Object::Pipe(_) | Object::UnixSocket(_) | Object::TcpSocket(_))
}
