//! Whether an instance only waits: how the end of a job is seen that does without some of its daemons.
//!
//! MPI_Finalize of Open MPI 4 sends a fence to the local daemon (PMIx) and then looks for its answer again and
//! again with short sleeps in between (`OMPI_LAZY_WAIT_FOR_COMPLETION`, 100 us). A rank that computes uses a
//! CPU, one that waits for another rank's message uses a CPU, too, one that writes a file or sleeps by itself
//! does not wake up again and again. So a process without children *waits* if, for three seconds,
//! * it wakes up at least [`WAKES`] times a second, uses less than a quarter of a CPU and less than
//!   [`MOST_A_WAKE`] each time, and reads and writes next to nothing (a rank that stores its result does);
//! * it has at least two TCP connections: one to its daemon and one to another rank, so that it is not in the
//!   middle of MPI_Init, before the ranks have connected to each other.
//!
//! MPI_Finalize of MPICH asks the process manager for a barrier, and then sits in one read(2) of the descriptor that
//! `PMI_FD` names, and in no other call for anything but another word of it. So does MPI_Init, for some milliseconds. So a
//! process in that call waits, too; but half a minute is needed for it, unless a process of the instance has used
//! [`LEAST_WORK`] since the restore, which MPI_Init takes no more: then the ranks were past it.
//!
//! A process with children (a daemon, a shell) waits if it uses less than a quarter of a CPU. If there are
//! connections to departed parent daemons, as many of them as there are processes without children must have
//! been spoken over since the restore. A rank that had sent its fence before the checkpoint does not send it
//! again: then all must wait for half a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::absent::sockets_of;
use ckpt_engine::EngineError;
use ckpt_engine::proc::{descendants, read_text, thread_numbers};
use ckpt_engine::split::standin;
use ckpt_engine::sys::sock_diag::tcp_sockets;

/// From one look to the next.
pub const LOOK: Duration = Duration::from_millis(500);
/// For so long everybody must have waited.
const QUIET: Duration = Duration::from_secs(3);
/// For so long where somebody has said nothing to its departed daemon.
const LONG_QUIET: Duration = Duration::from_secs(30);
/// The least number of times a second that a process wakes up which looks for an answer: on a machine with
/// far more to do than it has CPUs for, it comes to its turn no more often.
pub const WAKES: f64 = 10.0;
/// The most CPU time that such a look takes.
pub const MOST_A_WAKE: Duration = Duration::from_millis(1);
/// The part of one CPU that who waits may use.
const MOST_USED: f64 = 0.25;
/// Bytes that who waits may read and write in a second.
const MOST_IO: f64 = 4096.0;
/// TCP_ESTABLISHED (include/net/tcp_states.h).
const ESTABLISHED: u8 = 1;
/// Least number of connections of a rank that has been through MPI_Init.
const LEAST_CONNECTIONS: usize = 2;

/// CPU time after which a rank of MPICH is not in MPI_Init any more, where its daemon answers nothing.
const LEAST_WORK: Duration = Duration::from_millis(250);
/// The variable that tells a rank of MPICH which descriptor leads to its daemon.
const PMI_FD: &str = "PMI_FD=";

/// What one process has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Doings {
    /// Times that its first thread has gone to sleep by itself.
    pub wakes: u64,
    /// Nanoseconds that its threads ran.
    pub used_ns: u64,
    /// Bytes that it has read and written by read(2), write(2) and their kin, of whatever.
    pub io: u64,
    /// Whether it has children.
    pub is_parent: bool,
    /// Stopped, by whomever.
    pub stopped: bool,
    /// Established TCP connections.
    pub connections: usize,
    /// A rank of MPICH that waits for an answer of its daemon.
    pub asks_daemon: bool,
}

/// All processes of an instance at one moment, by their numbers on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// What each does, by its number.
    pub processes: BTreeMap<i32, Doings>,
}

/// What the looks so far come to.
#[derive(Debug)]
pub struct Watch {
    last: Option<(Instant, Look)>,
    since: Option<Instant>,
    /// What each process had used when it was first seen, ns, and whether one has worked since.
    first: BTreeMap<i32, u64>,
    worked: bool,
    waits: bool,
    /// Connections to departed parent daemons, and those of them that have been spoken over.
    parents: usize,
    spoken: Arc<AtomicUsize>,
}

