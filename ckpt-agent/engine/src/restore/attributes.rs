//! Gives threads and processes back their attributes that are numbers.

use super::super::arch::words::to_words;
use super::super::arch::{Architecture, Current};
use super::super::error::Result;
use super::super::graph::{MemoryPolicy, ProcessImage, ThreadAttributes};
use super::super::sys::prctl::option;
use super::super::sys::sched_attr::{is_real_time, set_io_priority, set_schedule};
use super::super::sys::trial::Call;
use super::super::sys::{arch_prctl, autogroup};
use super::super::trace::{Batch, Remote, Scratch};

/// PR_MCE_KILL_SET
const SET_KIND: u64 = 1;
/// PR_TSC_SIGSEGV
const NO_TIME_STAMPS: u64 = 2;
/// Bits of a set of nodes.
const NODES: u32 = MemoryPolicy::MOST_NODES;
/// PR_TIMER_CREATE_RESTORE_IDS_ON
const NUMBERS_ON: u64 = 1;

/// Gives a thread its own; what it can't have here. `by_root`: by root's rights for a user, who gets nothing by them that is a
/// privilege.
///
/// # Errors
/// The thread's end; a dispatch that can't have been.
pub fn of_thread(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    wanted: &ThreadAttributes,
    by_root: bool,
) -> Result<Vec<&'static str>> {
    let tid = remote.thread().tid();
    let mut lacking = Vec::new();
    if wanted.schedule.is_some_and(|schedule| set_schedule(tid, &schedule).is_err()) {
        lacking.push("its scheduling policy, priority or nice value");
    }
    let privileged = by_root && is_real_time(wanted.io_priority);
    let none = wanted.io_priority == 0;
    if !none && (privileged || set_io_priority(tid, wanted.io_priority).is_err()) {
        lacking.push("its I/O priority");
    }
    let mut batch = Batch::new();
    let mut names = Vec::new();
    let mut prctl = |name, option: u64, arguments: [u64; 2]| {
        names.push(name);
        let [first, second] = arguments;
        batch.add(libc::SYS_prctl, &[option, first, second, 0, 0]);
    };
    if wanted.no_time_stamps {
        prctl("PR_SET_TSC", option::SET_TSC, [NO_TIME_STAMPS, 0]);
    }
    if let Some(kind) = wanted.machine_check {
        prctl("PR_MCE_KILL", option::MCE_KILL, [SET_KIND, u64::from(kind)]);
    }
    if wanted.io_flusher && by_root {
        lacking.push("PR_SET_IO_FLUSHER");
    } else if wanted.io_flusher {
        prctl("PR_SET_IO_FLUSHER", option::SET_IO_FLUSHER, [1, 0]);
    }
    for (which, state) in &wanted.speculation {
        let arguments = [u64::from(*which), u64::from(*state)];
        prctl("PR_SET_SPECULATION_CTRL", option::SET_SPECULATION_CTRL, arguments);
    }
    let may_set = Call::GetMempolicy.may_be_made();
    if wanted.memory_policy.is_some() && !may_set {
        lacking.push("its memory policy");
    }
    if let Some(policy) = wanted.memory_policy.as_ref().filter(|_| may_set) {
        remote.memory().write(scratch.data(), &nodes(policy))?;
        let arguments = [u64::from(policy.mode), scratch.data(), u64::from(NODES) + 1];
        names.push("its memory policy");
        batch.add(libc::SYS_set_mempolicy, &arguments);
    }
    if let Some(personality) = wanted.personality.filter(|_| Call::Personality.may_be_made()) {
        names.push("its personality");
        batch.add(libc::SYS_personality, &[u64::from(personality)]);
    }
    if let Some(call) = Current::ARCH_PRCTL.filter(|_| wanted.no_cpuid) {
        names.push("signals from CPUID (ARCH_SET_CPUID)");
        batch.add(call, &[arch_prctl::SET_CPUID, 0]);
    }
    lacking.extend(refused(remote, &batch, &names)?);
    if let Some(dispatch) = wanted.dispatch {
        remote.set_dispatch(dispatch)?;
    }
    Ok(lacking)
}

/// A set of nodes as set_mempolicy(2) reads it.
fn nodes(policy: &MemoryPolicy) -> Vec<u8> {
    let mut words = vec![0u64; (NODES / usize::BITS) as usize];
    for node in policy.nodes.iter().filter(|node| **node < NODES) {
        words[(node / usize::BITS) as usize] |= 1 << (node % usize::BITS);
    }
    to_words(&words)
}

