//! Who holds what, out of the processes' images.

use std::collections::{BTreeMap, BTreeSet};

use super::super::graph::{Backing, FileId, Graph, InodeId, Pid, ProcessImage};
use super::super::objects::Object;
use super::idle;

/// What one living process holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Possessions {
    /// Open file descriptions.
    pub files: BTreeSet<FileId>,
    /// Those that it has inherited without knowing; they do not count.
    pub idle: BTreeSet<FileId>,
    /// Carried inodes that it maps; true: shared with others, and for writing.
    pub mapped: BTreeMap<InodeId, Mapped>,
    /// Files that it maps or executes by their paths.
    pub paths: BTreeSet<String>,
    /// Namespaces of the job's own that it is in, as places in the graph's list.
    pub namespaces: BTreeSet<u32>,
    /// Stored bytes of memory.
    pub bytes: u64,
}

/// How an inode is mapped, all mappings of a process taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapped {
    /// MAP_SHARED.
    pub shared: bool,
    /// MAP_SHARED for writing.
    pub written: bool,
}

/// Possessions of all living processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// By process.
    pub by_process: BTreeMap<Pid, Possessions>,
    holders: BTreeMap<FileId, BTreeSet<Pid>>,
}

impl Holdings {
    /// Of these images. What a remote shell holds counts as its parent's: it stays with it. A message queue that no process has
    /// open counts as the first one's.
    pub fn of<'a>(graph: &Graph, images: impl IntoIterator<Item = &'a ProcessImage>) -> Self {
        let images: Vec<&ProcessImage> = images.into_iter().collect();
        let mut idle = idle::idle(graph, &images);
        let mut all: BTreeMap<Pid, Possessions> = images
            .into_iter()
            .map(|image| (image.pid, possessions(image, graph.page_size)))
            .collect();
        for (pid, possessions) in &mut all {
            possessions.idle = idle.remove(pid).unwrap_or_default();
            possessions.files.retain(|file| !possessions.idle.contains(file));
        }
        for shell in &graph.remote_shells {
            let node = graph.processes.iter().find(|node| node.pid == shell.pid);
            let parent = node.map(|node| node.ppid).filter(|pid| all.contains_key(pid));
            let keeper = parent.or(all.keys().next().copied());
            if let Some(possessions) = keeper.and_then(|pid| all.get_mut(&pid)) {
                possessions.files.extend(shell.descriptors.iter().map(|one| one.file));
            }
        }
        let open: BTreeSet<FileId> =
            all.values().flat_map(|one| one.files.iter().copied()).collect();
        let queues = graph.files.iter().enumerate().filter(|(_, file)| is_queue(&file.object));
        let ids = queues.map(|(index, _)| FileId(index as u32));
        let unopened: Vec<FileId> = ids.filter(|id| !open.contains(id)).collect();
        if let Some(first) = all.values_mut().next() {
            first.files.extend(unopened);
        }
        for possessions in all.values_mut() {
            add_in_flight(graph, &mut possessions.files);
        }
        Self::new(all)
    }

    /// Of these possessions.
    pub fn new(by_process: BTreeMap<Pid, Possessions>) -> Self {
        let mut holders: BTreeMap<FileId, BTreeSet<Pid>> = BTreeMap::new();
        for (pid, possessions) in &by_process {
            for file in &possessions.files {
                holders.entry(*file).or_default().insert(*pid);
            }
        }
        Self { by_process, holders }
    }

    /// Descriptions that any of these processes holds, and knows of.
    pub fn files_of(&self, pids: impl Fn(Pid) -> bool) -> BTreeSet<FileId> {
        let mine = self.by_process.iter().filter(|(pid, _)| pids(**pid));
        mine.flat_map(|(_, possessions)| possessions.files.iter().copied()).collect()
    }

    /// Descriptions that these processes hold without knowing.
    pub fn idle_of(&self, pids: &BTreeSet<Pid>) -> BTreeSet<FileId> {
        let mine = self.by_process.iter().filter(|(pid, _)| pids.contains(pid));
        mine.flat_map(|(_, possessions)| possessions.idle.iter().copied()).collect()
    }

    /// Processes that hold a description, ascending.
    pub fn holders(&self, file: FileId) -> impl Iterator<Item = Pid> + '_ {
        self.holders.get(&file).into_iter().flatten().copied()
    }
}

/// Whoever holds a Unix socket holds what is under way in it.
fn add_in_flight(graph: &Graph, files: &mut BTreeSet<FileId>) {
    let mut new: Vec<FileId> = files.iter().copied().collect();
    while let Some(file) = new.pop() {
        let Some(Object::UnixSocket(socket)) = graph.object(file) else { continue };
        let under_way = socket.received.iter().flat_map(|message| &message.files);
        new.extend(under_way.copied().filter(|file| files.insert(*file)));
    }
}

fn is_queue(object: &Object) -> bool {
    matches!(object, Object::MessageQueue(_))
}

fn possessions(image: &ProcessImage, page: u64) -> Possessions {
    let mut found = Possessions {
        files: image.descriptors.iter().map(|descriptor| descriptor.file).collect(),
        namespaces: image.namespaces.iter().copied().chain(image.time_of_children).collect(),
        bytes: image.pages.iter().map(|window| window.bytes(page)).sum(),
        ..Possessions::default()
    };
    found.paths.insert(image.executable.path.clone());
    for area in &image.areas {
        match &area.backing {
            Backing::Carried { inode, writable, .. } => {
                let mapped = found.mapped.entry(*inode).or_default();
                mapped.shared |= area.shared;
                mapped.written |= area.shared && *writable;
            }
            Backing::File { file, .. } => drop(found.paths.insert(file.path.clone())),
            Backing::Ring { file, .. } => drop(found.files.insert(*file)),
            Backing::Anonymous | Backing::Aio { .. } | Backing::Kernel { .. } => {}
        }
    }
    found
}
