//! Interfaces of the kernel.

use super::Check;
use ckpt_engine::job_init::{World, lacking};
use ckpt_engine::probe::{self, Numbers};
use ckpt_engine::sys::memory_map::{Means, means};
use ckpt_engine::sys::{own_sockets, proc_net, sock_diag};

pub(super) fn checks() -> Vec<Check> {
    let mut checks = namespaces();
    checks.extend(tracing());
    checks.extend(memory());
    checks.extend(sockets());
    checks
}

fn namespaces() -> Vec<Check> {
    match World::chosen() {
        World::Own => own_namespaces(),
        World::Machine => no_namespaces(),
    }
}

/// Jobs live among the machine's other processes.
fn no_namespaces() -> Vec<Check> {
    let why = lacking().unwrap_or("CKPTD_NAMESPACES=none");
    let without = Check::limited(
        "namespaces",
        format!("jobs run without, among the machine's other processes ({why})"),
        "host name, /etc/hosts, terminals and clocks are the machine's: CLOCK_MONOTONIC goes on while a job is not \
         there, absolute timers are off; SysV shared memory is refused; a kernel with CONFIG_PID_NS and \
         CONFIG_USER_NS has them",
    );
    let numbers = match probe::numbers() {
        Numbers::AskedFor => Check::ok("numbers of processes", "asked for (clone3 set_tid)"),
        Numbers::WaitedFor(count) => Check::limited(
            "numbers of processes",
            format!("waited for: the kernel hands out {count} in turn"),
            "a restart takes up to some seconds longer, and a number that another process has meanwhile is replaced \
             by a new one",
        ),
        Numbers::New(why) => Check::limited(
            "numbers of processes",
            format!("new ones at each restart ({why})"),
            "programs that wait for or signal other processes by remembered numbers, Open MPI's among them, do not \
             find these; as root, or with CAP_CHECKPOINT_RESTORE, numbers can be asked for",
        ),
    };
    vec![without, numbers]
}

fn own_namespaces() -> Vec<Check> {
    let inside = probe::inside_namespaces();
    vec![
        Check::required(
            "namespaces",
            inside.made,
            "no job can be run; as an ordinary user see the line on user namespaces, in a container allow \
             unshare(2) (docker: --security-opt seccomp=unconfined --cap-add SYS_ADMIN), run as root, or do \
             without them: CKPTD_NAMESPACES=none",
        ),
        Check::required(
            "mount /proc",
            inside.proc,
            "no job can be run; a container must show its whole /proc (docker: --security-opt \
             systempaths=unconfined)",
        ),
        Check::wanted(
            "mount devpts",
            inside.terminals,
            "terminals of a job may get other numbers at a restart",
        ),
        Check::required(
            "clone3 set_tid",
            inside.exact_pid,
            "no job can be restarted: its processes must get their numbers back; Linux 5.5 has it, and \
             without root 5.9",
        ),
        Check::wanted(
            "time namespace",
            probe::time_namespace(),
            "CLOCK_MONOTONIC jumps at a restart on another machine or after a reboot: timers of a job \
             may fire early or very late; Linux 5.6 with CONFIG_TIME_NS has it",
        ),
    ]
}

fn tracing() -> Vec<Check> {
    let mut checks = vec![Check::required(
        "ptrace",
        probe::trace_child(),
        "no job can be checkpointed; set kernel.yama.ptrace_scope to 0 or 1, in a container allow \
         ptrace(2) (docker: --cap-add SYS_PTRACE)",
    )];
    checks.push(Check::required(
        "pidfd_getfd",
        probe::descriptor(),
        "no job can be checkpointed: its descriptors cannot be copied; Linux 5.6 has it",
    ));
    checks.push(Check::required(
        "process_vm_readv",
        probe::other_memory(),
        "no job can be checkpointed: its memory cannot be read; the kernel needs CONFIG_CROSS_MEMORY_ATTACH",
    ));
    checks.push(Check::wanted(
        "kcmp",
        probe::compare(),
        "descriptors that share one open file are told by what /proc says of them, which can be \
         wrong for two that look the same; the kernel needs CONFIG_KCMP, and no sandbox that forbids it",
    ));
    checks.push(match probe::map_files() {
        Ok(()) => Check::ok("/proc/PID/map_files", "works"),
        Err(reason) => Check::limited(
            "/proc/PID/map_files",
            reason.to_string(),
            "shared memory without a descriptor is read through the processes that have it mapped; \
             needs CAP_CHECKPOINT_RESTORE",
        ),
    });
    checks
}

