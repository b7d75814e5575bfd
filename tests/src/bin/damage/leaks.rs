//! Many checkpoints in a row leave nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;

use super::worker::{Bench, Worker};

/// After so many checkpoints it is measured: by the first of them every pool and table has its size.
const MEASURED_AFTER: [u32; 4] = [20, 80, 140, 200];
/// What the memory of ckptd and of the job may grow by from each measure to the next, in KiB: less than one page a
/// checkpoint. What leaks grows from each to the next; what a thread or an allocator keeps for the next time comes once.
const MARGIN_KIB: u64 = 180;

/// The descriptor by which the writes of a process are watched.
const WATCH: &str = "anon_inode:[userfaultfd]";

/// Looks at a job until it has come to rest: how many at most, the time between two, and how many in a row are to see
/// the same.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const AT_REST: u32 = 3;

/// What is held, by ckptd and by the job together.
#[derive(Debug)]
struct Held {
    processes: usize,
    descriptors: usize,
    /// Processes whose writes ckptd watches, each by a descriptor of its own: that begins and ends as it pays.
    watches: usize,
    threads: u64,
    ckptd_kib: u64,
    job_kib: u64,
    files: usize,
}

/// The memory of a process that is its own, in KiB: not the pages of executables and libraries, which come and go as
/// the kernel likes.
fn own_memory(pid: i32) -> u64 {
    status_field(pid, "RssAnon:") + status_field(pid, "RssShmem:")
}

/// All descendants of a process, itself and zombies included.
fn family(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name in parentheses: state, parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (vec![root], 0);
    while let Some(pid) = found.get(next) {
        found.extend(children.get(pid).into_iter().flatten());
        next += 1;
    }
    found
}

fn status_field(pid: i32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// What the descriptors of a process are of.
fn descriptors(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.map(|entry| fs::read_link(entry.path()).unwrap_or_default()).collect()
}

fn files(folder: &std::path::Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { 1 + files(&e.path()) } else { 1 }).sum()
}

impl Held {
    fn by(worker: &Worker) -> Result<Held, Failure> {
        let launcher = worker.job.launcher_pid()?;
        let family = family(launcher);
        let descriptors: Vec<PathBuf> = family.iter().flat_map(|pid| descriptors(*pid)).collect();
        let watches = descriptors.iter().filter(|name| name.as_os_str() == WATCH).count();
        Ok(Held {
            processes: family.len(),
            descriptors: descriptors.len() - watches,
            watches,
            threads: family.iter().map(|pid| status_field(*pid, "Threads:")).sum(),
            ckptd_kib: own_memory(launcher),
            job_kib: family
                .iter()
                .filter(|pid| **pid != launcher)
                .map(|pid| own_memory(*pid))
                .sum(),
            files: files(&worker.job.folder()?),
        })
    }

    /// When nothing comes or goes any more that a checkpoint has left working.
    fn at_rest(worker: &Worker) -> Result<Held, Failure> {
        let counts = |held: &Held| (held.processes, held.descriptors, held.threads, held.files);
        let mut last = Held::by(worker)?;
        let mut same = 0;
        for _ in 0..LOOKS {
            std::thread::sleep(BETWEEN_LOOKS);
            let now = Held::by(worker)?;
            same = if counts(&now) == counts(&last) { same + 1 } else { 0 };
            last = now;
            if same == AT_REST {
                return Ok(last);
            }
        }
        Err(Failure(format!("it does not come to rest: {last:?}")))
    }

    /// What the later one has more, but for memory.
    fn excess(&self, later: &Held) -> Vec<String> {
        let pairs = [
            ("processes", self.processes as u64, later.processes as u64),
            ("descriptors", self.descriptors as u64, later.descriptors as u64),
            ("watches", self.processes as u64, later.watches as u64),
            ("threads", self.threads, later.threads),
            ("files", self.files as u64, later.files as u64),
        ];
        let more = pairs.into_iter().filter(|(_, before, after)| after > before);
        more.map(|(what, before, after)| format!("{after} {what} after {before}")).collect()
    }
}

/// The memory that has grown from each measure to the next.
fn growing(measures: &[Held]) -> Vec<String> {
    type Memory = (&'static str, fn(&Held) -> u64);
    let kinds: [Memory; 2] = [
        ("KiB of ckptd's memory", |held| held.ckptd_kib),
        ("KiB of the job's memory", |held| held.job_kib),
    ];
    let grows = |of: fn(&Held) -> u64| {
        measures.windows(2).all(|pair| match pair {
            [before, after] => of(after) > of(before) + MARGIN_KIB,
            _ => false,
        })
    };
    let series =
        |of: fn(&Held) -> u64| measures.iter().map(|held| of(held).to_string()).collect::<Vec<_>>();
    let growing = kinds.into_iter().filter(|(_, of)| grows(*of));
    growing.map(|(what, of)| format!("{} {what}", series(of).join(", then "))).collect()
}

/// Measures after the first twenty, at the end, and twice between them. Background work may still be ending when a
/// checkpoint is told: each measure waits until the job has come to rest, and the last one is taken again for a while.
pub fn many_checkpoints(bench: &Bench, account: Account) -> Result<(), Failure> {
    let mut worker = bench.worker(&format!("leaks-{}", account.name()), account)?;
    worker.run(&["--interval", "0"], 4, false)?;
    let mut measures = Vec::new();
    let mut taken = 0;
    for number in MEASURED_AFTER {
        while taken < number {
            worker.job.must_checkpoint()?;
            taken += 1;
        }
        measures.push(Held::at_rest(&worker)?);
    }
    let mut excess = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        let first = measures.first().ok_or_else(|| Failure("nothing was measured".into()))?;
        excess = first.excess(&Held::by(&worker)?);
        if excess.is_empty() {
            break;
        }
    }
    excess.extend(growing(&measures));
    if !excess.is_empty() {
        return Err(Failure(format!(
            "{taken} checkpoints left something: {}\n{}",
            excess.join("; "),
            worker.job.dump()
        )));
    }
    worker.job.kill()?;
    worker.job.restart(&[])?;
    worker.job.wait_until_up()?;
    worker.finish()
}
