//! What is done to a conformance program between "ready" and "go".

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::job::{Checkpoint, Failure, Job, patiently};
use crate::network;
use crate::programs::Program;
use crate::unnamespaced::Numbers;

/// What ckptd says where a restarted process has another number than before.
const OTHER_NUMBERS: &str = "have other numbers than before";

/// How long a program may take to build its state, and to check it afterwards.
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// How long a job may have more processes than before a rehearsal.
const LEFT_LIMIT: Duration = Duration::from_secs(5);

/// What happens to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// No checkpoint at all: does the program pass by itself?
    Plain,
    /// Two checkpoints; the job goes on.
    Continue,
    /// Checkpoint, kill -9, restart.
    Restart,
    /// The same three times.
    Three,
    /// Checkpoint, and a rehearsed restart from it; the job goes on.
    Rehearse,
    /// Five checkpoints one after the other, kill -9, restart, twice: later images refer to what earlier ones have.
    Series,
    /// The program runs already when ckptd comes to it; checkpoint, kill -9 of both, restart, twice.
    Adopt,
}

impl Mode {
    /// A short name, for listings and folders.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Continue => "continue",
            Mode::Restart => "restart",
            Mode::Three => "three",
            Mode::Rehearse => "rehearse",
            Mode::Series => "series",
            Mode::Adopt => "adopt",
        }
    }
}

/// How a case came out.
#[derive(Debug)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Nothing could be tested, and why.
    Skipped(String),
    /// Wrong.
    Failed(String),
}

/// One program in one mode as one user.
pub struct Case<'a> {
    /// The program.
    pub program: &'a Program,
    /// Its executable.
    pub executable: &'a Path,
    /// What is done to it.
    pub mode: Mode,
    /// Whose job it is.
    pub account: Account,
    /// The words that ckptd is started with, if any.
    pub wrapper: &'a [String],
    /// Where its processes get their numbers.
    pub numbers: Numbers,
}

