//! The namespaces of a logical node: PID, mount, UTS, IPC, time; and a user namespace where the
//! job runs without privilege (user_namespaces(7)).

use crate::sys::standing::acts_for_all;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;

use super::super::error::{EngineError, Result};
use super::super::objects::HOSTS;
use super::super::sys::abi::CLONE_NEWTIME;
use super::super::sys::memfd;

/// What is mounted where this process is (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";
/// The name of the file in memory that has what was mounted when the job began.
pub const KEPT_MOUNTS: &CStr = c"ckptd-mounts";

const SECOND: i64 = 1_000_000_000;
/// A folder that is there on every machine, over which a file system lies for a moment.
pub(super) const PASSING: &str = "/proc";
/// Where machines show POSIX message queues.
const QUEUES: &str = "/dev/mqueue";

/// The list of sets of SysV semaphores, below /proc.
pub const SEMAPHORES: &str = "/sysvipc/sem";
/// The list of SysV message queues, below /proc.
pub const MESSAGE_QUEUES: &str = "/sysvipc/msg";

/// Supplementary groups of this process as the machine numbers them, from before it entered a user namespace that has no numbers for
/// them. Forked processes know them as well.
static GROUPS: OnceLock<Vec<u32>> = OnceLock::new();

/// Supplementary groups of this process, where its own user namespace does not tell.
pub fn groups_outside() -> Option<&'static [u32]> {
    GROUPS.get().map(Vec::as_slice)
}

fn write(path: &str, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| EngineError::system("write", path, error))
}

/// Tells what [`groups_outside`] are, where this process has come to its user namespace by another execution.
pub(super) fn know_groups(groups: Vec<u32>) {
    GROUPS.get_or_init(|| groups);
}

/// Leaves the machine's user namespace where the job runs without privilege.
///
/// # Errors
/// Where user namespaces are forbidden: `ckptd doctor` says how to allow them.
pub fn enter_user() -> Result<()> {
    if acts_for_all() {
        return Ok(());
    }
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let groups = nix::unistd::getgroups()
        .map_err(|errno| EngineError::system("getgroups", "the job's init", errno))?;
    know_groups(groups.into_iter().map(nix::unistd::Gid::as_raw).collect());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|errno| EngineError::Unfit {
        what: format!("a user namespace cannot be made ({})", errno.desc()),
        way_out: "see `ckptd doctor`, run as root, or do without: CKPTD_NAMESPACES=none".into(),
    })?;
    // One user, the same inside and outside. A group can be mapped only once setgroups is
    // forbidden (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{group} {group} 1"))
}

/// Leaves the machine's other namespaces, but the network where that is not asked for. Processes forked from now on are inside.
///
/// # Errors
/// Where namespaces are forbidden.
pub fn enter(clocks: Option<(i64, i64)>, network: bool) -> Result<()> {
    if let Some((monotonic, boottime)) = clocks {
        shift_clocks(monotonic, boottime)?;
    }
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWPID;
    flags.set(CloneFlags::CLONE_NEWNET, network);
    unshare(flags).map_err(|errno| EngineError::Unfit {
        what: format!("namespaces cannot be made ({})", errno.desc()),
        way_out: "see `ckptd doctor`".into(),
    })
}

fn shift_clocks(monotonic: i64, boottime: i64) -> Result<()> {
    if !Path::new("/proc/self/timens_offsets").exists() {
        // Before Linux 5.6: absolute timers of the job are off by the time that has passed.
        return Ok(());
    }
    unshare(CloneFlags::from_bits_retain(CLONE_NEWTIME))
        .map_err(|errno| EngineError::system("unshare", "a time namespace", errno))?;
    set_clocks(monotonic, boottime)
}

/// By how many nanoseconds the clocks of a time namespace that has just been made are ahead of the machine's.
///
/// # Errors
/// Where somebody is in it already.
pub fn set_clocks(monotonic: i64, boottime: i64) -> Result<()> {
    set_clocks_of("self", monotonic, boottime)
}

