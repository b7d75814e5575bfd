//! Attributes that a thread tells when it is asked from inside, together with other questions.

use super::super::arch::{Architecture, Current};
use super::super::error::Result;
use super::super::freeze::FrozenJob;
use super::super::graph::{MemoryPolicy, ProcessAttributes, ThreadAttributes};
use super::super::proc::read_text;
use super::super::sys::page::page_size;
use super::super::sys::prctl::option;
use super::super::sys::sched_attr;
use super::super::sys::trial::Call;
use super::super::sys::{arch_prctl, autogroup};
use super::super::trace::{Batch, ProcessMemory, Remote, SCRATCH_DATA, SCRATCH_SIZE, Ticket};

/// personality(2): changes nothing.
const ASK: u64 = 0xffff_ffff;
/// Bits of a set of nodes.
const NODES: u64 = MemoryPolicy::MOST_NODES as u64;
/// Bytes that the answers of a thread take: whether it may read the time stamp counter, its memory policy, the nodes.
pub(super) const ROOM: u64 = 16 + NODES / 8;
/// PR_TSC_SIGSEGV
const NO_TIME_STAMPS: u32 = 2;
/// PR_MCE_KILL_DEFAULT
const USUAL_MACHINE_CHECK: u32 = 2;
/// What PR_SET_SPECULATION_CTRL is about (PR_SPEC_STORE_BYPASS and so on).
const MISFEATURES: [u32; 3] = [0, 1, 2];
/// PR_SPEC_PRCTL: the thread has a say.
const HAS_A_SAY: u32 = 1;
/// What threads begin with: PR_SPEC_ENABLE, but PR_SPEC_DISABLE where it is about clearing a cache (PR_SPEC_L1D_FLUSH).
const USUAL: [u32; 3] = [2, 2, 4];
/// PR_TIMER_CREATE_RESTORE_IDS_GET
const ASK_TIMER_NUMBERS: u64 = 2;

/// Questions to a thread.
pub(super) struct OfThread {
    at: u64,
    personality: Option<Ticket>,
    time_stamps: Ticket,
    cpuid: Option<Ticket>,
    machine_check: Ticket,
    io_flusher: Ticket,
    speculation: [Ticket; 3],
    policy: Option<Ticket>,
}

impl OfThread {
    /// Adds them to a batch. At `at` there are [`ROOM`] bytes of zeros.
    pub(super) fn ask(batch: &mut Batch, at: u64) -> Self {
        let mut prctl =
            |option: u64, argument: u64| batch.add(libc::SYS_prctl, &[option, argument, 0, 0, 0]);
        let time_stamps = prctl(option::GET_TSC, at);
        let machine_check = prctl(option::MCE_KILL_GET, 0);
        let io_flusher = prctl(option::GET_IO_FLUSHER, 0);
        let speculation =
            MISFEATURES.map(|which| prctl(option::GET_SPECULATION_CTRL, u64::from(which)));
        let cpuid = Current::ARCH_PRCTL.map(|call| batch.add(call, &[arch_prctl::GET_CPUID, 0]));
        // What a sandbox forbids here it forbids the job.
        let mut add = |call: Call, number: libc::c_long, arguments: &[u64]| {
            call.may_be_made().then(|| batch.add(number, arguments))
        };
        let personality = add(Call::Personality, libc::SYS_personality, &[ASK]);
        // One bit more than are told (mm/mempolicy.c, copy_nodes_to_user).
        let nodes = [at + 8, at + 16, NODES + 1, 0, 0];
        let policy = add(Call::GetMempolicy, libc::SYS_get_mempolicy, &nodes);
        Self { at, personality, time_stamps, cpuid, machine_check, io_flusher, speculation, policy }
    }