/// What restored processes show of themselves.
fn memory_map() -> Check {
    let name = "PR_SET_MM_MAP";
    match means() {
        Means::Whole => Check::ok(name, "works"),
        Means::Fields => Check::limited(
            name,
            "not there, but PR_SET_MM works",
            "nothing, while ckptd has CAP_SYS_RESOURCE over the machine, as it has here",
        ),
        Means::Nothing => Check::missing(
            name,
            "not there, or not in full",
            "for restarted processes ps and /proc/PID show ckptd's program and no arguments, and such whose heap is below \
             ckptd's own are not restarted; the kernel needs CONFIG_CHECKPOINT_RESTORE",
        ),
    }
}

fn memory() -> Vec<Check> {
    let mut checks = vec![
        Check::required(
            "executable memory",
            probe::executable_memory(),
            "no job can be restarted: a security policy forbids memory that is both data and code; \
             allow execmem for ckptd",
        ),
        memory_map(),
        Check::wanted(
            "PAGEMAP_SCAN",
            probe::pagemap_scan(),
            "changed pages are found by /proc/PID/pagemap, which is slower, and zero pages are read; \
             Linux 6.7 has it",
        ),
        Check::wanted(
            "write tracking",
            probe::write_tracking(),
            "each checkpoint reads all of a job's memory, not what was written since an earlier one; Linux 6.7 has it",
        ),
        Check::wanted(
            "guard regions",
            probe::guard_regions(),
            "a job of a newer machine that uses MADV_GUARD_INSTALL cannot be restarted here; Linux \
             6.13 has it",
        ),
    ];
    checks.push(match (probe::userfaultfd(), probe::privileged_userfaultfd()) {
        (Ok(()), Ok(())) => Check::ok("userfaultfd", "works, for system calls too"),
        (Ok(()), Err(reason)) => Check::limited(
            "userfaultfd",
            format!("for faults of programs only ({reason})"),
            "memory is filled before a job runs, not on demand; needs CAP_SYS_PTRACE or \
             vm.unprivileged_userfaultfd=1",
        ),
        (Err(reason), _) => Check::missing(
            "userfaultfd",
            reason.to_string(),
            "memory is filled before a job runs, not on demand",
        ),
    });
    checks
}

fn sockets() -> Vec<Check> {
    vec![
        Check::wanted(
            "sock_diag unix",
            sock_diag::unix_sockets().map(drop),
            "jobs with Unix sockets cannot be checkpointed; the kernel needs CONFIG_UNIX_DIAG",
        ),
        tcp_sockets(),
    ]
}

fn tcp_sockets() -> Check {
    let name = "sock_diag tcp";
    match (sock_diag::by_netlink(), proc_net::tcp_sockets()) {
        (Ok(_), _) => Check::ok(name, "works"),
        (Err(error), Ok(_)) => Check::limited(
            name,
            format!("not allowed, /proc/net/tcp is read instead ({error})"),
            "a TCP connection from which a program will read no more (SHUT_RD) is restarted as one from which it will",
        ),
        (Err(error), Err(_)) => match own_sockets::tcp_sockets() {
            Ok(_) => Check::limited(
                name,
                format!(
                    "not allowed, nor is /proc/net/tcp; sockets are asked one by one ({error})"
                ),
                "a checkpoint waits while a connection is not accepted yet; one that was closed with bytes on their way may be \
                 found reset after a restart, and SHUT_RD is not seen",
            ),
            Err(_) => Check::missing(
                name,
                error.to_string(),
                "jobs with TCP connections, MPI's among them, cannot be checkpointed; the kernel needs \
                 CONFIG_INET_TCP_DIAG",
            ),
        },
    }
}
