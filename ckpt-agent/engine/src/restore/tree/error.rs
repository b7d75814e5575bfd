//! Why a helper did not become what the process was.

use std::io;

use super::super::super::error::EngineError;
use super::super::super::graph::Pid;

/// What a helper could not do. Init hears of it as a text, through the number table.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// A process, group or session that is to be there has no number here.
    #[error("process {0} is not there")]
    NotHere(Pid),
    /// A process that shares something with its parent has to be forked by another one.
    #[error(
        "process {0} shares descriptors or directories with its parent, which cannot fork it again"
    )]
    NotShared(Pid),
    /// A PID namespace within another one, where numbers can't be asked for.
    #[error(
        "process {0} was in a PID namespace of its own, which takes numbers that can be asked for"
    )]
    NotInside(Pid),
    /// A child was not forked.
    #[error("fork of process {pid}: {}", fork_refusal(source))]
    Fork {
        /// The child, as it was recorded.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call, or what it was to do.
        call: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It has another parent, group or session than it had.
    #[error("got {what} {found} instead of {wanted}")]
    Misplaced {
        /// Which of them.
        what: &'static str,
        /// The one that it has.
        found: Pid,
        /// The one that it had.
        wanted: Pid,
    },
    /// A zombie's end did not come about.
    #[error("signal {0} did not end it")]
    Outlived(i32),
    /// A zombie's wait(2) status is none.
    #[error("{0:#x} is not the status of an ended process")]
    NoStatus(i32),
    /// The image has no file of the process.
    #[error("process {0} has no image")]
    NoImage(Pid),
    /// Neither side of a session's terminal is in the image.
    #[error("the terminal of session {0} is lost")]
    NoTerminal(Pid),
    /// What the rest of the engine could not do in the helper.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl HelperError {
    /// For `map_err`: the call that failed.
    pub fn system<E: Into<io::Error>>(call: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |error| Self::System { call: call.into(), source: error.into() }
    }
}

fn fork_refusal(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EEXIST) => "the number is taken",
        Some(libc::EINVAL) => "the number is over /proc/sys/kernel/pid_max",
        Some(libc::EPERM) => "exact numbers need CAP_CHECKPOINT_RESTORE over the PID namespace",
        Some(libc::EAGAIN) => "the limit on processes is reached",
        _ => return error.to_string(),
    };
    why.to_owned()
}
