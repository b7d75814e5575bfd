//! The job of the demonstration: 'ckptd run' on the first machine, and what it says.

use super::error::DemoError;
use super::machines::Machine;
use super::{PART, apart, program};
use crate::tables::printable;
use protocol::agent::ExitKind;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Its name.
pub const NAME: &str = "queens";
/// Workers on each machine.
pub const WORKERS: usize = 2;
/// How long anything of it may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What lines of ckptd's own begin with.
const OF_CKPTD: &str = "ckptd: ";
/// The longest line of it that is read, in bytes.
const MAX_LINE: u64 = 4096;

/// What is said on standard output or error, line by line.
enum Said {
    Job(String),
    Errors(String),
}

/// The job.
pub struct Job {
    /// How it was started, but for the folder.
    pub command: String,
    run: Child,
    lines: Receiver<Said>,
    last: String,
    errors: String,
}

impl Job {
    /// Starts it on these machines.
    ///
    /// # Errors
    /// Where there can be no such process.
    pub fn start(machines: &[Machine]) -> Result<Self, DemoError> {
        let failed = |error: io::Error| DemoError::system("run the job")(error);
        let first =
            machines.first().ok_or_else(|| failed(io::Error::other("there is no machine")))?;
        let mut command = apart()?;
        let own = command.get_program().to_owned();
        command.arg("--dir").arg(&first.folder);
        let run = ["run", "--name", NAME, "--interval", "0", "--"];
        let workers = machines.iter().flat_map(|machine| vec![machine.name.as_str(); WORKERS]);
        let program: Vec<&str> = [PART, "queens"].into_iter().chain(workers).collect();
        command.args(run).arg(own).args(&program);
        let told = format!("ckptd {} ckptd {}", run.join(" "), program.join(" "));
        // Every machine has it.
        command.current_dir("/").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = command.spawn().map_err(failed)?;
        let (sender, lines) = channel();
        read(run.stdout.take(), sender.clone(), Said::Job);
        read(run.stderr.take(), sender, Said::Errors);
        Ok(Self { command: told, run, lines, last: String::new(), errors: String::new() })
    }

    /// Shows what it says until it has said that.
    ///
    /// # Errors
    /// Where it ends before, or that takes too long.
    pub fn shows_until(&mut self, text: &str, what: &'static str) -> Result<(), DemoError> {
        let until = Instant::now() + LIMIT;
        while self.shows(until, what)? {
            if self.last.contains(text) {
                return Ok(());
            }
        }
        let status = self.status()?;
        let said =
            if self.errors.is_empty() { String::new() } else { format!(": {}", self.errors) };
        Err(DemoError::Ended { status, what, said })
    }

    /// Shows the rest of what it says; fails unless the last of it is the right answer, and its status 0.
    ///
    /// # Errors
    /// What else it is; where it takes too long.
    pub fn must_be_right(&mut self) -> Result<(), DemoError> {
        let until = Instant::now() + LIMIT;
        while self.shows(until, "the job did not end")? {}
        let (status, right) = (self.status()?, program::answer());
        match status == 0 && self.last == right {
            true => Ok(()),
            false => Err(DemoError::Wrong { said: self.last.clone(), status, right }),
        }
    }

    /// Shows its next line; whether there was one.
    fn shows(&mut self, until: Instant, what: &'static str) -> Result<bool, DemoError> {
        let left = until.saturating_duration_since(Instant::now());
        let line = match self.lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {
                return Err(DemoError::Late { what, limit_s: LIMIT.as_secs() });
            }
        };
        self.show(line).map(|()| true)
    }

    /// Shows what it has said by now.
    ///
    /// # Errors
    /// Where that can't be written.
    pub fn shows_what_came(&mut self) -> Result<(), DemoError> {
        while let Ok(line) = self.lines.try_recv() {
            self.show(line)?;
        }
        Ok(())
    }

    fn show(&mut self, said: Said) -> Result<(), DemoError> {
        let line = match said {
            Said::Job(line) => {
                self.last.clone_from(&line);
                format!("   | {line}\n")
            }
            Said::Errors(line) => {
                self.errors.clone_from(&line);
                // The job's own, and what ckptd says of it.
                let edge = if line.starts_with(OF_CKPTD) { "" } else { "| " };
                format!("   {edge}{line}\n")
            }
        };
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
    }

    fn status(&mut self) -> Result<u8, DemoError> {
        let status = self.run.wait().map_err(DemoError::system("wait for the job"))?;
        Ok(ExitKind::from(status).shell_status())
    }
}

/// Hands on what comes line by line; the end of it is that of the sender.
fn read(from: Option<impl Read + Send + 'static>, to: Sender<Said>, said: fn(String) -> Said) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            match from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            let line = printable(String::from_utf8_lossy(&line).trim_end());
            if to.send(said(line)).is_err() {
                return;
            }
        }
    });
}
