//! Attributes of processes that other calls than prctl(2) set.

use super::Fate::{Default, Kept, Refused};
use super::Row;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    ("credentials(7): users, groups, capabilities", Kept, "groups only where they may be set"),
    ("sched_setattr(2): policy, priority, nice value, slice, deadline, utilization, reset on fork", Kept, "what takes a privilege only with it; a line says where not"),
    ("sched_setaffinity(2)", Kept, "all processors where the machine has none of those"),
    ("ioprio_set(2)", Kept, "what takes a privilege only with it, and not where root restores a user's job; a line says where not"),
    ("/proc/PID/oom_score_adj", Kept, "lower values only with the privilege"),
    ("/proc/PID/coredump_filter", Kept, ""),
    ("personality(2)", Kept, ""),
    ("umask(2)", Kept, ""),
    ("setrlimit(2)", Kept, "a line says where a limit cannot be raised"),
    ("membarrier(2): registrations", Kept, ""),
    ("modify_ldt(2)", Kept, "where the machine has such segments"),
    ("set_mempolicy(2)", Kept, "where the machine has such nodes; a line says where not"),
    ("mbind(2)", Kept, "where the machine has such nodes; a line says where not"),
    ("pkey_alloc(2)", Kept, ""),
    ("keyctl(2): keyrings of a thread or process", Refused, ""),
    ("keyctl(2): keyring of a session", Default, "that of whoever restarts the job"),
    ("/proc/PID/autogroup", Kept, "what takes a privilege only with it; a line says where not"),
    ("/proc/PID/loginuid", Kept, "where the job itself has set it, and whoever restarts it may; else that of whoever restarts it"),
    ("/proc/PID/sessionid", Default, "that of whoever restarts the job"),
    ("arch_prctl(2): ARCH_SHSTK_ENABLE", Refused, ""),
    ("arch_prctl(2): ARCH_REQ_XCOMP_PERM", Kept, "with tiles of AMX in use"),
    ("arch_prctl(2): ARCH_SET_CPUID", Kept, ""),
    ("mlock(2), mlockall(2)", Kept, "where the limit allows it; a line says where later mappings are not locked"),
    ("mseal(2)", Kept, "where the kernel has it and tells of it; a line says where not"),
    ("io_setup(2)", Kept, "with nothing in flight; see Limits"),
    ("landlock_restrict_self(2)", Refused, "as far as it shows: no call tells of it"),
    ("set_robust_list(2), rseq(2), sigaltstack(2), set_tid_address(2)", Kept, ""),
];
