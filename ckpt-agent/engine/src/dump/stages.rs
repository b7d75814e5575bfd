//! The stages of a dump, each a type of its own: what needs a quiet job cannot be called on one
//! that is merely frozen. Dropping any of them lets the job go on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use procfs::process::Status;
use protocol::launch::Kept;
use tracing::field::Empty;
use tracing::{debug_span, trace};

use super::super::arch::{Architecture, Current};
use super::super::doing::{self, Thing};
use super::super::error::{EngineError, Refusal, Result};
use super::super::folders;
use super::super::freeze::{FrozenJob, StoppedProcess, freeze};
use super::super::graph::{
    Clocks, Descriptor, GRAPH_VERSION, Graph, MappedFile, Offer, Pid, ProcessImage, ProcessNode,
    ProcessState, RelayEnd, RelayState, RemoteShell, WholeFolder,
};
use super::super::inodes::ahead::{self, Copies, Taken};
use super::super::inodes::copying::Copying;
use super::super::inodes::segments;
use super::super::job_init::UserOrder;
use super::super::late::{Names, filters_of};
use super::super::objects::{DumpContext, External, HeldRelay, Object, StdioRole};
use super::super::proc::{
    Mapping, descendants, inner_number, must_be_own, read_maps, read_smaps, read_text,
};
use super::super::restore::Identity;
use super::super::sys::kcmp::{Resource, share};
use super::super::sys::schedule::Ahead;
use super::super::trace::{ProcessMemory, Remote, Vdso};
use super::areas::{Planned, Window, check, plan};
use super::clocks;
use super::collect::{Collected, add_unopened_queues, collect, descriptor_numbers};
use super::ipc_lists;
use super::offers;
use super::pages::Pagemap;
use super::process;
use super::shared;
use super::sleep::Sleeps;
use super::snapshot_process::SnapshotProcess;
use super::snapshot_processes::{Reading, make_snapshot_processes};
use super::standins;

/// What a dump is told about the job.
#[derive(Debug)]
pub struct DumpSettings {
    /// The job's init, as this machine numbers it.
    pub init: i32,
    /// The process whose end is the job's end, as the job numbers it; 0: it is not of this instance.
    pub root: Pid,
    /// Directories whose files travel with the job.
    pub session_directories: Vec<PathBuf>,
    /// What of the file system is the job's.
    pub kept: Kept,
    /// What to do with connections to outside.
    pub external: External,
    /// The user for whom a root agent runs the job; `None`: the agent's own.
    pub user: Option<UserOrder>,
    /// The launcher's ends of standard streams: (device, inode) as handlers see them.
    pub stdio: HashMap<(u64, u64), StdioRole>,
    /// A copy of the master of the job's terminal.
    pub terminal_master: Option<OwnedFd>,
    /// The job has other instances: a connection to outside of this one may lead to one of them.
    pub cluster: bool,
    /// Addresses of the machines that the job runs on; empty: not known.
    pub machines: BTreeSet<IpAddr>,
    /// Relays of which the agent holds a side. Their carriers must not write to their native objects
    /// while the job stands, and must have read what those hold for other instances before
    /// [`Frozen::quiesce`].
    pub relays: Vec<HeldRelay>,
    /// What processors its programs began on, as far as that was at earlier checkpoints.
    pub offers: Vec<Offer>,
    /// How long stopping all threads may take.
    pub freeze_limit: Duration,
    /// Files that the last image has.
    pub seen: Taken,
    /// How files and shared memory are copied.
    pub copying: Copying,
}

/// Instructions after which a thread is left in the vdso: its functions have a hundred or two, but one tries again
/// while the kernel changes the time.
const LONGEST_WAY: u32 = 2000;

/// Pages with their addresses, and guard regions.
type ReadEarly = (Vec<(u64, Vec<u8>)>, Vec<(u64, u64)>);

/// Mappings of a process that its children do not inherit as they are: found while it still runs.
type NotInherited = HashMap<i32, Vec<Mapping>>;

/// All threads of the job stand still.
#[derive(Debug)]
pub struct Frozen {
    job: FrozenJob,
    settings: DumpSettings,
    not_inherited: NotInherited,
    sleeps: Sleeps,
    depth: usize,
    /// Seccomp filters that the init is under.
    filters: u32,
    names: Names,
    /// Processes that are remote shells, as the job numbers them.
    remote_shells: Vec<Pid>,
    copies: Copies,
    seen: Taken,
}

