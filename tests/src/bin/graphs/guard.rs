//! What must be as before after each restore, and what a restored process may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckptd_tests::job::Failure;

use super::USER;
use super::outside::Outside;

/// How long processes may take to go.
const GONE_LIMIT: Duration = Duration::from_secs(10);
/// Capabilities of a thread that must be none.
const CAPABILITIES: [&str; 4] = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];
/// Families of netlink in which everybody may listen to groups: routes, security policy, events of devices, generic.
const OPEN_FAMILIES: [&str; 4] = ["0", "7", "15", "16"];

/// Whose processes they must be.
#[derive(Debug, Clone, Copy)]
pub struct Whose {
    /// User and group.
    pub user: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
    /// Root has restored it: no capability of the machine's may be left.
    pub by_root: bool,
}

/// This namespace before anything was restored.
pub struct World {
    processes: BTreeSet<i32>,
    mounts: String,
    objects: String,
}

impl World {
    /// Looks at it.
    pub fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let lists = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"].map(text);
        let queues = names("/dev/mqueue");
        let shared = names("/dev/shm");
        Self {
            processes: numbered().into_iter().collect(),
            mounts: text("/proc/self/mountinfo"),
            objects: format!("{lists:?} {queues:?} {shared:?}"),
        }
    }

    /// Waits until nothing is left of a restore.
    pub fn must_be_as_before(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + GONE_LIMIT;
        loop {
            let now = Self::now();
            let left: Vec<i32> = now.processes.difference(&self.processes).copied().collect();
            if left.is_empty() && now.mounts == self.mounts && now.objects == self.objects {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let text = ckptd_tests::processes::describe(&left);
                ckptd_tests::processes::kill(&left);
                return Err(Failure(format!(
                    "left behind: processes {left:?}\n{text}mounts as before: {}, objects: {} after {}",
                    now.mounts == self.mounts,
                    now.objects,
                    self.objects
                )));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

fn names(folder: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn numbered() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The fields of /proc/PID/stat from the state on (proc_pid_stat(5)).
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Processes below an init.
fn below(init: i32) -> Vec<i32> {
    let parents: BTreeMap<i32, i32> = numbered()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?.get(1)?.parse().ok()?)))
        .collect();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == init => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

/// Expects every process below an init to have its user's powers and no others.
pub fn must_be_users_own(init: i32, whose: Whose, outside: &Outside) -> Result<(), Failure> {
    for pid in below(init) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let path = thread.path().join("status");
            let status = fs::read_to_string(&path).unwrap_or_default();
            if status.contains("State:\tZ") {
                // It has ended, and has no rights any more.
                continue;
            }
            let bounding = field(init, "CapBnd:");
            let confined = is_confined(pid, init, whose);
            let in_own = confined.map_err(|what| Failure(format!("process {pid}: {what}")))?;
            rights(&status, whose, bounding.as_deref(), in_own)
                .map_err(|what| Failure(format!("{}: {what}\n{status}", path.display())))?;
        }
        if whose.by_root {
            priorities(pid, init).map_err(|what| Failure(format!("process {pid}: {what}")))?;
        }
        held(pid, whose, outside).map_err(|what| Failure(format!("process {pid}: {what}")))?;
    }
    if whose.by_root { sockets().map_err(Failure) } else { Ok(()) }
}

fn field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned())
}

/// Whether a process is in a user namespace of its own, where capabilities are none over the machine. Nobody but its user may have
/// a number in there.
fn is_confined(pid: i32, init: i32, whose: Whose) -> Result<bool, String> {
    let of = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    if of(pid) == of(init) {
        return Ok(false);
    }
    for map in ["uid_map", "gid_map"] {
        let text = fs::read_to_string(format!("/proc/{pid}/{map}")).unwrap_or_default();
        let numbers: Vec<&str> = text.split_whitespace().skip(1).collect();
        if !numbers.is_empty() && numbers != [whose.user.to_string().as_str(), "1"] {
            return Err(format!("{map} {text}"));
        }
    }
    Ok(true)
}