    /// The answers.
    ///
    /// # Errors
    /// The thread's end.
    pub(super) fn read(
        self,
        remote: &mut Remote<'_>,
        answers: &[i64],
        job: &FrozenJob,
    ) -> Result<ThreadAttributes> {
        let tid = remote.thread().tid();
        let mut bytes = [0; ROOM as usize];
        remote.memory().read(self.at, &mut bytes)?;
        let told = |ticket: Ticket| u32::try_from(answers[ticket.0]).ok();
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mode = number(8);
        let nodes = (0..NODES as u32).filter(|node| has_node(&bytes[16..], *node));
        let states = MISFEATURES.into_iter().zip(self.speculation.map(told));
        let speculation = states.filter_map(|(which, state)| {
            let own = state.filter(|state| state & HAS_A_SAY != 0)? & !HAS_A_SAY;
            (own != USUAL[which as usize]).then_some((which, own))
        });
        Ok(ThreadAttributes {
            personality: self.personality.and_then(told),
            schedule: sched_attr::schedule(tid).map(|found| job.hurry.undone(tid, found)),
            io_priority: sched_attr::io_priority(tid),
            no_time_stamps: answers[self.time_stamps.0] == 0 && number(0) == NO_TIME_STAMPS,
            no_cpuid: self.cpuid.is_some_and(|ticket| answers[ticket.0] == 0),
            machine_check: told(self.machine_check).filter(|kind| *kind != USUAL_MACHINE_CHECK),
            io_flusher: told(self.io_flusher) == Some(1),
            speculation: speculation.collect(),
            memory_policy: (self.policy.is_some_and(|ticket| answers[ticket.0] == 0) && mode != 0)
                .then(|| MemoryPolicy { mode, nodes: nodes.collect() }),
            dispatch: remote.thread().dispatch(),
        })
    }
}

/// Whether a node is in a set of words (get_mempolicy(2)).
fn has_node(set: &[u8], node: u32) -> bool {
    let (word, bit) = (node / usize::BITS, node % usize::BITS);
    let word = set.chunks_exact(size_of::<usize>()).nth(word as usize);
    let word = word.and_then(|bytes| bytes.try_into().ok()).map_or(0, usize::from_ne_bytes);
    word >> bit & 1 != 0
}

/// Questions to a process.
pub(super) struct OfProcess {
    thp: Ticket,
    merge: Ticket,
    exec_gain: Ticket,
    timers: Ticket,
    /// Where the parts of the processor's state are that it may use.
    parts: Option<(Ticket, u64)>,
    /// Of the first key; those of the others follow.
    keys: Option<Ticket>,
}

impl OfProcess {
    /// Adds them to a batch. `page`: one of the scratch area that nothing uses, nor touches: [`later_locked`] looks at it.
    /// `at`: room for 8 bytes.
    pub(super) fn ask(batch: &mut Batch, page: u64, at: u64) -> Self {
        let parts =
            Current::ARCH_PRCTL.map(|call| (batch.add(call, &[arch_prctl::GET_PARTS, at]), at));
        let mut prctl =
            |option: u64, argument: u64| batch.add(libc::SYS_prctl, &[option, argument, 0, 0, 0]);
        Self {
            parts,
            thp: prctl(option::GET_THP_DISABLE, 0),
            merge: prctl(option::GET_MEMORY_MERGE, 0),
            exec_gain: prctl(option::GET_MDWE, 0),
            timers: prctl(option::TIMER_CREATE_RESTORE_IDS, ASK_TIMER_NUMBERS),
            keys: may_have_keys().then(|| ask_keys(batch, page)),
        }
    }

