//! Makes processes out of a checkpoint, in the job's init: kernel objects
//! first, then the process tree as helpers, then each helper's memory and threads. Nobody runs
//! before everybody is complete.

mod attributes;
mod clocks;
mod common;
mod completing;
mod completing_memory;
mod credentials;
mod directories;
mod held;
mod held_locks;
mod helper;
mod huge_pages;
mod identity;
mod image;
mod last_number;
mod layout;
mod making_threads;
mod mapped;
mod memory;
mod memory_map;
mod namespaces;
mod notifications;
mod numbers;
mod of_processes;
mod on_demand;
mod orders;
mod pids;
mod posix_timers;
mod rings;
mod room;
mod sandbox;
mod sharers;
mod signal_readers;
mod stops;
mod tables;
mod threads;
mod told;
pub mod tree;
mod userfault;
mod vdso;

pub use identity::Identity;
pub use image::{Image, Processes, highest_descriptor};
pub use memory_map::own_stack;
pub use told::refuse_rehearsal;

use std::collections::{BTreeMap, BTreeSet};

use protocol::cluster::agent::stream_relay;
use protocol::launch::Kept;

use super::demand::Feeder;
use super::error::{EngineError, Result};
use super::folders;
use super::graph::{
    Credentials, FileId, Offer, Pid, ProcessImage, ProcessState, RelayEnd, RelayKind, offer,
};
use super::inodes;
use super::ipc;
use super::job_init::groups_outside;
use super::job_init::stages::{self, Stage};
use super::late;
use super::locks;
use super::objects::{
    ControllingTerminal, Object, RestoreContext, controlling_terminals, give_removed_modes,
    make_removed, quieten, reopen, watch_again,
};
use super::proc::read_maps;
use super::split::standin::Link;
use super::sys::allocator;
use super::sys::cpu_features;
use super::sys::file_user::FileUser;
use super::sys::limits;
use super::sys::memory_map::Means;
use super::sys::restrained::{OVER_OBJECTS, Restrained};
use super::trace::{Remote, RunningThread, Scratch, StoppedThread, Vdso};
use common::Common;
use completing::Furnished;
use helper::Preparation;
use making_threads::make_threads;
use mapped::MappedFiles;
use numbers::Numbers;
use on_demand::Later;
use orders::Orders;
use tables::Tables;
use vdso::ForeignVdso;

use ckpt_store::ChunkReader;

/// A process that is complete and still stands. Dropping it kills it: it must not run unless all do.
#[derive(Debug)]
struct Complete {
    threads: Vec<StoppedThread>,
    stopped_by: Option<i32>,
    known: stops::Known,
    /// Its number here.
    pid: i32,
}

