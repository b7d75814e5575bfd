//! What processes tell from inside, and the processes that hold their memory from then on.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use procfs::process::Status;
use tracing::field::Empty;
use tracing::{debug_span, trace};

use super::Quiesced;
use super::frozen::{OfJob, is_not_inherited};
use super::snapshot::ProcessDump;
use crate::arch::{Architecture, Current};
use crate::control_groups;
use crate::doing::{self, Thing};
use crate::dump::areas::{Planned, Window, plan};
use crate::dump::attributes;
use crate::dump::clocks;
use crate::dump::collect::Collected;
use crate::dump::cut_short;
use crate::dump::directories;
use crate::dump::inside;
use crate::dump::login_of;
use crate::dump::message_senders;
use crate::dump::pages::Pagemap;
use crate::dump::posix_timers;
use crate::dump::process;
use crate::dump::rings;
use crate::dump::sandbox::{self, Sandboxes};
use crate::dump::shared;
use crate::dump::snapshot_process::SnapshotProcess;
use crate::dump::snapshot_processes::Reading;
use crate::dump::stops;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::StoppedProcess;
use crate::graph::{
    Clocks, Descriptor, IpcObjects, MappedFile, ProcessAttributes, ProcessImage, version_of,
};
use crate::inodes::segments;
use crate::names;
use crate::proc::{Mapping, around, read_maps, read_smaps, root_directory};
use crate::restore::Identity;
use crate::trace::{ProcessMemory, Remote, StoppedThread, Vdso};
use crate::tracking::{Looked, Unwritten, Wish};

/// Instructions after which a thread is left in the vdso: its functions have a hundred or two, but one tries again
/// while the kernel changes the time.
const LONGEST_WAY: u32 = 2000;

/// Guard regions are looked for in shared mappings of at most so many bytes: the look takes time for each page there.
const MOST_GUARDED: u64 = 256 << 20;

/// Pages with their addresses, and guard regions.
type ReadEarly = (Vec<(u64, Vec<u8>)>, Vec<(u64, u64)>);

/// What was read of all processes.
pub(super) struct Read {
    /// Each process.
    pub(super) dumps: Vec<ProcessDump>,
    /// Those that hold their memory.
    pub(super) snapshot_processes: Vec<SnapshotProcess>,
    /// The vdso of the first process.
    pub(super) vdso: Option<Vdso>,
    /// The job's clocks.
    pub(super) clocks: Clocks,
    /// Its semaphores and message queues.
    pub(super) ipc: IpcObjects,
}

/// What was seen of a process before any call was made in it.
struct Seen {
    mappings: Vec<Mapping>,
    vdso: Vdso,
    /// Of each thread.
    statuses: Vec<Status>,
    timers: Vec<posix_timers::Listed>,
    sandboxes: Sandboxes,
    children: stops::Children,
}

