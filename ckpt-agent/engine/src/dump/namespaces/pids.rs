//! PID namespaces of the job's own (pid_namespaces(7)): who is in which one, and whether a restart can make all processes again
//! where they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::super::super::error::{EngineError, Result};
use super::super::super::freeze::StoppedProcess;
use super::super::super::graph::{
    MountSource, NamespaceContent, NumbersInside, OpenFile, OwnNamespace, Pid, ProcessNode,
    ProcessState,
};
use super::super::super::objects::{DumpContext, Object};
use super::super::super::proc::{job_number, namespace_root, namespaces_of, read_text};
use super::super::super::restore::tree;
use super::super::super::sys::related::{GET_USER, related, user_name};
use super::{Own, name_of, refuse};

/// The file below /proc/PID/ns of the one that a process is in.
const OWN: &str = "pid";
/// The file of the one that a process's children will be in.
pub(super) const OF_CHILDREN: &str = "pid_for_children";

/// A refusal, with the number of its process on this machine.
type Found = Result<(), (i32, EngineError)>;

impl Own {
    /// Finds PID namespaces, and writes down who is in which. `among_others`: the job has none itself.
    ///
    /// # Errors
    /// A refusal of what can't be kept, with the number of its process on this machine; failed calls.
    pub fn find_pids(
        &mut self,
        init: i32,
        processes: &[StoppedProcess],
        nodes: &mut BTreeMap<i32, ProcessNode>,
        among_others: bool,
    ) -> Found {
        let mut places = BTreeMap::new();
        for process in processes {
            let pid = process.host_pid;
            let Some(inside) = nodes.get_mut(&pid).and_then(|node| node.inside.as_mut()) else {
                continue;
            };
            if among_others {
                let what = "is in a PID namespace of its own, in a job that has none itself";
                return Err((pid, refuse(what.to_owned())));
            }
            inside.namespace =
                self.place_of_pids(pid, &mut places).map_err(|error| (pid, error))?;
        }
        for process in processes {
            let of_children = self.check_children(init, process, nodes, &places);
            of_children.map_err(|error| (process.host_pid, error))?;
        }
        if places.is_empty() {
            forget_zombies(nodes);
            return Ok(());
        }
        place_zombies(nodes);
        for (pid, node) in nodes.iter() {
            check_place(node, nodes).map_err(|error| (*pid, error))?;
        }
        check_groups(nodes)?;
        check_tree(init, nodes)?;
        self.check_mounted(nodes)
    }

    /// The device of the job's /proc, where there are any.
    ///
    /// # Errors
    /// Failed stat(2).
    pub fn proc_device(&self, init: i32) -> Result<Option<u64>> {
        if !self.has_pids() {
            return Ok(None);
        }
        let path = format!("/proc/{init}/root/proc");
        let found =
            std::fs::metadata(&path).map_err(|error| EngineError::system("stat", path, error))?;
        Ok(Some(found.dev()))
    }

    fn place_of_pids(&mut self, pid: i32, places: &mut BTreeMap<String, u32>) -> Result<u32> {
        let name = name_of(pid, OWN).ok_or(EngineError::Gone(pid))?;
        if let Some(place) = places.get(&name) {
            return Ok(*place);
        }
        let path = format!("/proc/{pid}/ns/{OWN}");
        let opened =
            File::open(&path).map_err(|error| EngineError::system("open", &path, error))?;
        let owner = user_name(related(&opened, GET_USER)?)?;
        let owner = self.known.get(&("user", owner)).copied();
        let place = self.all.len() as u32;
        self.all.push(OwnNamespace { owner, content: NamespaceContent::Pid });
        places.insert(name, place);
        Ok(place)
    }

    /// Notes in which one the children of a process will be, where it is not its own.
    fn check_children(
        &mut self,
        init: i32,
        process: &StoppedProcess,
        nodes: &BTreeMap<i32, ProcessNode>,
        places: &BTreeMap<String, u32>,
    ) -> Result<()> {
        let pid = process.host_pid;
        let is_told = name_of(init, OF_CHILDREN).is_some();
        let (Some(own), true) = (name_of(pid, OWN), is_told) else { return Ok(()) };
        let children = name_of(pid, OF_CHILDREN);
        if children.as_ref() == Some(&own) {
            return Ok(());
        }
        let refused = |what: &str| Err(refuse(what.to_owned()));
        let Some(children) = children else {
            return refused("has made a PID namespace for its children in which there is none yet");
        };
        if nodes.get(&pid).is_none_or(|node| node.inside.is_some()) {
            return refused("has made a PID namespace within another one of its own");
        }
        let Some(place) = places.get(&children) else {
            return refused(
                "has made a PID namespace for its children whose processes have all ended",
            );
        };
        if process.threads.len() > 1 {
            return refused("has threads, and a PID namespace for its children");
        }
        if self.of_children.contains_key(&pid) {
            return refused("has made both a time and a PID namespace for its children");
        }
        self.pids_of_children.insert(pid, *place);
        Ok(())
    }

