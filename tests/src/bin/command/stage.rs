//! One case's folder, and ckptd called in it as a user calls it.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use ckptd_tests::processes;

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How long the rest of what a command has said may take when it has ended.
const QUIET: Duration = Duration::from_millis(500);

/// The name of the one job of a case.
pub const JOB: &str = "j";

/// A case's folder. Dropping it ends what is left of its processes.
pub struct Stage {
    ckptd: PathBuf,
    /// Whose commands they are.
    pub account: Account,
    /// The home, with the jobs' folder in it.
    pub home: PathBuf,
    /// A folder that is no session directory.
    pub outside: tempfile::TempDir,
    mark: String,
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Finished {
    /// The exit status must be this one.
    pub fn expect(self, code: i32) -> Result<Finished, Failure> {
        if self.status.code() == Some(code) {
            Ok(self)
        } else {
            fail(format!("not {code}: {self:?}"))
        }
    }
}

/// A failure of a case.
pub fn fail<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(text.into()))
}

/// Fails with `text` unless `right`.
pub fn expect(right: bool, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if right { Ok(()) } else { Err(Failure(text())) }
}

/// Makes a failure of an error of the test itself.
pub fn own<T>(result: std::io::Result<T>) -> Result<T, Failure> {
    result.map_err(|e| Failure(format!("the test itself failed: {e}")))
}

/// Waits for a condition.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        if Instant::now() > deadline {
            return fail(format!("never: {what}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Stage {
    /// Makes the folders.
    pub fn new(ckptd: &Path, account: Account, home: &Path) -> Result<Stage, Failure> {
        own(fs::create_dir_all(home).and_then(|()| account.give(home)))?;
        let outside = own(tempfile::Builder::new().prefix("ckptd-t-").tempdir_in("/var/tmp"))?;
        own(account.give(outside.path()))?;
        let mark = home.display().to_string();
        Ok(Stage { ckptd: ckptd.into(), account, home: home.into(), outside, mark })
    }

    /// Where ckptd is.
    pub fn ckptd(&self) -> &Path {
        &self.ckptd
    }

    /// `ckptd ARGUMENTS...`, known by its mark.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.wrapped(&[], arguments)
    }

    /// The same, started by `words`.
    pub fn wrapped(&self, words: &[&str], arguments: &[&str]) -> Command {
        let inner = self.account.command(&self.ckptd, &self.home);
        let mut command = match words {
            [] => Command::new(inner.get_program()),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(inner.get_program());
                command
            }
        };
        command.args(inner.get_args()).args(arguments).current_dir(&self.home);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("CKPTD_DIR", self.home.join("state")).env(processes::MARK, &self.mark);
        command.env("TERM", "dumb").env_remove("TMPDIR");
        command
    }

    /// A program of the user's that ckptd does not start, known by the same mark.
    pub fn alone(&self, words: &[&str]) -> Command {
        let program = words.first().copied().unwrap_or("true");
        let mut command = self.account.command(Path::new(program), &self.home);
        command.args(words.iter().skip(1));
        command.env(processes::MARK, &self.mark).env("TERM", "dumb").env_remove("TMPDIR");
        command
    }

    /// Runs a command to its end, with `input` on its standard input.
    pub fn output(&self, arguments: &[&str], input: &str) -> Result<Finished, Failure> {
        let mut running = self.start(arguments)?;
        running.say(input)?;
        running.finish()
    }

    /// `ckptd ARGUMENTS... --json`, parsed.
    pub fn json(&self, arguments: &[&str]) -> Result<serde_json::Value, Failure> {
        let mut all = arguments.to_vec();
        all.push("--json");
        let finished = self.output(&all, "")?;
        serde_json::from_str(&finished.out)
            .map_err(|e| Failure(format!("{all:?} printed no JSON ({e}): {finished:?}")))
    }

    /// Starts a command with pipes.
    pub fn start(&self, arguments: &[&str]) -> Result<Running, Failure> {
        Running::start(self.command(arguments))
    }

    /// The same, started by `words`.
    pub fn start_wrapped(&self, words: &[&str], arguments: &[&str]) -> Result<Running, Failure> {
        let mut command = self.wrapped(words, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::of(own(command.spawn())?)
    }

    /// `ckptd run --interval 0 --name j -- COMMAND...`, until it answers.
    pub fn run(&self, command: &[&str]) -> Result<Running, Failure> {
        let mut arguments = vec!["run", "--interval", "0", "--name", JOB, "--"];
        arguments.extend_from_slice(command);
        let mut running = self.start(&arguments)?;
        self.until_up(&mut running)?;
        Ok(running)
    }

    /// `ckptd restart j ARGUMENTS...`, until it answers.
    pub fn restart(&self, arguments: &[&str]) -> Result<Running, Failure> {
        let mut all = vec!["restart", JOB];
        all.extend_from_slice(arguments);
        let mut running = self.start(&all)?;
        self.until_up(&mut running)?;
        Ok(running)
    }

    /// `ckptd adopt --interval 0 --name j PID`, until it answers.
    pub fn adopt(&self, pid: u32) -> Result<Running, Failure> {
        let pid = pid.to_string();
        let mut running = self.start(&["adopt", "--interval", "0", "--name", JOB, &pid])?;
        self.until_up(&mut running)?;
        Ok(running)
    }

    /// Waits until the job answers.
    pub fn until_up(&self, running: &mut Running) -> Result<(), Failure> {
        self.until_runs(JOB, running)
    }

    /// Waits until a job answers.
    pub fn until_runs(&self, job: &str, running: &mut Running) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        while !self.runs_as(job) {
            if own(running.child.try_wait())?.is_some() || Instant::now() > deadline {
                return fail(format!("the job never came up: {:?}", running.text()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether the job answers.
    pub fn is_up(&self) -> bool {
        self.runs_as(JOB)
    }

    fn runs_as(&self, job: &str) -> bool {
        self.json(&["status", job]).is_ok_and(|s| s["state"] == "running" && s["live"].is_object())
    }

    /// `ckptd checkpoint j`: the number.
    pub fn checkpoint(&self) -> Result<u64, Failure> {
        let finished = self.output(&["checkpoint", JOB], "")?.expect(0)?;
        let number = finished.out.trim().parse();
        number.map_err(|_| Failure(format!("no number: {finished:?}")))
    }

    /// The job's log.
    pub fn log(&self) -> Result<PathBuf, Failure> {
        let status = self.json(&["status", JOB])?;
        status["log"].as_str().map(PathBuf::from).ok_or_else(|| Failure(format!("{status}")))
    }

    /// Whether a process of this name belongs to the case.
    pub fn runs(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether a process of this name is in the foreground of its terminal.
    pub fn is_in_foreground(&self, name: &str) -> bool {
        let fields = |pid: i32| -> Option<(String, String)> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // Behind the name in parentheses: state, parent, group, session, terminal, the group in its foreground.
            let mut words = stat.rsplit_once(')')?.1.split_whitespace();
            Some((words.nth(2)?.to_owned(), words.nth(2)?.to_owned()))
        };
        self.find(name).and_then(fields).is_some_and(|(group, foreground)| group == foreground)
    }

    /// A process of this name that belongs to the case.
    pub fn find(&self, name: &str) -> Option<i32> {
        processes::marked(&self.mark).into_iter().find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        })
    }

    /// How many processes of the case there are.
    pub fn processes(&self) -> usize {
        processes::marked(&self.mark).len()
    }

    /// No process of the case may be left.
    pub fn expect_gone(&self) -> Result<(), Failure> {
        let left = processes::wait_until_gone(&self.mark, LIMIT);
        expect(left.is_empty(), || format!("left over:\n{}", processes::describe(&left)))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        processes::kill(&processes::marked(&self.mark));
    }
}

/// A command with pipes that runs.
pub struct Running {
    /// The process.
    pub child: Child,
    out: Heard,
    err: Heard,
}

/// What a thread has read so far.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>);

impl Heard {
    /// Reads all of `source` in the background; any error ends it, as EIO does on a terminal whose other end is gone.
    pub fn of(mut source: impl Read + Send + 'static) -> Heard {
        let heard = Heard::default();
        let writer = heard.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                let mut bytes = writer.0.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&buffer[..count]);
            }
            writer.1.store(true, Ordering::Release);
        });
        heard
    }

    /// Whether it has come to its end.
    pub fn is_over(&self) -> bool {
        self.1.load(Ordering::Acquire)
    }

    /// All of it.
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for a text.
    pub fn wait_for(&self, wanted: &str) -> Result<(), Failure> {
        until(wanted, || self.text().contains(wanted))
            .map_err(|f| Failure(format!("{f}; there was {:?}", self.text())))
    }
}

