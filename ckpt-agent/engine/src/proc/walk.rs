//! Which processes and threads there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use super::super::error::{EngineError, Result};
use super::super::names;

/// Most processes that one job may have: a limit against a fork bomb under our feet.
const MOST_PROCESSES: usize = 100_000;

/// The list of this process's own children.
const OWN_CHILDREN: &str = "/proc/thread-self/children";

/// Where the time of a process's start stands behind its name in /proc/PID/stat, counted from its state.
const START_TIME: usize = 19;
/// Index of the end of its environment, likewise.
const ENVIRONMENT_END: usize = 48;
/// Index of its flags, likewise.
const FLAGS: usize = 6;

/// Most files of /proc are shorter, bytes.
const ROOM: usize = 8192;

/// Thread numbers of a process, the leader first.
pub type Threads = Vec<i32>;

/// Numbers of the descriptors of a process, in no order.
///
/// # Errors
/// Where /proc does not tell.
pub fn descriptor_numbers(host_pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{host_pid}/fd");
    let entries =
        std::fs::read_dir(&path).map_err(|error| EngineError::system("read", &path, error))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// A file of /proc as text. `None`: the process or thread has ended.
///
/// # Errors
/// Any other failure to read.
pub fn read_text(path: &str) -> Result<Option<String>> {
    match read_whole(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if ended(&error) => Ok(None),
        Err(error) => Err(EngineError::system("read", path, error)),
    }
}

/// The same, with paths in it ([`names`]).
///
/// # Errors
/// As [`read_text`].
pub fn read_names(path: &str) -> Result<Option<String>> {
    match read_whole(path) {
        Ok(bytes) => Ok(Some(names::of_bytes(&bytes))),
        Err(error) if ended(&error) => Ok(None),
        Err(error) => Err(EngineError::system("read", path, error)),
    }
}

/// The name of a thread (number on this machine) as it was set: stat and status write line feeds and backslashes in it as C does
/// (fs/proc/array.c, proc_task_name). `None`: it has ended.
///
/// # Errors
/// Where /proc cannot be read.
pub fn name_of(tid: i32) -> Result<Option<String>> {
    let mut text = read_names(&format!("/proc/{tid}/comm"))?;
    // The kernel ends it with one more.
    let _ = text.as_mut().and_then(String::pop);
    Ok(text)
}

/// The state in the text of a stat file (proc_pid_stat(5)).
pub fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The state of a thread (proc_pid_stat(5)). `None`: it has ended.
///
/// # Errors
/// Where /proc cannot be read.
pub fn thread_state(pid: i32, tid: i32) -> Result<Option<char>> {
    let text = read_text(&format!("/proc/{pid}/task/{tid}/stat"))?;
    Ok(text.as_deref().and_then(state))
}

/// Files of /proc tell no size: with room from the start, one read gets what would take ten.
fn read_whole(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ROOM);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn ended(error: &io::Error) -> bool {
    // ESRCH comes from files that were open when the task ended.
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Numbers of a process's threads, the leader first, the others ascending. Empty: it has ended.
///
/// # Errors
/// Where /proc cannot be read.
pub fn thread_numbers(pid: i32) -> Result<Threads> {
    let path = format!("/proc/{pid}/task");
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if ended(&error) => return Ok(Vec::new()),
        Err(error) => return Err(EngineError::system("read", path, error)),
    };
    let mut threads: Threads =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    Ok(threads)
}

/// Whether a thread of a process is the kernel's: one of those that io_uring has made there for its requests. They run no code of
/// the program's, and end by themselves.
///
/// # Errors
/// Where /proc cannot be read.
pub fn is_io_worker(pid: i32, tid: i32) -> Result<bool> {
    /// PF_IO_WORKER (include/linux/sched.h), since Linux 5.12
    const IO_WORKER: u64 = 0x10;
    // Any thread may call itself so, and few do: reading the other file takes longer.
    let name = read_text(&format!("/proc/{pid}/task/{tid}/comm"))?;
    let is_named = name.is_some_and(|name| name.starts_with("iou-"));
    Ok(is_named && Stat::of(tid).is_some_and(|stat| stat.flags & IO_WORKER != 0))
}

/// All living or dead descendants of a process, parents before their children, as this machine
/// numbers them. With the init of a PID namespace: everything in it.
///
/// # Errors
/// Where /proc cannot be read or there are too many.
pub fn descendants(root: i32) -> Result<Vec<i32>> {
    static LISTED: OnceLock<bool> = OnceLock::new();
    // CONFIG_PROC_CHILDREN
    let listed = LISTED
        .get_or_init(|| !Path::new("/proc/self").exists() || Path::new(OWN_CHILDREN).exists());
    if *listed { listed_descendants(root) } else { searched_descendants(root) }
}

/// By the lists of children that /proc has of each thread.
fn listed_descendants(root: i32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut parents = vec![root];
    while next < parents.len() {
        let parent = parents[next];
        next += 1;
        for thread in thread_numbers(parent)? {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let Some(text) = read_text(&path)? else { continue };
            for child in text.split_ascii_whitespace() {
                let child: i32 = child.parse().map_err(|_| EngineError::odd(&path, child))?;
                found.push(child);
                parents.push(child);
            }
        }
        if found.len() > MOST_PROCESSES {
            return Err(EngineError::odd(
                "the job",
                format!("more than {MOST_PROCESSES} processes"),
            ));
        }
    }
    Ok(found)
}

/// The same where the kernel lists no children: by what every process says of its parent.
fn searched_descendants(root: i32) -> Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all_processes()? {
        // A process of another user may hide (proc(5), hidepid): then it is none of the job's.
        let Some(parent) = parent(pid) else { continue };
        children.entry(parent).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        // Each has one parent, so none comes twice.
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
        if found.len() > MOST_PROCESSES {
            let what = format!("more than {MOST_PROCESSES} processes");
            return Err(EngineError::odd("the job", what));
        }
    }
    found.remove(0);
    Ok(found)
}

