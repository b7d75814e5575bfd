//! A job under `ckptd`: started, checkpointed, killed, restarted, and described when it fails.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::processes;

/// How long `ckptd checkpoint` may take.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(20);
/// How long a restarted job may take to answer to `ckptd checkpoint`.
const COME_UP_LIMIT: Duration = Duration::from_secs(15);
/// How long a killed job may leave processes over.
const GONE_LIMIT: Duration = Duration::from_secs(3);
/// Lines of a log that a failure shows.
const SHOWN_LINES: usize = 25;

/// By what all limits are multiplied.
static PATIENCE: AtomicU32 = AtomicU32::new(1);

/// Multiplies all limits from now on, for a machine that is emulated.
pub fn be_patient(factor: u32) {
    PATIENCE.store(factor.max(1), Ordering::Relaxed);
}

/// A limit on this machine.
pub fn patiently(limit: Duration) -> Duration {
    limit * PATIENCE.load(Ordering::Relaxed)
}

/// What went wrong, told so that the cause can be found from it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// What `ckptd checkpoint` answered.
#[derive(Debug)]
pub enum Checkpoint {
    /// Committed, with this number.
    Committed(u64),
    /// Not taken; its standard error.
    Refused(String),
}

/// One job. Dropping it ends whatever of it is left.
pub struct Job {
    ckptd: PathBuf,
    account: Account,
    home: PathBuf,
    name: String,
    mark: String,
    launcher: Option<Child>,
    /// A program that ckptd has not started.
    alone: Option<Child>,
    starts: u32,
    extra_environment: Vec<(String, String)>,
    wrapper: Vec<String>,
}

impl Job {
    /// A job that is not running yet. `home` holds everything of it; `name` is unique in a run.
    ///
    /// # Errors
    /// When its folders cannot be made.
    pub fn new(ckptd: &Path, account: Account, home: &Path, name: &str) -> Result<Job, Failure> {
        for folder in [home.to_owned(), home.join("state")] {
            fs::create_dir_all(&folder)
                .and_then(|()| account.give(&folder))
                .map_err(|e| Failure(format!("failed to make {}: {e}", folder.display())))?;
        }
        Ok(Job {
            ckptd: ckptd.to_owned(),
            account,
            home: home.to_owned(),
            name: name.to_owned(),
            mark: format!("{name}@{}", home.display()),
            launcher: None,
            alone: None,
            starts: 0,
            extra_environment: Vec::new(),
            wrapper: Vec::new(),
        })
    }

    /// Sets a variable for what is started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.extra_environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts ckptd by these words from now on: a program that ends in exec of its arguments.
    pub fn wrap(&mut self, words: &[&str]) {
        self.wrapper = words.iter().map(|&word| word.to_owned()).collect();
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The job's folder in [`Job::state`].
    ///
    /// # Errors
    /// When there is none yet.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let entries = fs::read_dir(self.state()).into_iter().flatten().flatten();
        let mut jobs = entries.map(|e| e.path()).filter(|path| path.join("job.json").exists());
        jobs.next().ok_or_else(|| Failure(format!("{} has no folder", self.name)))
    }

    /// The process of `ckptd run` or `ckptd restart`.
    ///
    /// # Errors
    /// When it has not been started.
    pub fn launcher_pid(&self) -> Result<i32, Failure> {
        let launcher = self.launcher.as_ref();
        launcher
            .and_then(|child| child.id().try_into().ok())
            .ok_or_else(|| Failure("the job was never started".into()))
    }

    /// Forgets the variables that [`Job::set`] made.
    pub fn clear_environment(&mut self) {
        self.extra_environment.clear();
    }

    /// The folder given to `--dir`.
    pub fn state(&self) -> PathBuf {
        self.home.join("state")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.account.command(&self.ckptd, &self.home);
        command.args(arguments).arg("--dir").arg(self.state());
        command.env(processes::MARK, &self.mark).env_remove("CKPTD_DIR");
        command.envs(self.extra_environment.iter().map(|(n, v)| (n, v)));
        command
    }

