//! The program that is measured, under ckptd.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account::Account;
use crate::build;
use crate::job::{Failure, Job};

/// How long anything may take that the program is asked to do.
const LIMIT: Duration = Duration::from_secs(60);
/// Name of the program, which its processes have too.
pub const NAME: &str = "measure";

/// What a benchmark needs of its surroundings.
pub struct Setting {
    /// The executable that is measured.
    pub ckptd: PathBuf,
    /// The repository.
    pub repository: PathBuf,
    /// A folder of the run's own, on the disk that is measured.
    pub folder: tempfile::TempDir,
    /// How often each thing is measured.
    pub rounds: usize,
    /// Shorter runs.
    pub quick: bool,
}

impl Setting {
    /// Builds a program of `tests/measure`, once.
    ///
    /// # Errors
    /// No compiler.
    pub fn program(&self, name: &str) -> Result<PathBuf, Failure> {
        let program = self.folder.path().join(name);
        if !program.exists() {
            let source = self.repository.join(format!("tests/measure/{name}.c"));
            let flags = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-pthread"];
            build::compile("cc", &flags, &[&source], &program).map_err(failure)?;
        }
        Ok(program)
    }
}

/// Any error as a failure of the run.
pub fn failure(error: impl std::fmt::Display) -> Failure {
    Failure(error.to_string())
}

/// The program under ckptd.
pub struct Subject {
    /// The job.
    pub job: Job,
    results: PathBuf,
    seen: usize,
}

impl Subject {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(setting: &Setting, name: &str, arguments: &[&str]) -> Result<Self, Failure> {
        Self::start_with(setting, name, arguments, &[])
    }

    /// With more in its environment, and ckptd's.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(
        setting: &Setting,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let program = setting.program(NAME)?;
        let home = setting.folder.path().join(name);
        let mut job = Job::new(&setting.ckptd, Account::Root, &home, name)?;
        for (name, value) in environment {
            job.set(name, value);
        }
        let results = home.join("results");
        let mut command = vec![text(&program)?, text(&results)?];
        command.extend(arguments);
        job.run(&command)?;
        let mut subject = Self { job, results: results.clone(), seen: 0 };
        subject.next("ready")?;
        Ok(subject)
    }

    /// Waits for a line that begins with `word`, behind those seen already; the rest of it.
    ///
    /// # Errors
    /// When none comes.
    pub fn next(&mut self, word: &str) -> Result<String, Failure> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let content = fs::read_to_string(&self.results).unwrap_or_default();
            let unseen = content.lines().enumerate().skip(self.seen);
            for (index, line) in unseen {
                if let Some(rest) = line.strip_prefix(word) {
                    self.seen = index + 1;
                    return Ok(rest.trim().to_owned());
                }
            }
            if Instant::now() > deadline {
                let state = self.job.dump();
                return Err(Failure(format!("the program never said \"{word}\"\n{state}")));
            }
            if let Some(status) = self.job.ended()? {
                let state = self.job.dump();
                return Err(Failure(format!("ckptd ended early: {status}\n{state}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the program measure in itself; the number behind `word`, ns.
    ///
    /// # Errors
    /// When no answer comes.
    pub fn measure(&mut self, word: &str) -> Result<f64, Failure> {
        let pid = self.pid()?;
        kill(Pid::from_raw(pid), Signal::SIGUSR1).map_err(failure)?;
        let answer = self.next(word)?;
        let first = answer.split(' ').next().unwrap_or_default();
        let number = first.parse().map_err(|_| Failure(format!("odd answer {answer:?}")))?;
        self.next("measured")?;
        Ok(number)
    }

    /// Its first process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn pid(&self) -> Result<i32, Failure> {
        let is_it = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim_end() == NAME)
        };
        self.job.processes().into_iter().find(is_it).ok_or(Failure("the program is gone".into()))
    }

    /// Takes a checkpoint: how long the job stood still, and how long the command took, ms.
    ///
    /// # Errors
    /// When it is refused.
    pub fn checkpoint(&self) -> Result<(f64, f64), Failure> {
        let started = Instant::now();
        let number = self.job.must_checkpoint()?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        Ok((pause_of(&self.job, number)?, took))
    }
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure(format!("odd folder {}", path.display())))
}

/// How long a job stood still for one of its checkpoints, ms.
///
/// # Errors
/// When `status` does not tell.
pub fn pause_of(job: &Job, number: u64) -> Result<f64, Failure> {
    Ok(told_of(job, number, "/pause_us")? / 1e3)
}

/// A number that `status --json` tells of one of a job's checkpoints, by a JSON pointer (RFC 6901).
///
/// # Errors
/// When it does not.
pub fn told_of(job: &Job, number: u64, what: &str) -> Result<f64, Failure> {
    let name = job.state();
    let (_, listing, errors) = job.ckptd(&["status", "latest", "--json"])?;
    let status: serde_json::Value = serde_json::from_str(&listing)
        .map_err(|_| Failure(format!("no status of {}: {errors}", name.display())))?;
    let checkpoints = status["checkpoints"].as_array().cloned().unwrap_or_default();
    checkpoints
        .iter()
        .find(|checkpoint| checkpoint["checkpoint"].as_u64() == Some(number))
        .and_then(|checkpoint| checkpoint.pointer(what)?.as_f64())
        .ok_or_else(|| Failure(format!("status does not tell of checkpoint {number}")))
}