impl Quiesced {
    /// Asks all processes from inside, copies what they share, and makes the snapshot processes.
    pub(super) fn read_processes(
        &mut self,
        processes: &mut [StoppedProcess],
        page: u64,
    ) -> Result<Read> {
        let mut windows = Vec::new();
        let mut readings = Vec::with_capacity(processes.len());
        // What is refused is refused before any process makes a call for us.
        let mut mapped = Vec::with_capacity(processes.len());
        for process in processes.iter_mut() {
            doing::begin("looking at", Thing::Process(self.nodes[&process.host_pid].pid));
            mapped.push(self.check_process(process)?);
        }
        for (seen, children) in mapped.iter_mut().zip(self.children_of(processes)) {
            seen.children = children;
        }
        self.say_cores();
        let listed = self.frozen.listed_ipc(processes);
        let listed = listed.map_err(|error| self.of_first(processes, error))?;
        for (process, Seen { vdso, statuses, .. }) in processes.iter_mut().zip(&mapped) {
            process.ignores_traps = statuses.first().is_some_and(process::ignores_traps);
            leave_vdso(process, vdso)?;
        }
        let owners = self.owners_of_memory(processes);
        for (place, owner) in owners.iter().copied().enumerate() {
            // What is mapped for it is the memory of all that share it.
            let mut mappings = std::mem::take(&mut mapped[owner].mappings);
            let Seen { vdso, statuses, .. } = &mapped[place];
            let entry_point = vdso.kernel_entry()?;
            let gone_on =
                cut_short::go_on(&mut processes[place], &mut mappings, statuses, entry_point);
            mapped[owner].mappings = mappings;
            gone_on?;
        }
        // What is left of sleeps and timers is told as of this moment or an earlier one, and no thread reads a clock
        // after it: an image wakes nobody early, and none of its clocks goes back.
        let moment = Instant::now();
        let clocks = clocks::of_process(self.frozen.settings.init)?;
        for (index, (process, mapped)) in processes.iter_mut().zip(mapped).enumerate() {
            readings.push(self.read_process(process, index == 0, mapped, moment, &mut windows)?);
        }
        let ipc = self.read_ipc(listed, processes, &mut readings)?;
        self.read_notifications(processes, &readings)?;
        let vdso = readings.first().map(|reading| reading.vdso.clone());
        {
            let copied = self.context.copying.done.clone();
            let before = copied.load(Ordering::Relaxed);
            let copying = debug_span!("shared memory", windows = windows.len(), bytes = Empty);
            let _copying = copying.enter();
            doing::begin("copying shared memory", Thing::Job);
            self.find_huge_segments(&mut windows)?;
            self.read_segments(processes, &readings, &windows, page)?;
            self.read_shared(processes, &readings, &windows, page)?;
            copying.record("bytes", copied.load(Ordering::Relaxed).saturating_sub(before));
        }
        self.track_writes(processes, &mut readings, page)?;
        let snapshot_processes = self.copy_processes(processes, &readings)?;
        let of_job = self.frozen.of_job(&self.nodes);
        let mut dumps = Vec::with_capacity(processes.len());
        let shown_by = Self::shown_by(processes, &owners, &snapshot_processes);
        // What a process was made, the others that have its memory were, too.
        for (reading, owner) in readings.iter_mut().zip(&owners) {
            if processes[*owner].made_dumpable.is_some() {
                reading.inside.dumpable = 0;
            }
        }
        for ((process, reading), shown_by) in processes.iter_mut().zip(readings).zip(shown_by) {
            dumps.push(self.finish_process(process, reading, shown_by, page, &of_job)?);
        }
        Ok(Read { dumps, snapshot_processes, vdso, clocks, ipc })
    }

    /// An error about what all processes have in common, with the name of the first.
    fn of_first(&self, processes: &[StoppedProcess], error: EngineError) -> EngineError {
        match processes.first().and_then(|process| self.nodes.get(&process.host_pid)) {
            Some(node) => error.of(node.pid, &node.comm),
            None => error,
        }
    }

    /// Refuses what no image can hold, and what calls into the process could end.
    fn check_process(&self, process: &mut StoppedProcess) -> Result<Seen> {
        let host_pid = process.host_pid;
        let node = &self.nodes[&host_pid];
        let threads = process.threads.iter().map(StoppedThread::tid);
        let apart = threads.filter(|tid| self.directories.contains_key(tid));
        process::check_supported(process, apart, node.pid, &node.comm)?;
        let statuses = process::statuses(process, node.pid, &node.comm)?;
        let sandboxes = sandbox::suspend(process, &statuses, self.frozen.filters)
            .map_err(|error| error.of(node.pid, &node.comm))?;
        let first = statuses.first().ok_or(EngineError::Gone(host_pid))?;
        process.make_room(first).map_err(|error| error.of(node.pid, &node.comm))?;
        let mut mappings = read_maps(host_pid)?;
        if let Some(places) = &self.context.places {
            let placed = places.place_mappings(host_pid, &mut mappings);
            placed.map_err(|error| error.of(node.pid, &node.comm))?;
        }
        if !self.shares_memory(host_pid) {
            self.check_memory(host_pid, &mappings)
                .map_err(|error| error.of(node.pid, &node.comm))?;
        }
        let timers =
            posix_timers::listed(host_pid).map_err(|error| error.of(node.pid, &node.comm))?;
        let vdso = Vdso::of(host_pid, &mappings).map_err(|error| error.of(node.pid, &node.comm))?;
        let children = stops::Children::default();
        Ok(Seen { mappings, vdso, statuses, timers, sandboxes, children })
    }

