//! Finds the open file descriptions behind all descriptors of all processes.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use nix::sys::statfs::{FsType, statfs};
use tracing::field::Empty;
use tracing::{debug_span, trace_span};

use super::super::doing::{self, Thing};
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{
    Descriptor, FileId, Inside, Lock, LockKind, OpenFile, Owner, OwnerKind, Pid,
};
use super::super::locks;
use super::super::objects::{DumpContext, Object, Probe, check_device, in_flight, settle_timers};
use super::super::proc::descriptor_numbers;
use super::super::sys::abi::{S_IFREG, S_IFSOCK};
use super::super::sys::kcmp;
use super::super::sys::mqueue;
use super::super::sys::owner::{FileOwner, file_owner, file_signal, share_a_flag, share_a_mark};
use super::super::sys::pidfd::PidFd;
use super::early::{self, Early};
use super::namespaces::check_kept;

/// Who holds what is under way, in messages.
const IN_FLIGHT: &str = "in flight";
/// Most descriptors of one job.
const MOST_DESCRIPTORS: usize = 1_000_000;

/// All descriptors of a job.
#[derive(Debug, Default)]
pub struct Collected {
    /// Open file descriptions.
    pub files: Vec<OpenFile>,
    /// How each was found; same order.
    pub probes: Vec<Probe>,
    /// Descriptors of each process, by its number on this machine.
    pub descriptors: HashMap<i32, Vec<Descriptor>>,
    /// fcntl(2) locks of each process, with a descriptor through which each can be set.
    pub process_locks: HashMap<i32, Vec<(i32, Lock)>>,
}

/// Descriptions found earlier under each inode, in the kernel's order where it tells one (kcmp(2)).
type Known = HashMap<(u64, u64), Vec<FileId>>;

/// Reads the descriptors of these processes: (number on this machine, number in the job, name); of those
/// in `streams_only` their standard streams.
///
/// # Errors
/// Refusals, with process and descriptor named; processes that are gone.
pub fn collect(
    processes: &[(i32, Pid, String)],
    streams_only: &[Pid],
    context: &mut DumpContext,
) -> Result<Collected> {
    let mut collected = Collected::default();
    let mut known = Known::new();
    for (host_pid, pid, comm) in processes {
        let collecting = debug_span!("descriptors", pid = *pid, host_pid, count = Empty).entered();
        let pidfd = PidFd::open(*host_pid)?;
        let mut numbers = descriptor_numbers(*host_pid)?;
        if streams_only.contains(pid) {
            numbers.retain(|fd| *fd <= 2);
        }
        numbers.sort_unstable();
        collecting.record("count", numbers.len());
        let mut descriptors = Vec::with_capacity(numbers.len());
        for fd in numbers {
            doing::begin("reading", Thing::Descriptor { pid: *pid, fd });
            let mut probe =
                Probe::through(&pidfd, *pid, comm, fd).map_err(|e| e.at(*pid, comm, fd))?;
            let close_on_exec = close_on_exec(&probe)?;
            let (of_process, of_description): (Vec<Lock>, Vec<Lock>) = held(&probe, context)
                .map_err(|e| e.at(*pid, comm, fd))?
                .partition(|lock| lock.kind == LockKind::Process);
            let same_inode = known.entry(probe.inode()).or_default();
            let file = match find(same_inode, &collected.probes, &probe) {
                Ok(file) => file,
                Err(place) => {
                    let id = FileId(collected.files.len() as u32);
                    let reading = trace_span!("object", id = id.0, fd, kind = Empty).entered();
                    let inside = placed(&mut probe, context).map_err(|e| e.at(*pid, comm, fd))?;
                    let (object, network) =
                        read(&probe, context).map_err(|e| e.at(*pid, comm, fd))?;
                    reading.record("kind", object.kind());
                    drop(reading);
                    same_inode.insert(place, id);
                    let owner = owner(&probe, context);
                    // O_CLOEXEC belongs to the descriptor.
                    let flags = probe.flags & !libc::O_CLOEXEC;
                    let inside = inside.filter(|_| object.opens_inside());
                    collected.files.push(OpenFile {
                        flags,
                        owner,
                        locks: of_description,
                        object,
                        inside,
                        network,
                    });
                    collected.probes.push(probe);
                    id
                }
            };
            // Every descriptor of the description shows the process's locks on it.
            let has_locks = !of_process.is_empty();
            if has_locks && !descriptors.iter().any(|earlier: &Descriptor| earlier.file == file) {
                let locks = collected.process_locks.entry(*host_pid).or_default();
                locks.extend(of_process.into_iter().map(|lock| (fd, lock)));
            }
            context.descriptors.insert((*host_pid, fd), file);
            descriptors.push(Descriptor { fd, file, close_on_exec });
        }
        if context.descriptors.len() > MOST_DESCRIPTORS {
            return Err(EngineError::odd(
                "the job",
                format!("over {MOST_DESCRIPTORS} descriptors"),
            ));
        }
        collected.descriptors.insert(*host_pid, descriptors);
    }
    let Collected { files, probes, process_locks, .. } = &mut collected;
    early::open_locked(process_locks, files, probes, context)?;
    add_in_flight(&mut collected, &mut known, context)?;
    let Collected { files, probes, .. } = &mut collected;
    settle_timers(files.iter_mut().zip(probes).filter_map(
        |(file, probe)| match &mut file.object {
            Object::Timer(timer) => Some((timer, probe.copy.as_fd())),
            _ => None,
        },
    ))?;
    early::open_limited(processes, &collected.descriptors, &mut collected.files)?;
    Ok(collected)
}