/// Freezes a job, after files have been read that its image will have.
///
/// # Errors
/// As [`freeze`].
pub fn freeze_job(settings: DumpSettings) -> Result<Frozen> {
    let copies = {
        let _reading = debug_span!("read ahead").entered();
        doing::begin("reading files ahead", Thing::Job);
        Copies::make(&ahead::Order {
            init: settings.init,
            folders: settings.kept.all_folders().cloned().collect(),
            files_limit: settings.kept.limit(),
            user: settings.user.as_ref(),
            seen: &settings.seen,
            cluster: settings.cluster,
            copying: &settings.copying,
        })
    };
    let looking = debug_span!("look").entered();
    let ahead = Ahead::begin();
    let not_inherited = find_not_inherited(settings.init)?;
    let (_, status) = process::stat_and_status(settings.init)?;
    let depth = status.nspid.map_or(1, |all| all.len());
    let filters = filters_of(settings.init, settings.init)?.unwrap_or(0);
    let sleeps = Sleeps::observe(settings.init)?;
    let shells = standins::shells(&settings.relays);
    let (stand_ins, remote_shells) = standins::find(settings.init, &shells)?;
    drop((ahead, looking));
    let job = freeze(settings.init, stand_ins, settings.freeze_limit)?;
    let (names, seen) = (Names::default(), Taken::begin());
    Ok(Frozen {
        job,
        settings,
        not_inherited,
        sleeps,
        depth,
        filters,
        names,
        remote_shells,
        copies,
        seen,
    })
}

/// MADV_DONTFORK, MADV_WIPEONFORK and locked areas of all processes, and SysV segments. Reading smaps walks all page
/// tables, which is why it is done before the job is stopped; what changes in between is noticed afterwards.
fn find_not_inherited(init: i32) -> Result<NotInherited> {
    let mut found = NotInherited::new();
    for pid in descendants(init)? {
        doing::begin("looking at the memory of", Thing::HostProcess(pid));
        must_be_own(pid)?;
        let mappings = match read_smaps(pid) {
            Ok(mappings) => mappings,
            Err(EngineError::Gone(_)) => continue,
            Err(error) => return Err(error),
        };
        let special: Vec<Mapping> = mappings
            .into_iter()
            .filter(|mapping| {
                is_not_inherited(mapping) || mapping.has(b"lo") || mapping.is_segment()
            })
            .collect();
        if !special.is_empty() {
            found.insert(pid, special);
        }
    }
    Ok(found)
}

/// Whether a child gets this mapping without its content, or not at all.
pub(super) fn is_not_inherited(mapping: &Mapping) -> bool {
    (mapping.has(b"wf") || mapping.has(b"dc"))
        && !mapping.has(b"io")
        && !mapping.has(b"pf")
        && !mapping.is_kernel()
}

impl Frozen {
    /// Living processes and threads.
    pub fn counts(&self) -> (usize, usize) {
        let threads = self.job.processes.iter().map(|process| process.threads.len()).sum();
        (self.job.processes.len(), threads)
    }

    /// What the job calls its TCP sockets, where that is not what they are.
    pub fn set_names(&mut self, names: Names) {
        self.names = names;
    }

    /// Reads all kernel objects and waits until no byte is under way between two of them.
    ///
    /// # Errors
    /// Refusals with process and descriptor named; the job goes on.
    pub fn quiesce(mut self) -> Result<Quiesced> {
        let looking = debug_span!("look").entered();
        doing::begin("looking at processes", Thing::Job);
        let nodes = self.nodes()?;
        self.check_leaders(&nodes)?;
        self.check_root(&nodes)?;
        self.check_namespaces(&nodes)?;
        self.check_stand_ins(&nodes)?;
        let mut context = DumpContext {
            session_directories: std::mem::take(&mut self.settings.session_directories),
            files_limit: self.settings.kept.limit(),
            external: self.settings.external,
            shares_ipc: self.shares_ipc(),
            stdio: std::mem::take(&mut self.settings.stdio),
            terminal_master: self.settings.terminal_master.take(),
            cluster: self.settings.cluster,
            machines: std::mem::take(&mut self.settings.machines),
            relays: std::mem::take(&mut self.settings.relays),
            user: self.settings.user.take(),
            names: std::mem::take(&mut self.names),
            copying: self.settings.copying.clone(),
            copies: std::mem::take(&mut self.copies),
            seen: std::mem::take(&mut self.seen),
            ..DumpContext::default()
        };
        for (host_pid, node) in &nodes {
            context.pids.insert(*host_pid, node.pid);
        }
        self.add_threads(&mut context)?;
        self.check_unshared(&nodes)?;
        self.check_ipc(&nodes)?;
        let shells = |host_pid: &i32| self.remote_shells.contains(&nodes[host_pid].pid);
        let shells = self.job.stand_ins.iter().copied().filter(shells);
        let living: Vec<(i32, Pid, String)> = self
            .job
            .processes
            .iter()
            .map(|process| process.host_pid)
            .chain(shells)
            .map(|host_pid| (host_pid, nodes[&host_pid].pid, nodes[&host_pid].comm.clone()))
            .collect();
        drop(looking);
        let streams_only = &self.remote_shells;
        let mut collected = collect(&living, streams_only, &mut context)?;
        if !context.shares_ipc {
            add_unopened_queues(self.settings.init, &mut collected, &mut context)?;
        }
        Object::finish_all(&mut collected.files, &collected.probes, &mut context)?;
        Ok(Quiesced { frozen: self, nodes, collected, context, relay_states: Vec::new() })
    }

