//! Flags of clone(2), clone3(2) and unshare(2), in the order of their values (include/uapi/linux/sched.h).

use super::Fate::{Kept, Nothing, Refused};
use super::Row;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    ("CLONE_NEWTIME", Kept, "see Limits, Namespaces"),
    ("CLONE_VM", Kept, "of threads, of vfork(2) until its child runs another program, and with the parent; see Limits"),
    ("CLONE_FS", Kept, "of threads, also apart from their process (unshare), and with the parent; with another process, refused"),
    ("CLONE_FILES", Kept, "of threads, and with the parent; with another process, refused"),
    ("CLONE_SIGHAND", Kept, "of threads, and with the parent"),
    ("CLONE_PIDFD", Kept, "the descriptor is one of pidfd_open(2)"),
    ("CLONE_PTRACE", Refused, "as any debugger in the job"),
    ("CLONE_VFORK", Kept, "the parent waits on; refused while the child keeps its memory for long, since the parent can't be stopped"),
    ("CLONE_PARENT", Kept, "the child has the parent that it had"),
    ("CLONE_THREAD", Kept, ""),
    ("CLONE_NEWNS", Kept, "see Limits, Namespaces"),
    ("CLONE_SYSVSEM", Kept, "of threads: undo lists (semop(2), SEM_UNDO)"),
    ("CLONE_SETTLS", Kept, ""),
    ("CLONE_PARENT_SETTID", Nothing, ""),
    ("CLONE_CHILD_CLEARTID", Kept, ""),
    ("CLONE_DETACHED", Nothing, "Linux ignores it"),
    ("CLONE_UNTRACED", Nothing, ""),
    ("CLONE_CHILD_SETTID", Nothing, ""),
    ("CLONE_NEWCGROUP", Kept, "see Limits, Namespaces"),
    ("CLONE_NEWUTS", Kept, ""),
    ("CLONE_NEWIPC", Kept, "see Limits, Namespaces"),
    ("CLONE_NEWUSER", Kept, "see Limits, Namespaces"),
    ("CLONE_NEWPID", Kept, "see Limits, Namespaces"),
    ("CLONE_NEWNET", Kept, "see Limits, Namespaces"),
    ("CLONE_IO", Nothing, "who shares an I/O context matters to speed alone"),
    ("CLONE_CLEAR_SIGHAND", Nothing, ""),
    ("CLONE_INTO_CGROUP", Kept, "where it may be entered again; see Limits"),
];
