//! The job that is damaged, starved and killed: memory that is always being rewritten, and a child.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::build;
use ckptd_tests::job::{Failure, Job};
use ckptd_tests::workspace::Workspace;

/// How long the program may take to say that it has started, and to end.
const LIMIT: Duration = Duration::from_secs(40);

/// What the cases share.
pub struct Bench {
    workspace: Workspace,
    program: PathBuf,
}

impl Bench {
    /// Builds the program.
    pub fn new() -> Result<Bench, Box<dyn std::error::Error>> {
        let workspace = Workspace::new()?;
        let source = workspace.repository.join("tests/real/ballast.c");
        let program = workspace.programs.join("ballast");
        build::compile("cc", &["-O2", "-Wall"], &[&source], &program)?;
        Ok(Bench { workspace, program })
    }

    /// The folder below which everything is made.
    pub fn root(&self) -> &Path {
        self.workspace.root.path()
    }

    /// Leaves the folder behind.
    pub fn keep(&mut self) {
        self.workspace.root.disable_cleanup(true);
    }

    /// A job that does not run yet.
    pub fn worker(&self, name: &str, account: Account) -> Result<Worker, Failure> {
        let home = self.root().join(name);
        let job = Job::new(&self.workspace.ckptd, account, &home, name)?;
        let program = self.program.display().to_string();
        let worker = Worker { job, program, home };
        let folder = worker.folder();
        std::fs::create_dir_all(&folder)
            .and_then(|()| account.give(&folder))
            .and_then(|()| account.give(&worker.home))
            .map_err(|e| Failure(format!("failed to make {}: {e}", folder.display())))?;
        Ok(worker)
    }
}

/// One job.
pub struct Worker {
    /// The job.
    pub job: Job,
    program: String,
    home: PathBuf,
}

impl Worker {
    fn folder(&self) -> PathBuf {
        self.home.join("w")
    }

    /// Runs it with so much memory, and waits until it is under way.
    pub fn run(&mut self, options: &[&str], mebibytes: u32, hot: bool) -> Result<(), Failure> {
        let folder = self.folder().display().to_string();
        let size = mebibytes.to_string();
        let mut command = vec![self.program.as_str(), folder.as_str(), size.as_str()];
        if hot {
            command.push("hot");
        }
        self.job.run_with(options, &command)?;
        let deadline = Instant::now() + LIMIT;
        while !self.job.output().contains("started") {
            if self.job.ended()?.is_some() || Instant::now() > deadline {
                return Err(Failure(format!("never under way\n{}", self.job.dump())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.job.wait_until_up()
    }

    /// Lets it come to its right end, which it must.
    pub fn finish(&mut self) -> Result<(), Failure> {
        let go = self.folder().join("go");
        let failed = |e| Failure(format!("failed to say go: {e}"));
        std::fs::write(&go, "").map_err(failed)?;
        let ended = self.job.must_succeed(LIMIT);
        std::fs::remove_file(&go).map_err(failed)?;
        ended?;
        if !self.job.last_output().lines().any(|line| line == "ballast: right") {
            return Err(Failure(format!("no right answer\n{}", self.job.dump())));
        }
        Ok(())
    }

    /// `ckptd verify --json`: each checkpoint's number and verdict.
    pub fn verdicts(&self) -> Result<Vec<(u64, String)>, Failure> {
        let (_, stdout, stderr) = self.job.ckptd(&["verify", self.job.name(), "--json"])?;
        let odd = || Failure(format!("ckptd verify --json printed {stdout:?} and {stderr:?}"));
        let value: serde_json::Value = serde_json::from_str(&stdout).map_err(|_| odd())?;
        let verdict = |entry: &serde_json::Value| {
            Some((entry["checkpoint"].as_u64()?, entry["verdict"].as_str()?.to_owned()))
        };
        value.as_array().and_then(|all| all.iter().map(verdict).collect()).ok_or_else(odd)
    }

    /// These checkpoints must be there and whole.
    pub fn must_be_whole(&self, numbers: &[u64]) -> Result<(), Failure> {
        let verdicts = self.verdicts()?;
        for number in numbers {
            if !verdicts.contains(&(*number, "whole".to_owned())) {
                return Err(Failure(format!(
                    "checkpoint {number} is not whole: {verdicts:?}\n{}",
                    self.job.dump()
                )));
            }
        }
        Ok(())
    }

    /// The checkpoint that the job was last restarted from.
    pub fn restored_from(&self) -> Result<Option<u64>, Failure> {
        let (_, stdout, stderr) = self.job.ckptd(&["status", self.job.name(), "--json"])?;
        let odd = |_| Failure(format!("ckptd status --json printed {stdout:?} and {stderr:?}"));
        let value: serde_json::Value = serde_json::from_str(&stdout).map_err(odd)?;
        Ok(value["restored_from"].as_u64())
    }
}