/// Children of a thread, living or dead. Where the kernel lists none (CONFIG_PROC_CHILDREN), those of all threads of its
/// process. `None`: it has ended.
///
/// # Errors
/// Where /proc cannot be read.
pub fn children(pid: i32, tid: i32) -> Result<Option<Vec<i32>>> {
    if !Path::new(OWN_CHILDREN).exists() {
        let below = searched_descendants(pid)?;
        let direct = |child: &i32| parent(*child) == Some(pid);
        return Ok(Some(below.into_iter().filter(direct).collect()));
    }
    let path = format!("/proc/{pid}/task/{tid}/children");
    let Some(text) = read_text(&path)? else { return Ok(None) };
    let numbers = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
    Ok(Some(numbers.collect()))
}

/// Numbers of all processes that /proc shows.
///
/// # Errors
/// Where /proc cannot be read.
pub fn all_processes() -> Result<Vec<i32>> {
    let failed = |error| EngineError::system("read", "/proc", error);
    let entries = std::fs::read_dir("/proc").map_err(failed)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Process group and session of a process. `None`: it has ended, or hides.
pub fn groups(pid: i32) -> Option<[i32; 2]> {
    Stat::of(pid)?.groups
}

/// The parent of a process. `None`: it has ended, or hides.
pub fn parent(pid: i32) -> Option<i32> {
    Stat::of(pid)?.parent
}

/// More generations than any job has.
const MOST_ANCESTORS: usize = 10_000;

/// The parent of a process, the parent of that one, and so on, as far as /proc shows them.
pub fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    // The kernel is 0 there.
    let above = |pid: &i32| parent(*pid).filter(|parent| *parent > 0);
    std::iter::successors(above(&pid), above).take(MOST_ANCESTORS)
}

/// When a process was started, in ticks since the machine's start: with its number, no later process is taken for it.
/// `None`: it has ended and was waited for, or hides.
pub fn start_time(pid: i32) -> Option<u64> {
    Stat::of(pid)?.start_time
}

/// What /proc/PID/stat says of a process (proc_pid_stat(5)).
struct Stat {
    state: char,
    parent: Option<i32>,
    /// Process group and session.
    groups: Option<[i32; 2]>,
    flags: u64,
    start_time: Option<u64>,
    /// Where its environment ends; 0: it has no memory, or not yet, or hides that.
    environment_end: Option<u64>,
}

impl Stat {
    /// `None`: it has ended, or hides.
    fn of(pid: i32) -> Option<Self> {
        let text = read_text(&format!("/proc/{pid}/stat")).ok()??;
        // The name, in parentheses, may hold anything.
        let words: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let state = words.first()?.chars().next()?;
        let parent = words.get(1).and_then(|word| word.parse().ok());
        let flags = words.get(FLAGS).and_then(|word| word.parse().ok()).unwrap_or(0);
        let start_time = words.get(START_TIME).and_then(|word| word.parse().ok());
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        let groups = number(2).zip(number(3)).map(<[i32; 2]>::from);
        let environment_end = words.get(ENVIRONMENT_END).and_then(|word| word.parse().ok());
        Some(Self { state, parent, groups, flags, start_time, environment_end })
    }
}