/// mseal(2), since Linux 6.10, on all architectures.
const SEAL: i64 = 462;

/// Gives a process its own, but for those of [`last_of_process`]; what it can't have here.
///
/// # Errors
/// The process's end.
pub fn of_process(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    image: &ProcessImage,
) -> Result<Vec<&'static str>> {
    let mut batch = Batch::new();
    let mut names = Vec::new();
    if image.thp_disable {
        names.push("PR_SET_THP_DISABLE");
        let flags = u64::from(image.attributes.thp_flags);
        batch.add(libc::SYS_prctl, &[option::SET_THP_DISABLE, 1, flags, 0, 0]);
    }
    if let Some(call) = Current::ARCH_PRCTL {
        for part in (0..u64::BITS).filter(|part| image.attributes.state_parts & (1 << part) != 0) {
            names.push("a part of the processor's state (ARCH_REQ_XCOMP_PERM)");
            batch.add(call, &[arch_prctl::REQUEST_PART, u64::from(part)]);
        }
    }
    if image.attributes.memory_merge {
        names.push("PR_SET_MEMORY_MERGE");
        batch.add(libc::SYS_prctl, &[option::SET_MEMORY_MERGE, 1, 0, 0, 0]);
    }
    let mut lacking = refused(remote, &batch, &names)?;
    if !set_policies(remote, scratch, image)? {
        lacking.push("memory policies of mappings (mbind)");
    }
    Ok(lacking)
}

/// Says again where pages of single mappings are to be; whether all of them could be told.
fn set_policies(remote: &mut Remote<'_>, scratch: Scratch, image: &ProcessImage) -> Result<bool> {
    let mut all = true;
    for area in image.areas.iter().filter(|area| !area.is_kernels()) {
        let Some(policy) = &area.advice.policy else { continue };
        // What a sandbox forbids of these calls it forbids of all.
        if !Call::GetMempolicy.may_be_made() {
            return Ok(false);
        }
        remote.memory().write(scratch.data(), &nodes(policy))?;
        let (length, mode) = (area.end - area.start, u64::from(policy.mode));
        let arguments = [area.start, length, mode, scratch.data(), u64::from(NODES) + 1, 0];
        all &= remote.raw(libc::SYS_mbind, &arguments)? == 0;
    }
    Ok(all)
}

/// What would be in the way of the restore itself; what the process can't have of it here. `by_root`: as for [`of_thread`].
///
/// # Errors
/// The process's end.
pub fn last_of_process(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    by_root: bool,
) -> Result<Vec<&'static str>> {
    let mut batch = Batch::new();
    let mut names = Vec::new();
    let nice = image.attributes.group_nice;
    let privileged = by_root && nice < 0;
    let fits = nice == 0 || (!privileged && autogroup::set_nice(remote.thread().tid(), nice));
    if image.attributes.timer_numbers {
        names.push("PR_TIMER_CREATE_RESTORE_IDS");
        batch.add(libc::SYS_prctl, &[option::TIMER_CREATE_RESTORE_IDS, NUMBERS_ON, 0, 0, 0]);
    }
    if image.attributes.later_locked != 0 {
        names.push("locks on memory that is mapped later (mlockall)");
        batch.add(libc::SYS_mlockall, &[u64::from(image.attributes.later_locked)]);
    }
    for area in image.areas.iter().filter(|area| area.advice.sealed && !area.is_kernels()) {
        names.push("sealed memory (mseal)");
        batch.add(SEAL, &[area.start, area.end - area.start, 0]);
    }
    if image.attributes.no_exec_gain != 0 {
        names.push("PR_SET_MDWE");
        let flags = u64::from(image.attributes.no_exec_gain);
        batch.add(libc::SYS_prctl, &[option::SET_MDWE, flags, 0, 0, 0]);
    }
    let mut lacking = refused(remote, &batch, &names)?;
    if !fits {
        lacking.push("the nice value of its session's group (/proc/PID/autogroup)");
    }
    Ok(lacking)
}

/// Runs calls; the names of those that are refused.
fn refused(
    remote: &mut Remote<'_>,
    batch: &Batch,
    names: &[&'static str],
) -> Result<Vec<&'static str>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let answers = remote.run(batch)?;
    let failed = answers.iter().zip(names).filter(|(answer, _)| **answer < 0);
    Ok(failed.map(|(_, name)| *name).collect())
}