/// `in_own`: in a user namespace of its own.
fn rights(status: &str, whose: Whose, bounding: Option<&str>, in_own: bool) -> Result<(), String> {
    let seals_rights = status.lines().any(|line| line == "NoNewPrivs:\t1");
    for line in status.lines() {
        let (name, rest) = line.split_once('\t').unwrap_or((line, ""));
        let numbers = || rest.split_whitespace().map(str::parse::<u32>);
        let right = match name {
            "Uid:" | "Gid:" => numbers().all(|number| number == Ok(whose.user)),
            // Those of a user namespace that the machine has no numbers for look like nobody's.
            "Groups:" => numbers().flatten().all(|group| whose.groups.contains(&group)),
            _ if in_own => true,
            _ if CAPABILITIES.contains(&name) && whose.by_root => {
                rest.bytes().all(|byte| byte == b'0')
            }
            // A smaller one misleads programs that are set-user-ID: they count on being able to give root up.
            "CapBnd:" if whose.by_root && !seals_rights => bounding.is_none_or(|own| own == rest),
            // So does a filter of their calls.
            "Seccomp:" if whose.by_root && !seals_rights => rest != "2",
            _ => true,
        };
        if !right {
            return Err(line.to_owned());
        }
    }
    Ok(())
}

/// Numbers of fields behind the state: nice value, real-time priority, policy.
const NICE: usize = 16;
const REAL_TIME: usize = 37;
const POLICY: usize = 38;
/// SCHED_DEADLINE
const DEADLINE: i64 = 6;

fn priorities(pid: i32, init: i32) -> Result<(), String> {
    let of = |pid: i32, at: usize| stat(pid)?.get(at)?.parse::<i64>().ok();
    if of(pid, NICE) < of(init, NICE) {
        return Err(format!("its nice value is {:?}", of(pid, NICE)));
    }
    if of(pid, REAL_TIME).unwrap_or(0) > 0 || of(pid, POLICY) == Some(DEADLINE) {
        return Err("it runs in real time".into());
    }
    let score = |pid: i32| -> Option<i64> {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
    };
    if score(pid) < score(init) {
        return Err(format!("its oom_score_adj is {:?}", score(pid)));
    }
    let (own, inits) = (hard_limits(pid), hard_limits(init));
    for (name, limit) in own {
        if inits.get(&name).is_some_and(|init| limit > *init) {
            return Err(format!("its limit \"{name}\" is {limit}"));
        }
    }
    Ok(())
}

fn hard_limits(pid: i32) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = |line: &str| {
        let name = line.get(..25)?.trim().to_owned();
        let word = line.get(25..)?.split_whitespace().nth(1)?;
        Some((name, word.parse().unwrap_or(u64::MAX)))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Files that it has open, mapped, or is in.
fn held(pid: i32, whose: Whose, outside: &Outside) -> Result<(), String> {
    let folder = format!("/proc/{pid}");
    let inner = ["fd", "map_files"].map(|name| names(&format!("{folder}/{name}")));
    let places = ["cwd", "root", "exe"].map(|name| PathBuf::from(format!("{folder}/{name}")));
    for path in inner.into_iter().flatten().chain(places) {
        let Ok(found) = fs::metadata(&path) else { continue };
        if let Some(known) = outside.has(&found) {
            return Err(format!("it has {} as {}", known.display(), path.display()));
        }
        let link = fs::read_link(&path).unwrap_or_default();
        // The memory of processes of their own is open to users; that of others is not.
        if whose.by_root
            && found.uid() != USER
            && link.ends_with("mem")
            && link.starts_with("/proc")
        {
            return Err(format!("it has {} as {}", link.display(), path.display()));
        }
    }
    Ok(())
}

/// Sockets of this network that only root may have.
fn sockets() -> Result<(), String> {
    for kind in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/net/{kind}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let port = line.split_whitespace().nth(1).and_then(|local| local.rsplit(':').next());
            let port = port.and_then(|port| u16::from_str_radix(port, 16).ok()).unwrap_or(0);
            if (1..1024).contains(&port) {
                return Err(format!("a {kind} socket has port {port}"));
            }
        }
    }
    for kind in ["raw", "raw6", "packet"] {
        let text = fs::read_to_string(format!("/proc/net/{kind}")).unwrap_or_default();
        if text.lines().count() > 1 {
            return Err(format!("there is a socket of root's in /proc/net/{kind}"));
        }
    }
    let text = fs::read_to_string("/proc/net/netlink").unwrap_or_default();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, family, port, groups, ..] = words[..] else { continue };
        let listens = port != "0" && groups.bytes().any(|byte| byte != b'0');
        if listens && !OPEN_FAMILIES.contains(&family) {
            return Err(format!("a netlink socket of family {family} has groups {groups}"));
        }
    }
    Ok(())
}