    fn read_process(
        &mut self,
        process: &mut StoppedProcess,
        first: bool,
        Seen { mut mappings, vdso, statuses, timers, sandboxes, children }: Seen,
        moment: Instant,
        windows: &mut Vec<Window>,
    ) -> Result<Reading> {
        let host_pid = process.host_pid;
        let node = self.nodes[&host_pid].clone();
        let threads = process.threads.len();
        let _reading = debug_span!("process", pid = node.pid, host_pid, threads).entered();
        doing::begin("asking", Thing::Process(node.pid));
        let name = |error: EngineError| error.of(node.pid, &node.comm);
        let entry_point = vdso.kernel_entry()?;
        let is_first = process.scratch.is_none();
        let mut remote = process.lend(entry_point)?;
        let (stat, status) = process::stat_and_status(host_pid)?;
        if self.frozen.shares_ipc() {
            segments::refuse_attached(host_pid, &mappings, &self.context).map_err(name)?;
        } else if first && !self.namespaces.has_ipc() {
            segments::survey(&mut remote, &mut self.context).map_err(name)?;
        }
        let identity = take_identity(host_pid, &mut mappings)?;
        let sharer = self.shares_memory(host_pid);
        let planned = match sharer {
            true => Vec::new(),
            false => plan(host_pid, mappings, &mut self.context, windows).map_err(name)?,
        };
        let mut inside = process::ask_process(&mut remote, moment)?;
        self.namespaces.ask(host_pid, &mut remote)?;
        inside.stopped_children = stops::ask(&mut remote, &children).map_err(name)?;
        inside.continued_children = stops::ask_continued(&mut remote, &children).map_err(name)?;
        let before = statuses.first().and_then(|status| status.vmlck).filter(|_| is_first);
        inside.attributes.later_locked =
            attributes::later_locked(&mut remote, before, status.vmlck)?;
        let numbers = process::thread_numbers(&statuses, self.frozen.depth)?;
        inside.timers = posix_timers::ask(&mut remote, &timers, &numbers, moment).map_err(name)?;
        if statuses.first().is_some_and(process::ignores_traps) {
            inside.ignore_traps();
        }
        if sharer {
            inside.leave_memory_to_another();
        }
        let folders: Vec<&Path> =
            self.context.session_directories.iter().map(PathBuf::as_path).collect();
        inside::refuse_restricted(&mut remote, &folders).map_err(name)?;
        inside::refuse_keyrings(&mut remote).map_err(name)?;
        let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch", "missing"))?;
        let Collected { files, descriptors, .. } = &mut self.collected;
        let own = descriptors.get(&host_pid).map_or(&[][..], Vec::as_slice);
        inside::unix_peers(&mut remote, own, files).map_err(name)?;
        // In a PID namespace of the job's own it would be told other numbers.
        if self.nodes.get(&host_pid).is_none_or(|node| node.inside.is_none()) {
            message_senders::ask(&mut remote, own, files, &self.context.blobs).map_err(name)?;
        }
        let mut known = process::Known {
            depth: self.frozen.depth,
            sleeps: &self.frozen.sleeps,
            job: &self.frozen.job,
            moment,
            descriptors: descriptors.get(&host_pid).map_or(&[], Vec::as_slice),
            files,
        };
        let first = statuses.first().ok_or(EngineError::Gone(host_pid))?;
        let leader = process::ask_thread(&mut remote, scratch, first, &mut known)?;
        inside.threads.push(leader);
        let unclaimed = posix_timers::unclaimed(&timers, &inside.timers);
        let leader = remote.thread().tid();
        posix_timers::claim(&mut remote, (leader, &numbers), &unclaimed, &mut inside.timers)
            .map_err(name)?;
        drop(remote);
        for (thread, status) in process.threads.iter_mut().zip(&statuses).skip(1) {
            let (tid, pid) = (thread.tid(), host_pid);
            trace!(tid, "thread");
            doing::begin("asking", Thing::HostThread { tid, pid });
            let mut remote = Remote::take(thread, entry_point)?.with_scratch(scratch);
            let image = process::ask_thread(&mut remote, scratch, status, &mut known)?;
            inside.threads.push(image);
            posix_timers::claim(&mut remote, (tid, &numbers), &unclaimed, &mut inside.timers)
                .map_err(name)?;
        }
        posix_timers::refuse_unclaimed(&unclaimed, &inside.timers).map_err(name)?;
        for (image, sandbox) in inside.threads.iter_mut().zip(sandboxes.of_threads) {
            image.sandbox = sandbox;
        }
        directories::add(&self.directories, process, &statuses, &numbers, &mut inside.threads)?;
        inside.filters = sandboxes.filters;
        let own = descriptors.get(&host_pid).map_or(&[][..], Vec::as_slice);
        let with_rings = if rings::any(own, files) { process.threads.len() } else { 0 };
        let threads = process.threads.iter_mut().take(with_rings);
        for (thread, image) in threads.zip(&mut inside.threads) {
            let mut remote = Remote::take(thread, entry_point)?.with_scratch(scratch);
            image.rings = rings::ask(&mut remote, own, files).map_err(name)?;
        }
        if let Some(node) = self.nodes.get_mut(&host_pid) {
            node.subreaper = inside.subreaper;
        }
        let unwritten = Unwritten::new();
        Ok(Reading { stat, status, planned, inside, entry_point, vdso, identity, unwritten })
    }

