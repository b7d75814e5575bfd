//! Controlling terminals and foreground process groups.

use std::os::fd::BorrowedFd;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{FileId, Graph, Pid};
use super::super::super::proc::read_text;
use super::super::super::sys::tty;
use super::super::Object;
use super::{DumpContext, Side};

/// A terminal that controls a session of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllingTerminal {
    /// The session; its leader does TIOCSCTTY.
    pub session: Pid,
    /// A description of the slave that some process of the job holds, if any: parked, and good for
    /// TIOCSCTTY.
    pub slave: Option<FileId>,
    /// Else the master: TIOCGPTPEER opens the slave.
    pub master: Option<FileId>,
    /// N of /dev/pts/N at the dump.
    pub index: u32,
    /// The foreground process group, for TIOCSPGRP once groups are made.
    pub foreground: Option<Pid>,
}

/// Every terminal that is some session's controlling one.
pub fn controlling_terminals(graph: &Graph) -> Vec<ControllingTerminal> {
    let terminals = || {
        graph.files.iter().enumerate().filter_map(|(index, file)| match &file.object {
            Object::Terminal(terminal) => Some((FileId(index as u32), terminal)),
            _ => None,
        })
    };
    terminals()
        .filter_map(|(id, terminal)| {
            let pair = terminal.pair.as_ref()?;
            let slave = terminals()
                .find(|(_, other)| other.index == terminal.index && other.side == Side::Slave)
                .map(|(slave, _)| slave);
            Some(ControllingTerminal {
                session: pair.session?,
                slave,
                master: (terminal.side == Side::Master).then_some(id),
                index: terminal.index,
                foreground: pair.foreground,
            })
        })
        .collect()
}

/// Session and foreground process group of a terminal, by its master, as the job numbers them.
pub(super) fn foreground(
    master: BorrowedFd<'_>,
    context: &DumpContext,
) -> Result<(Option<Pid>, Option<Pid>)> {
    let session = match tty::session(master) {
        Ok(session) => session,
        // Nobody's controlling terminal.
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => return Ok((None, None)),
        Err(error) => return Err(EngineError::system("ioctl TIOCGSID", "a terminal", error)),
    };
    let group = tty::foreground_group(master)
        .map_err(|error| EngineError::system("ioctl TIOCGPGRP", "a terminal", error))?;
    // A session of a process outside of the job (0: of another PID namespace) stays there.
    let Some(session) = job_number(session, "NSsid:", context) else { return Ok((None, None)) };
    Ok((Some(session), job_number(group, "NSpgid:", context)))
}

/// The job's number of a session or group: its leader may have ended, so the members are asked
/// (proc_pid_status(5)).
fn job_number(number: i32, field: &str, context: &DumpContext) -> Option<Pid> {
    if number <= 0 {
        return None;
    }
    if let Some(pid) = context.pids.get(&number).or_else(|| context.led.get(&number)) {
        return Some(*pid);
    }
    context.pids.keys().find_map(|host_pid| {
        let status = read_text(&format!("/proc/{host_pid}/status")).ok()??;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let numbers: Vec<i32> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        (numbers.first() == Some(&number)).then(|| numbers.last().copied()).flatten()
    })
}
