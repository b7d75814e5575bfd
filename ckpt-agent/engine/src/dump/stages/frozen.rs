//! All threads stand still.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use procfs::process::Stat;
use tracing::debug_span;

use super::{DumpSettings, Quiesced};
use crate::aio;
use crate::control_groups::{self, Groups};
use crate::doing::{self, Thing};
use crate::dump::collect::{add_unopened_queues, check_queues, collect};
use crate::dump::early;
use crate::dump::login_of;
use crate::dump::namespaces;
use crate::dump::outside;
use crate::dump::process;
use crate::dump::sandbox;
use crate::dump::sharing;
use crate::dump::sleep::Sleeps;
use crate::dump::standins;
use crate::dump::undumpable;
use crate::error::{EngineError, Refusal, Result};
use crate::freeze::{FrozenJob, StoppedProcess, freeze_knowing};
use crate::graph::{Pid, ProcessNode, ProcessState, Sharing};
use crate::inodes::ahead::{self, Copies, Taken};
use crate::ipc;
use crate::late::{Names, filters_of};
use crate::leases::Leased;
use crate::objects::{ConsoleTerminal, DumpContext, Object, is_watched, is_write_watched};
use crate::proc::{
    Mapping, Members, add_policies, descriptor_numbers, job_number, mounts, must_be_own, read_maps,
    read_smaps, read_text, shown_by,
};
use crate::sys::network;
use crate::sys::pidfd::PidFd;
use crate::sys::schedule::Ahead;
use crate::trace::Vdso;
use crate::tracking::Tracking;

/// Mappings of a process that its children do not inherit as they are: found while it still runs.
pub(super) type NotInherited = HashMap<i32, Vec<Mapping>>;

/// What is the job's as a whole: a process that has something else has come to that itself.
#[derive(Debug)]
pub(super) struct OfJob {
    /// Control groups.
    pub(super) groups: Groups,
    /// Who has logged in.
    pub(super) login_user: Option<u32>,
}

/// All threads of the job stand still.
#[derive(Debug)]
pub struct Frozen {
    pub(super) job: FrozenJob,
    pub(super) settings: DumpSettings,
    pub(super) not_inherited: NotInherited,
    pub(super) sleeps: Sleeps,
    pub(super) depth: usize,
    /// Seccomp filters that the init is under.
    pub(super) filters: u32,
    pub(super) names: Names,
    /// Processes that are remote shells, as the job numbers them.
    pub(super) remote_shells: Vec<Pid>,
    pub(super) copies: Copies,
    pub(super) seen: Taken,
}

/// The processes of a frozen job, living or dead, by their numbers on this machine.
struct Looked {
    nodes: BTreeMap<i32, ProcessNode>,
    /// Sessions and groups of strangers in which some of them are.
    strangers: BTreeSet<i32>,
    /// What /proc says of them.
    stats: BTreeMap<i32, Stat>,
}