impl Complete {
    /// Lets its threads go.
    fn let_go(&mut self) -> Result<()> {
        for thread in std::mem::take(&mut self.threads) {
            match thread.detach() {
                Ok(()) | Err(EngineError::Gone(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Complete {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // SAFETY: takes numbers only; the process is a child of this init's tree and traced by it.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }
}

/// A job that is complete and still stands. Dropping it kills it.
#[derive(Debug)]
pub struct Standing {
    processes: Vec<Complete>,
    numbers: Numbers,
    /// What fills memory that is not filled yet.
    feeder: Option<Feeder>,
}

impl Standing {
    /// What a recorded number is here, if somebody has it.
    pub fn here(&self, recorded: Pid) -> Option<Pid> {
        self.numbers.here(recorded)
    }

    /// How many processes it has.
    pub fn processes(&self) -> u32 {
        u32::try_from(self.processes.len()).unwrap_or(u32::MAX)
    }

    /// Lets it run; what fills memory that is not filled yet.
    ///
    /// # Errors
    /// Where a process cannot be let go. One that was killed meanwhile is no error.
    pub fn go(mut self) -> Result<Option<Feeder>> {
        stops::stop_all(&mut self.processes, &self.numbers)?;
        for process in &mut self.processes {
            process.let_go()?;
        }
        let feeder = self.feeder.take();
        feeder.iter().for_each(Feeder::go);
        Ok(feeder)
    }
}

/// Rebuilds the job of an image up to the moment before it runs. The caller is a single-threaded init; on
/// an error all its helpers must be killed by its own end.
///
/// # Errors
/// Whatever does not fit: nothing of the job has run then.
pub fn restore(
    image: &Image,
    processes: Processes,
    context: &mut RestoreContext<'_>,
) -> Result<Standing> {
    let nodes = context.part.as_ref().map_or(&image.graph.processes, |part| &part.nodes);
    pids::check(nodes, &image.graph, &processes, context.user.is_some())?;
    let foreign = foreign_vdso(image, &processes, context)?;
    check_features(image, &processes, context)?;
    limits::raise_own(context.user.is_none())?;
    room::check(&processes)?;
    let files = {
        let networks = namespaces::make_networks(context)?;
        let _acting = act_as_user(context)?;
        {
            let _making = stages::begin(Stage::Files);
            folders::begin(context)?;
            inodes::restore_all(context)?;
            ipc::make_all(&image.graph.ipc, context)?;
        }
        let namespaces = &image.graph.namespaces;
        let enters =
            |process: &&ProcessImage| !namespaces::is_among_other_mounts(process, namespaces);
        make_removed(processes.values().filter(enters), context)?;
        Object::restore_all(&image.graph.files, context)?;
        drop(networks);
        let _making = stages::begin(Stage::Files);
        folders::finish(context)?;
        put_flags(image, context)?;
        namespaces::await_inside(processes.iter(), context)?;
        mapped::release_programs(&processes, context)?;
        MappedFiles::open(image, &processes, foreign, context)?
    };
    let nodes = context.part.as_ref().map_or(&image.graph.processes, |part| &part.nodes);
    let plan = tree::plan(&sharers::without(nodes, &image.graph))
        .map_err(|error| EngineError::odd("process tree", error.to_string()))?;
    let stand_ins = nodes.iter().filter(|node| node.state == ProcessState::StandIn);
    let stand_ins = stand_ins.map(|node| node.pid).collect();
    let terminals = terminals_here(image, context);
    let links = make_links(context)?;
    hand_out_streams(context)?;
    if context.watch && sandbox::are_any(&processes) {
        // Under a filter of its own this process could not suspend others.
        context.warn(
            "connections that the job makes after a move will not find their peers: it has sandboxes (seccomp)",
        );
    } else if context.watch {
        // From here on this process makes none of the calls that are watched; what it forks inherits that they
        // are.
        context.watched = late::install_or_say(&mut context.warnings);
    }
    let common = Common::prepare(&processes, &image.reader, &files)?;
    let orders = Orders::write(&processes, context)?;
    let pids: Vec<Pid> = processes.keys().copied().collect();
    // What a fork finds in memory, it copies the page tables of.
    drop(processes);
    allocator::trim();
    let grown = {
        let preparation = Preparation { orders: &orders, context, terminals, links, stand_ins };
        let _growing = stages::begin(Stage::Tree { processes: plan.births.len() });
        tree::grow(&plan, &preparation).map_err(|error| EngineError::Unfit {
            what: error.to_string(),
            way_out: "see the documentation on restarts".into(),
        })?
    };
    drop(orders);
    let processes = {
        let _reading = stages::begin(Stage::Processes);
        image.read_processes(pids.into_iter())?
    };
    let mut numbers = Numbers(grown.numbers);
    context.renumber_ends(|pid| numbers.here(pid));
    let complete = rebuild(&grown.kept, image, &processes, &files, &common, context, &mut numbers)?;
    drop(common);
    if files.means() == Means::Nothing {
        context.warn(
            "this kernel has no PR_SET_MM_MAP: /proc shows ckptd's program for the job's, and no arguments",
        );
    }
    inodes::seal_all(context)?;
    // Whoever watches a file would be told that it is closed.
    drop(files);
    context.drop_inodes();
    {
        let _acting = act_as_user(context)?;
        give_removed_modes(context);
        watch_again(&image.graph.files, context)?;
    }
    let told = told::put_all(image, &processes, context, &numbers)?;
    context.warnings.extend(told);
    context.warnings.extend(numbers.warning(&processes));
    let mut feeder = context.feeder.take_if(|feeder| feeder.has_any());
    if let Some(feeder) = &mut feeder {
        feeder.ready()?;
    }
    Ok(Standing { processes: complete, numbers, feeder })
}

/// While they live, files are opened and objects made with the rights of the job's user.
type Acting = (Option<Restrained>, Option<FileUser>);

fn act_as_user(context: &RestoreContext<'_>) -> Result<Acting> {
    let Some(user) = &context.user else { return Ok((None, None)) };
    let acting = FileUser::begin(user.uid, user.gid, &user.groups)?;
    // Fields of a tuple are dropped in their order: what was begun last ends first.
    Ok((Some(Restrained::begin(OVER_OBJECTS)?), Some(acting)))
}

/// Terminals that control sessions here: those whose slaves are here, or nowhere.
fn terminals_here(image: &Image, context: &RestoreContext<'_>) -> Vec<ControllingTerminal> {
    let mut terminals = controlling_terminals(&image.graph);
    terminals.retain(|terminal| match terminal.slave {
        Some(slave) => context.needs(slave),
        None => terminal.master.is_some_and(|master| context.needs(master)),
    });
    terminals
}

/// A socket pair for every link: one end for the stand-in, the other one for the agent.
fn make_links(context: &mut RestoreContext<'_>) -> Result<Vec<Link>> {
    let legs = context.part.as_ref().map_or(Vec::new(), |part| part.links.clone());
    let mut links = Vec::with_capacity(legs.len());
    for leg in legs {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
        let kind = SockType::SeqPacket;
        let (own, agent) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| EngineError::system("socketpair", "a stand-in's link", errno))?;
        links.extend(Link::new(&leg.end, context.lift(own)?));
        context.hand_out(leg.end, agent)?;
    }
    Ok(links)
}

/// The standard streams of remote shells are the agent's as well.
fn hand_out_streams(context: &mut RestoreContext<'_>) -> Result<()> {
    let graph = context.graph;
    for shell in &graph.remote_shells {
        let link = context.part.iter().flat_map(|part| &part.links);
        let link = link.map(|leg| &leg.end).find(|end| {
            end.side == 0 && matches!(end.kind, RelayKind::Link { child, .. } if child == shell.pid)
        });
        // Without a link it is in another part, or about to end.
        let Some(id) = link.map(|end| end.id.clone()) else { continue };
        for descriptor in &shell.descriptors {
            let kind = RelayKind::Descriptor { pid: shell.pid, fd: descriptor.fd };
            let end = RelayEnd { id: stream_relay(&id, descriptor.fd), side: 0, kind };
            let copy = context.parked(descriptor.file)?.try_clone_to_owned();
            let copy = copy.map_err(|error| EngineError::system("dup", "a stream", error))?;
            context.hand_out(end, copy)?;
        }
    }
    Ok(())
}

/// The variable by which every kernel is taken for another one than the job's: `foreign`. For tests.
pub const VDSO_VARIABLE: &str = "CKPTD_VDSO";

/// The C library of a process keeps addresses of functions in the vdso: another kernel has them elsewhere. `None`: it is the same.
fn foreign_vdso(
    image: &Image,
    processes: &Processes,
    context: &mut RestoreContext<'_>,
) -> Result<Option<ForeignVdso>> {
    if processes.is_empty() {
        // All have ended, or are stand-ins.
        return Ok(None);
    }
    let own = std::process::id() as i32;
    let vdso = Vdso::of(own, &read_maps(own)?)?;
    let forced = std::env::var_os(VDSO_VARIABLE).is_some_and(|value| value == "foreign");
    if vdso.hash() == image.graph.vdso && !forced {
        return Ok(None);
    }
    if let (Some(blob), Some(here)) = (image.graph.vdso_image, vdso.image()) {
        return ForeignVdso::new(context.blob(blob)?, here).map(Some);
    }
    let what = "the job ran under another kernel, whose vdso is not this one's".to_owned();
    if context.force {
        context.warn(what);
        return Ok(None);
    }
    let way_out = "restart it under the kernel that it ran under, or use --force".into();
    Err(EngineError::Unfit { what, way_out })
}

/// Whether this machine's processor has what the job's programs were offered when they began, and may have chosen their code by.
fn check_features(
    image: &Image,
    processes: &Processes,
    context: &mut RestoreContext<'_>,
) -> Result<()> {
    let wanted = offer::wanted(&image.graph.offers, processes.values());
    let here = cpu_features::offered();
    let lacking: Vec<&str> =
        wanted.into_iter().filter(|name| !here.iter().any(|own| own == name)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let what = format!(
        "the job's programs began on a processor with {}, which this machine's lacks",
        lacking.join(", ")
    );
    if context.force {
        context.warn(what);
        return Ok(());
    }
    let way_out = "restart it on a machine that has it, or use --force where its programs make no use of it; \
                   ckptd run --cpu-baseline keeps jobs to what machines have in common";
    Err(EngineError::Unfit { what, way_out: way_out.into() })
}

/// Status flags and locks of open file descriptions.
fn put_flags(image: &Image, context: &RestoreContext<'_>) -> Result<()> {
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        if !context.needs(id) {
            continue;
        }
        let fd = context.parked(id)?;
        if file.flags & libc::O_PATH == 0 {
            reopen::set_status(fd, file.flags)?;
        }
        for lock in &file.locks {
            locks::restore_of_description(fd, lock)?;
        }
    }
    Ok(())
}

/// A helper on its way.
struct Helper<'i> {
    /// Its number here.
    pid: i32,
    image: &'i ProcessImage,
    leader: StoppedThread,
    /// Threads made so far, by their places in the image.
    others: BTreeMap<usize, StoppedThread>,
    entry_point: u64,
    scratch: Scratch,
}

impl Helper<'_> {
    /// For calls of its first thread.
    fn remote(&mut self) -> Result<Remote<'_>> {
        Ok(Remote::take(&mut self.leader, self.entry_point)?.with_scratch(self.scratch))
    }
}

fn rebuild(
    pids: &[Pid],
    image: &Image,
    processes: &Processes,
    files: &MappedFiles,
    common: &Common,
    context: &mut RestoreContext<'_>,
    numbers: &mut Numbers,
) -> Result<Vec<Complete>> {
    let page = image.graph.page_size;
    let mut helpers = Vec::with_capacity(pids.len());
    for pid in pids {
        let Some(process) = processes.get(pid) else { continue };
        let number = numbers.here(*pid).ok_or(EngineError::Gone(*pid))?;
        let laying = stages::begin(Stage::Layout { pid: *pid });
        let (helper, laid) = lay_out(number, process, files, common, page)?;
        drop(laying);
        if laid.ordinary > 0 {
            context.warn(format!(
                "process {pid} has ordinary pages instead of {} MiB of huge ones (hugetlbfs), of which this machine has \
                 not enough (vm.nr_hugepages)",
                laid.ordinary.div_ceil(1 << 20)
            ));
        }
        if !laid.break_moved {
            context.warn(format!(
                "the heap of process {pid} cannot grow by brk(2) any more: this kernel has no PR_SET_MM_MAP, and \
                 other memory is in the way"
            ));
        }
        helpers.push(helper);
    }
    let later = match &mut context.feeder {
        Some(feeder) => on_demand::begin(&mut helpers, &image.graph, common, feeder, page)?,
        None => Later::default(),
    };
    fill_in_advance(&helpers, &image.reader, common, &later, page)?;
    {
        let _putting = stages::begin(Stage::Clocks);
        clocks::set_back(&mut helpers, context)?;
    }
    // What is parked is still open in their parents.
    sharers::make(&mut helpers, processes, context, numbers)?;
    let own = own_credentials()?;
    let locked = held_locks::by_holder(&image.graph);
    let mut tables = Tables::of(&image.graph, helpers.iter().map(|helper| helper.image.pid));
    for helper in &mut helpers {
        let _completing = stages::begin(Stage::Protect { pid: helper.image.pid });
        let is_last = tables.is_last(helper.image.pid);
        let locked = locked.get(&helper.image.pid).map_or(&[][..], Vec::as_slice);
        completing_memory::complete(helper, files, common, page, context, locked, is_last)?;
    }
    pids::set_for_children(&mut helpers, context, numbers)?;
    namespaces::enter_all(&mut helpers, context, &own)?;
    context.networks.clear();
    namespaces::restore_ipc(&mut helpers, context, |helper| {
        let image = helper.image;
        memory::attach_inner(&mut helper.remote()?, image, files, common, page)
    })?;
    namespaces::open_inside(&helpers, context)?;
    namespaces::name_programs(&mut helpers, files, context.rehearsal)?;
    {
        let _making = stages::begin(Stage::Threads);
        make_threads(&mut helpers, &image.graph, numbers)?;
    }
    for helper in &helpers {
        let others = helper.others.values();
        let tids: Vec<i32> =
            std::iter::once(&helper.leader).chain(others).map(StoppedThread::tid).collect();
        numbers.add_threads(helper.image, &tids);
    }
    let mut furnished = Vec::with_capacity(helpers.len());
    for helper in helpers {
        let _furnishing = stages::begin(Stage::Furnish { pid: helper.image.pid });
        let own = namespaces::credentials_of(&helper, &image.graph.namespaces, &own)?;
        furnished.push(completing::furnish(helper, context, &own, numbers)?);
    }
    of_processes::open_all(&mut furnished, image, context, numbers)?;
    rings::register_buffers(&mut furnished, image, context)?;
    rings::register_places(&mut furnished, context)?;
    signal_readers::register(&mut furnished, image, context)?;
    notifications::ask(&mut furnished, &image.graph.files, context)?;
    quieten(&image.graph.files, context)?;
    let complete = |mut one: Furnished<'_>| {
        let image = one.image;
        if !context.graph.sharing_of(image.pid).is_some_and(|one| one.descriptors) {
            of_processes::install(&mut one.remote()?, image, context)?;
        }
        one.finish(context)
    };
    furnished.into_iter().map(complete).collect()
}

/// Fills all that is not filled later.
fn fill_in_advance(
    helpers: &[Helper<'_>],
    reader: &ChunkReader,
    common: &Common,
    later: &Later,
    page: u64,
) -> Result<()> {
    let mut work = Vec::new();
    for helper in helpers {
        for window in &helper.image.pages {
            let now = window.only(!later.pages_from(helper.pid, window.address, page));
            if now.pages != 0 {
                work.push((helper.leader.tid(), helper.image, now));
            }
        }
    }
    let bytes = work.iter().map(|(_, _, window)| window.bytes(page)).sum();
    let _filling = stages::begin(Stage::Memory { bytes });
    memory::fill(&work, reader, common, page)
}

fn lay_out<'i>(
    pid: i32,
    image: &'i ProcessImage,
    files: &MappedFiles,
    common: &Common,
    page: u64,
) -> Result<(Helper<'i>, memory::Laid)> {
    let thread = RunningThread::seize(pid)?.ok_or(EngineError::Gone(pid))?;
    thread.interrupt()?;
    let mut leader = thread.wait_stopped()?.ok_or(EngineError::Gone(pid))?;
    leader.set_options(libc::PTRACE_O_EXITKILL)?;
    let entry = Vdso::of(pid, &read_maps(pid)?)?.kernel_entry()?;
    let mut remote = Remote::take(&mut leader, entry)?;
    let laid = memory::lay_out(&mut remote, image, files, common, page)?;
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    drop(remote);
    let others = BTreeMap::new();
    let helper = Helper { pid, image, leader, others, entry_point: laid.entry_point, scratch };
    Ok((helper, laid))
}

/// What a process, or any thread of it, does not get back.
fn say_lacking(context: &mut RestoreContext<'_>, pid: Pid, lacking: &BTreeSet<&str>) {
    if !lacking.is_empty() {
        let all: Vec<&str> = lacking.iter().copied().collect();
        context.warn(format!(
            "process {pid} goes on without {}: this machine lacks it, or it takes a privilege",
            all.join(", ")
        ));
    }
}

/// The restorer's own, which its helpers have inherited.
fn own_credentials() -> Result<Credentials> {
    let status = procfs::process::Process::myself()
        .and_then(|process| process.status())
        .map_err(|error| EngineError::odd("/proc/self/status", error.to_string()))?;
    let mut own = Credentials::of_status(&status, 0);
    if let Some(groups) = groups_outside() {
        own.groups = groups.to_vec();
    }
    Ok(own)
}

/// What must be known of a checkpoint before its restore begins.
#[derive(Debug, Clone)]
pub struct Past {
    /// CLOCK_MONOTONIC and CLOCK_BOOTTIME that the job must see minus those of the machine's first time namespace, ns.
    pub clocks: (i64, i64),
    /// The init's number, where that was not 1.
    pub number: Option<Pid>,
    /// What processors its programs began on.
    pub offers: Vec<Offer>,
    /// What of the file system is the job's.
    pub kept: Kept,
}

impl Past {
    /// Reads it.
    ///
    /// # Errors
    /// Damage; a machine that the image does not fit.
    pub fn of(job_dir: &std::path::Path, checkpoint: u64) -> Result<Self> {
        use super::dump::clocks;
        let image = ckpt_store::Checkpoint::open(job_dir, checkpoint)?;
        let graph: super::graph::Graph = image.read_json("graph.json")?;
        let (own_monotonic, own_boottime) = clocks::offsets(std::process::id() as i32)?;
        let now = clocks::of_process(std::process::id() as i32)?;
        Ok(Self {
            clocks: (
                graph.clocks.monotonic_ns.saturating_sub(now.monotonic_ns - own_monotonic),
                graph.clocks.boottime_ns.saturating_sub(now.boottime_ns - own_boottime),
            ),
            number: (graph.init > 1).then_some(graph.init),
            offers: graph.offers,
            kept: graph.kept,
        })
    }
}
