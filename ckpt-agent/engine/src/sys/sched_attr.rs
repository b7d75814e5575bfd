//! How another thread is scheduled, in full (sched_setattr(2)), and its I/O priority (ioprio_set(2)).

use nix::errno::Errno;

use super::super::graph::Schedule;
use super::trial::Call;

/// SCHED_FLAG_UTIL_CLAMP_MIN and SCHED_FLAG_UTIL_CLAMP_MAX (include/uapi/linux/sched.h).
const CLAMPS: u64 = 0x20 | 0x40;
/// SCHED_FLAG_RESET_ON_FORK
const RESET_ON_FORK: u64 = 1;
/// What a thread asks for that has asked for nothing: SCHED_CAPACITY_SCALE at most.
const UNCLAMPED: (u32, u32) = (0, 1024);
/// What a kernel tells that can't clamp.
const UNKNOWN: (u32, u32) = (0, 0);
/// IOPRIO_WHO_PROCESS (include/uapi/linux/ioprio.h): one thread.
const ONE_THREAD: libc::c_int = 1;
/// Bits of an I/O priority below its class.
const CLASS_SHIFT: u32 = 13;
/// IOPRIO_CLASS_RT
const REAL_TIME: u32 = 1;

/// struct sched_attr, second version: the first is the same but for its end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    least: u32,
    most: u32,
}

/// How a thread is scheduled; `None`: it has ended, or the kernel does not tell.
pub fn schedule(tid: i32) -> Option<Schedule> {
    let mut found = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes to `found`, which lives across the call.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, size, 0) };
    let utilization = (found.least, found.most);
    (got == 0).then_some(Schedule {
        policy: found.policy,
        flags: found.flags & !CLAMPS,
        nice: nice(tid).unwrap_or(found.nice),
        priority: found.priority,
        runtime: found.runtime,
        deadline: found.deadline,
        period: found.period,
        utilization: Some(utilization).filter(|asked| ![UNCLAMPED, UNKNOWN].contains(asked)),
    })
}

/// Has a thread scheduled so.
///
/// # Errors
/// EPERM without the privilege that it takes; EINVAL or EOPNOTSUPP where this kernel can't.
pub fn set_schedule(tid: i32, wanted: &Schedule) -> nix::Result<()> {
    let (least, most) = wanted.utilization.unwrap_or_default();
    let clamps = if wanted.utilization.is_some() { CLAMPS } else { 0 };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: wanted.policy,
        flags: wanted.flags & !CLAMPS | clamps,
        nice: wanted.nice,
        priority: wanted.priority,
        runtime: wanted.runtime,
        deadline: wanted.deadline,
        period: wanted.period,
        least,
        most,
    };
    // SAFETY: the kernel only reads `attributes`, which lives across the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    Errno::result(set)?;
    // Of policies that make no use of it the call has not set it; it counts once the policy is another one.
    match nice(tid) {
        Some(found) if found != wanted.nice => set_nice(tid, wanted.nice),
        _ => Ok(()),
    }
}

/// The nice value of a thread, whatever its policy; `None`: it has ended.
fn nice(tid: i32) -> Option<i32> {
    Errno::clear();
    // SAFETY: takes numbers only.
    let found = unsafe { libc::getpriority(libc::PRIO_PROCESS, tid as libc::id_t) };
    // -1 is also a value.
    (found != -1 || Errno::last_raw() == 0).then_some(found)
}

fn set_nice(tid: i32, nice: i32) -> nix::Result<()> {
    // SAFETY: takes numbers only.
    let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, nice) };
    Errno::result(set).map(drop)
}

/// While it lives, a thread of SCHED_DEADLINE may make children, which are scheduled as others are: else it may make none
/// (kernel/sched/core.c, sched_fork).
#[derive(Debug)]
pub struct MayFork {
    tid: i32,
    before: Schedule,
}

impl MayFork {
    /// `None`: it may already, or may not be allowed to.
    pub fn begin(tid: i32) -> Option<Self> {
        let before = schedule(tid)?;
        let bound = before.policy == libc::SCHED_DEADLINE as u32;
        if !bound || before.flags & RESET_ON_FORK != 0 {
            return None;
        }
        let free = Schedule { flags: before.flags | RESET_ON_FORK, ..before };
        set_schedule(tid, &free).ok().map(|()| Self { tid, before })
    }
}

impl Drop for MayFork {
    fn drop(&mut self) {
        // Whoever could set the flag can clear it.
        let _ = set_schedule(self.tid, &self.before);
    }
}

/// The I/O priority of a thread, as it was set; 0: none, or the kernel does not tell.
pub fn io_priority(tid: i32) -> u32 {
    if !Call::IoprioGet.may_be_made() {
        return 0;
    }
    // SAFETY: takes numbers only.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, ONE_THREAD, tid) };
    u32::try_from(found).unwrap_or(0)
}

/// Sets it.
///
/// # Errors
/// EPERM without the privilege that it takes.
pub fn set_io_priority(tid: i32, priority: u32) -> nix::Result<()> {
    if !Call::IoprioGet.may_be_made() {
        return Err(Errno::ENOSYS);
    }
    // SAFETY: takes numbers only.
    let set = unsafe { libc::syscall(libc::SYS_ioprio_set, ONE_THREAD, tid, priority) };
    Errno::result(set).map(drop)
}

/// Whether it goes before that of all others, which is a privilege.
pub fn is_real_time(priority: u32) -> bool {
    priority >> CLASS_SHIFT == REAL_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_told() {
        std::thread::spawn(|| {
            let batch = libc::SCHED_BATCH as u32;
            let wanted = Schedule { policy: batch, nice: 3, ..schedule(0).unwrap() };
            set_schedule(0, &wanted).unwrap();
            assert_eq!(schedule(0), Some(wanted));
            let idle = Schedule { policy: libc::SCHED_IDLE as u32, nice: 5, ..wanted };
            set_schedule(0, &idle).unwrap();
            assert_eq!(schedule(0), Some(idle));
            // The second of the best-effort class.
            let priority = 2 << CLASS_SHIFT | 1;
            set_io_priority(0, priority).unwrap();
            assert_eq!(io_priority(0), priority);
            assert!(!is_real_time(priority) && is_real_time(REAL_TIME << CLASS_SHIFT));
        })
        .join()
        .unwrap();
    }
}
