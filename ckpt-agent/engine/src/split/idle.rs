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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(pid: Pid, program: &str, descriptors: &[(i32, u32)]) -> ProcessImage {
        let descriptors: Vec<_> = descriptors
            .iter()
            .map(|(fd, file)| json!({"fd": fd, "file": file, "close_on_exec": false}))
            .collect();
        let timer = json!({"value_us": 0, "interval_us": 0});
        serde_json::from_value(json!({
            "version": 1, "pid": pid,
            "executable": {"path": program, "size": 0, "modified_ns": 0},
            "working_directory": "/", "umask": 0, "nice": 0, "dumpable": 1, "oom_score_adj": 0,
            "descriptors": descriptors, "actions": [], "pending": [],
            "interval_timers": [timer, timer, timer], "limits": [],
            "memory_map": vec![0; 11], "auxv": "", "areas": [], "pages": [], "threads": [],
        }))
        .unwrap()
    }

    fn graph() -> Graph {
        let node = |pid: Pid, ppid: Pid| json!({"pid": pid, "ppid": ppid, "pgid": pid, "sid": pid, "comm": "", "exit_signal": 17, "state": {"state": "alive"}});
        let pipe = |number: u32| json!({"flags": 0, "object": {"kind": "pipe", "pipe": number, "size": 4096}});
        serde_json::from_value(json!({
            "version": 1, "architecture": "x86_64", "page_size": 4096,
            "clocks": {"monotonic_ns": 0, "boottime_ns": 0, "realtime_ns": 0}, "vdso": "",
            "root": 2, "processes": [node(2, 1), node(3, 2)],
            "files": [pipe(0), pipe(1), pipe(2)], "inodes": [], "blobs": [],
        }))
        .unwrap()
    }

    fn found(parent: &str, own: &[(i32, u32)]) -> Vec<FileId> {
        let daemon = image(2, parent, &[(1, 0), (5, 1), (6, 2)]);
        let rank = image(3, "/home/rank", own);
        idle(&graph(), &[&daemon, &rank]).remove(&3).into_iter().flatten().collect()
    }

    #[test]
    fn what_hydra_leaves_is_idle() {
        let own = [(1, 0), (5, 1), (6, 2), (7, 2)];
        // A standard stream is meant, and so is what is there under another number, too.
        assert_eq!(found("/usr/bin/hydra_pmi_proxy", &own), [FileId(1)]);
        assert_eq!(found("/usr/bin/make", &own), []);
        assert_eq!(found("/usr/bin/hydra_pmi_proxy", &[(9, 1)]), []);
    }
}
