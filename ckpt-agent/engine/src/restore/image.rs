//! A checkpoint as a restore reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::aio;
use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Result};
use super::super::graph::{
    Area, Backing, BlobId, GRAPH_VERSION, Graph, Pid, ProcessImage, ProcessState, Protection,
    RelayEnd, StoredWindow,
};
use super::super::objects::BlobSource;
use super::super::split::{Holdings, Part, PartOrder, plan};
use super::super::sys::page::page_size;
use ckpt_store::{Checkpoint, ChunkReader};

/// Living processes of an image, by number. They are by far the most of it, and whoever forks forgets them for as long:
/// every fork copies the page tables of what there is.
pub type Processes = BTreeMap<Pid, ProcessImage>;

/// A graph, and the way to its processes and to their bytes.
#[derive(Debug)]
pub struct Image {
    /// The graph.
    pub graph: Graph,
    /// Reads chunks, checking each against its hash.
    pub reader: ChunkReader,
    checkpoint: Checkpoint,
}

/// Largest blob that is read into memory as a whole: in-flight data, never file contents.
const LARGEST_IN_MEMORY: u64 = 1 << 30;

impl Image {
    /// Opens a committed checkpoint and checks that this machine can run it, with all its processes.
    ///
    /// # Errors
    /// Damage; another version, architecture or page size.
    pub fn open(job_dir: &Path, number: u64) -> Result<(Self, Processes)> {
        let image = Self::of(job_dir, number)?;
        let alive = image.graph.processes.iter().filter(|node| node.state == ProcessState::Alive);
        let processes = image.read_processes(alive.map(|node| node.pid))?;
        if image.graph.root != 0 && !processes.contains_key(&image.graph.root) {
            return Err(EngineError::Damaged("the job's first process is missing".into()));
        }
        Ok((image, processes))
    }

    /// Opens one without its processes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(job_dir: &Path, number: u64) -> Result<Self> {
        let checkpoint = Checkpoint::open(job_dir, number)?;
        let graph: Graph = checkpoint.read_json("graph.json")?;
        check_version("graph.json", graph.version)?;
        check_machine(&graph)?;
        check_nodes(&graph)?;
        Ok(Self { graph, reader: checkpoint.reader()?, checkpoint })
    }

    /// Reads these processes; each time the same, since the commit mark has the hash of every file.
    ///
    /// # Errors
    /// Damage.
    pub fn read_processes(&self, pids: impl Iterator<Item = Pid>) -> Result<Processes> {
        let read = |pid| {
            let name = super::super::dump::process_file(pid);
            let image: ProcessImage = self.checkpoint.read_json(&name)?;
            check_version(&name, image.version)?;
            if image.pid != pid {
                let what = format!("{name} is of process {}", image.pid);
                return Err(EngineError::Damaged(what));
            }
            check_process(&self.graph, &image)?;
            Ok((pid, image))
        };
        pids.map(read).collect()
    }

    /// Works out a part of it, and forgets the processes of the others.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where it cannot be taken apart like this.
    pub fn take_part(&mut self, processes: &mut Processes, order: &PartOrder) -> Result<Part> {
        let holdings = Holdings::of(&self.graph, processes.values());
        let part = plan(&self.graph, &holdings, order).map_err(|error| EngineError::Unfit {
            what: error.to_string(),
            way_out: "bring them back together".into(),
        })?;
        processes.retain(|pid, _| part.members.contains(pid));
        for file in &part.idle {
            if let Some(file) = self.graph.files.get_mut(file.0 as usize) {
                file.object.become_idle();
            }
        }
        Ok(part)
    }

    /// What the agent held of relays at the checkpoint: which end, bytes that were not delivered to it
    /// yet, and whether its far side had closed.
    ///
    /// # Errors
    /// [`EngineError::Damaged`].
    pub fn relay_states(&self) -> Result<Vec<(RelayEnd, Vec<u8>, bool)>> {
        let states = self.graph.relays.iter().map(|state| {
            let bytes = state.undelivered.map(|blob| self.read(&self.graph, blob)).transpose()?;
            Ok((state.end.clone(), bytes.unwrap_or_default(), state.far_closed))
        });
        states.collect()
    }
}

/// The highest descriptor number that any process uses.
pub fn highest_descriptor(processes: &Processes) -> i32 {
    let all = processes.values().flat_map(|process| &process.descriptors);
    all.map(|descriptor| descriptor.fd).max().unwrap_or(2)
}

fn check_version(name: &str, version: u32) -> Result<()> {
    if version > GRAPH_VERSION {
        return Err(EngineError::Unfit {
            what: format!(
                "{name} has format version {version}, this ckptd reads up to {GRAPH_VERSION}"
            ),
            way_out: "use the ckptd that wrote it, or a newer one".into(),
        });
    }
    Ok(())
}