    /// Starts a program without ckptd, in a session of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_alone(&mut self, words: &[&str]) -> Result<(), Failure> {
        let mut command = self.account.command(Path::new("setsid"), &self.home);
        command.args(words).env(processes::MARK, &self.mark);
        self.alone = Some(self.spawn(command)?);
        Ok(())
    }

    /// `ckptd adopt --interval 0 --name NAME PID`, of what [`Job::run_alone`] has started.
    ///
    /// # Errors
    /// When ckptd cannot be started.
    pub fn adopt(&mut self) -> Result<(), Failure> {
        let alone = self.alone.as_ref().map(Child::id);
        let pid = alone.ok_or_else(|| Failure("there is nothing to adopt".into()))?.to_string();
        self.start(self.command(&["adopt", "--interval", "0", "--name", &self.name, &pid]))
    }

    fn start(&mut self, mut command: Command) -> Result<(), Failure> {
        if let [program, arguments @ ..] = self.wrapper.as_slice() {
            let mut wrapped = Command::new(program);
            wrapped.args(arguments).arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => wrapped.env(name, value),
                    None => wrapped.env_remove(name),
                };
            }
            if let Some(folder) = command.get_current_dir() {
                wrapped.current_dir(folder);
            }
            command = wrapped;
        }
        self.launcher = Some(self.spawn(command)?);
        Ok(())
    }

    fn spawn(&mut self, mut command: Command) -> Result<Child, Failure> {
        self.starts += 1;
        let log = |stream: &str| {
            let path = self.home.join(format!("{stream}.{}", self.starts));
            // A program that ckptd has not started opens it again after a restart.
            File::create(&path)
                .and_then(|file| self.account.give(&path).map(|()| file))
                .map_err(|e| Failure(format!("failed to make a log: {e}")))
        };
        command.stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?);
        let program = command.get_program().to_owned();
        let failed = |e| Failure(format!("failed to run {}: {e}", program.to_string_lossy()));
        command.spawn().map_err(failed)
    }

    /// `ckptd run --interval 0 --name NAME -- COMMAND...`
    ///
    /// # Errors
    /// When ckptd cannot be started.
    pub fn run(&mut self, command: &[&str]) -> Result<(), Failure> {
        self.run_with(&["--interval", "0"], command)
    }

    /// `ckptd run OPTIONS... --name NAME -- COMMAND...`
    ///
    /// # Errors
    /// When ckptd cannot be started.
    pub fn run_with(&mut self, options: &[&str], command: &[&str]) -> Result<(), Failure> {
        let mut run = self.command(&["run"]);
        run.args(options).args(["--name", &self.name, "--"]).args(command);
        self.start(run)
    }

    /// `ckptd restart NAME [ARGUMENTS...]`
    ///
    /// # Errors
    /// When ckptd cannot be started.
    pub fn restart(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        let mut restart = self.command(&["restart", &self.name]);
        restart.args(arguments);
        self.start(restart)
    }

    /// Any other command of ckptd, to its end: exit status, standard output, standard error.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn ckptd(&self, arguments: &[&str]) -> Result<(ExitStatus, String, String), Failure> {
        // Not marked: the command is nothing of the job's.
        let mut command = self.command(arguments);
        command.env_remove(processes::MARK).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| Failure(format!("failed to run ckptd: {e}")))?;
        let deadline = Instant::now() + patiently(CHECKPOINT_LIMIT);
        while !matches!(child.try_wait(), Ok(Some(_))) {
            if Instant::now() >= deadline {
                let state = self.dump();
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure(format!("ckptd {arguments:?} did not end\n{state}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output();
        let output = output.map_err(|e| Failure(format!("failed to read from ckptd: {e}")))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status, text(output.stdout), text(output.stderr)))
    }

    /// Takes a checkpoint of a job that runs.
    ///
    /// # Errors
    /// When the command hangs, or its answer is no number.
    pub fn checkpoint(&self) -> Result<Checkpoint, Failure> {
        let (status, stdout, stderr) = self.ckptd(&["checkpoint", &self.name])?;
        if !status.success() {
            return Ok(Checkpoint::Refused(stderr));
        }
        let number = stdout.trim().parse();
        let number = number
            .map_err(|_| Failure(format!("ckptd checkpoint printed {stdout:?}, no number")))?;
        Ok(Checkpoint::Committed(number))
    }

    /// Takes a checkpoint, which must succeed.
    ///
    /// # Errors
    /// When it is refused.
    pub fn must_checkpoint(&self) -> Result<u64, Failure> {
        match self.checkpoint()? {
            Checkpoint::Committed(number) => Ok(number),
            Checkpoint::Refused(line) => Err(Failure(format!(
                "the checkpoint was refused: {}\n{}",
                line.trim(),
                self.dump()
            ))),
        }
    }

    /// Waits until the job answers, after a start or restart.
    ///
    /// # Errors
    /// When the launcher ends, or the job is never reached.
    pub fn wait_until_up(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + patiently(COME_UP_LIMIT);
        loop {
            let (_, listing, _) = self.ckptd(&["status", &self.name, "--json"])?;
            if reports_running(&listing) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                return Err(Failure(format!("ckptd ended early: {status}\n{}", self.dump())));
            }
            if Instant::now() >= deadline {
                return Err(Failure(format!("the job never came up\n{}", self.dump())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the launcher with SIGKILL; the whole job must be gone at once, or, where ckptd has not started it, live until it is
    /// killed too.
    ///
    /// # Errors
    /// When a process is left over.
    pub fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut launcher) = self.launcher.take() {
            // As root the child may be setpriv, which has become ckptd by exec: same process.
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
        if let Some(alone) = self.alone.take() {
            self.kill_alone(alone)?;
        }
        self.expect_gone()
    }

    fn kill_alone(&self, mut alone: Child) -> Result<(), Failure> {
        let failed = |e| Failure(format!("failed to wait for a program: {e}"));
        let lives = alone.try_wait().map_err(failed)?.is_none();
        let all = processes::marked(&self.mark);
        // None of them sees another's end and does something about it.
        processes::stop(&all);
        processes::kill(&all);
        alone.wait().map_err(failed)?;
        if lives { Ok(()) } else { Err(Failure("what was adopted has ended with ckptd".into())) }
    }

    fn expect_gone(&self) -> Result<(), Failure> {
        let left = processes::wait_until_gone(&self.mark, patiently(GONE_LIMIT));
        if left.is_empty() {
            return Ok(());
        }
        let text = processes::describe(&left);
        processes::kill(&left);
        Err(Failure(format!("{} processes are left over\n{text}", left.len())))
    }

    /// Whether the launcher has ended, or, where there is none yet, what runs alone.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        match (&self.launcher, &mut self.alone) {
            (None, Some(alone)) => {
                let ended = alone.try_wait();
                ended
                    .map(|status| status.is_some())
                    .map_err(|e| Failure(format!("failed to wait: {e}")))
            }
            _ => Ok(self.ended()?.is_some()),
        }
    }

    /// The launcher's exit status, if it has ended.
    ///
    /// # Errors
    /// When no launcher was started.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let launcher = self.launcher.as_mut().ok_or(Failure("the job was never started".into()))?;
        launcher.try_wait().map_err(|e| Failure(format!("failed to wait for ckptd: {e}")))
    }

    /// Waits for the job's own end; nothing of it may be left over then.
    ///
    /// # Errors
    /// When it does not end in time, or leaves processes over.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                self.launcher = None;
                self.expect_gone()?;
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(Failure(format!("the job did not end\n{}", self.dump())));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Waits for the job's end, which must be exit status 0.
    ///
    /// # Errors
    /// When it is another.
    pub fn must_succeed(&mut self, limit: Duration) -> Result<(), Failure> {
        let status = self.wait(limit)?;
        if status.success() {
            return Ok(());
        }
        let how = match status.signal() {
            Some(signal) => format!("by signal {signal}"),
            None => format!("with status {}", status.code().unwrap_or(-1)),
        };
        Err(Failure(format!("the job ended {how}\n{}", self.dump())))
    }

    /// What the job has written to its standard output so far, of all generations.
    pub fn output(&self) -> String {
        (1..=self.starts)
            .filter_map(|n| fs::read_to_string(self.home.join(format!("stdout.{n}"))).ok())
            .collect()
    }

    /// What the job has written to its standard output since the last start.
    pub fn last_output(&self) -> String {
        fs::read_to_string(self.home.join(format!("stdout.{}", self.starts))).unwrap_or_default()
    }

    /// What ckptd and the job have written to standard error since the last start.
    pub fn errors(&self) -> String {
        let path = self.home.join(format!("stderr.{}", self.starts));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The processes of the job, ckptd's own included.
    pub fn processes(&self) -> Vec<i32> {
        processes::marked(&self.mark)
    }

    /// Everything that helps to find out what happened.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for start in 1..=self.starts {
            for stream in ["stdout", "stderr"] {
                let name = format!("{stream}.{start}");
                text += &tail(&name, &self.home.join(&name));
            }
        }
        for job in fs::read_dir(self.state()).into_iter().flatten().flatten() {
            text += &tail("the job's log", &job.path().join("log"));
        }
        text + &processes::describe(&processes::marked(&self.mark))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut launcher) = self.launcher.take() {
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
        processes::kill(&processes::marked(&self.mark));
        if let Some(mut alone) = self.alone.take() {
            let _ = alone.wait();
        }
    }
}

/// Whether `ckptd status --json` says that the job runs and answers.
fn reports_running(listing: &str) -> bool {
    serde_json::from_str(listing).is_ok_and(|status: serde_json::Value| {
        status["state"] == "running" && status["live"].is_object()
    })
}

fn tail(title: &str, path: &Path) -> String {
    let Ok(bytes) = fs::read(path) else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    format!("--- {title}\n    {}\n", shown.join("\n    "))
}