    /// /proc shows the processes of one PID namespace. Whichever process mounts it again must be in that one.
    fn check_mounted(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Found {
        let mut mounted: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
        for pid in self.of.keys() {
            let place = self.place_among(*pid, NamespaceContent::has_own_mounts);
            mounted.entry(place.unwrap_or(u32::MAX)).or_default().push(*pid);
        }
        for (place, pids) in mounted {
            let content = self.all.get(place as usize).map(|one| &one.content);
            let Some(NamespaceContent::OwnMounts { mounts, .. }) = content else { continue };
            let made = mounts.iter().filter(|mount| {
                let is_made = matches!(mount.source, MountSource::Made { .. });
                mount.file_system == "proc" && mount.root == "/" && is_made
            });
            let made: Vec<&str> = made.map(|mount| mount.at.as_str()).collect();
            let inside = |pid: &i32| Some((*pid, nodes.get(pid)?.inside?));
            let within: Vec<_> = pids.iter().filter_map(inside).collect();
            let Some((pid, own)) = within.first().filter(|_| !made.is_empty()) else {
                let outside = pids.first().and_then(|pid| Some((*pid, nodes.get(pid)?.pid)));
                let odd = outside.and_then(|(pid, number)| {
                    Some((pid, made.iter().find(|at| !shows(pid, at, number))?))
                });
                match odd {
                    Some((pid, at)) => return Err((pid, of_others(at))),
                    None => continue,
                }
            };
            if within.iter().any(|(_, other)| other.namespace != own.namespace) {
                let what = "is among mounts with a /proc with processes of another PID namespace";
                return Err((*pid, refuse(what.to_owned())));
            }
            if let Some(at) = made.iter().find(|at| !shows(*pid, at, own.pid)) {
                return Err((*pid, of_others(at)));
            }
        }
        Ok(())
    }
}

/// Says where a number of who is at the other end of a Unix socket, or has sent into it, is one that only the job's own PID
/// namespace will have: it is written there by a process that is none of those within.
pub fn tell_peers(
    files: &[OpenFile],
    nodes: &BTreeMap<i32, ProcessNode>,
    context: &mut DumpContext,
) {
    let within = nodes.values().filter(|node| node.inside.is_some()).map(|node| node.pid);
    let within: BTreeSet<Pid> = within.collect();
    let is_told = |file: &&OpenFile| {
        let Object::UnixSocket(socket) = &file.object else { return false };
        let senders = socket.received.iter().filter_map(|message| message.by);
        senders.chain(socket.peer_process).any(|pid| within.contains(&pid))
    };
    let count = files.iter().filter(is_told).count();
    if count > 0 {
        context.warn(format!(
            "in PID namespaces of the job's own, {count} Unix sockets have the number 0 for processes there that are at \
             their other ends, or have sent into them, after a restart (SO_PEERCRED, SCM_CREDENTIALS)"
        ));
    }
}

fn of_others(at: &str) -> EngineError {
    refuse(format!("is among mounts with a /proc of another PID namespace than its own ({at})"))
}

/// Whether a /proc among the mounts of a process is of the PID namespace in which that has this number: it shows the process by
/// it, and none of a namespace within that one.
fn shows(pid: i32, at: &str, number: Pid) -> bool {
    let Ok(root) = namespace_root(pid) else { return false };
    let file = |folder: &str, name: &str| read_text(&format!("{folder}/{name}")).ok().flatten();
    let there = format!("{root}{at}/{number}");
    let status = file(&there, "status").unwrap_or_default();
    let started = |folder: &str| {
        let stat = file(folder, "stat")?;
        Some(stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(19)?.to_owned())
    };
    job_number(&status, 1) == Some(number)
        && namespaces_of(&status) == 1
        && started(&there) == started(&format!("/proc/{pid}"))
}

/// Where nobody lives in any, whoever has ended there is told by the job's number alone.
fn forget_zombies(nodes: &mut BTreeMap<i32, ProcessNode>) {
    for node in nodes.values_mut().filter(|node| node.inside.is_some()) {
        node.inside = None;
    }
}

/// Who has ended is where its parent is, who waits for it, or else it is the first one, with which its namespace has
/// ended.
fn place_zombies(nodes: &mut BTreeMap<i32, ProcessNode>) {
    let living = nodes.values().filter(|node| node.state == ProcessState::Alive);
    let living: BTreeMap<Pid, Option<u32>> =
        living.map(|node| (node.pid, node.inside.map(|inside| inside.namespace))).collect();
    for node in nodes.values_mut() {
        if !matches!(node.state, ProcessState::Zombie { .. }) {
            continue;
        }
        let namespace = living.get(&node.ppid).copied().flatten();
        node.inside = node
            .inside
            .zip(namespace)
            .map(|(inside, namespace)| NumbersInside { namespace, ..inside });
    }
}

/// Whoever is in one descends from somebody who was forked into it from outside.
fn check_place(node: &ProcessNode, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
    let parent = nodes.values().find(|parent| parent.pid == node.ppid);
    let around = parent.and_then(|parent| parent.inside);
    let Some(inside) = node.inside else {
        return match around {
            None => Ok(()),
            Some(_) => Err(refuse(
                "is the child of a process in a PID namespace of its own that it is not in"
                    .to_owned(),
            )),
        };
    };
    if inside.namespace == u32::MAX || node.state == ProcessState::StandIn {
        return Err(refuse("is in a PID namespace of its own, as a mere stand-in".to_owned()));
    }
    match around {
        Some(around) if around.namespace == inside.namespace => return Ok(()),
        Some(_) => {
            return Err(refuse("is the child of a process in another PID namespace".to_owned()));
        }
        None => {}
    }
    let Some(parent) = parent else { return Ok(()) };
    // Who leads a session can't be in another group for a moment.
    let group = nodes.values().find_map(|other| {
        let other_inside = other.inside?;
        let is_from_outside = other_inside.namespace == inside.namespace && other_inside.pgid == 0;
        is_from_outside.then_some(other.pgid)
    });
    let leads = parent.pid == parent.sid;
    if leads && group.is_some_and(|group| group != parent.pgid) {
        let what =
            "was forked into a PID namespace, in a process group of which its parent can't be";
        return Err(refuse(what.to_owned()));
    }
    Ok(())
}

/// Groups and sessions of namespaces have their members there; and those from outside are one group, in which the first
/// process was born.
fn check_groups(nodes: &BTreeMap<i32, ProcessNode>) -> Found {
    let mut within = BTreeSet::new();
    let mut from_outside: BTreeMap<u32, (Option<Pid>, Option<Pid>)> = BTreeMap::new();
    for (host_pid, node) in nodes {
        let Some(inside) = node.inside else { continue };
        within.insert(node.pid);
        let (group, session) = from_outside.entry(inside.namespace).or_default();
        for (number, own, known) in
            [(node.pgid, inside.pgid, group), (node.sid, inside.sid, session)]
        {
            if own != 0 {
                within.insert(number);
            } else if *known.get_or_insert(number) != number {
                let what = "is in another process group or session made outside of its PID namespace than others in it";
                return Err((*host_pid, refuse(what.to_owned())));
            }
        }
    }
    for (host_pid, node) in nodes {
        let own = node.inside.map(|inside| (inside.pgid, inside.sid));
        let (pgid, sid) = own.unwrap_or((0, 0));
        if pgid == 0 && within.contains(&node.pgid) || sid == 0 && within.contains(&node.sid) {
            let what = "is in a process group or session of a PID namespace of the job's own, and not in that";
            return Err((*host_pid, refuse(what.to_owned())));
        }
    }
    Ok(())
}

/// A restart must find an order of forks.
fn check_tree(init: i32, nodes: &BTreeMap<i32, ProcessNode>) -> Found {
    let all: Vec<ProcessNode> = nodes.values().cloned().collect();
    let Err(error) = tree::plan(&all) else { return Ok(()) };
    let first = nodes.iter().find(|(_, node)| node.inside.is_some());
    let host_pid = first.map_or(init, |(host_pid, _)| *host_pid);
    Err((
        host_pid,
        refuse(format!(
            "is in a PID namespace of its own whose processes can't be made again: {error}"
        )),
    ))
}