fn check_machine(graph: &Graph) -> Result<()> {
    if graph.architecture != Current::NAME {
        return Err(EngineError::Unfit {
            what: format!(
                "the job ran on {}, this machine is {}",
                graph.architecture,
                Current::NAME
            ),
            way_out: "restart it on a machine of its own architecture".into(),
        });
    }
    if graph.page_size != page_size() {
        return Err(EngineError::Unfit {
            what: format!(
                "the job ran with pages of {} bytes, this machine's have {}",
                graph.page_size,
                page_size()
            ),
            way_out: "restart it on a machine with the same page size".into(),
        });
    }
    Ok(())
}

/// Before anything is read of any process: a number that came often would have its image read as often.
fn check_nodes(graph: &Graph) -> Result<()> {
    let mut seen = BTreeSet::new();
    match graph.processes.iter().find(|node| node.pid <= 0 || !seen.insert(node.pid)) {
        Some(node) => Err(EngineError::Damaged(format!(
            "{} is no process's number, or that of two",
            node.pid
        ))),
        None => check_sharers(graph, &seen),
    }
}

/// Each process has its entry once.
fn check_sharers(graph: &Graph, processes: &BTreeSet<Pid>) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut is_odd = |pid: Pid| !processes.contains(&pid) || !seen.insert(pid);
    match graph.sharing.iter().map(|one| one.pid).find(|pid| is_odd(*pid)) {
        Some(pid) => {
            Err(EngineError::Damaged(format!("what process {pid} shares, told twice or of nobody")))
        }
        None => Ok(()),
    }
}

/// No process may have more open files (sysctl_nr_open_max, fs/file.c: of a 64-bit kernel rounded up).
const HIGHEST_FILES: i32 = 1 << 30;

/// An image comes from a disk that others may have written to: what would otherwise index out of
/// range or make a mess is refused here.
fn check_process(graph: &Graph, image: &ProcessImage) -> Result<()> {
    let damaged = |what: &str| Err(EngineError::Damaged(format!("process {}: {what}", image.pid)));
    if image.descriptors.iter().any(|d| d.fd >= HIGHEST_FILES) {
        return damaged("a descriptor above what any kernel allows");
    }
    if image.descriptors.iter().any(|d| d.fd < 0 || d.file.0 as usize >= graph.files.len()) {
        return damaged("a descriptor of a file that does not exist");
    }
    if image.threads.first().is_none_or(|first| first.tid != image.pid) {
        return damaged("no main thread");
    }
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    if image.stopped_by.is_some_and(|signal| !stops.contains(&signal)) {
        return damaged("stopped by a signal that stops nobody");
    }
    check_sharing(graph, image)?;
    let mut end = 0;
    for area in &image.areas {
        if area.start < end || area.end <= area.start {
            return damaged("areas that overlap");
        }
        if area.end > Current::user_top() {
            // Kernels of one architecture are built for address spaces of unlike size.
            return Err(EngineError::Unfit {
                what: format!(
                    "the memory of process {} reaches up to {:#x}, on this machine it may up to {:#x}",
                    image.pid,
                    area.end,
                    Current::user_top()
                ),
                way_out: "restart it on a machine whose kernel has the larger address space".into(),
            });
        }
        if area.start % graph.page_size != 0 || area.end % graph.page_size != 0 {
            return damaged("an area that is not of whole pages");
        }
        let is_guard = |(start, end): &(u64, u64)| {
            *start >= area.start
                && start < end
                && *end <= area.end
                && (start | end) % graph.page_size == 0
        };
        if !area.advice.guards.iter().all(is_guard) {
            return damaged("guards outside of their area");
        }
        if let Backing::Carried { offset, .. } = area.backing {
            if offset % graph.page_size != 0 || offset.checked_add(area.end - area.start).is_none()
            {
                return damaged("an area beyond the end of any file");
            }
        }
        let zeros = area.advice.watched.iter().flat_map(|watched| &watched.zeros);
        let is_own = area.backing == Backing::Anonymous && !area.shared;
        if !zeros.into_iter().all(is_guard) || (area.advice.watched.is_some() && !is_own) {
            return damaged("watched memory that can't be watched");
        }
        if area.ring().is_some_and(|file| {
            !matches!(graph.object(file), Some(super::super::objects::Object::Ring(_)))
        }) {
            return damaged("memory of a ring that is none");
        }
        if let Backing::Aio { head, tail, events } = area.backing {
            check_aio(graph, image.pid, area, [head, tail], events)?;
        }
        end = area.end;
    }
    let shells = graph.remote_shells.iter().flat_map(|shell| &shell.descriptors);
    if shells
        .into_iter()
        .any(|d| !(0..=2).contains(&d.fd) || d.file.0 as usize >= graph.files.len())
    {
        return damaged("a remote shell without its streams");
    }
    if !StoredWindow::are_sound(&image.pages, graph.page_size) {
        return damaged("pages that do not fit their chunks, or that it has twice");
    }
    Ok(())
}