impl Running {
    /// Starts a command with pipes.
    pub fn start(mut command: Command) -> Result<Running, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::of(own(command.spawn())?)
    }

    fn of(mut child: Child) -> Result<Running, Failure> {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let missing = || Failure("no pipe".into());
        Ok(Running {
            child,
            out: Heard::of(out.ok_or_else(missing)?),
            err: Heard::of(err.ok_or_else(missing)?),
        })
    }

    /// Writes to its standard input.
    pub fn say(&mut self, text: &str) -> Result<(), Failure> {
        match self.child.stdin.as_mut() {
            // A program that does not read its input may have ended.
            Some(stdin) => match stdin.write_all(text.as_bytes()) {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => own(Err(e)),
                _ => Ok(()),
            },
            None => fail("its standard input is closed already"),
        }
    }

    /// Waits for a text on its standard output.
    pub fn wait_for(&self, wanted: &str) -> Result<(), Failure> {
        self.out.wait_for(wanted).map_err(|f| Failure(format!("{f}; and {:?}", self.err.text())))
    }

    /// The same for its standard error.
    pub fn wait_for_error(&self, wanted: &str) -> Result<(), Failure> {
        self.err.wait_for(wanted)
    }

    /// Standard output and error so far.
    pub fn text(&self) -> (String, String) {
        (self.out.text(), self.err.text())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), Failure> {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).map_err(|e| Failure(format!("failed to signal: {e}")))
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) -> Result<(), Failure> {
        own(self.child.kill())?;
        own(self.child.wait()).map(drop)
    }

    /// Closes its standard input and waits for its end.
    pub fn finish(mut self) -> Result<Finished, Failure> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = own(self.child.try_wait())? {
                break status;
            }
            if Instant::now() > deadline {
                let text = self.text();
                let _ = self.child.kill();
                let _ = self.child.wait();
                return fail(format!("it did not end: {text:?}"));
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        // The readers come to the end of the pipes soon after, unless somebody else has them, too.
        let until = Instant::now() + QUIET;
        while !(self.out.is_over() && self.err.is_over()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(3));
        }
        let (out, err) = self.text();
        Ok(Finished { status, out, err })
    }
}
