//! A command that runs on a node in the background.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{failure, until};
use crate::job::Failure;

/// Lines of a stream that a failure shows.
const SHOWN_LINES: usize = 200;

/// A command that was started with [`super::Node::spawn`]. Dropping it kills the command.
pub struct Background {
    what: String,
    enter: Child,
    log: PathBuf,
    ended: Option<i32>,
}

impl Background {
    pub(super) fn start(
        mut command: Command,
        what: String,
        log: &Path,
    ) -> Result<Background, Failure> {
        let file = |stream: &str| {
            File::create(log.with_extension(stream_name(log, stream)))
                .map_err(failure("make a log"))
        };
        let started =
            command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?).spawn();
        let enter = started.map_err(failure("start clusternode"))?;
        Ok(Background { what, enter, log: log.to_owned(), ended: None })
    }

    /// The command and where it runs.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Its process as the outside numbers it; None when it has ended or does not run yet.
    pub fn pid(&self) -> Option<i32> {
        let enter = self.enter.id();
        let children = fs::read_to_string(format!("/proc/{enter}/task/{enter}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Its exit status, 128 + N for signal N, if it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<i32>, Failure> {
        if self.ended.is_none() {
            let status = self.enter.try_wait().map_err(failure("wait for a command"))?;
            self.ended =
                status.map(|s| s.code().or(s.signal().map(|signal| 128 + signal)).unwrap_or(125));
        }
        Ok(self.ended)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not come in time; with the end of its output.
    pub fn wait(&mut self, limit: Duration) -> Result<i32, Failure> {
        let what = format!("{} ends", self.what);
        until(&what, limit, || self.ended()).map_err(|f| self.explain(&f))
    }

    /// Sends it a signal: to the process itself, nothing is said to its children.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = self.pid().ok_or_else(|| Failure(format!("{} does not run", self.what)))?;
        kill(Pid::from_raw(pid), signal).map_err(failure("send a signal"))
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        while let Ok(None) = self.ended() {
            // It may end by itself at any time, and is not there at the very first.
            let _ = self.signal(Signal::SIGKILL);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its standard output so far.
    pub fn output(&self) -> String {
        self.stream("out")
    }

    /// Its standard error so far.
    pub fn errors(&self) -> String {
        self.stream("err")
    }

    /// The files of its standard output and error.
    pub fn logs(&self) -> [PathBuf; 2] {
        ["out", "err"].map(|stream| self.log.with_extension(stream_name(&self.log, stream)))
    }

    fn stream(&self, stream: &str) -> String {
        let path = self.log.with_extension(stream_name(&self.log, stream));
        fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// Waits until its standard output contains a text.
    ///
    /// # Errors
    /// When it does not, or the command ends before.
    pub fn wait_for_output(&mut self, text: &str, limit: Duration) -> Result<(), Failure> {
        let what = format!("{} says \"{text}\"", self.what);
        let seen = until(&what, limit, || {
            let ended = self.ended()?;
            if self.output().contains(text) {
                return Ok(Some(()));
            }
            match ended {
                None => Ok(None),
                Some(status) => Err(Failure(format!(
                    "{} ended with {status} before it said \"{text}\"",
                    self.what
                ))),
            }
        });
        seen.map_err(|f| self.explain(&f))
    }

    /// A failure with the end of both streams.
    pub fn explain(&self, failure: &Failure) -> Failure {
        let tail = |title: &str, text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            if shown.is_empty() {
                return String::new();
            }
            format!("\n--- {title} of {}\n    {}", self.what, shown.join("\n    "))
        };
        let (out, err) = (self.output(), self.errors());
        Failure(format!("{failure}{}{}", tail("output", &out), tail("errors", &err)))
    }
}

/// `nodeK.N` has a number for an ending, which stays.
fn stream_name(log: &Path, stream: &str) -> String {
    let number = log.extension().unwrap_or_default().to_string_lossy();
    format!("{number}.{stream}")
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill();
    }
}
