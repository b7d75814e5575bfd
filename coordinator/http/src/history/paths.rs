//! On which machines the processes of a job have been, and when.
//!
//! A checkpoint says which processes there are and where; the plan of a recovery says where each of those of a checkpoint
//! goes. Between two checkpoints nothing is known of processes that come and go.

use coordinator::cluster::entry::{ImageRecord, InstanceRecord, Origin};
use protocol::agent::{CheckpointNumber, InstanceId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Processes of a job whose ways are shown.
const MOST_PATHS: usize = 256;
/// Places of one process that are kept.
const MOST_PLACES: usize = 64;
/// Checkpoints whose processes are known: as many as are kept by those who keep many.
const MOST_IMAGES: usize = 16;

/// A process: its logical node, and its number there.
type Key = (String, i32);

/// The way of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Path {
    /// Its logical node: where it began.
    pub home: String,
    /// Its number there.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Since when it has been on which machine, in milliseconds since 1970 UTC, in the order of time.
    pub places: Vec<(u64, String)>,
    /// When it ended; None: it runs.
    pub end: Option<u64>,
}

/// What one checkpoint knows of an instance.
#[derive(Debug)]
struct Image {
    home: String,
    processes: Vec<(i32, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct Paths {
    /// Since when processes run that the next checkpoint is the first to know.
    since: u64,
    paths: BTreeMap<Key, Path>,
    /// Processes that are not shown.
    more: usize,
    images: BTreeMap<CheckpointNumber, BTreeMap<InstanceId, Image>>,
    /// The checkpoint that this epoch starts from.
    from: Option<CheckpointNumber>,
    /// Where processes are to be in this epoch.
    plan: Vec<(Key, String, String)>,
    begun: u64,
}

impl Paths {
    pub(super) fn since(since: u64) -> Self {
        let (paths, images, plan) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { since, paths, more: 0, images, from: None, plan, begun: since }
    }

    /// The ways that are shown.
    pub fn shown(&self) -> impl Iterator<Item = &Path> {
        self.paths.values()
    }

    /// How many processes are not shown.
    pub fn more(&self) -> usize {
        self.more
    }

    pub(super) fn end_all(&mut self, at: u64) {
        for path in self.paths.values_mut() {
            path.end.get_or_insert(at);
        }
    }

    pub(super) fn epoch_begun(&mut self, from: Option<CheckpointNumber>, at: u64, again: bool) {
        (self.from, self.begun) = (from, at);
        self.plan.clear();
        if again && from.is_none() {
            // It begins anew: none of its processes comes back.
            self.end_all(at);
            self.since = at;
        }
    }

    pub(super) fn planned(&mut self, instances: &BTreeMap<InstanceId, InstanceRecord>) {
        let Some(images) = self.from.and_then(|from| self.images.get(&from)) else { return };
        for record in instances.values() {
            let Origin::Image { instance, assignment, part } = &record.origin else { continue };
            let Some(image) = images.get(instance) else { continue };
            let of_part =
                image.processes.iter().filter(|(pid, _)| assignment.get(pid) == Some(part));
            self.plan.extend(of_part.map(|(pid, name)| {
                ((image.home.clone(), *pid), name.clone(), record.node.to_string())
            }));
        }
    }

    /// All processes of the plan run since then; those that are not in it have ended when the job was stopped.
    pub(super) fn running(&mut self, stopped: Option<u64>, at: Option<u64>) {
        let at = at.unwrap_or(self.begun);
        let plan = std::mem::take(&mut self.plan);
        if plan.is_empty() {
            return;
        }
        let planned: std::collections::BTreeSet<&Key> = plan.iter().map(|(key, ..)| key).collect();
        let stopped = stopped.unwrap_or(at).min(at);
        for (_, path) in self.paths.iter_mut().filter(|(key, _)| !planned.contains(key)) {
            path.end.get_or_insert(stopped);
        }
        for (key, name, node) in &plan {
            self.is_at(key, name, node, at, at);
        }
    }

    pub(super) fn committed(
        &mut self,
        checkpoint: CheckpointNumber,
        at: u64,
        images: &BTreeMap<InstanceId, ImageRecord>,
    ) {
        let mut known = BTreeMap::new();
        let mut there = std::collections::BTreeSet::new();
        let since = std::mem::replace(&mut self.since, at);
        for (instance, image) in images {
            let home = image.logical_node.to_string();
            let processes = image.facts.processes.iter();
            let processes: Vec<(i32, String)> =
                processes.map(|process| (process.pid, process.name.clone())).collect();
            for (pid, name) in &processes {
                let key = (home.clone(), *pid);
                self.is_at(&key, name, image.node.as_str(), at, since);
                there.insert(key);
            }
            known.insert(*instance, Image { home, processes });
        }
        self.more = there.iter().filter(|key| !self.paths.contains_key(*key)).count();
        for (_, path) in self.paths.iter_mut().filter(|(key, _)| !there.contains(*key)) {
            path.end.get_or_insert(at);
        }
        self.images.insert(checkpoint, known);
        while self.images.len() > MOST_IMAGES {
            self.images.pop_first();
        }
    }

    pub(super) fn collected(&mut self, kept: &[CheckpointNumber]) {
        self.images.retain(|number, _| kept.contains(number));
    }

    /// A process is on that machine at that time, and if it is a new one, it has been since `since`.
    fn is_at(&mut self, key: &Key, name: &str, node: &str, at: u64, since: u64) {
        if !self.paths.contains_key(key) {
            if self.paths.len() >= MOST_PATHS && !self.forget_one() {
                return;
            }
            let (home, pid) = key.clone();
            let places = vec![(since, node.to_owned())];
            let path = Path { home, pid, name: name.to_owned(), places, end: None };
            self.paths.insert(key.clone(), path);
            return;
        }
        let Some(path) = self.paths.get_mut(key) else { return };
        path.end = None;
        if path.name != name {
            path.name = name.to_owned();
        }
        if path.places.last().is_none_or(|(_, last)| last != node) {
            if path.places.len() >= MOST_PLACES {
                path.places.remove(0);
            }
            path.places.push((at, node.to_owned()));
        }
    }

    /// Forgets the process that ended first; false where all run.
    fn forget_one(&mut self) -> bool {
        let ended = self.paths.iter().filter_map(|(key, path)| Some((path.end?, key.clone())));
        let first = ended.min();
        first.is_some_and(|(_, key)| self.paths.remove(&key).is_some())
    }
}
