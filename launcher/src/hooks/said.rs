//! Where the process that calls commands says something: to the user, and in the job's log.

use super::queue::Call;
use crate::cluster::Cluster;
use protocol::cluster::client::Ask;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Lines that wait to be written; more are left out.
const MOST_WAITING: usize = 256;

/// How long the last lines may take on their way to the log.
const LAST: Duration = Duration::from_secs(3);

/// Who writes the job's log.
#[derive(Debug)]
pub enum Log {
    /// The launcher, which reads them on standard output.
    Launcher,
    /// The coordinator.
    Cluster(Cluster, String),
}

impl Log {
    /// Writes all that comes. Neither a launcher that stands still nor a cluster without a coordinator is waited for by
    /// anybody else.
    fn write(&self, lines: &Receiver<String>) {
        while let Ok(text) = lines.recv() {
            match self {
                Self::Launcher => {
                    let _ = writeln!(io::stdout(), "{text}");
                }
                Self::Cluster(cluster, job) => {
                    let ask = Ask::Note { job: job.clone(), text };
                    // It is in none then, as ckptd's own lines are not.
                    let _ = cluster.ask("write to the job's log", &ask);
                }
            }
        }
    }
}

/// Lines that somebody else writes, so that nobody has to wait for that.
#[derive(Debug)]
struct Lines {
    sender: SyncSender<String>,
    /// Hangs up when all is written.
    written: Receiver<()>,
}

impl Lines {
    fn start(
        name: &str,
        write: impl FnOnce(&Receiver<String>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, received) = sync_channel(MOST_WAITING);
        let (done, written) = channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            write(&received);
            drop(done);
        })?;
        Ok(Self { sender, written })
    }

    fn add(&self, line: String) {
        let _ = self.sender.try_send(line);
    }

    fn finish(self) {
        drop(self.sender);
        let _: Result<(), RecvTimeoutError> = self.written.recv_timeout(LAST);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Said {
    /// Nobody sees standard error.
    alone: bool,
    log: Lines,
    shown: Lines,
}

impl Said {
    /// Begins to write.
    ///
    /// # Errors
    /// Where there is no thread for it.
    pub fn start(log: Log, alone: bool) -> io::Result<Self> {
        let log = Lines::start("log", move |lines| log.write(lines))?;
        let shown = Lines::start("shown", |lines| lines.iter().for_each(|line| show(&line)))?;
        Ok(Self { alone, log, shown })
    }

    /// What the user should know.
    pub fn warn(&self, text: &str) {
        let line = format!("warning: {text}");
        self.shown.add(line.clone());
        self.log.add(line);
    }

    /// What a command has said: for the user; in the log where nobody is there to see it.
    pub fn pass_on(&self, call: &Call, lines: &[String]) {
        for line in lines {
            let line = format!("on {}: {line}", call.kind.name());
            self.shown.add(line.clone());
            if self.alone {
                self.log.add(line);
            }
        }
    }

    /// The end: what is on its way is written, or takes too long.
    pub fn finish(self) {
        self.shown.finish();
        self.log.finish();
    }
}

fn show(line: &str) {
    // The terminal may be raw for the job's sake.
    let end = if io::stderr().is_terminal() { "\r\n" } else { "\n" };
    // Nobody may hear it, and the job is not to suffer by that.
    let _ = write!(io::stderr(), "ckptd: {line}{end}");
}