    /// The end of the first process is told by the init, to whom it is a zombie for a moment: an image of that moment
    /// would have nobody to tell of it.
    fn check_root(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        let root = self.settings.root;
        let lives = |node: &ProcessNode| node.pid == root && node.state == ProcessState::Alive;
        if root == 0 || nodes.values().any(lives) {
            return Ok(());
        }
        let comm = nodes.values().find(|node| node.pid == root).map(|node| node.comm.clone());
        Err(EngineError::RefusedProcess {
            pid: root,
            comm: comm.unwrap_or_default(),
            refusal: Refusal::passing("has just ended", "try again"),
        })
    }

    /// What a stand-in has not passed on yet would be lost with it.
    fn check_stand_ins(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        for host_pid in &self.job.stand_ins {
            let node = &nodes[host_pid];
            standins::check_idle(*host_pid, node)?;
            let zombie = |other: &ProcessNode| {
                other.ppid == node.pid && matches!(other.state, ProcessState::Zombie { .. })
            };
            if nodes.values().any(zombie) {
                return Err(standins::busy(node));
            }
        }
        Ok(())
    }

    /// Whether the job has no IPC namespace of its own: then segments are the machine's.
    fn shares_ipc(&self) -> bool {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/ipc")).ok();
        of("self") == of(&self.settings.init.to_string())
    }

    /// Told by the first process, as the job has them in common.
    fn check_ipc(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        let Some(first) = self.job.processes.first().filter(|_| !self.shares_ipc()) else {
            return Ok(());
        };
        let init = self.settings.init;
        let node = &nodes[&first.host_pid];
        ipc_lists::refuse_listed(init, &descriptor_numbers(init)?)
            .map_err(|error| error.of(node.pid, &node.comm))
    }

    /// SysV shared memory is looked for where the job's init is.
    fn check_namespaces(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        let of = |host_pid: i32| std::fs::read_link(format!("/proc/{host_pid}/ns/ipc")).ok();
        let Some(own) = of(self.settings.init) else { return Ok(()) };
        for process in &self.job.processes {
            if of(process.host_pid).is_some_and(|other| other != own) {
                let node = &nodes[&process.host_pid];
                return Err(EngineError::RefusedProcess {
                    pid: node.pid,
                    comm: node.comm.clone(),
                    refusal: Refusal::new(
                        "is in an IPC namespace of its own",
                        "run the job without containers of its own",
                    ),
                });
            }
        }
        Ok(())
    }

    /// A main thread that has ended while others go on shows nothing in /proc any more.
    fn check_leaders(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        for process in &self.job.processes {
            if process.threads.first().is_some_and(|first| first.tid() != process.host_pid) {
                let node = &nodes[&process.host_pid];
                return Err(EngineError::RefusedProcess {
                    pid: node.pid,
                    comm: node.comm.clone(),
                    refusal: Refusal::new(
                        "has ended its main thread while others go on",
                        "let the main thread wait for the others",
                    ),
                });
            }
        }
        Ok(())
    }