    /// How large the pages of attached segments are: by what was seen before the job stood, else by another look.
    fn find_huge_segments(&mut self, windows: &mut [Window]) -> Result<()> {
        for window in windows.iter_mut().filter(|window| window.mapping.is_segment()) {
            let known = self.frozen.not_inherited.get(&window.host_pid);
            let here = |smaps: &&Mapping| smaps.start == window.mapping.start && smaps.is_segment();
            let seen = known.and_then(|known| known.iter().find(here)).cloned();
            let smaps = match seen {
                Some(smaps) => Some(smaps),
                None => read_smaps(window.host_pid)?.iter().find(here).cloned(),
            };
            if let Some(smaps) = smaps {
                window.mapping.page_size = smaps.page_size;
                segments::tell_huge(&mut self.context.inodes[window.inode.0 as usize], &smaps);
            }
        }
        Ok(())
    }

    /// Which pages were not written since earlier checkpoints. Nothing is written to a process from here on until its copy
    /// is there.
    fn track_writes(
        &mut self,
        processes: &mut [StoppedProcess],
        readings: &mut [Reading],
        page: u64,
    ) -> Result<()> {
        let _tracking = debug_span!("writes").entered();
        let tracking = self.context.tracking.clone();
        tracking.retain(&processes.iter().map(|process| process.host_pid).collect());
        // A ring writes to memory that is registered with it, whichever process submits the request.
        let has_rings = self.collected.files.iter().any(|file| file.object.kind() == "io_uring");
        let count = processes.len();
        for (process, reading) in processes.iter_mut().zip(readings) {
            let host_pid = process.host_pid;
            if self.shares_memory(host_pid) {
                continue;
            }
            doing::begin("tracking the writes of", Thing::HostProcess(host_pid));
            let own = |planned: &&Planned| {
                let mapping = &planned.mapping;
                // Where a file's private page is thrown away that was protected, the kernel leaves a mark that looks like
                // the page (PTE_MARKER_UFFD_WP), and MADV_GUARD_INSTALL would never end.
                mapping.inode == 0
                    && !mapping.shared
                    && !mapping.is_kernel()
                    && !mapping.is_anonymous_huge()
            };
            let mappings: Vec<(u64, u64)> = reading
                .planned
                .iter()
                .filter(own)
                .map(|planned| (planned.mapping.start, planned.mapping.end))
                .collect();
            let looked = Looked {
                host_pid,
                began: reading.stat.starttime,
                resident: reading.status.rssanon.unwrap_or(0).saturating_mul(1024),
                mappings: &mappings,
                processes: count,
                hidden: has_rings || self.context.watched.contains_key(&host_pid),
                checkpoint: self.frozen.settings.checkpoint,
                gives_up: Wish::of_environment() == Wish::On,
                page,
            };
            let mut remote = process.lend(reading.entry_point)?;
            reading.unwritten = tracking.look(&mut remote, &looked)?;
        }
        Ok(())
    }