/// What makes a process, or a thread, share things with another one than the first thread.
fn check_sharing(graph: &Graph, image: &ProcessImage) -> Result<()> {
    let damaged = |what: &str| Err(EngineError::Damaged(format!("process {}: {what}", image.pid)));
    if graph.shares_memory(image.pid) && !(image.areas.is_empty() && image.pages.is_empty()) {
        return damaged("memory of its own beside another process's");
    }
    if graph.sharing_of(image.pid).is_some_and(|one| one.actions && !one.memory) {
        return damaged("signal actions of another process without its memory");
    }
    for (place, thread) in image.threads.iter().enumerate() {
        let is_maker = |other: &&super::super::graph::ThreadImage| {
            Some(other.tid) == thread.directories_of && other.directories.is_some()
        };
        let is_sound = match (&thread.directories, thread.directories_of) {
            (None, None) => true,
            (Some(_), Some(_)) => false,
            (Some(_), None) => place > 0,
            (None, Some(_)) => place > 0 && image.threads.iter().skip(1).any(|o| is_maker(&o)),
        };
        if !is_sound {
            return damaged("a thread with another one's directories, which has none");
        }
    }
    Ok(())
}

/// What of a context of asynchronous input and output the restore relies on.
fn check_aio(
    graph: &Graph,
    pid: Pid,
    area: &Area,
    [head, tail]: [u32; 2],
    events: BlobId,
) -> Result<()> {
    let length = area.end - area.start;
    let places = aio::places_of(length).unwrap_or(0);
    let place = aio::Head { places, head, tail };
    let both = Protection::READ | Protection::WRITE;
    let is_sound = places <= aio::MOST_PLACES
        && head < places
        && tail < places
        && area.shared
        && area.protection.0 == both
        && graph.blob(events)?.length == u64::from(place.unread()) * aio::EVENT as u64;
    if !is_sound {
        let what = "a context of asynchronous input and output that is none";
        return Err(EngineError::Damaged(format!("process {pid}: {what}")));
    }
    match aio::fits(place, graph.page_size) {
        false => Err(aio::unfit(pid)),
        true => Ok(()),
    }
}

impl BlobSource for Image {
    fn read(&self, graph: &Graph, id: BlobId) -> Result<Vec<u8>> {
        let blob = graph.blob(id)?;
        if blob.length > LARGEST_IN_MEMORY {
            return Err(EngineError::Damaged(format!("in-flight data of {} bytes", blob.length)));
        }
        let mut bytes = vec![0; blob.length as usize];
        for span in &blob.spans {
            let length = u64::from(span.chunk.length);
            let range = span.offset as usize..(span.offset.saturating_add(length)) as usize;
            let place = bytes
                .get_mut(range)
                .ok_or_else(|| EngineError::Damaged("a chunk beyond its blob".into()))?;
            self.reader.read_into(&span.chunk, place)?;
        }
        Ok(bytes)
    }

    fn copy_to(&self, graph: &Graph, id: BlobId, to: BorrowedFd<'_>) -> Result<()> {
        let failed = |error| EngineError::system("write", "a file of the image", error);
        let file = File::from(to.try_clone_to_owned().map_err(failed)?);
        file.set_len(graph.blob(id)?.length).map_err(failed)?;
        self.for_each_span(graph, id, &mut |offset, bytes| {
            for (start, end) in runs_of_content(bytes) {
                file.write_all_at(&bytes[start..end], offset + start as u64).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn for_each_span(
        &self,
        graph: &Graph,
        id: BlobId,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let blob = graph.blob(id)?;
        let mut bytes = Vec::new();
        for span in &blob.spans {
            if span.offset.saturating_add(u64::from(span.chunk.length)) > blob.length {
                return Err(EngineError::Damaged("a chunk beyond its blob".into()));
            }
            self.reader.read(&span.chunk, &mut bytes)?;
            each(span.offset, &bytes)?;
        }
        Ok(())
    }
}

/// Bytes that are zeros or not as a whole: what a file system may leave out as a hole.
const BLOCK: usize = 4096;

/// Parts of a chunk that are not zeros, so that holes within it are holes again.
fn runs_of_content(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = index * BLOCK;
        match runs.last_mut() {
            Some(last) if last.1 == start => last.1 = start + block.len(),
            _ => runs.push((start, start + block.len())),
        }
    }
    runs
}