/// Locks through a descriptor, with holders as the job numbers them.
fn held(probe: &Probe, context: &DumpContext) -> Result<impl Iterator<Item = Lock>> {
    let in_job = |holder: i32| context.pids.get(&holder).copied();
    let locks = locks::read(&probe.info)?.into_iter();
    Ok(locks.map(move |lock| Lock { holder: lock.holder.and_then(in_job), ..lock }))
}

/// Where the job's own mounts show what is open, in a job with others; what it is there.
fn placed(probe: &mut Probe, context: &DumpContext) -> Result<Option<Inside>> {
    context.places.as_ref().map_or(Ok(None), |places| places.place(probe))
}

/// Reads an open file description; of a socket also the network namespace of the job's own in which it was made.
fn read(probe: &Probe, context: &mut DumpContext) -> Result<(Object, Option<u32>)> {
    probe.info.lines("lock").for_each(|lock| context.leased.add(probe.inode().1, lock));
    check_device(probe, context)?;
    let network = match &mut context.networks {
        Some(networks) if probe.file_type() == S_IFSOCK => networks.of_socket(&probe.copy)?,
        _ => None,
    };
    let object = context.within(network, |context| Object::dump(probe, context))?;
    if let (Some(place), Some(networks)) = (network, &context.networks) {
        check_kept(networks, place, &object, context.user.is_some())?;
    }
    Ok((object, network))
}

/// Adds what is under way in Unix sockets: descriptions that may have no other holder, and may be sockets in which others are
/// under way. Copies of them are peeked at, and held here until the dump is done.
fn add_in_flight(
    collected: &mut Collected,
    known: &mut Known,
    context: &mut DumpContext,
) -> Result<()> {
    let own = std::process::id() as i32;
    let mut next = 0;
    while let Some(file) = collected.files.get(next) {
        let Object::UnixSocket(socket) = &file.object else {
            next += 1;
            continue;
        };
        let (pid, comm, fd, inode) = {
            let probe = &collected.probes[next];
            (probe.pid, probe.comm.clone(), probe.fd, probe.inode())
        };
        let named = |error: EngineError| error.at(pid, &comm, fd);
        let copies = in_flight(socket, &collected.probes[next], &context.shown).map_err(named)?;
        let mut ids = Vec::with_capacity(copies.len());
        for copy in copies {
            let mut probe = Probe::of(own, 1, IN_FLIGHT, copy.as_raw_fd())?;
            let same_inode = known.entry(probe.inode()).or_default();
            let id = match find(same_inode, &collected.probes, &probe) {
                Ok(id) => {
                    let file = &mut collected.files[id.0 as usize];
                    Early::InFlight.open(file).map_err(named)?;
                    id
                }
                Err(place) => {
                    let id = FileId(collected.files.len() as u32);
                    same_inode.insert(place, id);
                    let locks = held(&probe, context)?;
                    let locks = locks.filter(|lock| lock.kind != LockKind::Process).collect();
                    let inside = placed(&mut probe, context).map_err(named)?;
                    let (object, network) = read(&probe, context).map_err(named)?;
                    Early::InFlight.check(inside.as_ref(), &object).map_err(named)?;
                    let (owner, flags) = (owner(&probe, context), probe.flags & !libc::O_CLOEXEC);
                    collected.files.push(OpenFile {
                        flags,
                        owner,
                        locks,
                        object,
                        inside: None,
                        network,
                    });
                    context.descriptors.insert((own, copy.as_raw_fd()), id);
                    collected.probes.push(probe);
                    context.held.push(copy);
                    id
                }
            };
            if collected.files[id.0 as usize].object.is_made_late() {
                let what = "a Unix socket with a descriptor of a process, or of its files in /proc, in flight (SCM_RIGHTS)";
                return Err(named(Refusal::passing(what, "it is received soon: try again").into()));
            }
            ids.push(id);
        }
        if context.descriptors.len() > MOST_DESCRIPTORS {
            return Err(EngineError::odd(
                "the job",
                format!("over {MOST_DESCRIPTORS} descriptors"),
            ));
        }
        if !ids.is_empty() {
            context.in_flight.insert(inode, ids);
        }
        next += 1;
    }
    Ok(())
}

