//! No room on the disk, no memory for the snapshot: the job is unharmed, older checkpoints stand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ckptd_tests::account::Account;
use ckptd_tests::job::{Checkpoint, Failure};

use super::worker::{Bench, Worker};

const MIB: u64 = 1 << 20;

fn run(command: &mut Command) -> Result<(), Failure> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(Failure(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
        }
        Err(error) => Err(Failure(format!("failed to run {command:?}: {error}"))),
    }
}

fn command(words: &[&str]) -> Result<(), Failure> {
    run(Command::new(words[0]).args(&words[1..]))
}

/// A small file system of its own, unmounted when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: u64, account: Account) -> Result<SmallDisk, Failure> {
        let path = at.display().to_string();
        command(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", &path])?;
        let disk = SmallDisk(at.to_owned());
        account.give(at).map_err(|e| Failure(format!("failed to give {path} away: {e}")))?;
        Ok(disk)
    }

    fn resize(&self, size: u64) -> Result<(), Failure> {
        let path = self.0.display().to_string();
        command(&["mount", "-o", &format!("remount,size={size}"), &path])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = command(&["umount", "-l", &self.0.display().to_string()]);
    }
}

/// Refusals must be one line with `words`; a commit is none.
fn expect_refused(worker: &Worker, words: &str) -> Result<(), Failure> {
    match worker.job.checkpoint()? {
        Checkpoint::Committed(number) => {
            Err(Failure(format!("checkpoint {number} was committed where there is no room")))
        }
        Checkpoint::Refused(line) if line.contains(words) && line.lines().count() == 1 => Ok(()),
        Checkpoint::Refused(line) => Err(Failure(format!("not one line with {words:?}: {line:?}"))),
    }
}

/// Twice refused, then room again, killed and restarted.
fn survive(
    worker: &mut Worker,
    words: &str,
    scarce: impl FnOnce(&Worker) -> Result<(), Failure>,
    plenty: impl FnOnce(&Worker) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let first = worker.job.must_checkpoint()?;
    scarce(worker)?;
    for _ in 0..2 {
        expect_refused(worker, words)?;
        worker.must_be_whole(&[first])?;
    }
    plenty(worker)?;
    let next = worker.job.must_checkpoint()?;
    worker.must_be_whole(&[first, next])?;
    worker.job.kill()?;
    worker.job.restart(&[])?;
    worker.job.wait_until_up()?;
    worker.finish()
}

/// The disk is full in the middle of an image.
pub fn full_disk(bench: &Bench, account: Account) -> Result<(), Failure> {
    let mut worker = bench.worker(&format!("full-disk-{}", account.name()), account)?;
    let disk = SmallDisk::mount(&worker.job.state(), 30 * MIB, account)?;
    worker.run(&["--interval", "0"], 16, false)?;
    let outcome = survive(&mut worker, "no space is left", |_| Ok(()), |_| disk.resize(100 * MIB));
    drop(worker);
    drop(disk);
    outcome
}

/// The limit on a file's size is met in the middle of an image.
pub fn file_limit(bench: &Bench, account: Account) -> Result<(), Failure> {
    let mut worker = bench.worker(&format!("file-limit-{}", account.name()), account)?;
    worker.run(&["--interval", "0"], 16, false)?;
    // As the job's own user: root may lack the right to change another user's limits.
    let limit = |worker: &Worker, size: &str| {
        let pid = worker.job.launcher_pid()?.to_string();
        let mut prlimit = account.command(Path::new("prlimit"), bench.root());
        run(prlimit.args(["--pid", &pid, &format!("--fsize={size}:unlimited")]))
    };
    survive(
        &mut worker,
        "limit on a file's size",
        |worker| limit(worker, "4194304"),
        |worker| limit(worker, "unlimited"),
    )
}

/// A memory control group, of whichever version is mounted; removed when it is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(name: &str) -> Option<MemoryGroup> {
        for base in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
            let path = Path::new(base).join(format!("ckptd-t-{}-{name}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = MemoryGroup(path);
            if group.limit_file().is_some() {
                return Some(group);
            }
        }
        None
    }

    fn limit_file(&self) -> Option<PathBuf> {
        ["memory.max", "memory.limit_in_bytes"]
            .map(|name| self.0.join(name))
            .into_iter()
            .find(|path| path.exists())
    }

    fn limit(&self, bytes: u64) -> Result<(), Failure> {
        let file = self.limit_file().ok_or_else(|| Failure("no limit on memory".into()))?;
        fs::write(&file, bytes.to_string())
            .map_err(|e| Failure(format!("failed to write {}: {e}", file.display())))?;
        // Swap would only slow it down.
        let _ = fs::write(self.0.join("memory.swap.max"), "0");
        Ok(())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Half of the job's memory is all that a snapshot can have, and the job rewrites all of it. `None`
/// where no control group can be made.
pub fn little_memory(bench: &Bench, account: Account) -> Result<Option<()>, Failure> {
    const JOB_MIB: u32 = 192;
    let Some(group) = MemoryGroup::new(account.name()) else { return Ok(None) };
    group.limit(u64::from(JOB_MIB) * MIB * 3 / 2)?;
    let mut worker = bench.worker(&format!("little-memory-{}", account.name()), account)?;
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
    worker.job.wrap(&["sh", "-c", &enter, "sh"]);
    worker.run(&["--interval", "0"], JOB_MIB, true)?;
    let mut committed = Vec::new();
    for _ in 0..3 {
        match worker.job.checkpoint()? {
            Checkpoint::Committed(number) => committed.push(number),
            Checkpoint::Refused(line) if line.lines().count() == 1 => {}
            Checkpoint::Refused(line) => return Err(Failure(format!("not one line: {line:?}"))),
        }
        if worker.job.ended()?.is_some() {
            return Err(Failure(format!("the job was harmed\n{}", worker.job.dump())));
        }
        let kept = &committed[committed.len().saturating_sub(2)..];
        worker.must_be_whole(kept)?;
    }
    group.limit(u64::from(JOB_MIB) * MIB * 4)?;
    worker.job.must_checkpoint()?;
    worker.job.kill()?;
    worker.job.restart(&[])?;
    worker.job.wait_until_up()?;
    worker.finish()?;
    drop(worker);
    Ok(Some(()))
}