    /// The answers; and whether huge pages are disabled at all.
    ///
    /// # Errors
    /// The process's end.
    pub(super) fn read(self, host_pid: i32, answers: &[i64]) -> Result<(ProcessAttributes, bool)> {
        let told = |ticket: Ticket| u32::try_from(answers[ticket.0]).unwrap_or(0);
        // Kernels without core files have none.
        let filter = read_text(&format!("/proc/{host_pid}/coredump_filter")).ok().flatten();
        let core_filter = filter.and_then(|text| u32::from_str_radix(text.trim(), 16).ok());
        let thp = told(self.thp);
        let mut parts = [0; 8];
        if let Some((_, at)) = self.parts.filter(|(ticket, _)| answers[ticket.0] == 0) {
            ProcessMemory::of(host_pid).read(at, &mut parts)?;
        }
        let attributes = ProcessAttributes {
            core_filter,
            group_nice: autogroup::nice_of(host_pid).unwrap_or(0),
            login_user: None,
            thp_flags: thp & !1,
            memory_merge: told(self.merge) == 1,
            no_exec_gain: told(self.exec_gain),
            later_locked: 0,
            timer_numbers: told(self.timers) == 1,
            state_parts: u64::from_le_bytes(parts) & Current::PARTS_TO_ASK_FOR,
            keys: self.keys.map_or(0, |first| allocated(&answers[first.0..])),
        };
        Ok((attributes, thp & 1 != 0))
    }
}

/// Who has logged in, as a process tells it for the audit log. None where the kernel has no such log.
pub fn login_of(pid: i32) -> Option<u32> {
    read_text(&format!("/proc/{pid}/loginuid")).ok().flatten()?.trim().parse().ok()
}

/// MCL_* for memory that is mapped later, which no call tells: the scratch area was mapped in the same way. `before` and `after`:
/// VmLck of /proc/PID/status.
///
/// # Errors
/// The process's end.
pub(super) fn later_locked(
    remote: &mut Remote<'_>,
    before: Option<u64>,
    after: Option<u64>,
) -> Result<u32> {
    /// MCL_FUTURE and MCL_ONFAULT (include/uapi/asm-generic/mman.h), the same wherever this engine runs.
    const FUTURE: u32 = 2;
    const ON_FAULT: u32 = 4;
    let (Some(before), Some(after)) = (before, after) else { return Ok(0) };
    if after.saturating_sub(before) * 1024 < SCRATCH_SIZE {
        return Ok(0);
    }
    // A page of it that nobody has touched is there all the same, unless it is locked when it is touched.
    let at = remote.scratch_data()?;
    let page = page_size();
    let untouched = (at + (SCRATCH_SIZE - SCRATCH_DATA) / 2).next_multiple_of(page);
    remote.call("mincore", libc::SYS_mincore, &[untouched, page, at])?;
    let mut there = [0];
    remote.memory().read(at, &mut there)?;
    Ok(if there[0] & 1 != 0 { FUTURE } else { FUTURE | ON_FAULT })
}

/// Whether processors of this kind may have protection keys, which nobody forbids.
fn may_have_keys() -> bool {
    cfg!(any(target_arch = "x86", target_arch = "x86_64")) && Call::PkeyMprotect.may_be_made()
}

/// Keys there are, but for 0, which all memory has that has no other.
const KEYS: std::ops::Range<u64> = 1..16;

/// Nothing tells which protection keys a process has allocated, but memory takes those alone. The page is as before.
fn ask_keys(batch: &mut Batch, page: u64) -> Ticket {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let mut take =
        |key: u64| batch.add(libc::SYS_pkey_mprotect, &[page, page_size(), protection, key]);
    let tickets: Vec<Ticket> = KEYS.chain([0]).map(&mut take).collect();
    tickets[0]
}

fn allocated(answers: &[i64]) -> u32 {
    KEYS.zip(answers).filter(|(_, answer)| **answer == 0).fold(0, |all, (key, _)| all | 1 << key)
}

#[cfg(test)]
mod tests {
    use super::has_node;

    #[test]
    fn nodes_are_found_in_their_words() {
        let mut set = [0; 2 * size_of::<usize>()];
        let (_, second) = set.split_at_mut(size_of::<usize>());
        second.copy_from_slice(&(1usize << 9).to_ne_bytes());
        let found: Vec<u32> = (0..300).filter(|node| has_node(&set, *node)).collect();
        assert_eq!(found, [usize::BITS + 9]);
    }
}