/// [`set_clocks`], of the time namespace that a process's children will be in.
///
/// # Errors
/// Where somebody is in it already; clocks that would be negative.
pub fn set_clocks_of(process: &str, monotonic: i64, boottime: i64) -> Result<()> {
    let line = |clock: &str, ns: i64| {
        format!("{clock} {} {}\n", ns.div_euclid(SECOND), ns.rem_euclid(SECOND))
    };
    let offsets = line("monotonic", monotonic) + &line("boottime", boottime);
    write(&format!("/proc/{process}/timens_offsets"), &offsets)
}

/// What process 1 mounts: its own /proc, and its own pseudo-terminals, so that their numbers can be
/// had again. Returns lines for the user about what could not be had.
///
/// # Errors
/// Where /proc cannot be mounted.
pub fn mount_own() -> Result<Vec<String>> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|errno| EngineError::system("mount", "/ as private", errno))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let queues = show_queues(safe);
    mount(Some("proc"), "/proc", Some("proc"), safe, none).map_err(|errno| EngineError::Unfit {
        what: format!("/proc cannot be mounted ({})", errno.desc()),
        way_out: "a container must show its whole /proc; see `ckptd doctor`".into(),
    })?;
    keep_ipc_lists();
    let mut warnings = Vec::new();
    if let Err(errno) = queues {
        warnings.push(format!(
            "POSIX message queues that no process has open will not be kept: their file system can't be mounted ({})",
            errno.desc()
        ));
    }
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    let no_exec = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let own_terminals = mount(Some("devpts"), "/dev/pts", Some("devpts"), no_exec, options)
        .and_then(|()| mount(Some("/dev/pts/ptmx"), "/dev/ptmx", none, MsFlags::MS_BIND, none));
    if let Err(errno) = own_terminals {
        warnings.push(format!(
            "terminals may be numbered otherwise after a restart: no devpts of its own ({})",
            errno.desc()
        ));
    }
    if let Err(error) = keep_mounts() {
        warnings.push(format!("what the job mounts itself will not be noticed: {error}"));
    }
    Ok(warnings)
}

/// Keeps what is mounted now in a file of this name in memory, for as long as this process lives: by it a checkpoint tells
/// what the job has mounted or unmounted since.
fn keep_mounts() -> Result<()> {
    let list = std::fs::read(MOUNTS).map_err(|error| EngineError::system("read", MOUNTS, error))?;
    let make = |flags: u32| memfd::make(KEPT_MOUNTS, flags);
    let kept = memfd::made_executable(false, make)
        .map_err(|errno| EngineError::system("memfd_create", "mounts", errno))?;
    let mut kept = std::fs::File::from(kept);
    kept.write_all(&list).map_err(|error| EngineError::system("write", "mounts", error))?;
    // Closed by the end of this process.
    let _ = kept.into_raw_fd();
    Ok(())
}

/// Keeps a descriptor of the folder that shows the message queues of this IPC namespace (mq_overview(7)), for as long as this
/// process lives: through it a checkpoint finds those that no process has open. Where machines show theirs, the job's are
/// shown instead. A kernel without such queues has nothing to show.
fn show_queues(flags: MsFlags) -> nix::Result<()> {
    let none = None::<&str>;
    match mount(Some("mqueue"), PASSING, Some("mqueue"), flags, none) {
        Err(Errno::ENODEV) => return Ok(()),
        other => other?,
    }
    let open = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = nix::fcntl::open(PASSING, open, Mode::empty());
    if folder.is_ok() && Path::new(QUEUES).is_dir() {
        // Without it the job still has its queues.
        let _ = mount(Some(PASSING), QUEUES, none, MsFlags::MS_BIND, none);
    }
    umount2(PASSING, MntFlags::MNT_DETACH)?;
    // Closed by the end of this process.
    let _ = folder?.into_raw_fd();
    Ok(())
}