    /// Segments that nobody has attached as a whole are attached for a moment.
    fn read_segments(
        &mut self,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
        windows: &[Window],
        page: u64,
    ) -> Result<()> {
        for (inode, number, size) in shared::unseen_segments(windows, &self.context) {
            let mut content = None;
            let namespace = segments::namespace_of(&self.context.inodes[inode.0 as usize]);
            for (process, reading) in processes.iter_mut().zip(readings) {
                let host_pid = process.host_pid;
                if self.namespaces.ipc_of(host_pid) != namespace {
                    continue;
                }
                let mut remote = process.lend(reading.entry_point)?;
                let inode_of = &mut self.context.inodes[inode.0 as usize];
                let read = |remote: &mut Remote<'_>, mut mapping: Mapping| {
                    let smaps = read_smaps(host_pid)?;
                    if let Some(smaps) = smaps.iter().find(|smaps| smaps.start == mapping.start) {
                        mapping.page_size = smaps.page_size;
                        segments::tell_huge(inode_of, smaps);
                    }
                    let window = Window { inode, host_pid, mapping };
                    shared::read_window(&window, &self.context.copying, |window| {
                        shared::resident(remote, window, page)
                    })
                };
                content = segments::read_detached(&mut remote, number, size, page, read)?;
                if content.is_some() {
                    break;
                }
            }
            let Some(data) = content else {
                return Err(EngineError::Refused(Refusal::new(
                    format!("no process of the job may read its shared memory segment {number}"),
                    "give its owner the right to read it",
                )));
            };
            let blob = self.context.inodes[inode.0 as usize].content;
            self.context.blobs[blob.0 as usize] = data;
        }
        Ok(())
    }

    fn read_shared(
        &mut self,
        processes: &mut [StoppedProcess],
        readings: &[Reading],
        windows: &[Window],
        page: u64,
    ) -> Result<()> {
        shared::read_all(windows, &mut self.context, |window| {
            let found = processes
                .iter_mut()
                .zip(readings)
                .find(|(process, _)| process.host_pid == window.host_pid);
            let Some((process, reading)) = found else {
                return Err(EngineError::Gone(window.host_pid));
            };
            let mut remote = process.lend(reading.entry_point)?;
            shared::resident(&mut remote, window, page)
        })
    }

    /// Where a program is, and where it is among mounts of its process's own, if there.
    fn executable(&self, host_pid: i32, link: String) -> Result<(String, Option<String>)> {
        let Some(places) = &self.context.places else { return Ok((link, None)) };
        let place = places.executable(host_pid, &link)?;
        Ok((place.path, place.inside.map(|inside| inside.path)))
    }

    fn finish_process(
        &mut self,
        process: &mut StoppedProcess,
        reading: Reading,
        snapshot_pid: i32,
        page: u64,
        of_job: &OfJob,
    ) -> Result<ProcessDump> {
        let host_pid = process.host_pid;
        let pid = self.nodes[&host_pid].pid;
        let _finishing = debug_span!("finish", pid, host_pid).entered();
        doing::begin("completing the snapshot of", Thing::Process(pid));
        let (early, guards) = self.read_early(host_pid, snapshot_pid, &reading.planned, page)?;
        process.take_scratch_out()?;
        let (mut threads, mut timers) = (reading.inside.threads, reading.inside.timers);
        for (image, thread) in threads.iter_mut().zip(&process.threads) {
            image.pending = process::pending(thread)?;
            posix_timers::take_due(&mut timers, &mut image.pending);
        }
        if process.leader != host_pid {
            let node = &self.nodes[&host_pid];
            let first = threads.first().ok_or(EngineError::Gone(host_pid))?;
            let leader = process::ended_leader(node, process.leader, first)?;
            threads.insert(0, leader);
        }
        let mut pending = process::pending_of_process(&process.threads)?;
        posix_timers::take_due(&mut timers, &mut pending);
        let link = |name: &str| {
            let path = format!("/proc/{host_pid}/{name}");
            std::fs::read_link(&path)
                .map(names::text)
                .map_err(|error| EngineError::system("readlink", path, error))
        };
        let descriptors: Vec<Descriptor> =
            self.collected.descriptors.remove(&host_pid).unwrap_or_default();
        let break_address = reading.inside.break_address;
        let shows_program = reading.identity.is_none();
        let ((executable, executable_inside), memory_map, auxv) = match reading.identity {
            Some(own) => {
                let memory_map = own.memory_map(break_address);
                ((own.executable, None), memory_map, own.auxv)
            }
            None => {
                let path = format!("/proc/{host_pid}/auxv");
                let auxv = std::fs::read(&path)
                    .map_err(|error| EngineError::system("read", path, error))?;
                let memory_map = process::memory_map(&reading.stat, break_address);
                (self.executable(host_pid, link("exe")?)?, memory_map, crate::graph::to_hex(&auxv))
            }
        };
        let (working_directory, removed) = directories::working(host_pid, link("cwd")?)?;
        let has_own_directories = threads.iter().any(|thread| thread.directories.is_some());
        let image = ProcessImage {
            version: version_of(has_own_directories),
            pid: self.nodes[&host_pid].pid,
            executable: MappedFile {
                path: executable,
                size: 0,
                modified_ns: 0,
                build_id: None,
                hash: None,
            },
            executable_inside,
            working_directory,
            control_groups: control_groups::apart(process.leader, &of_job.groups),
            removed_directory: removed.map(|(mode, _)| mode),
            removed_inode: removed.map(|(_, inode)| inode),
            root_directory: root_directory(host_pid)?,
            namespaces: self.namespaces.of(host_pid),
            time_of_children: self.namespaces.time_of_children(host_pid),
            pids_of_children: self.namespaces.pids_of_children(host_pid),
            umask: reading.status.umask.unwrap_or(0o022),
            nice: i32::try_from(reading.stat.nice).unwrap_or(0),
            dumpable: reading.inside.dumpable,
            thp_disable: reading.inside.thp_disable,
            membarrier: reading.inside.membarrier,
            local_descriptors: reading.inside.local_descriptors,
            oom_score_adj: process::oom_score_adj(host_pid)?,
            stopped_by: process.group_stop,
            stopped_children: reading.inside.stopped_children,
            continued_children: reading.inside.continued_children,
            descriptors,
            locks: self.collected.process_locks.remove(&host_pid).unwrap_or_default(),
            actions: reading.inside.actions,
            pending,
            interval_timers: reading.inside.interval_timers,
            timers,
            undo: reading.inside.undo,
            limits: process::limits(host_pid)?,
            memory_map,
            auxv,
            attributes: ProcessAttributes {
                login_user: login_of(host_pid).filter(|user| Some(*user) != of_job.login_user),
                ..reading.inside.attributes
            },
            filters: reading.inside.filters,
            areas: Vec::new(),
            pages: Vec::new(),
            threads,
        };
        let (planned, unwritten) = (reading.planned, reading.unwritten);
        Ok(ProcessDump {
            host_pid,
            snapshot_pid,
            image,
            shows_program,
            planned,
            early,
            guards,
            unwritten,
        })
    }

    /// Pages and guard regions of areas that the snapshot process has not inherited, read from the process itself, and guard
    /// regions of shared mappings, of whose pages a child inherits nothing. What
    /// may be dropped is: random numbers that a library keeps there must not come twice.
    fn read_early(
        &self,
        host_pid: i32,
        snapshot_pid: i32,
        planned: &[Planned],
        page: u64,
    ) -> Result<ReadEarly> {
        if self.shares_memory(host_pid) {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut pagemap = Pagemap::of(host_pid, page)?;
        let mut guards = Vec::new();
        let is_shared = |planned: &&Planned| {
            let mapping = &planned.mapping;
            let is_other = mapping.is_segment() || mapping.is_ring() || mapping.is_aio();
            mapping.shared && !mapping.is_kernel() && !is_other && mapping.length() <= MOST_GUARDED
        };
        for planned in planned.iter().filter(is_shared) {
            guards.extend(pagemap.guards(planned.mapping.start, planned.mapping.end)?);
        }
        if snapshot_pid == host_pid {
            return Ok((Vec::new(), guards));
        }
        let known = self.frozen.not_inherited.get(&host_pid).map_or(&[][..], Vec::as_slice);
        let inherited = read_maps(snapshot_pid)?;
        for area in planned {
            let mapping = &area.mapping;
            if mapping.is_segment() || mapping.is_ring() || mapping.is_aio() {
                continue;
            }
            let covered =
                |known: &Mapping| known.start <= mapping.start && mapping.end <= known.end;
            let there = around(&inherited, mapping.start, mapping.end).is_some();
            if !there && !known.iter().any(covered) {
                let pid = self.nodes.get(&host_pid).map_or(host_pid, |node| node.pid);
                return Err(EngineError::rearranged(pid));
            }
        }
        let mut memory = ProcessMemory::of(host_pid);
        let mut early = Vec::new();
        for mapping in known.iter().filter(|mapping| is_not_inherited(mapping)) {
            let stored = pagemap.stored(mapping.start, mapping.end)?;
            guards.extend(stored.guards);
            if mapping.has(b"dp") {
                continue;
            }
            for (first, last) in stored.pages {
                let mut bytes = vec![0; (last - first) as usize];
                memory.read(first, &mut bytes)?;
                early.push((first, bytes));
            }
        }
        Ok((early, guards))
    }
}

/// Lets threads that are in the vdso go on until they are not.
fn leave_vdso(process: &mut StoppedProcess, vdso: &Vdso) -> Result<()> {
    if !Current::CALLS_IN_VDSO {
        // Under another kernel the middle of a function would not be what it is here, and under this one the time that
        // it has read would be put together with what the job's clocks are off by after the restart.
        for thread in &mut process.threads {
            thread.leave(|address| vdso.has(address), LONGEST_WAY)?;
        }
    }
    Ok(())
}

/// What a restore has left in a process that could not be told what it is. The mapping is no part of the image.
fn take_identity(host_pid: i32, mappings: &mut Vec<Mapping>) -> Result<Option<Identity>> {
    for (at, mapping) in mappings.iter().enumerate() {
        if let Some(identity) = Identity::read(host_pid, mapping)? {
            mappings.remove(at);
            return Ok(Some(identity));
        }
    }
    Ok(None)
}