impl Case<'_> {
    /// The name that the report shows.
    pub fn name(&self) -> String {
        let mode = if self.program.refused { "refused" } else { self.mode.name() };
        format!("{} {} {}{}", self.program.name, mode, self.account.name(), self.numbers.name())
    }

    /// Runs it below `root`, with `ckptd`, in a network of its own.
    pub fn run(&self, ckptd: &Path, root: &Path) -> Outcome {
        let attempt = |root: &Path| network::alone(|| self.attempt(ckptd, root));
        let is_told = |failure: &Failure| failure.0.contains(OTHER_NUMBERS);
        let mut outcome = attempt(root);
        if self.numbers == Numbers::None && outcome.as_ref().is_err_and(is_told) {
            // Somebody else had one of its numbers, among all of the machine's. It does not come twice.
            let again = root.join("again");
            outcome = std::fs::create_dir_all(&again)
                .map_err(|error| Failure(error.to_string()))
                .and_then(|()| attempt(&again));
        }
        outcome.unwrap_or_else(|failure| Outcome::Failed(failure.0))
    }

    fn attempt(&self, ckptd: &Path, root: &Path) -> Result<Outcome, Failure> {
        if let Some(why) = self.numbers.excuse(&self.program.name, self.mode, self.account) {
            return Ok(Outcome::Skipped(why.to_owned()));
        }
        let folder = self.name().replace(' ', ".");
        let home = root.join(&folder);
        let mut job = Job::new(ckptd, self.account, &home, &folder)?;
        job.wrap(&self.wrapper.iter().map(String::as_str).collect::<Vec<_>>());
        self.numbers.environment().iter().for_each(|(name, value)| job.set(name, value));
        let work = Work::new(self, &home, &folder)?;
        if self.program.held {
            let folder = work.path.join("faults");
            fs::create_dir(&folder)
                .and_then(|()| self.account.give(&folder))
                .map_err(|e| Failure(format!("failed to make {}: {e}", folder.display())))?;
            job.set("CKPTD_PAGES", "demand");
            job.set("CKPTD_FAULT_DIR", &folder.display().to_string());
        }
        let path = work.path.display().to_string();
        let executable = self.executable.display().to_string();
        if self.mode == Mode::Plain {
            return self.plain(&home, &executable, &work);
        }
        match self.mode {
            Mode::Adopt => job.run_alone(&[&executable, &path])?,
            _ => job.run(&[&executable, &path])?,
        }
        if let Some(why) = work.wait_until_ready(&mut job)? {
            return Ok(Outcome::Skipped(why));
        }
        if self.mode == Mode::Adopt {
            job.adopt()?;
            job.wait_until_up()?;
        }
        if self.program.refused {
            return self.expect_refusal(&mut job, &work);
        }
        if let Some(why) = self.generations(&mut job, &work)? {
            work.finish(&mut job)?;
            return Ok(Outcome::Skipped(why));
        }
        work.finish(&mut job)?;
        Ok(Outcome::Passed)
    }

    /// The checkpoints and restarts of the mode. An optional program's refusal ends them, with its reason.
    fn generations(&self, job: &mut Job, work: &Work) -> Result<Option<String>, Failure> {
        let (rounds, each, kill) = match self.mode {
            Mode::Plain => (0, 0, false),
            Mode::Continue => (1, 2, false),
            Mode::Restart => (1, 1, true),
            Mode::Three => (3, 1, true),
            Mode::Rehearse => (1, 1, false),
            Mode::Series => (2, 5, true),
            Mode::Adopt => (2, 1, true),
        };
        let mut last = 0;
        for taken in 1..=rounds * each {
            match job.checkpoint()? {
                Checkpoint::Committed(number) if number > last => last = number,
                Checkpoint::Committed(number) => {
                    return Err(Failure(format!("checkpoint {number} came after {last}")));
                }
                Checkpoint::Refused(line) if self.program.optional => {
                    return Ok(Some(format!("refused: {}", line.trim())));
                }
                Checkpoint::Refused(line) => {
                    let state = job.dump();
                    return Err(Failure(format!("refused: {}\n{state}", line.trim())));
                }
            }
            if self.mode == Mode::Rehearse {
                rehearse(job, work, last, self.program.unrehearsable)?;
            }
            if kill && taken % each == 0 {
                job.kill()?;
                std::thread::sleep(self.program.pause);
                if self.program.held && taken == rounds * each {
                    work.hold_pages()?;
                }
                job.restart(&[])?;
                job.wait_until_up()?;
            }
        }
        Ok(None)
    }

    /// The checkpoint fails with one line that names process and descriptor; the job goes on.
    fn expect_refusal(&self, job: &mut Job, work: &Work) -> Result<Outcome, Failure> {
        let Checkpoint::Refused(text) = job.checkpoint()? else {
            return Err(Failure("the checkpoint was not refused".into()));
        };
        let line = text.trim();
        let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let named = |file: &str| {
            fs::read_to_string(work.path.join(file)).map_or(true, |n| words.contains(&n.trim()))
        };
        if line.lines().count() != 1 || !line.starts_with("ckptd: failed to ") {
            return Err(Failure(format!(
                "the refusal is not one line of the right form: {text:?}"
            )));
        }
        if !named("process") || !named("descriptor") {
            return Err(Failure(format!("the refusal does not name what it is about: {line}")));
        }
        work.finish(job)?;
        Ok(Outcome::Passed)
    }

    fn plain(&self, home: &Path, executable: &str, work: &Work) -> Result<Outcome, Failure> {
        let mut command = self.account.command(Path::new(executable), home);
        let error = |e| Failure(format!("failed to run {executable}: {e}"));
        let mut child = command.arg(&work.path).spawn().map_err(error)?;
        let deadline = Instant::now() + patiently(PROGRAM_LIMIT);
        let status = loop {
            if work.has("ready") && !work.has("go") {
                work.say_go()?;
            }
            if let Some(status) = child.try_wait().map_err(error)? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure("the program did not end".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(why) = work.text("skipped") {
            return Ok(Outcome::Skipped(why));
        }
        // A program whose first thread has ended still exits as a whole.
        if !status.success() || !work.has("ok") {
            let said = work.text("failed").unwrap_or_default();
            return Err(Failure(format!("ended with {status}: {said}")));
        }
        Ok(Outcome::Passed)
    }
}

/// A restart from that checkpoint is rehearsed, and leaves no trace.
fn rehearse(job: &Job, work: &Work, number: u64, unrehearsable: bool) -> Result<(), Failure> {
    let processes = job.processes().len();
    let before = work.files()?;
    let (status, stdout, stderr) = job.ckptd(&["verify", job.name(), "--rehearse"])?;
    if unrehearsable {
        return match stderr.contains("a restart can't be rehearsed here") {
            true => Ok(()),
            false => Err(Failure(format!("the rehearsal printed {stderr:?}"))),
        };
    }
    if !status.success() {
        return Err(Failure(format!("the rehearsal: {}", stderr.trim())));
    }
    if !stdout.starts_with(&format!("checkpoint {number} can be restored: ")) {
        return Err(Failure(format!("the rehearsal printed {stdout:?}")));
    }
    // One that forks all the time has more of them at times.
    let deadline = Instant::now() + patiently(LEFT_LIMIT);
    while job.processes().len() > processes {
        if Instant::now() >= deadline {
            return Err(Failure(format!("the rehearsal has left processes over\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Some programs go on to make files of their own anew, which then are others again and again.
    let (mut renewed, mut last) = (BTreeSet::new(), work.files()?);
    loop {
        let now = work.files()?;
        renewed.extend(now.symmetric_difference(&last).map(|(name, _)| name.clone()));
        let changed = now.symmetric_difference(&before).find(|(name, _)| !renewed.contains(name));
        let Some(changed) = changed else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(Failure(format!(
                "the rehearsal has changed files ({changed:?}): {before:?}, now {now:?}"
            )));
        }
        last = now;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program's folder.
struct Work {
    path: PathBuf,
    remove: bool,
}

impl Work {
    fn new(case: &Case<'_>, home: &Path, name: &str) -> Result<Work, Failure> {
        let (path, remove) = match &case.program.work {
            Some(base) => (base.join(format!("ckptd-t-{}-{name}", std::process::id())), true),
            None => (home.join("w"), false),
        };
        fs::create_dir_all(&path)
            .and_then(|()| case.account.give(&path))
            .and_then(|()| case.account.give(home))
            .map_err(|e| Failure(format!("failed to make {}: {e}", path.display())))?;
        Ok(Work { path, remove })
    }

    fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }

    /// Names in it, and which file each is.
    fn files(&self) -> Result<BTreeSet<(OsString, u64)>, Failure> {
        let failed = |e| Failure(format!("failed to list {}: {e}", self.path.display()));
        let entries = fs::read_dir(&self.path).map_err(failed)?;
        entries.map(|entry| entry.map(|e| (e.file_name(), e.ino())).map_err(failed)).collect()
    }

    /// From now on pages come only where they are touched.
    fn hold_pages(&self) -> Result<(), Failure> {
        let fill = self.path.join("faults/fill");
        fs::write(fill, "").map_err(|e| Failure(format!("failed to hold pages back: {e}")))
    }

    fn say_go(&self) -> Result<(), Failure> {
        let go = self.path.join("go");
        fs::write(go, "").map_err(|e| Failure(format!("failed to say go: {e}")))
    }

    /// Waits for "ready"; a reason when the program has skipped itself.
    fn wait_until_ready(&self, job: &mut Job) -> Result<Option<String>, Failure> {
        let deadline = Instant::now() + patiently(PROGRAM_LIMIT);
        loop {
            if self.has("ready") {
                return Ok(None);
            }
            if self.has("skipped") {
                return Ok(self.text("skipped"));
            }
            let ended = job.has_ended()?;
            if ended || self.has("failed") || Instant::now() >= deadline {
                let said = self.text("failed").unwrap_or_default();
                return Err(Failure(format!("never ready: {said}\n{}", job.dump())));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Says go, and expects the program's own verdict and exit status 0.
    fn finish(&self, job: &mut Job) -> Result<(), Failure> {
        self.say_go()?;
        let ended = job.must_succeed(patiently(PROGRAM_LIMIT));
        if let Some(said) = self.text("failed") {
            return Err(Failure(format!("{said}\n{}", job.dump())));
        }
        ended?;
        if !self.has("ok") {
            return Err(Failure(format!("the program gave no verdict\n{}", job.dump())));
        }
        Ok(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.remove {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
