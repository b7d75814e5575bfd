//! Finds the segments of the job's IPC namespace, with injected calls: /proc/sysvipc would show
//! this process's own namespace.

use super::super::super::arch::calls;
use super::super::super::arch::words::{WORD, from_words};
use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::graph::{CarriedInode, InodeId, IpcIdentity, Origin};
use super::super::super::ipc::ListedSegment;
use super::super::super::objects::{BlobData, DumpContext};
use super::super::super::proc::Mapping;
use super::super::super::sys::abi;
use super::super::super::trace::{Batch, Remote};
use super::{LOCKED, MARKED, layout};

/// Commands of shmctl(2) that libc does not name.
const SHM_INFO: u64 = calls::ipc_command(14) as u64;
const SHM_STAT_ANY: u64 = calls::ipc_command(15) as u64;
/// Segments that one batch of calls asks about: their answers fit into the scratch area.
const AT_ONCE: u64 = 512;
/// ObjectKind for one answer.
const ROOM: u64 = 128;

/// Adds all segments to the inodes, their content still empty.
///
/// # Errors
/// Failed calls.
pub fn survey(remote: &mut Remote<'_>, context: &mut DumpContext) -> Result<()> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let data = scratch.data();
    let highest = remote.raw(calls::SHMCTL, &[0, SHM_INFO, data])?;
    let mut seen = [0; ROOM as usize];
    remote.memory().read(data, &mut seen)?;
    // shm_info.used_ids: how many there are. A kernel without SysV IPC answers ENOSYS.
    if highest < 0 || word(&seen, 0) == 0 {
        return Ok(());
    }
    let mut first = 0;
    while first <= highest as u64 {
        let last = (first + AT_ONCE).min(highest as u64 + 1);
        let mut batch = Batch::new();
        for index in first..last {
            let at = data + (index - first) * ROOM;
            batch.add(calls::SHMCTL, &[index, SHM_STAT_ANY, at]);
        }
        let answers = remote.run(&batch)?;
        for (index, number) in answers.into_iter().enumerate().filter(|(_, number)| *number >= 0) {
            let mut bytes = [0; layout::SIZE];
            remote.memory().read(data + index as u64 * ROOM, &mut bytes)?;
            add(context, None, &read(number as i32, &bytes));
        }
        first = last;
    }
    Ok(())
}

/// Without an IPC namespace of the job's own, segments belong to the whole machine: nobody can tell which are the
/// job's, and their numbers cannot be had again.
///
/// # Errors
/// The refusal of a process that has attached one, but those of an IPC namespace of its own.
pub fn refuse_attached(host_pid: i32, mappings: &[Mapping], context: &DumpContext) -> Result<()> {
    let is_known = |number: &i32| super::inode(context, host_pid, *number).is_some();
    let mut numbers = mappings.iter().filter_map(super::number);
    let Some(number) = numbers.find(|number| !is_known(number)) else { return Ok(()) };
    Err(Refusal::new(
        format!(
            "has attached SysV shared memory segment {number}, which cannot be checkpointed where jobs run \
             without namespaces"
        ),
        "use POSIX shared memory or files, or run the job on a machine with IPC namespaces",
    )
    .into())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn read(number: i32, bytes: &[u8; layout::SIZE]) -> ListedSegment {
    let word = |at| word(bytes, at);
    // A word of the kernel each.
    let long = |at: usize| from_words(&bytes[at..at + WORD]).first().copied().unwrap_or_default();
    let mode = word(layout::MODE);
    ListedSegment {
        identity: IpcIdentity {
            number,
            key: word(layout::KEY) as i32,
            mode: mode & 0o777,
            owner: (word(layout::USER), word(layout::GROUP)),
            creator: (word(layout::CREATOR), word(layout::CREATOR_GROUP)),
        },
        mode,
        size: long(layout::BYTES),
        attached: long(layout::ATTACHED),
    }
}

/// Adds a segment to the inodes, its content still empty. `namespace`: the IPC namespace that it is in, where it is not the
/// job's.
pub fn add(context: &mut DumpContext, namespace: Option<u32>, segment: &ListedSegment) {
    let IpcIdentity { number, key, mode, owner, creator } = segment.identity;
    let marked = segment.mode & MARKED != 0;
    if marked && segment.attached == 0 {
        // On its way out.
        return;
    }
    let content = context.keep_blob(BlobData::default());
    let locked = segment.mode & LOCKED != 0;
    context.inodes.push(CarriedInode {
        origin: Origin::Segment { number, key, creator, marked, locked, namespace },
        size: segment.size,
        mode,
        owner: Some(owner),
        modified_ns: None,
        accessed_ns: None,
        number: None,
        read_only: false,
        executed: false,
        huge: None,
        links: Vec::new(),
        attributes: None,
        content,
    });
    let id = InodeId((context.inodes.len() - 1) as u32);
    context.inode_index.insert(super::key(namespace, number), id);
}

/// Attaches a segment for a moment, and reads it by `read`, which is told where it lies. `None`: this process
/// may not read it.
///
/// # Errors
/// Failed calls and reads.
pub fn read_detached(
    remote: &mut Remote<'_>,
    number: i32,
    size: u64,
    page: u64,
    read: impl FnOnce(&mut Remote<'_>, Mapping) -> Result<BlobData>,
) -> Result<Option<BlobData>> {
    let flags = abi::SHM_RDONLY as u64;
    let answer = remote.raw(calls::SHMAT, &[number as u64, 0, flags])?;
    if answer == -i64::from(libc::EACCES) {
        return Ok(None);
    }
    let start = remote.checked("shmat", answer)?;
    let mapping = Mapping {
        start,
        end: start + size.next_multiple_of(page),
        protection: super::super::super::graph::Protection(1),
        shared: true,
        offset: 0,
        device: 0,
        inode: number as u64,
        name: String::new(),
        flags: Vec::new(),
        page_size: 0,
        given: String::new(),
        key: 0,
        policy: None,
    };
    let data = read(remote, mapping);
    remote.call("shmdt", calls::SHMDT, &[start])?;
    data.map(Some)
}
