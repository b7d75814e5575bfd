//! The terminal that a job was started from.

use std::os::fd::OwnedFd;

use super::super::graph::Pid;

/// Who holds the master of the terminal that a job was started from.
#[derive(Debug)]
pub enum ConsoleTerminal {
    /// The launcher, which has made it: a copy.
    Launchers(OwnedFd),
    /// Somebody outside of the job, whom nobody asks: that of a job that was adopted.
    Strangers(StrangersTerminal),
}

/// A terminal of which the job holds the slave, and a stranger the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrangersTerminal {
    /// N of /dev/pts/N.
    pub index: u32,
    /// The job's session that it controls.
    pub session: Option<Pid>,
    /// The foreground process group, if it is of the job.
    pub foreground: Option<Pid>,
}