    /// Every process of the job, living or dead, by its number on this machine.
    fn nodes(&self) -> Result<BTreeMap<i32, ProcessNode>> {
        let mut nodes = BTreeMap::new();
        let living = self.job.processes.iter().map(|process| process.host_pid);
        let stand_ins = self.job.stand_ins.iter().copied();
        let all: Vec<i32> =
            living.chain(stand_ins).chain(self.job.zombies.iter().copied()).collect();
        let mut parents = Vec::new();
        for host_pid in all {
            let (stat, status) = process::stat_and_status(host_pid)?;
            parents.push((host_pid, stat.ppid));
            let mut node = process::node(&stat, &status, self.depth, 1)?;
            if process::is_among_others(self.depth) {
                // In images the init is process 1 whatever it is here.
                for number in [&mut node.pgid, &mut node.sid] {
                    if *number == self.settings.init {
                        *number = 1;
                    }
                }
            }
            if self.job.stand_ins.contains(&host_pid) {
                node.state = ProcessState::StandIn;
            }
            nodes.insert(host_pid, node);
        }
        for (child, parent) in parents {
            let ppid = match nodes.get(&parent) {
                Some(parent) => parent.pid,
                None if parent == self.settings.init => 1,
                None => {
                    return Err(EngineError::odd(
                        format!("parent of process {child}"),
                        format!("process {parent}, which is not of the job"),
                    ));
                }
            };
            if let Some(node) = nodes.get_mut(&child) {
                node.ppid = ppid;
            }
        }
        Ok(nodes)
    }

    /// Thread numbers, for owners of descriptors.
    fn add_threads(&self, context: &mut DumpContext) -> Result<()> {
        for process in &self.job.processes {
            for thread in process.threads.iter().skip(1) {
                let path = format!("/proc/{}/task/{}/status", process.host_pid, thread.tid());
                let text = read_text(&path)?.ok_or(EngineError::Gone(thread.tid()))?;
                context.pids.insert(thread.tid(), inner_number(&text).unwrap_or(thread.tid()));
            }
        }
        Ok(())
    }

