//! Processes and threads.

use serde::{Deserialize, Serialize};

use super::super::control_groups::ControlGroup;
use super::window::{StoredWindow, WINDOW_PAGES};
use super::{
    Area, Descriptor, FileId, Lock, Pid, PosixTimer, ProcessAttributes, Sandbox, SandboxFilter,
    SemaphoreUndo, ThreadAttributes,
};

/// The clocks as the job would have seen them at the moment of the image, ns: what is left of a sleep or a timer was left
/// then or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// CLOCK_MONOTONIC
    pub monotonic_ns: i64,
    /// CLOCK_BOOTTIME
    pub boottime_ns: i64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime_ns: i64,
}

/// A process's place among the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessNode {
    /// Its number.
    pub pid: Pid,
    /// Its parent; 1 is the job's init.
    pub ppid: Pid,
    /// Process group.
    pub pgid: Pid,
    /// Session.
    pub sid: Pid,
    /// Name (comm).
    pub comm: String,
    /// The signal that its parent gets at its end.
    pub exit_signal: i32,
    /// PR_SET_CHILD_SUBREAPER.
    #[serde(default)]
    pub subreaper: bool,
    /// Alive, or what is left of it.
    pub state: ProcessState,
    /// Where it is in a PID namespace of the job's own: its numbers there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<NumbersInside>,
}

/// What a process is called in a PID namespace of the job's own (pid_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumbersInside {
    /// The namespace, as a place in the graph's list.
    pub namespace: u32,
    /// Its number.
    pub pid: Pid,
    /// Process group; 0: one that was made outside.
    pub pgid: Pid,
    /// Session; 0: one that was made outside.
    pub sid: Pid,
}

impl NumbersInside {
    /// The number of the first process of a PID namespace, with which all others in it end.
    pub const FIRST: Pid = 1;

    /// Whether it is the first one of its namespace.
    pub fn is_first(&self) -> bool {
        self.pid == Self::FIRST
    }
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum ProcessState {
    /// Has an image of its own.
    Alive,
    /// Ended, not waited for.
    Zombie {
        /// As wait(2) tells it.
        status: i32,
        /// Its real user, of whom its parent is told (si_uid); `None` in images of older writers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    /// Stands for a process that lives in another instance; its links are among the graph's
    /// relays.
    StandIn,
}
protocol::tagged!(ProcessState, "state");

/// One process: PROCESS.json.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessImage {
    /// [`super::GRAPH_VERSION`] of the writer.
    pub version: u32,
    /// Its number.
    pub pid: Pid,
    /// Path of the executable.
    pub executable: super::MappedFile,
    /// Its path among mounts of the process's own, where it lies on one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable_inside: Option<String>,
    /// Working directory; the path that it had, where it is removed.
    pub working_directory: String,
    /// Permission bits of a working directory that is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_directory: Option<u32>,
    /// Number of the inode of a working directory that is removed, which descriptors and other processes may have, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_inode: Option<u64>,
    /// Root directory, where it is not the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_directory: Option<String>,
    /// Namespaces that are not the job's, as places in the graph's list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<u32>,
    /// The time namespace that its children will be in, as such a place, where it is not the process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_of_children: Option<u32>,
    /// The PID namespace that its children will be in, as such a place, where it is not in it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_of_children: Option<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// Scheduling: nice value.
    pub nice: i32,
    /// PR_SET_DUMPABLE
    pub dumpable: i32,
    /// PR_SET_THP_DISABLE
    #[serde(default)]
    pub thp_disable: bool,
    /// Registrations of membarrier(2), as the commands that make them.
    #[serde(default)]
    pub membarrier: u32,
    /// Segments of its own (modify_ldt(2)): descriptors of x86, one after the other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_descriptors: String,
    /// oom_score_adj
    pub oom_score_adj: i32,
    /// PR_SET_PDEATHSIG of the process's threads is kept per thread; this is stop by job control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<i32>,
    /// Its children that are stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped_children: Vec<StoppedChild>,
    /// Its children that go on after a stop, of which it has not been told (wait(2) with WCONTINUED).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued_children: Vec<Pid>,
    /// Descriptors, ascending.
    pub descriptors: Vec<Descriptor>,
    /// fcntl(2) locks of the process: (descriptor to set it with, lock).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<(i32, Lock)>,
    /// Actions that are not plain SIG_DFL.
    pub actions: Vec<SignalAction>,
    /// Pending for the process as a whole.
    pub pending: Vec<PendingSignal>,
    /// ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF.
    pub interval_timers: [IntervalTimer; 3],
    /// Timers of timer_create(2), by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<PosixTimer>,
    /// What it gives back to SysV semaphores at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<SemaphoreUndo>,
    /// Control groups in which it is and the job as a whole is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_groups: Vec<ControlGroup>,
    /// RLIMIT_* in the kernel's order.
    pub limits: Vec<ResourceLimit>,
    /// PR_SET_MM fields in the order of struct prctl_mm_map: start_code .. env_end.
    pub memory_map: [u64; 11],
    /// Auxiliary vector, hex.
    pub auxv: String,
    /// Attributes that are numbers.
    #[serde(default)]
    pub attributes: ProcessAttributes,
    /// Filters of system calls that its threads are under.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<SandboxFilter>,
    /// Mappings, ascending.
    pub areas: Vec<Area>,
    /// Pages that are stored, ascending.
    pub pages: Vec<StoredWindow>,
    /// Threads, the leader first.
    pub threads: Vec<ThreadImage>,
}

impl ProcessImage {
    /// The name (comm) that the process goes by: its leader's.
    pub fn leader_name(&self) -> &str {
        self.threads.first().map_or("", |leader| &leader.comm)
    }

