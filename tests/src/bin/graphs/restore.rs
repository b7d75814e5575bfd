//! One changed image, restored in every way.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::job::{Failure, Job};

use super::guard::{self, Whose, World};
use super::image::{self, Documents};
use super::outside::Outside;
use super::subjects::Subject;
use super::{GROUPS, USER, child};

/// How long a restore may take until it says what came of it, and until it has ended.
const LIMIT: Duration = Duration::from_secs(60);

/// An image and what it is changed into.
pub struct Stage<'a> {
    /// The job.
    pub subject: &'a Subject,
    /// Its index files as they were.
    pub original: &'a Documents,
    /// As they are to be.
    pub documents: &'a Documents,
}

impl Stage<'_> {
    /// Restores it as the user, as root for the user, and, where that is given, by the command as the user. What came
    /// of each, in a line.
    pub fn restore(
        &self,
        own: &Path,
        ckptd: Option<&PathBuf>,
        world: &World,
        outside: &Outside,
    ) -> Result<Vec<String>, Failure> {
        let mut told = Vec::new();
        for by_root in [false, true] {
            let line = self.once(world, outside, || self.by_agent(own, by_root, outside));
            told.push(line.map_err(|failure| {
                let who = if by_root { "root for the user" } else { "the user" };
                Failure(format!("restored by {who}: {failure}"))
            })?);
        }
        if let Some(ckptd) = ckptd {
            let line = self.once(world, outside, || self.by_command(ckptd));
            told.push(line.map_err(|failure| Failure(format!("by the command: {failure}")))?);
        }
        Ok(told)
    }

    /// With everything as it was before, and as it was afterwards.
    fn once(
        &self,
        world: &World,
        outside: &Outside,
        restore: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        self.put_back()?;
        let checkpoint = self.subject.checkpoint()?;
        self.documents.write(&checkpoint)?;
        let packs = self.subject.folder()?.join("packs");
        let before = (image::digest(&checkpoint)?, image::digest(&packs)?);
        let outcome = restore();
        let after = world.must_be_as_before();
        let told = outcome?;
        after?;
        outside.must_be_as_before()?;
        if (image::digest(&checkpoint)?, image::digest(&packs)?) != before {
            return Err(Failure(format!("the image has changed, and {told}")));
        }
        self.original.write(&checkpoint)?;
        Ok(told)
    }

    /// The job's files as they were, the image's packs aside, which nothing has changed.
    fn put_back(&self) -> Result<(), Failure> {
        let work = self.subject.work();
        let jobs = self.subject.home.parent().unwrap_or(&self.subject.home);
        let pristine = jobs.with_file_name("pristine").join(&self.subject.name).join("w");
        let failed = |e: std::io::Error| Failure(format!("{}: {e}", work.display()));
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let status = Command::new("cp").arg("-a").arg(&pristine).arg(&work).status();
        if !status.map_err(failed)?.success() {
            return Err(Failure(format!("cp {} failed", pristine.display())));
        }
        let scratch = jobs.with_file_name("scratch");
        for entry in fs::read_dir(&scratch).map_err(failed)?.flatten() {
            let path = entry.path();
            let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.map_err(failed)?;
        }
        Ok(())
    }

    fn by_agent(&self, own: &Path, by_root: bool, outside: &Outside) -> Result<String, Failure> {
        let folder = self.subject.folder()?;
        let errors = self.subject.home.join("restore.stderr");
        let mut command = match by_root {
            true => Command::new(own),
            false => Account::User.command(own, &self.subject.home),
        };
        command.arg(child::FLAG).arg(&folder).arg("1");
        if by_root {
            command.arg("root").current_dir("/");
        }
        let failed = |e: std::io::Error| Failure(format!("failed to run {}: {e}", own.display()));
        let log = File::create(&errors).map_err(failed)?;
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut restorer = spawned.map_err(failed)?;
        let verdict = heard(&mut restorer).and_then(|line| {
            if let Some(init) = line.strip_prefix("made ") {
                let init = init.parse().map_err(|_| Failure(format!("no process: {line:?}")))?;
                let whose = Whose { user: USER, groups: GROUPS, by_root };
                guard::must_be_users_own(init, whose, outside)?;
            }
            Ok(line)
        });
        // It ends the job, and itself, when there is no more to be read.
        drop(restorer.stdin.take());
        let ended = must_end(restorer);
        let said = fs::read_to_string(&errors).unwrap_or_default();
        let with_errors = |failure: Failure| Failure(format!("{failure}\n{said}"));
        let line = verdict.map_err(with_errors)?;
        ended.map_err(with_errors)?;
        if said.contains("panicked") {
            return Err(Failure(format!("{line}, but: {said}")));
        }
        match line.starts_with("made ") || line.len() > "refused ".len() {
            true => Ok(line),
            false => Err(Failure(format!("no reason: {line:?}"))),
        }
    }

    /// `ckptd restart`: status 125 and one line, or a job that is up, or has been.
    fn by_command(&self, ckptd: &Path) -> Result<String, Failure> {
        let mut job = Job::new(ckptd, Account::User, &self.subject.home, &self.subject.name)?;
        job.restart(&["--force"])?;
        let deadline = Instant::now() + LIMIT;
        let outcome = loop {
            if let Some(status) = job.ended()? {
                let errors = job.errors();
                let refusals = errors.lines().filter(|line| line.contains("failed to restart"));
                break match (status.code(), refusals.count()) {
                    _ if errors.contains("panicked") => Err(Failure(errors)),
                    (Some(125), 1) => Ok(format!("refused {}", errors.trim())),
                    (Some(125), _) => {
                        Err(Failure(format!("status 125 without one line of reason: {errors:?}")))
                    }
                    _ => Ok(format!("made a job that ended: {status}")),
                };
            }
            let (_, listing, _) = job.ckptd(&["status", &self.subject.name, "--json"])?;
            let status: serde_json::Value = serde_json::from_str(&listing).unwrap_or_default();
            if status["state"] == "running" && status["live"].is_object() {
                break Ok("made a job that runs".to_owned());
            }
            if Instant::now() >= deadline {
                break Err(Failure(format!("it hangs\n{}", job.dump())));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        job.kill()?;
        outcome
    }
}

/// The one line that it says.
fn heard(restorer: &mut Child) -> Result<String, Failure> {
    let Some(output) = restorer.stdout.take() else { return Err(Failure("no pipe".into())) };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody may be left to hear it.
            let _ = sender.send(line);
        }
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(line) => Ok(line),
        Err(RecvTimeoutError::Timeout) => Err(Failure("the restore hangs".into())),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Failure("the restorer ended without a word".into()))
        }
    }
}

fn must_end(mut restorer: Child) -> Result<(), Failure> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match restorer.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Failure(format!("the restorer ended: {status}"))),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // It is gone by itself otherwise.
                let _ = restorer.kill();
                let _ = restorer.wait();
                return Err(Failure("the restorer does not end".into()));
            }
            Err(error) => return Err(Failure(format!("failed to wait: {error}"))),
        }
    }
}
