//! fork(2) with an exact process number, or one that may be another.

use std::io;
use std::time::{Duration, Instant};

use super::super::graph::Pid;
use super::super::job_init::world::wants_numbers;
use super::ended::Patience;
use super::rounds::{Counter, TRIES};
use super::trial::Call;

/// How long a thread that has been joined may take to be gone, on a busy machine.
const JOINED_LIMIT: Duration = Duration::from_secs(2);

/// Proof that the calling process has one thread, so that a fork leaves no lock of another thread
/// locked for ever in the child (fork(2), NOTES).
#[derive(Debug)]
pub struct SingleThreaded(std::marker::PhantomData<*const ()>);

impl SingleThreaded {
    /// Asks the kernel. It stays true as long as the caller starts no thread, which a holder of
    /// this proof must not do. A thread that has been joined is in the kernel's list still for a moment
    /// (kernel/exit.c: do_exit wakes who joins it before exit_notify takes it off): that is waited for.
    ///
    /// # Errors
    ///
    /// EINVAL if the process has other threads (unshare(2), CLONE_THREAD).
    pub fn check() -> io::Result<Self> {
        let begun = Instant::now();
        loop {
            // SAFETY: with CLONE_THREAD, unshare changes nothing: it succeeds or fails
            // (kernel/fork.c, check_unshare_flags).
            if unsafe { libc::unshare(libc::CLONE_THREAD) } == 0 {
                return Ok(Self(std::marker::PhantomData));
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINVAL) || begun.elapsed() > JOINED_LIMIT {
                return Err(error);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// On which side of a fork one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The caller; the child is this process.
    Parent(Pid),
    /// The new process.
    Child,
}

/// What a child shares with its parent. None of it is memory, so the child may do whatever a forked one may, but for what the
/// parent relies on meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shared {
    /// CLONE_FILES
    pub descriptors: bool,
    /// CLONE_FS
    pub directories: bool,
}

impl Shared {
    fn flags(self) -> u64 {
        let descriptors = if self.descriptors { libc::CLONE_FILES } else { 0 };
        let directories = if self.directories { libc::CLONE_FS } else { 0 };
        (descriptors | directories) as u64
    }
}

/// struct clone_args (include/uapi/linux/sched.h), which the libc crate does not have for all targets.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The numbers of a process that is to be forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exact {
    /// In the innermost PID namespace.
    Own(Pid),
    /// In the innermost one, and in the one around it.
    Inside(Pid, Pid),
    /// In the caller's innermost one, and as the first process of a new one within it.
    First(Pid),
}

impl Exact {
    /// What clone3(2) takes, the innermost first.
    fn all(self) -> ([Pid; 2], u64) {
        match self {
            Self::Own(pid) => ([pid, 0], 1),
            Self::Inside(inner, outer) => ([inner, outer], 2),
            Self::First(outer) => ([1, outer], 2),
        }
    }