/// Freezes a job, after files have been read that its image will have.
///
/// # Errors
/// As [`freeze`].
pub fn freeze_job(mut settings: DumpSettings) -> Result<Frozen> {
    let copies = {
        let _reading = debug_span!("read ahead").entered();
        doing::begin("reading files ahead", Thing::Job);
        Copies::make(&ahead::Order {
            members: &settings.members,
            folders: settings.kept.all_folders().cloned().collect(),
            files_limit: settings.kept.limit(),
            user: settings.user.as_ref(),
            seen: &settings.seen,
            cluster: settings.cluster,
            copying: &settings.copying,
        })
    };
    {
        let _making = debug_span!("make room").entered();
        settings.copying.make_room(&settings.members);
    }
    let looking = debug_span!("look").entered();
    settings.members.gather()?;
    let ahead = Ahead::begin();
    let (not_inherited, without_rings) = find_not_inherited(&settings.members, &settings.tracking)?;
    let (_, status) = process::stat_and_status(settings.init)?;
    let depth = status.nspid.map_or(1, |all| all.len());
    let filters = filters_of(settings.init, settings.init)?.unwrap_or(0);
    let sleeps = Sleeps::observe(&settings.members)?;
    let shells = standins::shells(&settings.relays);
    let (stand_ins, remote_shells) = standins::find(&settings.members, &shells)?;
    drop((ahead, looking));
    let limit = settings.freeze_limit;
    let job = freeze_knowing(&settings.members, stand_ins, without_rings, limit)?;
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

/// MADV_DONTFORK, MADV_WIPEONFORK and locked areas of all processes, those of huge pages, and SysV segments. Reading smaps walks all page
/// tables, which is why it is done before the job is stopped; what changes in between is noticed afterwards.
/// Also processes that have no memory of an io_uring.
fn find_not_inherited(
    members: &Members,
    tracking: &Tracking,
) -> Result<(NotInherited, BTreeSet<i32>)> {
    let (mut found, mut without_rings) = (NotInherited::new(), BTreeSet::new());
    for pid in members.list()? {
        doing::begin("looking at the memory of", Thing::HostProcess(pid));
        must_be_own(pid)?;
        let shown = shown_by(pid)?;
        let mappings = match read_smaps(shown) {
            Ok(mappings) => mappings,
            Err(EngineError::Gone(_)) => continue,
            Err(error) => return Err(undumpable::explain(shown, error)),
        };
        if !mappings.iter().any(Mapping::is_ring) {
            without_rings.insert(pid);
        }
        let is_tracked = tracking.watches(shown);
        let mut special: Vec<Mapping> = mappings
            .into_iter()
            .filter(|mapping| {
                is_not_inherited(mapping)
                    || mapping.has(b"lo")
                    || mapping.has(b"ht")
                    || mapping.is_segment()
                    || mapping.is_ring()
                    || mapping.is_aio()
                    || is_watched(mapping) && !(is_tracked && is_write_watched(mapping))
            })
            .collect();
        if !special.is_empty() {
            add_policies(shown, &mut special)?;
            found.insert(shown, special);
        }
    }
    Ok((found, without_rings))
}

/// Whether a child gets this mapping without its content, or not at all. Huge pages are taken away from it: it would keep them
/// from the process, which needs others for what it writes, and where there are none they are taken from the child in any case
/// (mm/hugetlb.c, unmap_ref_private()).
pub(in crate::dump) fn is_not_inherited(mapping: &Mapping) -> bool {
    let huge = mapping.has(b"ht") && !mapping.shared;
    (mapping.has(b"wf") || mapping.has(b"dc") || huge)
        && !mapping.is_ring()
        && !mapping.is_aio()
        && !mapping.has(b"io")
        && !mapping.has(b"pf")
        && !mapping.is_kernel()
}

/// What a process sees mounted.
fn mounts_of(host_pid: i32) -> Result<String> {
    let path = format!("/proc/{host_pid}/mountinfo");
    read_text(&path)?.ok_or(EngineError::Gone(host_pid))
}

/// An error with the name of the process that this machine numbers so.
fn named(nodes: &BTreeMap<i32, ProcessNode>, (host_pid, error): (i32, EngineError)) -> EngineError {
    match nodes.get(&host_pid) {
        Some(node) => error.of(node.pid, &node.comm),
        None => error,
    }
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
        let Looked { mut nodes, strangers, stats } = self.look()?;
        self.check_leaders(&nodes)?;
        self.check_root(&nodes)?;
        let mut namespaces = self.own_namespaces(&mut nodes)?;
        self.show_hidden(&nodes, &namespaces)?;
        self.check_stand_ins(&nodes)?;
        let mut context = DumpContext {
            session_directories: std::mem::take(&mut self.settings.session_directories),
            files_limit: self.settings.kept.limit(),
            file_check: self.settings.kept.file_check,
            external: self.settings.external,
            shares_ipc: self.shares_ipc(),
            stdio: std::mem::take(&mut self.settings.stdio),
            terminal: self.terminal(&nodes, &stats),
            is_adopted: matches!(self.settings.members, Members::Tree(_)),
            init: match self.settings.members {
                // To whom orphans fall, as they will to the job's init.
                Members::Tree(_) => Some(1),
                _ => Some(self.settings.init),
            },
            cluster: self.settings.cluster,
            machines: std::mem::take(&mut self.settings.machines),
            relays: std::mem::take(&mut self.settings.relays),
            user: self.settings.user.take(),
            names: std::mem::take(&mut self.names),
            copying: self.settings.copying.clone(),
            copies: std::mem::take(&mut self.copies),
            seen: std::mem::take(&mut self.seen),
            leased: Leased::now(),
            ipc_namespaces: namespaces.ipc_namespaces(),
            networks: namespaces.networks(self.settings.init),
            proc_device: namespaces.proc_device(self.settings.init)?,
            places: namespaces.found(),
            shown: self.settings.shown.clone(),
            tracking: self.settings.tracking.clone(),
            huge_mounts: mounts::huge(&mounts_of(self.settings.init)?),
            ..DumpContext::default()
        };
        for (host_pid, node) in &nodes {
            context.pids.insert(*host_pid, node.pid);
        }
        namespaces.add_segments(&mut context);
        let root = self.settings.root;
        context.led = strangers.into_iter().map(|number| (number, root)).collect();
        self.add_threads(&mut context)?;
        let among_others = process::is_among_others(self.depth);
        let sharing = sharing::find(&self.job.processes, &nodes, &stats, among_others)?;
        namespaces.check_sharing(&sharing, &nodes)?;
        let directories = sharing::find_threads(&self.job.processes, &nodes)?;
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
        self.settle_contexts(&nodes, &sharing, &mut context)?;
        let streams_only = &self.remote_shells;
        let known_networks = network::Known::begin();
        let mut collected = collect(&living, streams_only, &mut context)?;
        let used = context.networks.as_ref().map(|networks| networks.used.clone());
        let disowned = namespaces.have_sockets(&used.unwrap_or_default());
        let disowned = disowned.map_err(|found| named(&nodes, found))?;
        if disowned {
            context.warn(
                "a network namespace with sockets in it belongs to the job's users after a restart, and no longer to those \
                 of the process that has made it, who have no rights over it then",
            );
        }
        if !context.shares_ipc {
            check_queues(self.settings.init, &collected, &context)?;
            add_unopened_queues(self.settings.init, &mut collected, &mut context)?;
        }
        Object::finish_all(&mut collected.files, &collected.probes, &mut context)?;
        early::open_registered(&mut collected.files, &collected.probes)?;
        namespaces::tell_peers(&collected.files, &nodes, &mut context);
        let relay_states = Vec::new();
        Ok(Quiesced {
            frozen: self,
            nodes,
            namespaces,
            sharing,
            directories,
            collected,
            context,
            relay_states,
            known_networks: Some(known_networks),
        })
    }

    /// Has processes that nobody may look into show what they have until they go on.
    fn show_hidden(
        &mut self,
        nodes: &BTreeMap<i32, ProcessNode>,
        namespaces: &namespaces::Own,
    ) -> Result<()> {
        let mut hidden = Vec::new();
        for (place, process) in self.job.processes.iter_mut().enumerate() {
            let host_pid = process.host_pid;
            if !undumpable::is_hidden(host_pid) {
                continue;
            }
            let node = &nodes[&host_pid];
            doing::begin("looking at", Thing::Process(node.pid));
            let name = |error: EngineError| error.of(node.pid, &node.comm);
            if namespaces.has_pids() {
                return Err(name(undumpable::refuse_standing()));
            }
            process::check_supported(process, std::iter::empty(), node.pid, &node.comm)?;
            let statuses = process::statuses(process, node.pid, &node.comm)?;
            sandbox::suspend(process, &statuses, self.filters).map_err(name)?;
            let vdso = Vdso::of(host_pid, &read_maps(host_pid)?).map_err(name)?;
            self.sleeps.learn(process, &statuses);
            hidden.push((place, vdso.kernel_entry()?));
        }
        for (place, entry_point) in hidden {
            let process = &mut self.job.processes[place];
            let node = &nodes[&process.host_pid];
            doing::begin("asking", Thing::Process(node.pid));
            process.make_dumpable(entry_point).map_err(|error| error.of(node.pid, &node.comm))?;
        }
        Ok(())
    }

    /// Waits a moment until nothing is in flight in contexts of asynchronous input and output. That comes before anything is
    /// read that such a request changes: files, and eventfds that tell of its end.
    fn settle_contexts(
        &mut self,
        nodes: &BTreeMap<i32, ProcessNode>,
        sharing: &[Sharing],
        context: &mut DumpContext,
    ) -> Result<()> {
        let _settling = debug_span!("asynchronous input and output").entered();
        let mut found = Vec::new();
        for (place, process) in self.job.processes.iter_mut().enumerate() {
            let host_pid = process.host_pid;
            let known = self.not_inherited.get(&host_pid);
            let node = &nodes[&host_pid];
            let shares = sharing.iter().any(|one| one.memory && one.pid == node.pid);
            if shares || !known.is_some_and(|known| known.iter().any(Mapping::is_aio)) {
                continue;
            }
            doing::begin("looking at", Thing::Process(node.pid));
            process::check_supported(process, std::iter::empty(), node.pid, &node.comm)?;
            let statuses = process::statuses(process, node.pid, &node.comm)?;
            process.ignores_traps = statuses.first().is_some_and(process::ignores_traps);
            sandbox::suspend(process, &statuses, self.filters)
                .map_err(|error| error.of(node.pid, &node.comm))?;
            let mut mappings = read_maps(host_pid)?;
            let vdso =
                Vdso::of(host_pid, &mappings).map_err(|error| error.of(node.pid, &node.comm))?;
            mappings.retain(Mapping::is_aio);
            aio::check(host_pid, &mappings, &mut context.aio)
                .map_err(|error| error.of(node.pid, &node.comm))?;
            let first = statuses.first().ok_or(EngineError::Gone(host_pid))?;
            process.make_room(first).map_err(|error| error.of(node.pid, &node.comm))?;
            found.push((place, vdso.kernel_entry()?, mappings));
        }
        for (place, entry_point, mappings) in found {
            let process = &mut self.job.processes[place];
            let node = &nodes[&process.host_pid];
            doing::begin("asking", Thing::Process(node.pid));
            process.die_with_tracer();
            aio::settle(process, entry_point, &mappings, &mut context.aio)
                .map_err(|error| error.of(node.pid, &node.comm))?;
        }
        Ok(())
    }

    /// The end of the first process is told by the init, to whom it is a zombie for a moment: an image of that moment
    /// would have nobody to tell of it.
    fn check_root(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        let root = self.settings.root;
        let lives = |node: &ProcessNode| node.pid == root && node.state == ProcessState::Alive;
        if root == 0 || nodes.values().any(lives) {
            return Ok(());
        }
        let found = nodes.values().find(|node| node.pid == root);
        let refusal = match found.map(|node| &node.state) {
            // Its output comes from elsewhere, and a restart would find nothing here to be restored.
            Some(ProcessState::StandIn) => Refusal::new(
                "is the job's first process, and stands for one that 'ckptd rsh' has started on another node",
                "start that from a shell: sh -c 'ckptd rsh NODE COMMAND; exit $?'",
            ),
            _ => Refusal::passing("has just ended", "try again"),
        };
        let comm = found.map(|node| node.comm.clone()).unwrap_or_default();
        Err(EngineError::RefusedProcess { pid: root, comm, refusal })
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
    pub(super) fn shares_ipc(&self) -> bool {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/ipc")).ok();
        of("self") == of(&self.settings.init.to_string())
    }

    /// SysV semaphores and message queues of the job. Without a namespace of its own nobody can tell which are the job's.
    ///
    /// # Errors
    /// A refusal where they can't be looked into; failed system calls.
    pub(super) fn listed_ipc(&self, processes: &[StoppedProcess]) -> Result<ipc::Listed> {
        if self.shares_ipc() {
            ipc::refuse_used(&processes.iter().map(|process| process.host_pid).collect())?;
            return Ok(ipc::Listed::default());
        }
        let init = self.settings.init;
        Ok(ipc::listed(init, &descriptor_numbers(init)?)?.unwrap_or_default())
    }

    /// Namespaces that processes of the job have made for themselves.
    fn own_namespaces(&self, nodes: &mut BTreeMap<i32, ProcessNode>) -> Result<namespaces::Own> {
        let (init, processes) = (self.settings.init, &self.job.processes);
        let own = namespaces::Own::find(init, processes);
        let mut own = own.map_err(|found| named(nodes, found))?;
        let among_others = process::is_among_others(self.depth);
        let found = own.find_pids(init, processes, nodes, among_others);
        found.map_err(|found| named(nodes, found))?;
        Ok(own)
    }

    /// A main thread that has ended while others go on shows nothing in /proc any more: another one must do instead.
    fn check_leaders(&self, nodes: &BTreeMap<i32, ProcessNode>) -> Result<()> {
        for process in &self.job.processes {
            if process.leader != process.host_pid && PidFd::open(process.host_pid).is_err() {
                let node = &nodes[&process.host_pid];
                return Err(EngineError::RefusedProcess {
                    pid: node.pid,
                    comm: node.comm.clone(),
                    refusal: Refusal::new(
                        "has ended its main thread while others go on",
                        "let the main thread wait for the others, or use Linux 6.9 or newer",
                    ),
                });
            }
        }
        Ok(())
    }

    /// Looks at every process of the job.
    fn look(&self) -> Result<Looked> {
        let (mut nodes, mut strangers) = (BTreeMap::new(), BTreeSet::new());
        let mut stats = BTreeMap::new();
        let living = self.job.processes.iter().map(|process| (process.host_pid, process.leader));
        let others = self.job.stand_ins.iter().chain(&self.job.zombies).map(|pid| (*pid, *pid));
        let all: Vec<(i32, i32)> = living.chain(others).collect();
        let shown: BTreeMap<i32, i32> =
            all.iter().map(|(host_pid, own)| (*own, *host_pid)).collect();
        let mut parents = Vec::new();
        for (host_pid, own) in all {
            let (stat, status) = match process::stat_and_status(own) {
                // Reaped by the init, which is not frozen.
                Err(EngineError::Gone(_)) if self.job.zombies.contains(&host_pid) => continue,
                read => read?,
            };
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
            if own != host_pid {
                // Its main thread alone has ended.
                node.state = ProcessState::Alive;
            }
            nodes.insert(host_pid, node);
            stats.insert(host_pid, stat);
        }
        for (child, parent) in parents {
            let ppid = match nodes.get(shown.get(&parent).unwrap_or(&parent)) {
                Some(parent) => parent.pid,
                None if parent == self.settings.init => 1,
                // Strangers' children: the tree's first process, and orphans.
                None if matches!(self.settings.members, Members::Tree(_)) => 1,
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
        if let Members::Tree(tree) = &self.settings.members {
            strangers = outside::lead(tree, &mut nodes);
        }
        Ok(Looked { nodes, strangers, stats })
    }

    /// What processes are compared with. Its groups are its init's, or where a process that ran already was taken over, that
    /// one's.
    pub(super) fn of_job(&self, nodes: &BTreeMap<i32, ProcessNode>) -> OfJob {
        let init = self.settings.init;
        let root = || nodes.iter().find(|(_, node)| node.pid == self.settings.root);
        let process = match &self.settings.members {
            Members::Tree(_) => root().map_or(init, |(host_pid, _)| *host_pid),
            _ => init,
        };
        OfJob { groups: control_groups::of(&process.to_string()), login_user: login_of(init) }
    }

    /// The job's terminal, with what a stranger's shows of itself by the processes alone.
    fn terminal(
        &mut self,
        nodes: &BTreeMap<i32, ProcessNode>,
        stats: &BTreeMap<i32, Stat>,
    ) -> Option<ConsoleTerminal> {
        match self.settings.terminal.take() {
            Some(ConsoleTerminal::Strangers(terminal)) => {
                let terminal = outside::terminal(terminal.index, nodes, stats);
                Some(ConsoleTerminal::Strangers(terminal))
            }
            other => other,
        }
    }

    /// Thread numbers, for owners of descriptors.
    fn add_threads(&self, context: &mut DumpContext) -> Result<()> {
        for process in &self.job.processes {
            let own = context.pids.get(&process.host_pid).copied();
            own.and_then(|pid| context.pids.insert(process.leader, pid));
            let others = process.threads.iter().filter(|thread| thread.tid() != process.leader);
            for thread in others {
                let path = format!("/proc/{}/task/{}/status", process.host_pid, thread.tid());
                let text = read_text(&path)?.ok_or(EngineError::Gone(thread.tid()))?;
                context
                    .pids
                    .insert(thread.tid(), job_number(&text, self.depth).unwrap_or(thread.tid()));
            }
        }
        Ok(())
    }
}
