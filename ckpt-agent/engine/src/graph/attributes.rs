//! Attributes of threads and processes that are numbers: prctl(2), sched_setattr(2), personality(2) and the like.

use serde::{Deserialize, Serialize};

/// What a thread has of its own. In the image of an older writer there is none: then it keeps what it finds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAttributes {
    /// personality(2); `None`: the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personality: Option<u32>,
    /// sched_setattr(2); `None`: the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// ioprio_set(2); 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub io_priority: u32,
    /// PR_SET_TSC is PR_TSC_SIGSEGV.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_time_stamps: bool,
    /// ARCH_SET_CPUID is off: the instruction raises a signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_cpuid: bool,
    /// PR_MCE_KILL_GET, where it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_check: Option<u32>,
    /// PR_SET_IO_FLUSHER
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub io_flusher: bool,
    /// PR_SET_SPECULATION_CTRL: (misfeature, state), those that are not the machine's default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speculation: Vec<(u32, u32)>,
    /// set_mempolicy(2)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_policy: Option<MemoryPolicy>,
    /// PR_SET_SYSCALL_USER_DISPATCH
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
}

impl ThreadAttributes {
    /// All of it but for what says how soon the thread gets a processor or a disk.
    pub fn without_priorities(&self) -> Self {
        Self { schedule: None, io_priority: 0, ..self.clone() }
    }
}

/// What the threads of a process have in common. In the image of an older writer there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessAttributes {
    /// /proc/PID/coredump_filter
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_filter: Option<u32>,
    /// Nice value of its session's group for scheduling (/proc/PID/autogroup).
    #[serde(default, skip_serializing_if = "is_zero_signed")]
    pub group_nice: i32,
    /// /proc/PID/loginuid, where it is another than that of the job's init: the job itself has set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_user: Option<u32>,
    /// Flags of PR_SET_THP_DISABLE.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thp_flags: u32,
    /// PR_SET_MEMORY_MERGE
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_merge: bool,
    /// PR_SET_MDWE
    #[serde(default, skip_serializing_if = "is_zero")]
    pub no_exec_gain: u32,
    /// MCL_* of mlockall(2) for memory that is mapped later; 0: it is not locked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub later_locked: u32,
    /// PR_TIMER_CREATE_RESTORE_IDS is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timer_numbers: bool,
    /// Parts of the processor's state that it has asked for (ARCH_REQ_XCOMP_PERM), a bit each.
    #[serde(default, skip_serializing_if = "is_zero_wide")]
    pub state_parts: u64,
    /// Protection keys that are allocated (pkeys(7)), a bit each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keys: u32,
}

/// sched_setattr(2)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// SCHED_*
    pub policy: u32,
    /// SCHED_FLAG_*
    #[serde(default, skip_serializing_if = "is_zero_wide")]
    pub flags: u64,
    /// Nice value.
    #[serde(default, skip_serializing_if = "is_zero_signed")]
    pub nice: i32,
    /// Priority among real-time threads.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Of SCHED_DEADLINE, or the slice of others, ns; 0: the machine's usual one.
    #[serde(default, skip_serializing_if = "is_zero_wide")]
    pub runtime: u64,
    /// Of SCHED_DEADLINE, ns.
    #[serde(default, skip_serializing_if = "is_zero_wide")]
    pub deadline: u64,
    /// Of SCHED_DEADLINE, ns.
    #[serde(default, skip_serializing_if = "is_zero_wide")]
    pub period: u64,
    /// Utilization that the thread asked for, least and most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<(u32, u32)>,
}

/// set_mempolicy(2)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// MPOL_* with its flags.
    pub mode: u32,
    /// Nodes.
    pub nodes: Vec<u32>,
}

impl MemoryPolicy {
    /// No kernel has more nodes (MAX_NUMNODES, at most).
    pub const MOST_NODES: u32 = 1024;
}

/// PR_SET_SYSCALL_USER_DISPATCH, as ptrace(2) tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// PR_SYS_DISPATCH_*
    pub mode: u64,
    /// Address of the byte that lets calls through or not; 0: none.
    pub selector: u64,
    /// Where calls are let through.
    pub offset: u64,
    /// How many bytes from there.
    pub length: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(crate) fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero_wide(value: &u64) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero_signed(value: &i32) -> bool {
    *value == 0
}