/// Adds the message queues of the job that no process has open, as descriptions without descriptors. They are seen
/// where the job's init has their folder.
///
/// # Errors
/// As [`Object::dump`]; queues that can't be read.
pub fn add_unopened_queues(
    init: i32,
    collected: &mut Collected,
    context: &mut DumpContext,
) -> Result<()> {
    let Some(folder) = queue_folder(init)? else { return Ok(()) };
    let failed = |error| EngineError::system("read", &folder, error);
    let known: BTreeSet<(u64, u64)> = collected.probes.iter().map(Probe::inode).collect();
    let own = std::process::id() as i32;
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let found = entry.metadata().map_err(failed)?;
        if known.contains(&(found.dev(), found.ino())) {
            continue;
        }
        let path = entry.path();
        let queue = File::options().read(true).write(true).open(&path);
        let queue =
            queue.map_err(|error| EngineError::system("open", path.to_string_lossy(), error))?;
        let probe = Probe::of(own, 1, "no process", queue.as_raw_fd())?;
        let object = Object::dump(&probe, context).map_err(|e| e.of(1, "no process"))?;
        collected.files.push(OpenFile {
            flags: probe.flags & !libc::O_CLOEXEC,
            owner: None,
            locks: Vec::new(),
            object,
            inside: None,
            network: None,
        });
        collected.probes.push(probe);
    }
    Ok(())
}

/// Refuses open queues of another IPC namespace than the job's, where processes are in others: a restart makes all in the job's.
/// Of one without a name nobody can tell.
///
/// # Errors
/// The refusal; failed calls.
pub fn check_queues(init: i32, collected: &Collected, context: &DumpContext) -> Result<()> {
    if context.ipc_namespaces.is_empty() {
        return Ok(());
    }
    let device = match queue_folder(init)? {
        Some(folder) => {
            let found = std::fs::metadata(&folder);
            Some(found.map_err(|error| EngineError::system("stat", &folder, error))?.dev())
        }
        None => None,
    };
    for (file, probe) in collected.files.iter().zip(&collected.probes) {
        let Object::MessageQueue(queue) = &file.object else { continue };
        if !queue.deleted && Some(probe.inode().0) != device {
            let what = format!("the message queue {} of another IPC namespace", queue.name);
            let refusal = Refusal::new(what, "close it while checkpoints are taken");
            return Err(EngineError::from(refusal).at(probe.pid, &probe.comm, probe.fd));
        }
    }
    Ok(())
}

/// The folder of the job's message queues, through the descriptor of it that its init keeps.
fn queue_folder(init: i32) -> Result<Option<String>> {
    let is_queues = |path: &String| {
        statfs(path.as_str())
            .is_ok_and(|found| found.filesystem_type() == FsType(mqueue::MAGIC as _))
            && std::fs::metadata(path).is_ok_and(|found| found.is_dir())
    };
    let numbers = descriptor_numbers(init)?;
    Ok(numbers.into_iter().map(|fd| format!("/proc/{init}/fd/{fd}")).find(is_queues))
}

/// FD_CLOEXEC of the descriptor itself, which fdinfo shows as O_CLOEXEC in `flags:`.
fn close_on_exec(probe: &Probe) -> Result<bool> {
    Ok(probe.info.number("flags", 8)? & libc::O_CLOEXEC as u64 != 0)
}

/// The description among these, which are in the kernel's order, or where it belongs among them.
fn find(known: &[FileId], probes: &[Probe], probe: &Probe) -> std::result::Result<FileId, usize> {
    let compare = |id: &FileId| {
        let other = &probes[id.0 as usize];
        kcmp::compare_files((other.host_pid, other.fd), (probe.host_pid, probe.fd))
    };
    let mut is_told = true;
    let place = known.binary_search_by(|id| {
        compare(id).unwrap_or_else(|| {
            is_told = false;
            Ordering::Less
        })
    });
    if is_told {
        return place.map(|at| known[at]);
    }
    let same = |id: &&FileId| {
        let other = &probes[id.0 as usize];
        compare(id).map_or_else(|| are_the_same(other, probe), Ordering::is_eq)
    };
    known.iter().find(same).copied().ok_or(known.len())
}

/// Without kcmp: a mark tells. Where none can be set, what /proc tells of both, and an offset that would differ sooner or later if
/// they were two. Leases have O_ASYNC, too (fs/fcntl.c, fasync_insert_entry()).
fn are_the_same(left: &Probe, right: &Probe) -> bool {
    let looks = left.shown == right.shown
        && left.flags == right.flags
        && left.info.get("pos") == right.info.get("pos");
    let mark = || match left.flags & libc::O_ASYNC {
        0 => share_a_mark(&left.copy, &right.copy),
        // Others may use a terminal meanwhile.
        _ if left.file_type() == S_IFREG => share_a_flag(&left.copy, &right.copy),
        _ => None,
    };
    looks && mark().unwrap_or(true)
}

/// Who gets SIGIO. The kernel translates the number to this process's PID namespace.
fn owner(probe: &Probe, context: &DumpContext) -> Option<Owner> {
    if probe.flags & libc::O_PATH != 0 {
        return None;
    }
    let FileOwner { kind, pid } = file_owner(&probe.copy)?;
    let kind = match kind {
        0 => OwnerKind::Thread,
        1 => OwnerKind::Process,
        _ => OwnerKind::Group,
    };
    let pid = *context.pids.get(&pid)?;
    Some(Owner { kind, pid, signal: file_signal(&probe.copy) })
}
