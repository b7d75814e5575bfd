//! Acting for all users of a machine: root does, and so does whoever may become any of them.
//!
//! An agent that is started as an ordinary user with CAP_SETUID and CAP_SETGID, as systemd's AmbientCapabilities= gives
//! them, enters a user namespace in which every user but root has its own number ([`enter`]). There it has all
//! capabilities over these users' processes and files, and none over root's. Root and nobody, whose number the kernel
//! shows for all that it can't, have no number there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::super::error::{EngineError, Result};
use super::restrained::{self, DAC_OVERRIDE, SETGID, SETUID};

/// The number that the kernel shows for users that have none here (/proc/sys/kernel/overflowuid).
pub const NOBODY: u32 = 65_534;
/// Users and groups, each under its own number, but root and nobody: the first one and how many.
const NUMBERS: [(u32, u32); 2] = [(1, NOBODY - 1), (NOBODY + 1, u32::MAX - NOBODY - 1)];

/// Whether this process acts for all users. It stays as it is found first: [`enter`] comes before.
#[must_use]
pub fn acts_for_all() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        nix::unistd::geteuid().is_root()
            || (restrained::has(&[SETUID, SETGID, DAC_OVERRIDE]).unwrap_or(false) && knows_many())
    })
}

/// Whether this process acts for all users but root.
#[must_use]
pub fn acts_for_all_but_root() -> bool {
    acts_for_all() && !nix::unistd::geteuid().is_root()
}

/// In the namespace of one user, nobody else can be become.
fn knows_many() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() > 1
}

/// Enters such a namespace, where this process is an ordinary user's that may become others; else nothing is done.
/// To be called while the process has one thread. `init_name` is argv[0] of jobs' inits.
///
/// # Errors
/// Where the kernel refuses.
pub fn enter(init_name: &str) -> Result<()> {
    let failed = |call: &'static str| move |errno| EngineError::system(call, "the agent", errno);
    let may = |which| restrained::has(which).map_err(failed("capget"));
    if nix::unistd::geteuid().is_root() || !may(&[SETUID, SETGID])? || may(&[DAC_OVERRIDE])? {
        return Ok(());
    }
    match left_behind(init_name) {
        Some(namespace) => setns(namespace, CloneFlags::CLONE_NEWUSER)
            .map_err(|errno| EngineError::system("setns", "the agent before this one", errno)),
        None => make(),
    }
}

/// That of an agent before this one, which jobs still live in: only from there can they be looked into.
fn left_behind(init_name: &str) -> Option<fs::File> {
    let own = nix::unistd::geteuid().as_raw();
    let here = fs::metadata("/proc/self/ns/user").ok()?.ino();
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    for process in processes {
        let name = fs::read(process.join("cmdline")).unwrap_or_default();
        let is_init = name.split(|byte| *byte == 0).next() == Some(init_name.as_bytes());
        if !is_init || !fs::metadata(&process).is_ok_and(|found| found.uid() == own) {
            continue;
        }
        let Ok(namespace) = fs::File::open(process.join("ns/user")) else { continue };
        let map = fs::read_to_string(process.join("uid_map")).unwrap_or_default();
        let numbers = map.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
        let usual = NUMBERS.iter().flat_map(|(first, count)| [*first, *first, *count]);
        if numbers.eq(usual) && namespace.metadata().is_ok_and(|found| found.ino() != here) {
            return Some(namespace);
        }
    }
    None
}

fn make() -> Result<()> {
    let failed = |call: &'static str| move |errno| EngineError::system(call, "the agent", errno);
    let (ready, tell) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(failed("pipe"))?;
    let agent = Pid::this();
    // SAFETY: the caller has one thread, so the child may go on as ordinary code.
    let child = match unsafe { fork() }.map_err(failed("fork"))? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop(tell);
            let mut word = [0];
            let told = nix::unistd::read(&ready, &mut word) == Ok(1);
            let done = told && number_users(agent).is_ok();
            // Nothing of the agent's is to be done at this end.
            // SAFETY: ends the process, which owns nothing that others wait for.
            unsafe { libc::_exit(i32::from(!done)) }
        }
    };
    drop(ready);
    let entered = unshare(CloneFlags::CLONE_NEWUSER);
    if entered.is_ok() {
        nix::unistd::write(&tell, &[1]).map_err(failed("write"))?;
    }
    drop(tell);
    let numbered = waitpid(child, None).map_err(failed("wait"))?;
    entered.map_err(|errno| EngineError::Unfit {
        what: format!("a user namespace cannot be made ({})", errno.desc()),
        way_out: "see `ckptd doctor`, or run without CAP_SETUID and CAP_SETGID".into(),
    })?;
    if !matches!(numbered, WaitStatus::Exited(_, 0)) {
        return Err(EngineError::Unfit {
            what: "users cannot be numbered in a user namespace".into(),
            way_out: "run as root, or without CAP_SETUID and CAP_SETGID".into(),
        });
    }
    Ok(())
}

/// Called by a process that has stayed outside: who is inside may number itself alone.
fn number_users(agent: Pid) -> io::Result<()> {
    let lines = NUMBERS.map(|(first, count)| format!("{first} {first} {count}\n")).concat();
    fs::write(format!("/proc/{agent}/uid_map"), &lines)?;
    fs::write(format!("/proc/{agent}/gid_map"), &lines)
}