    fn flags(self) -> u64 {
        match self {
            Self::First(_) => libc::CLONE_NEWPID as u64,
            Self::Own(_) | Self::Inside(..) => 0,
        }
    }
}

/// Forks a child with this number in the innermost PID namespace, as [`fork_numbered`] does.
///
/// # Errors
/// The same.
pub fn fork_exact(
    proof: &SingleThreaded,
    pid: Pid,
    exit_signal: i32,
    shared: Shared,
) -> io::Result<Side> {
    fork_numbered(proof, Exact::Own(pid), exit_signal, shared)
}

/// Forks a child with these numbers, whose end is told by `exit_signal` (0: by none). Needs CAP_CHECKPOINT_RESTORE or
/// CAP_SYS_ADMIN over all PID namespaces in which one is asked for. The parent is told the number that it sees itself.
///
/// The C library's handlers of fork are not run and its record of the thread's number is not
/// renewed: the child must not use raise(3) or pthread mutexes that know their owner. Rust's
/// standard library uses neither.
///
/// # Errors
///
/// clone3(2)'s: EEXIST if the number is taken, EPERM, EAGAIN (a limit on processes), EINVAL (the
/// number is over /proc/sys/kernel/pid_max).
pub fn fork_numbered(
    _proof: &SingleThreaded,
    exact: Exact,
    exit_signal: i32,
    shared: Shared,
) -> io::Result<Side> {
    let (numbers, count) = exact.all();
    let arguments = Arguments {
        flags: shared.flags() | exact.flags(),
        exit_signal: u64::try_from(exit_signal)
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        set_tid: numbers.as_ptr() as u64,
        set_tid_size: count,
        ..Arguments::default()
    };
    // SAFETY: without CLONE_VM and CLONE_THREAD this is a fork: the child has a copy of all memory and
    // goes on here, on its copy of this stack. `arguments` and `numbers` outlive the call. The
    // proof says that no other thread can have held a lock, so the copy is consistent.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<Arguments>()) };
    match Pid::try_from(result) {
        Ok(0) => Ok(Side::Child),
        Ok(child @ 1..) => Ok(Side::Parent(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks a child as [`fork_exact`] does, but with any number.
///
/// # Errors
///
/// clone(2)'s: EAGAIN (a limit on processes).
pub fn fork_any(_proof: &SingleThreaded, exit_signal: i32, shared: Shared) -> io::Result<Side> {
    let none: libc::c_long = 0;
    let flags = libc::c_long::from(exit_signal) | shared.flags() as libc::c_long;
    // SAFETY: without CLONE_VM and CLONE_THREAD this is a fork, as in `fork_exact`; apart from the signal in the flags
    // all arguments are zero, whatever their order is on this architecture.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match result {
        0 => Ok(Side::Child),
        child if child > 0 => Ok(Side::Parent(
            Pid::try_from(child).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        )),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks a child with this number if it can be had, else with any: asked for where that is allowed, else waited for until
/// its turn comes.
///
/// # Errors
///
/// EAGAIN (a limit on processes).
pub fn fork_near(
    proof: &SingleThreaded,
    counter: &Counter,
    pid: Pid,
    exit_signal: i32,
    shared: Shared,
) -> io::Result<Side> {
    let mut to_be_had = wants_numbers();
    // What is forked inherits how long has been waited.
    let patience = Patience::of_this_restore();
    while to_be_had && Call::Clone3.may_be_made() {
        match fork_exact(proof, pid, exit_signal, shared) {
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Err(error),
                Some(libc::EEXIST) => to_be_had = patience.outlasts(pid),
                // Not allowed, or not known to this kernel.
                _ => break,
            },
            forked => return forked,
        }
    }
    for _ in 0..TRIES {
        if !(to_be_had && counter.approach(pid)) {
            break;
        }
        match fork_any(proof, exit_signal, shared)? {
            Side::Parent(number) if number == pid => {
                counter.note(number);
                return Ok(Side::Parent(number));
            }
            Side::Parent(number) => {
                counter.note(number);
                // SAFETY: takes numbers and a null pointer, which waitpid(2) allows; the child is this process's.
                unsafe { libc::waitpid(number, std::ptr::null_mut(), libc::__WALL) };
            }
            Side::Child if own_number() == pid => return Ok(Side::Child),
            // SAFETY: ends the child at once, without running anything of its parent's.
            Side::Child => unsafe { libc::_exit(0) },
        }
    }
    let side = fork_any(proof, exit_signal, shared)?;
    if let Side::Parent(number) = side {
        counter.note(number);
    }
    Ok(side)
}

/// As the kernel tells it: C libraries may remember that of the parent.
pub fn own_number() -> Pid {
    // SAFETY: a call without arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as Pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_noticed() {
        // The test harness itself runs tests in threads.
        std::thread::spawn(|| assert!(SingleThreaded::check().is_err())).join().unwrap();
    }
}