impl Watch {
    /// Of an instance that has so many connections to departed parents.
    #[must_use]
    pub fn new(parents: usize, spoken: Arc<AtomicUsize>) -> Self {
        Self {
            last: None,
            since: None,
            first: BTreeMap::new(),
            worked: false,
            waits: false,
            parents,
            spoken,
        }
    }

    /// Takes one more look into account: whether everybody only waits.
    pub fn see(&mut self, now: Instant, look: Look) -> bool {
        if look.processes.values().any(|doings| doings.stopped) {
            // A checkpoint is being taken: nothing can be said.
            return self.waits;
        }
        let quiet = match &self.last {
            Some((before, last)) => all_wait(&look, last, now.saturating_duration_since(*before)),
            None => false,
        };
        let began = self.last.as_ref().map_or(now, |(before, _)| *before);
        for (pid, doings) in look.processes.iter().filter(|(_, doings)| !doings.is_parent) {
            let first = *self.first.entry(*pid).or_insert(doings.used_ns);
            let used = Duration::from_nanos(doings.used_ns.saturating_sub(first));
            self.worked |= used >= LEAST_WORK;
        }
        let ranks = look.processes.values().filter(|doings| !doings.is_parent).count();
        let known = self.worked || !look.processes.values().any(|doings| doings.asks_daemon);
        self.last = Some((now, look));
        self.waits = false;
        if !quiet {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(began);
        let all_spoke = self.parents == 0 || self.spoken.load(Ordering::Relaxed) >= ranks;
        let needed = if all_spoke && known { QUIET } else { LONG_QUIET };
        self.waits = now.saturating_duration_since(since) >= needed;
        self.waits
    }
}

fn all_wait(look: &Look, last: &Look, time: Duration) -> bool {
    let seconds = time.as_secs_f64().max(1e-3);
    look.processes.iter().all(|(pid, now)| {
        let Some(before) = last.processes.get(pid) else { return false };
        let used = now.used_ns.saturating_sub(before.used_ns) as f64 / 1e9;
        let wakes = now.wakes.saturating_sub(before.wakes) as f64;
        let io = now.io.saturating_sub(before.io) as f64;
        let looks_for_answer = wakes / seconds >= WAKES
            && used < wakes * MOST_A_WAKE.as_secs_f64()
            && io / seconds < MOST_IO
            && now.connections >= LEAST_CONNECTIONS;
        let asked = now.asks_daemon && before.asks_daemon;
        used / seconds < MOST_USED && (now.is_parent || looks_for_answer || asked)
    })
}

/// Looks at an instance by its init. Stand-ins and copies of processes for a checkpoint are none of its
/// processes.
///
/// # Errors
/// As reading /proc.
pub fn look(init: i32) -> Result<Look, EngineError> {
    let pids = descendants(init)?;
    let sockets = tcp_sockets()?;
    let connected: std::collections::BTreeSet<u32> = sockets
        .iter()
        .filter(|entry| entry.state == ESTABLISHED)
        .map(|entry| entry.inode)
        .collect();
    let mut states = BTreeMap::new();
    for pid in pids {
        let status = read_text(&format!("/proc/{pid}/status"))?;
        if let Some(status) = status {
            states.insert(pid, status);
        }
    }
    let parents: std::collections::BTreeSet<i32> = states
        .values()
        .filter(|status| !matches!(state(status), 'Z' | 'X'))
        .filter_map(|status| number(status, "PPid:"))
        .filter_map(|parent| i32::try_from(parent).ok())
        .collect();
    let mut processes = BTreeMap::new();
    for (pid, status) in &states {
        let state = state(status);
        let is_stand_in = field(status, "Name:") == Some(standin::NAME);
        if is_stand_in || matches!(state, 'Z' | 'X') {
            continue;
        }
        let inodes = sockets_of(*pid);
        let is_copy = state == 't'
            && number(status, "PPid:") == u64::try_from(init).ok()
            && has_no_descriptors(*pid);
        if is_copy {
            continue;
        }
        let used = used(*pid)?;
        processes.insert(
            *pid,
            Doings {
                wakes: number(status, "voluntary_ctxt_switches:").unwrap_or(0),
                used_ns: used,
                io: io(*pid),
                is_parent: parents.contains(pid),
                stopped: matches!(state, 't' | 'T'),
                connections: inodes.iter().filter(|(_, inode)| connected.contains(inode)).count(),
                asks_daemon: asks_daemon(*pid),
            },
        );
    }
    Ok(Look { processes })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn number(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.split_ascii_whitespace().next()?.parse().ok()
}

fn state(status: &str) -> char {
    field(status, "State:").and_then(|text| text.chars().next()).unwrap_or('X')
}

fn has_no_descriptors(pid: i32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut all| all.next().is_none())
}

/// Whether the first thread of a rank of MPICH is in a read of what its daemon says (proc_pid_syscall(5)).
fn asks_daemon(pid: i32) -> bool {
    let Ok(Some(call)) = read_text(&format!("/proc/{pid}/syscall")) else { return false };
    let mut words = call.split_ascii_whitespace();
    let is_read = words.next().is_some_and(|word| word == libc::SYS_read.to_string());
    let number = words.next().and_then(|word| word.strip_prefix("0x"));
    let number = number.and_then(|word| i64::from_str_radix(word, 16).ok());
    if !is_read || number.is_none() {
        return false;
    }
    let environment = read_text(&format!("/proc/{pid}/environ")).ok().flatten().unwrap_or_default();
    let named = environment.split('\0').find_map(|word| word.strip_prefix(PMI_FD));
    named.and_then(|word| word.parse().ok()) == number
}

/// Bytes read and written (proc_pid_io(5)). A process whose account is not to be had seems to do more and more.
fn io(pid: i32) -> u64 {
    static UNKNOWN: AtomicU64 = AtomicU64::new(0);
    let text = read_text(&format!("/proc/{pid}/io")).ok().flatten().unwrap_or_default();
    match (number(&text, "rchar:"), number(&text, "wchar:")) {
        (Some(read), Some(written)) => read.saturating_add(written),
        _ => UNKNOWN.fetch_add(1 << 30, Ordering::Relaxed),
    }
}

/// Time of all threads on a CPU, ns (Documentation/scheduler/sched-stats.rst).
fn used(pid: i32) -> Result<u64, EngineError> {
    let mut sum = 0_u64;
    for thread in thread_numbers(pid)? {
        let path = format!("/proc/{pid}/task/{thread}/schedstat");
        let text = read_text(&path)?.unwrap_or_default();
        let time = text.split_ascii_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        sum = sum.saturating_add(time.unwrap_or(0));
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes, milliseconds of work and bytes in half a second; connections.
    type Rank = (u64, u64, u64, usize);

    const LAZY: Rank = (3000, 25, 0, 6);

    /// Looks half a second apart: at the daemon 1, and at ranks.
    fn verdicts(watch: &mut Watch, count: u64, ranks: &[Rank]) -> Vec<bool> {
        let begin = Instant::now();
        (0..count)
            .map(|step| {
                let mut processes = BTreeMap::from([(
                    1,
                    Doings { used_ns: step * 1_000_000, is_parent: true, ..Doings::default() },
                )]);
                for (index, (wakes, used, io, connections)) in ranks.iter().enumerate() {
                    let (wakes, used_ns) = (wakes * step, used * step * 1_000_000);
                    let (io, connections) = (io * step, *connections);
                    let doings = Doings { wakes, used_ns, io, connections, ..Doings::default() };
                    processes.insert(2 + index as i32, doings);
                }
                let at = begin + LOOK * u32::try_from(step).unwrap();
                watch.see(at, Look { processes })
            })
            .collect()
    }

    fn watch(parents: usize, spoken: usize) -> Watch {
        Watch::new(parents, Arc::new(AtomicUsize::new(spoken)))
    }

    #[test]
    fn ranks_in_finalize_are_known_after_three_seconds() {
        let found = verdicts(&mut watch(0, 0), 8, &[LAZY, LAZY]);
        assert_eq!(found.iter().position(|waits| *waits), Some(6));
        // On a machine with fifteen times more to do than it can.
        let slow = (80, 2, 0, 6);
        let found = verdicts(&mut watch(2, 2), 8, &[slow, LAZY]);
        assert_eq!(found.iter().position(|waits| *waits), Some(6));
    }

    #[test]
    fn who_has_said_nothing_is_waited_for_longer() {
        let found = verdicts(&mut watch(2, 1), 70, &[LAZY, LAZY]);
        assert_eq!(found.iter().position(|waits| *waits), Some(60));
    }

    #[test]
    fn work_of_any_kind_is_no_waiting() {
        let computes = (3, 480, 0, 6);
        // With more to do than there are CPUs.
        let computes_slowly = (8, 50, 0, 6);
        let spins = (3000, 400, 0, 6);
        let sleeps = (1, 0, 0, 6);
        let writes = (300, 10, 1 << 20, 6);
        let initialises = (3000, 25, 0, 1);
        for other in [computes, computes_slowly, spins, sleeps, writes, initialises] {
            let found = verdicts(&mut watch(0, 0), 20, &[LAZY, other]);
            assert!(!found.contains(&true), "{other:?}");
        }
    }

    /// A rank of MPICH that works for so many looks, 400 ms in each, and asks its daemon from then on.
    fn mpich(watch: &mut Watch, count: u32, works: u32) -> Option<usize> {
        let begin = Instant::now();
        let verdict = |step: u32| {
            let used_ns = u64::from(step.min(works)) * 400_000_000;
            let doings = Doings { used_ns, asks_daemon: step >= works, ..Doings::default() };
            watch.see(begin + LOOK * step, Look { processes: BTreeMap::from([(2, doings)]) })
        };
        (0..count).map(verdict).position(|waits| waits)
    }

    #[test]
    fn ranks_of_mpich_wait_that_ask_their_daemon() {
        assert_eq!(mpich(&mut watch(0, 0), 12, 3), Some(9));
        // One that has done nothing since the restore may be in MPI_Init.
        assert_eq!(mpich(&mut watch(0, 0), 62, 0), Some(60));
        // One that works does not ask.
        assert_eq!(mpich(&mut watch(0, 0), 20, 20), None);
    }

    #[test]
    fn a_read_of_the_daemon_is_known() {
        // A shell that reads from the descriptor that is named, or from another one.
        for (named, expected) in [("0", true), ("7", false)] {
            let mut child = std::process::Command::new("cat")
                .env("PMI_FD", named)
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id() as i32;
            let end = Instant::now() + Duration::from_secs(5);
            let in_call = || read_text(&format!("/proc/{pid}/syscall")).ok().flatten();
            let reads = format!("{} 0x0 ", libc::SYS_read);
            while !in_call().is_some_and(|call| call.starts_with(&reads)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(asks_daemon(pid), expected, "{named}");
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    #[test]
    fn with_nobody_but_daemons_there_is_nothing_to_wait_for() {
        assert!(verdicts(&mut watch(1, 0), 8, &[]).contains(&true));
    }

    #[test]
    fn a_checkpoint_changes_nothing() {
        let begin = Instant::now();
        let mut patient = watch(0, 0);
        for step in 0..10 {
            let stopped = step % 2 == 1;
            let doings = Doings { is_parent: true, stopped, ..Doings::default() };
            let look = Look { processes: BTreeMap::from([(1, doings)]) };
            assert_eq!(patient.see(begin + LOOK * step, look), step >= 6, "{step}");
        }
        // Nor does it make anybody wait who never did.
        let mut held = watch(0, 0);
        for step in 0..20 {
            let doings = Doings { is_parent: true, stopped: true, ..Doings::default() };
            let look = Look { processes: BTreeMap::from([(1, doings)]) };
            assert!(!held.see(begin + LOOK * step, look));
        }
    }

    #[test]
    fn this_process_is_seen() {
        // A child that does nothing, and this one as the init.
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let look = look(std::process::id() as i32).unwrap();
        let _ = child.kill();
        let _ = child.wait();
        let doings = look.processes[&(child.id() as i32)];
        assert!(!doings.is_parent && !doings.stopped && doings.connections == 0);
    }
}