/// Keeps the lists of this IPC namespace open, for as long as this process lives: through them a checkpoint finds
/// semaphores and message queues. A kernel without SysV IPC has none.
fn keep_ipc_lists() {
    for path in [SEMAPHORES, MESSAGE_QUEUES] {
        let open = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        if let Ok(list) = nix::fcntl::open(format!("{PASSING}{path}").as_str(), open, Mode::empty())
        {
            // Closed by the end of this process.
            let _ = list.into_raw_fd();
        }
    }
}

/// Without namespaces the host name is the machine's: a line for the user where the job's logical node has another.
pub fn keep_host_name(name: &str) -> Option<String> {
    let own = nix::unistd::gethostname().ok()?;
    let differs = own.to_str() != Some(name);
    differs.then(|| {
        let own = own.to_string_lossy();
        format!(
            "gethostname() says {own} instead of {name}: this machine runs jobs without namespaces"
        )
    })
}

/// Without namespaces no instance has a host name of its own, by which MPI run times name the shared memory of a group.
pub fn needed_for(host_name: &str) -> EngineError {
    EngineError::Unfit {
        what: format!(
            "there can be no host {host_name} on this machine, which runs jobs without namespaces"
        ),
        way_out: "run the job without --group".into(),
    }
}

/// Gives the logical node its host name, or this instance of it one of its own, and its own /etc/hosts, from a file in
/// memory that only this mount namespace has. Returns lines for the user about what could not be had.
///
/// # Errors
/// Failed system calls.
pub fn name_host(node: &str, own: Option<&str>, hosts: &str) -> Result<Vec<String>> {
    let name = own.unwrap_or(node);
    nix::unistd::sethostname(name)
        .map_err(|errno| EngineError::system("sethostname", name, errno))?;
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    if !Path::new(HOSTS).exists() {
        let line = format!("names of nodes are not known inside of the job: there is no {HOSTS}");
        return Ok(vec![line]);
    }
    let none = None::<&str>;
    let failed = |what: &'static str| move |errno| EngineError::system("mount", what, errno);
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(failed("/ as private"))?;
    // The file system needs a place only until the file is mounted where it belongs.
    let options = Some("mode=0755,size=1m");
    mount(Some("tmpfs"), PASSING, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, options)
        .map_err(failed("a file system for /etc/hosts"))?;
    let file = format!("{PASSING}/hosts");
    let hosts = with_own_name(node, own, hosts);
    let bound = write(&file, &hosts).and_then(|()| {
        mount(Some(file.as_str()), HOSTS, none, MsFlags::MS_BIND, none).map_err(failed(HOSTS))?;
        let flags = MsFlags::MS_BIND
            | MsFlags::MS_REMOUNT
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV;
        mount(none, HOSTS, none, flags, none).map_err(failed("/etc/hosts, to be read only"))
    });
    umount2(PASSING, MntFlags::MNT_DETACH)
        .map_err(|errno| EngineError::system("umount", PASSING, errno))?;
    bound.map(|()| Vec::new())
}

/// The hosts with one that is called otherwise than its node, and is to be reached where that is.
fn with_own_name(node: &str, own: Option<&str>, hosts: &str) -> String {
    let mut lines = hosts.lines().filter_map(|line| line.split_once(' '));
    let address = lines.find(|(_, name)| *name == node).map(|(address, _)| address);
    let (Some(own), Some(address)) = (own, address) else { return hosts.to_owned() };
    // A machine that has joined since may be called the same.
    let is_other = |line: &&str| line.split_once(' ').is_none_or(|(_, name)| name != own);
    let others: String = hosts.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    format!("{others}{address} {own}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_its_own_is_where_its_node_is() {
        let hosts = "127.0.0.1 localhost\n10.0.0.1 a\n10.0.0.2 a--2\n";
        assert_eq!(with_own_name("a", None, hosts), hosts);
        assert_eq!(with_own_name("a", Some("a--3"), hosts), format!("{hosts}10.0.0.1 a--3\n"));
        assert_eq!(with_own_name("b", Some("b--2"), hosts), hosts);
    }
}