    /// Whether it ignores SIGTRAP.
    pub fn ignores_traps(&self) -> bool {
        let ignored = (libc::SIGTRAP, libc::SIG_IGN as u64);
        self.actions.iter().any(|action| (action.signal, action.words[0]) == ignored)
    }

    /// Whether pages of the area are filled although the program cannot write to it.
    pub fn fills_unwritable(&self, area: &Area, page: u64) -> bool {
        let span = WINDOW_PAGES * page;
        let touches =
            |window: &StoredWindow| window.address < area.end && window.address + span > area.start;
        !area.shared && !area.protection.writable() && self.pages.iter().any(touches)
    }
}

/// Where paths begin for a thread, and with what rights its new files are made: what CLONE_FS shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directories {
    /// Working directory; the path that it had, where it is removed.
    pub working_directory: String,
    /// Permission bits of a working directory that is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_directory: Option<u32>,
    /// Number of the inode of a working directory that is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_inode: Option<u64>,
    /// Root directory, where it is not the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_directory: Option<String>,
    /// File mode creation mask.
    pub umask: u32,
}

/// One thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThreadImage {
    /// Its number.
    pub tid: Pid,
    /// Its number in a PID namespace of the job's own, where it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid_inside: Option<Pid>,
    /// Name.
    pub comm: String,
    /// The leader ended while other threads go on.
    #[serde(default)]
    pub ended: bool,
    /// What it ended with (_exit(2)), where it did: the status of the process, unless that is ended as a whole.
    #[serde(default)]
    pub exit_status: u8,
    /// General registers as the architecture's PTRACE_GETREGSET gives them, hex.
    pub registers: String,
    /// Extended state by regset number (NT_*), hex with its zeros counted ([`super::to_sparse_hex`]).
    pub extended: Vec<(u32, String)>,
    /// The rest of a relative sleep: a timespec (seconds, nanoseconds) and the address at which the call
    /// that the registers make expects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<(u64, [u64; 2])>,
    /// Blocked signals.
    pub blocked: u64,
    /// Pending for this thread alone.
    pub pending: Vec<PendingSignal>,
    /// Alternate signal stack.
    pub signal_stack: SignalStack,
    /// set_tid_address(2)
    pub clear_tid: u64,
    /// set_robust_list(2)
    pub robust_list: RobustList,
    /// rseq(2)
    pub rseq: Rseq,
    /// PR_SET_PDEATHSIG
    #[serde(default)]
    pub parent_death_signal: i32,
    /// PR_SET_NO_NEW_PRIVS
    #[serde(default)]
    pub no_new_privs: bool,
    /// PR_SET_TIMERSLACK, ns.
    #[serde(default)]
    pub timer_slack_ns: u64,
    /// CPUs it may run on, where fewer than all: hex mask as in /proc/PID/status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Vec<u32>>,
    /// Scheduling policy and priority, where not SCHED_OTHER.
    #[serde(default)]
    pub policy: (i32, i32),
    /// Attributes that are numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<ThreadAttributes>,
    /// Directories of its own, where they are not the main thread's (unshare(2), CLONE_FS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories: Option<Directories>,
    /// The thread with directories of its own that it shares these with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories_of: Option<Pid>,
    /// What it has forbidden itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// io_urings that it has registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RegisteredRing>,
    /// Credentials.
    pub credentials: Credentials,
}