    /// Processes that share memory or descriptors without being threads are not taken apart.
    fn check_unshared(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        let processes = &self.job.processes;
        for (index, process) in processes.iter().enumerate() {
            for other in &processes[..index] {
                for (resource, name) in
                    [(Resource::Memory, "memory"), (Resource::Descriptors, "descriptors")]
                {
                    if share(process.host_pid, other.host_pid, resource) == Some(true) {
                        let node = &nodes[&process.host_pid];
                        return Err(EngineError::RefusedProcess {
                            pid: node.pid,
                            comm: node.comm.clone(),
                            refusal: Refusal::new(
                                format!(
                                    "shares its {name} with process {} without being its thread",
                                    nodes[&other.host_pid].pid
                                ),
                                "try again once it has called exec",
                            ),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// No byte is under way; all kernel objects have been read.
#[derive(Debug)]
pub struct Quiesced {
    frozen: Frozen,
    nodes: BTreeMap<i32, ProcessNode>,
    collected: Collected,
    context: DumpContext,
    relay_states: Vec<(RelayEnd, Vec<u8>, bool)>,
}

/// One process of a snapshot.
#[derive(Debug)]
pub struct ProcessDump {
    /// The process itself, as this machine numbers it.
    pub host_pid: i32,
    /// The snapshot process that holds its memory, as this machine numbers it.
    pub snapshot_pid: i32,
    /// Everything but areas, pages and executable.
    pub image: ProcessImage,
    /// Its mappings at the moment of the snapshot.
    pub planned: Vec<Planned>,
    /// Pages that the snapshot process did not inherit: address and content.
    pub early: Vec<(u64, Vec<u8>)>,
    /// Guard regions (MADV_GUARD_INSTALL) that it did not inherit.
    pub guards: Vec<(u64, u64)>,
}

/// What is written once the job goes on. Can be sent to another thread.
#[derive(Debug)]
pub struct SnapshotData {
    /// Processes; those of zombies are only in the graph.
    pub processes: Vec<ProcessDump>,
    /// The graph, its blobs still empty.
    pub graph: Graph,
    /// Blobs and warnings.
    pub context: DumpContext,
    /// Bytes per page.
    pub page: u64,
    not_inherited: NotInherited,
}

impl SnapshotData {
    /// The snapshot processes, as this machine numbers them.
    pub fn snapshot_processes(&self) -> Vec<i32> {
        self.processes.iter().map(|process| process.snapshot_pid).collect()
    }

    /// Whether this mapping was known not to be inherited when the snapshot process was made, so that its pages
    /// were read from the process itself.
    pub fn knows_not_inherited(&self, host_pid: i32, mapping: &Mapping) -> bool {
        self.as_it_ran(host_pid, mapping).is_some_and(is_not_inherited)
    }

    /// The flags of such a mapping, of a locked one or of a SysV segment, as they were before the freeze.
    pub fn as_it_ran(&self, host_pid: i32, mapping: &Mapping) -> Option<&Mapping> {
        let special = self.not_inherited.get(&host_pid)?;
        special.iter().find(|known| known.start <= mapping.start && mapping.end <= known.end)
    }
}

/// Everything has been read or is held by snapshot processes.
#[derive(Debug)]
pub struct Snapshot {
    job: Option<FrozenJob>,
    snapshot_processes: Vec<SnapshotProcess>,
    data: Option<SnapshotData>,
    since: Instant,
}

impl Quiesced {
    /// Reads all processes and makes the snapshot processes. The job still stands when this returns.
    ///
    /// # Errors
    /// Refusals; no memory for the snapshot processes. The job goes on.
    pub fn snapshot(mut self) -> Result<Snapshot> {
        let Collected { files, probes, .. } = &mut self.collected;
        Object::late_all(files, probes, &mut self.context)?;
        let page = page_size();
        let mut processes = std::mem::take(&mut self.frozen.job.processes);
        processes.iter().for_each(StoppedProcess::die_with_tracer);
        let result = self.read_processes(&mut processes, page);
        self.frozen.job.processes = processes;
        let (dumps, snapshot_processes, vdso, clocks) = result?;
        let folders = self.take_folders(&dumps)?;
        self.tell_copies_on_disk();
        let portable = Current::jump(0).is_some();
        let vdso_image = vdso.as_ref().and_then(Vdso::image).filter(|_| portable);
        let vdso_image = vdso_image.map(|bytes| self.context.keep(bytes.to_vec()));
        drop(std::mem::take(&mut self.collected.probes));
        let relays = self.relay_states();
        let remote_shells = self.remote_shells();
        let graph = Graph {
            version: GRAPH_VERSION,
            architecture: Current::NAME.to_owned(),
            page_size: page,
            clocks,
            vdso: vdso.map(|vdso| vdso.hash()).unwrap_or_default(),
            vdso_image,
            layout: Current::layout(),
            offers: offers::of(&dumps, &self.frozen.settings.offers),
            root: self.frozen.settings.root,
            init: match process::is_among_others(self.frozen.depth) {
                true => self.frozen.settings.init,
                false => 0,
            },
            processes: parents_first(&self.nodes, &dumps),
            files: std::mem::take(&mut self.collected.files),
            inodes: Vec::new(),
            folders,
            kept: self.frozen.settings.kept.clone(),
            relays,
            remote_shells,
            blobs: Vec::new(),
        };
        let since = self.frozen.job.since;
        let not_inherited = std::mem::take(&mut self.frozen.not_inherited);
        let data =
            SnapshotData { processes: dumps, graph, context: self.context, page, not_inherited };
        Ok(Snapshot { job: Some(self.frozen.job), snapshot_processes, data: Some(data), since })
    }

    fn tell_copies_on_disk(&mut self) {
        match self.context.copying.on_disk() {
            0 => {}
            bytes => self.context.warn(format!(
                "{} MiB of shared memory and files do not fit into memory beside the job: they were copied to disk \
                 while it stood, which takes longer",
                bytes.div_ceil(1 << 20)
            )),
        }
    }

    /// Folders whose whole content belongs to the image; what is open or mapped is in it already.
    fn take_folders(&mut self, dumps: &[ProcessDump]) -> Result<Vec<WholeFolder>> {
        let threads = dumps.iter().flat_map(|dump| &dump.image.threads);
        let mut owners: Vec<u32> =
            threads.flat_map(|thread| thread.credentials.uids.iter().copied()).collect();
        owners.sort_unstable();
        owners.dedup();
        let _taking = debug_span!("folders").entered();
        doing::begin("reading the job's folders", Thing::Job);
        let folders = self.frozen.settings.kept.all_folders().map(PathBuf::as_path);
        folders::take_all(folders, &owners, &mut self.context)
    }

    #[allow(clippy::type_complexity, reason = "used once, right above")]
    fn read_processes(
        &mut self,
        processes: &mut [StoppedProcess],
        page: u64,
    ) -> Result<(Vec<ProcessDump>, Vec<SnapshotProcess>, Option<Vdso>, Clocks)> {
        let mut windows = Vec::new();
        let mut readings = Vec::with_capacity(processes.len());
        // What is refused is refused before any process makes a call for us.
        let mut mapped = Vec::with_capacity(processes.len());
        for process in processes.iter() {
            doing::begin("looking at", Thing::Process(self.nodes[&process.host_pid].pid));
            mapped.push(self.check_process(process)?);
        }
        for (process, Seen { vdso, statuses, .. }) in processes.iter_mut().zip(&mapped) {
            process.ignores_traps = statuses.first().is_some_and(process::ignores_traps);
            leave_vdso(process, vdso)?;
        }
        // What is left of sleeps and timers is told as of this moment or an earlier one, and no thread reads a clock
        // after it: an image wakes nobody early, and none of its clocks goes back.
        let moment = Instant::now();
        let clocks = clocks::of_process(self.frozen.settings.init)?;
        for (index, (process, mapped)) in processes.iter_mut().zip(mapped).enumerate() {
            readings.push(self.read_process(process, index == 0, mapped, moment, &mut windows)?);
        }
        let vdso = readings.first().map(|reading| reading.vdso.clone());
        {
            let copied = self.context.copying.done.clone();
            let before = copied.load(Ordering::Relaxed);
            let copying = debug_span!("shared memory", windows = windows.len(), bytes = Empty);
            let _copying = copying.enter();
            doing::begin("copying shared memory", Thing::Job);
            self.read_segments(processes, &readings, &windows, page)?;
            self.read_shared(processes, &readings, &windows, page)?;
            copying.record("bytes", copied.load(Ordering::Relaxed).saturating_sub(before));
        }
        let snapshot_processes = make_snapshot_processes(processes, &readings)?;
        let mut dumps = Vec::with_capacity(processes.len());
        for ((process, reading), snapshot_process) in
            processes.iter_mut().zip(readings).zip(&snapshot_processes)
        {
            dumps.push(self.finish_process(process, reading, snapshot_process.host_pid(), page)?);
        }
        Ok((dumps, snapshot_processes, vdso, clocks))
    }

    /// Refuses what no image can hold, and what calls into the process could end.
    fn check_process(&self, process: &StoppedProcess) -> Result<Seen> {
        let host_pid = process.host_pid;
        let node = &self.nodes[&host_pid];
        process::check_supported(process, node.pid, &node.comm)?;
        let statuses = process::statuses(process, node.pid, &node.comm, self.frozen.filters)?;
        let mappings = read_maps(host_pid)?;
        mappings
            .iter()
            .filter(|mapping| !mapping.is_kernel())
            .try_for_each(check)
            .map_err(|error| error.of(node.pid, &node.comm))?;
        let vdso = Vdso::of(host_pid, &mappings)?;
        Ok(Seen { mappings, vdso, statuses })
    }

    fn read_process(
        &mut self,
        process: &mut StoppedProcess,
        first: bool,
        Seen { mut mappings, vdso, statuses }: Seen,
        moment: Instant,
        windows: &mut Vec<Window>,
    ) -> Result<Reading> {
        let host_pid = process.host_pid;
        let node = self.nodes[&host_pid].clone();
        let threads = process.threads.len();
        let _reading = debug_span!("process", pid = node.pid, host_pid, threads).entered();
        doing::begin("asking", Thing::Process(node.pid));
        let name = |error: EngineError| error.of(node.pid, &node.comm);
        let (stat, status) = process::stat_and_status(host_pid)?;
        let entry_point = vdso.kernel_entry()?;
        let mut remote = process.lend(entry_point)?;
        if self.frozen.shares_ipc() {
            segments::refuse_attached(&mappings).map_err(name)?;
        } else if first {
            segments::survey(&mut remote, &mut self.context).map_err(name)?;
        }
        let identity = take_identity(host_pid, &mut mappings)?;
        let planned = plan(host_pid, mappings, &mut self.context, windows).map_err(name)?;
        let mut inside = process::ask_process(&mut remote, moment)?;
        if statuses.first().is_some_and(process::ignores_traps) {
            inside.ignore_traps();
        }
        let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch", "missing"))?;
        let Collected { files, descriptors, .. } = &mut self.collected;
        let mut known = process::Known {
            depth: self.frozen.depth,
            sleeps: &self.frozen.sleeps,
            moment,
            descriptors: descriptors.get(&host_pid).map_or(&[], Vec::as_slice),
            files,
        };
        let first = statuses.first().ok_or(EngineError::Gone(host_pid))?;
        let leader = process::ask_thread(&mut remote, scratch, first, &mut known)?;
        inside.threads.push(leader);
        drop(remote);
        for (thread, status) in process.threads.iter_mut().zip(&statuses).skip(1) {
            let (tid, pid) = (thread.tid(), host_pid);
            trace!(tid, "thread");
            doing::begin("asking", Thing::HostThread { tid, pid });
            let mut remote = Remote::take(thread, entry_point)?.with_scratch(scratch);
            let image = process::ask_thread(&mut remote, scratch, status, &mut known)?;
            inside.threads.push(image);
        }
        if let Some(node) = self.nodes.get_mut(&host_pid) {
            node.subreaper = inside.subreaper;
        }
        Ok(Reading { stat, status, planned, inside, entry_point, vdso, identity })
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
            for (process, reading) in processes.iter_mut().zip(readings) {
                let host_pid = process.host_pid;
                let mut remote = process.lend(reading.entry_point)?;
                let read = |remote: &mut Remote<'_>, mapping| {
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

    fn finish_process(
        &mut self,
        process: &mut StoppedProcess,
        reading: Reading,
        snapshot_pid: i32,
        page: u64,
    ) -> Result<ProcessDump> {
        let host_pid = process.host_pid;
        let pid = self.nodes[&host_pid].pid;
        let _finishing = debug_span!("finish", pid, host_pid).entered();
        doing::begin("completing the snapshot of", Thing::Process(pid));
        let (early, guards) = self.read_early(host_pid, snapshot_pid, &reading.planned, page)?;
        process.take_scratch_out()?;
        let mut threads = reading.inside.threads;
        for (image, thread) in threads.iter_mut().zip(&process.threads) {
            image.pending = process::pending(thread)?;
        }
        let pending = process::pending_of_process(&process.threads)?;
        let link = |name: &str| {
            let path = format!("/proc/{host_pid}/{name}");
            std::fs::read_link(&path)
                .map(|target| target.to_string_lossy().into_owned())
                .map_err(|error| EngineError::system("readlink", path, error))
        };
        let descriptors: Vec<Descriptor> =
            self.collected.descriptors.remove(&host_pid).unwrap_or_default();
        let oom_path = format!("/proc/{host_pid}/oom_score_adj");
        let oom_score_adj =
            read_text(&oom_path)?.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let break_address = reading.inside.break_address;
        let (executable, memory_map, auxv) = match reading.identity {
            Some(own) => {
                let memory_map = own.memory_map(break_address);
                (own.executable, memory_map, own.auxv)
            }
            None => {
                let path = format!("/proc/{host_pid}/auxv");
                let auxv = std::fs::read(&path)
                    .map_err(|error| EngineError::system("read", path, error))?;
                let memory_map = process::memory_map(&reading.stat, break_address);
                (link("exe")?, memory_map, super::super::graph::to_hex(&auxv))
            }
        };
        let (working_directory, removed_directory) =
            process::working_directory(host_pid, link("cwd")?)?;
        let image = ProcessImage {
            version: GRAPH_VERSION,
            pid: self.nodes[&host_pid].pid,
            executable: MappedFile { path: executable, size: 0, modified_ns: 0, build_id: None },
            working_directory,
            removed_directory,
            root_directory: None,
            umask: reading.status.umask.unwrap_or(0o022),
            nice: i32::try_from(reading.stat.nice).unwrap_or(0),
            dumpable: reading.inside.dumpable,
            thp_disable: reading.inside.thp_disable,
            membarrier: reading.inside.membarrier,
            oom_score_adj,
            stopped_by: process.group_stop,
            descriptors,
            locks: self.collected.process_locks.remove(&host_pid).unwrap_or_default(),
            actions: reading.inside.actions,
            pending,
            interval_timers: reading.inside.interval_timers,
            limits: process::limits(host_pid)?,
            memory_map,
            auxv,
            areas: Vec::new(),
            pages: Vec::new(),
            threads,
        };
        Ok(ProcessDump { host_pid, snapshot_pid, image, planned: reading.planned, early, guards })
    }

    /// Pages and guard regions of areas that the snapshot process has not inherited, read from the process itself. What
    /// may be dropped is: random numbers that a library keeps there must not come twice.
    fn read_early(
        &self,
        host_pid: i32,
        snapshot_pid: i32,
        planned: &[Planned],
        page: u64,
    ) -> Result<ReadEarly> {
        let known = self.frozen.not_inherited.get(&host_pid).map_or(&[][..], Vec::as_slice);
        let inherited = read_maps(snapshot_pid)?;
        for area in planned {
            let mapping = &area.mapping;
            if mapping.is_segment() {
                continue;
            }
            let covered =
                |known: &Mapping| known.start <= mapping.start && mapping.end <= known.end;
            let there = inherited.iter().any(|m| m.start <= mapping.start && mapping.end <= m.end);
            if !there && !known.iter().any(covered) {
                return Err(EngineError::odd(
                    format!("process {host_pid}"),
                    "its memory was being rearranged; the next checkpoint will take it",
                ));
            }
        }
        let mut pagemap = Pagemap::of(host_pid, page)?;
        let mut memory = ProcessMemory::of(host_pid);
        let (mut early, mut guards) = (Vec::new(), Vec::new());
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

    /// Tells what the agent holds of relays that is not in a native object: bytes for this side as the
    /// agent encodes them, and whether the far side has closed. Relays that are not named hold
    /// nothing.
    pub fn set_relay_states(&mut self, states: Vec<(RelayEnd, Vec<u8>, bool)>) {
        self.relay_states = states;
    }

    fn remote_shells(&mut self) -> Vec<RemoteShell> {
        let mut shells = Vec::new();
        for host_pid in &self.frozen.job.stand_ins {
            let pid = self.nodes[host_pid].pid;
            if let Some(descriptors) = self.collected.descriptors.remove(host_pid) {
                shells.push(RemoteShell { pid, descriptors });
            }
        }
        shells
    }

    fn relay_states(&mut self) -> Vec<RelayState> {
        let held = std::mem::take(&mut self.relay_states);
        let mut states = Vec::new();
        let ends: Vec<RelayEnd> =
            self.context.relays.iter().map(|relay| relay.end.clone()).collect();
        for end in ends {
            let held = held.iter().find(|(other, ..)| *other == end);
            let bytes = held.map(|(_, bytes, _)| bytes).filter(|bytes| !bytes.is_empty());
            let undelivered = bytes.map(|bytes| self.context.keep(bytes.clone()));
            let far_closed = held.is_some_and(|(_, _, far_closed)| *far_closed);
            states.push(RelayState { end, undelivered, far_closed });
        }
        states
    }
}

/// What was seen of a process before any call was made in it.
struct Seen {
    mappings: Vec<Mapping>,
    vdso: Vdso,
    /// Of each thread.
    statuses: Vec<Status>,
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

/// Living processes as they were frozen, parents before their children, then zombies.
fn parents_first(nodes: &BTreeMap<i32, ProcessNode>, dumps: &[ProcessDump]) -> Vec<ProcessNode> {
    let order: HashMap<i32, usize> =
        dumps.iter().enumerate().map(|(index, dump)| (dump.host_pid, index)).collect();
    let mut placed: Vec<(usize, &ProcessNode)> = nodes
        .iter()
        .map(|(host_pid, node)| (order.get(host_pid).copied().unwrap_or(usize::MAX), node))
        .collect();
    placed.sort_by_key(|(position, node)| {
        (matches!(node.state, ProcessState::Zombie { .. }), *position, node.pid)
    });
    placed.into_iter().map(|(_, node)| node.clone()).collect()
}

/// Bytes per page of this machine.
pub fn page_size() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

impl Snapshot {
    /// Lets the job go on; how long it stood.
    ///
    /// # Errors
    /// Failures to let a thread go, other than its end.
    pub fn resume(&mut self) -> Result<Duration> {
        // Those who run already would keep the others standing.
        let _ahead = Ahead::begin();
        if let Some(job) = self.job.take() {
            for mut process in job.processes {
                let pid = process.host_pid;
                doing::begin("letting go", Thing::HostProcess(pid));
                for thread in std::mem::take(&mut process.threads) {
                    match thread.detach() {
                        Ok(()) | Err(EngineError::Gone(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(self.since.elapsed())
    }

    /// What is to be written, once.
    pub fn take_data(&mut self) -> Option<SnapshotData> {
        self.data.take()
    }

    /// Whether the job stands still.
    pub fn stands(&self) -> bool {
        self.job.is_some()
    }

    /// Processes that stand still.
    pub fn processes(&self) -> usize {
        self.job.as_ref().map_or(0, |job| job.processes.len())
    }

    /// Has the copies of memory stop at their ends, for one who takes their memory when it kills them.
    pub fn stop_snapshot_processes_at_end(&self) {
        for snapshot_process in &self.snapshot_processes {
            if let Err(error) = snapshot_process.stop_at_end() {
                // The write finds that it is dead.
                tracing::debug!("a copy of memory: {error}");
            }
        }
    }

    /// Everything has been written: the copies of memory are not needed any more.
    pub fn drop_snapshot_processes(&mut self) {
        self.snapshot_processes.clear();
    }

    /// Whether all snapshot processes still hold their memory.
    pub fn is_whole(&self) -> bool {
        self.snapshot_processes.iter().all(SnapshotProcess::is_alive)
    }
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