/// The number of a process or thread in the innermost PID namespace that it is in, from its file `status`. `None`: the
/// kernel has no PID namespaces, and there is no other number than the machine's.
pub fn inner_number(status: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// How many PID namespaces deep a process is, from its file `status`.
pub fn namespaces_of(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(1, |line| line.split_ascii_whitespace().count())
}

/// The number of a process or thread as its job sees it, whose init is so many PID namespaces deep, from its file `status`.
/// `None`: it is not in the job's, or the kernel has no PID namespaces.
pub fn job_number(status: &str, depth: usize) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().nth(depth.checked_sub(1)?)?.parse().ok()
}

/// Whether nothing of a process runs any more: it has been waited for, or is about to be.
pub fn is_ended(pid: i32) -> bool {
    let ended = |state| matches!(state, 'Z' | 'X');
    // The main thread of a process that goes on may have ended.
    Stat::of(pid).is_none_or(|stat| {
        ended(stat.state) && thread_numbers(pid).map_or(true, |threads| threads.len() <= 1)
    })
}

/// Whether a process has the memory of another program already, and not yet its environment: execve(2) makes one after the
/// other (begin_new_exec and create_elf_tables, fs/binfmt_elf.c), and a new process runs from the first on for who has started
/// it. Of one that hides its memory from the caller it can't be told.
pub fn is_executing(pid: i32) -> bool {
    /// Kernel threads have neither (PF_KTHREAD, include/linux/sched.h).
    const KERNEL_THREAD: u64 = 0x0020_0000;
    Stat::of(pid).is_some_and(|stat| {
        !matches!(stat.state, 'Z' | 'X')
            && stat.flags & KERNEL_THREAD == 0
            && stat.environment_end == Some(0)
    })
}

/// The number by which /proc shows memory and descriptors of a process: its own, or that of another thread where the main one has
/// ended, which has neither any more.
///
/// # Errors
/// Where /proc cannot be read.
pub fn shown_by(pid: i32) -> Result<i32> {
    if Stat::of(pid).is_none_or(|stat| !matches!(stat.state, 'Z' | 'X')) {
        return Ok(pid);
    }
    Ok(thread_numbers(pid)?.get(1).copied().unwrap_or(pid))
}

/// Whether a process has ended, or will without running any further.
pub fn is_ending(pid: i32) -> bool {
    /// PF_EXITING (include/linux/sched.h)
    const EXITING: u64 = 4;
    let is_exiting = || Stat::of(pid).is_some_and(|stat| stat.flags & EXITING != 0);
    let status = || read_text(&format!("/proc/{pid}/status")).ok().flatten();
    is_ended(pid) || is_exiting() || status().is_some_and(|status| is_killed(&status))
}

/// The signals that wait to be taken by a thread and by its process, by /proc/PID/status (signal N is bit N - 1). `None`: it
/// tells of none.
pub fn pending_signals(status: &str) -> Option<u64> {
    let set = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    status.lines().filter_map(set).reduce(|one, other| one | other)
}

/// Whether SIGKILL is pending, by /proc/PID/status.
pub fn is_killed(status: &str) -> bool {
    pending_signals(status).is_some_and(|set| set & 1 << (libc::SIGKILL - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_who_has_ended() {
        let own = std::process::id() as i32;
        assert!(!is_ending(own));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id() as i32;
        // Until it is waited for.
        while !is_ending(number) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(std::path::Path::new(&format!("/proc/{number}")).exists());
        child.wait().unwrap();
        assert!(is_ending(number));
    }

    #[test]
    fn tells_who_is_killed() {
        let status = |set: u64| format!("Name:\tx\nSigPnd:\t{set:016x}\nShdPnd:\t{:016x}\n", 0);
        assert!(is_killed(&status(0x100)));
        assert!(!is_killed(&status(0x4000)));
        assert!(!is_killed("Name:\tx\n"));
    }

    #[test]
    fn numbers_are_those_of_the_jobs_namespace() {
        let status = "Name:\tx\nNSpid:\t4711\t12\t1\n";
        assert_eq!(
            [1, 2, 3, 4].map(|depth| job_number(status, depth)),
            [Some(4711), Some(12), Some(1), None]
        );
        assert_eq!((namespaces_of(status), namespaces_of("Name:\tx\n")), (3, 1));
        assert_eq!(job_number("Name:\tx\n", 1), None);
    }

    #[test]
    fn both_ways_find_the_same() {
        let sleep = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut child = sleep();
        let pid = child.id() as i32;
        let own = std::process::id() as i32;
        assert!(listed_descendants(own).unwrap().contains(&pid));
        assert!(searched_descendants(own).unwrap().contains(&pid));
        assert!(!searched_descendants(pid).unwrap().contains(&own));
        assert!(!is_ended(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_ended(pid));
        assert!(!searched_descendants(own).unwrap().contains(&pid));
    }
}