/// An io_uring that a thread has registered (IORING_REGISTER_RING_FDS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredRing {
    /// By which number the thread calls it.
    pub place: u32,
    /// The ring.
    pub file: FileId,
}

/// Who a thread acts as (credentials(7), capabilities(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Real, effective, saved, file system.
    pub uids: [u32; 4],
    /// Real, effective, saved, file system.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// CapInh, CapPrm, CapEff, CapBnd, CapAmb.
    pub capabilities: [u64; 5],
    /// PR_SET_SECUREBITS
    pub securebits: u32,
}

impl Credentials {
    /// From /proc/PID/task/TID/status (proc_pid_status(5)), which does not tell the secure bits.
    pub fn of_status(status: &procfs::process::Status, securebits: u32) -> Self {
        Self {
            uids: [status.ruid, status.euid, status.suid, status.fuid],
            gids: [status.rgid, status.egid, status.sgid, status.fgid],
            groups: status.groups.clone(),
            capabilities: [
                status.capinh,
                status.capprm,
                status.capeff,
                status.capbnd.unwrap_or(0),
                status.capamb.unwrap_or(0),
            ],
            securebits,
        }
    }
}

/// A signal's action as rt_sigaction(2) keeps it in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAction {
    /// Signal number.
    pub signal: i32,
    /// struct kernel_sigaction as 64-bit words: handler, flags, restorer, mask (the
    /// architecture says how many count).
    pub words: [u64; 4],
}

/// A child that is stopped by job control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedChild {
    /// Its number.
    pub pid: Pid,
    /// Whether the parent has been told of the stop (wait(2) with WUNTRACED).
    pub told: bool,
}

/// A pending signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSignal {
    /// siginfo_t, 128 bytes, hex.
    pub siginfo: String,
}

impl PendingSignal {
    /// Its number, with which siginfo_t begins; `None`: the image is damaged.
    pub fn signal(&self) -> Option<i32> {
        let bytes = super::from_hex(self.siginfo.get(..8)?).ok()?;
        bytes.try_into().ok().map(i32::from_ne_bytes)
    }
}

/// setitimer(2), microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalTimer {
    /// Interval.
    pub interval_us: u64,
    /// Until it next expires; 0: disarmed.
    pub value_us: u64,
}

/// getrlimit(2)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// RLIMIT_*
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// sigaltstack(2)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalStack {
    /// Base address.
    pub base: u64,
    /// SS_* flags.
    pub flags: i32,
    /// Bytes.
    pub size: u64,
}

/// set_robust_list(2)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RobustList {
    /// Head.
    pub head: u64,
    /// Length as registered.
    pub length: u64,
}

/// rseq(2), as PTRACE_GET_RSEQ_CONFIGURATION tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rseq {
    /// Address of struct rseq; 0: none.
    pub address: u64,
    /// Its size.
    pub size: u32,
    /// Its signature.
    pub signature: u32,
}
