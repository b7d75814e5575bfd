//! Everything that can be expected to go wrong in the engine.

use std::io;

use super::doing::Activity;
use super::graph::Pid;

/// Result of the engine's operations.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A kernel object that cannot be checkpointed, in words that fit after its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it is and why it cannot be dumped.
    pub what: String,
    /// What the user can do about it.
    pub way_out: String,
    /// It goes away by itself as the job runs on, most often within milliseconds.
    pub passes: bool,
}

impl Refusal {
    /// A refusal in two half sentences.
    pub fn new(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { what: what.into(), way_out: way_out.into(), passes: false }
    }

    /// A refusal of something that goes away by itself.
    pub fn passing(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { passes: true, ..Self::new(what, way_out) }
    }
}

/// An expected failure of a dump or a restore. The job itself is unharmed by a failed dump.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A descriptor holds something that cannot be checkpointed.
    #[error("process {pid} ({comm}), descriptor {fd}: {}; {}", refusal.what, refusal.way_out)]
    RefusedDescriptor {
        /// The process, as the job numbers it.
        pid: Pid,
        /// The process's name, as /proc/PID/comm has it.
        comm: String,
        /// The descriptor.
        fd: i32,
        /// Why.
        refusal: Refusal,
    },
    /// A process has a property that cannot be checkpointed.
    #[error("process {pid} ({comm}): {}; {}", refusal.what, refusal.way_out)]
    RefusedProcess {
        /// The process, as the job numbers it.
        pid: Pid,
        /// The process's name, as /proc/PID/comm has it.
        comm: String,
        /// Why.
        refusal: Refusal,
    },
    /// An object refused before the process that holds it is known (see [`EngineError::at`]).
    #[error("{}; {}", .0.what, .0.way_out)]
    Refused(Refusal),
    /// A system call failed.
    #[error("{call} {what}: {source}")]
    System {
        /// The system call or file operation.
        call: &'static str,
        /// Its object.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// /proc or the kernel said something that cannot be understood.
    #[error("{what} is not understood: {found}")]
    NotUnderstood {
        /// Where.
        what: String,
        /// What was found there.
        found: String,
    },
    /// A restart can't be rehearsed, which says nothing about the restart.
    #[error("a restart can't be rehearsed here: {0}")]
    NotRehearsable(String),
    /// A process or thread ended while the engine worked on it.
    #[error("process {0} ended meanwhile")]
    Gone(Pid),
    /// A copy of the job's memory was killed while it was read: by the kernel, which takes them first, or with the job.
    #[error(
        "a copy of the job's memory was killed, for want of memory or because the job has ended"
    )]
    CopyKilled,
    /// A step took longer than its limit.
    #[error("{what} took longer than {limit_ms} ms")]
    TooLong {
        /// The step and what it waited for.
        what: String,
        /// The limit.
        limit_ms: u64,
    },
    /// The image asks for something that this machine or this state of its files does not give.
    #[error("{what}; {way_out}")]
    Unfit {
        /// What does not fit.
        what: String,
        /// What the user can do.
        way_out: String,
    },
    /// Memory can't be filled while the job runs.
    #[error("{0}")]
    Filling(String),
    /// The store could not take the image.
    #[error(transparent)]
    Store(#[from] ckpt_store::StoreError),
    /// The store found the image damaged.
    #[error(transparent)]
    Damage(#[from] ckpt_store::Damage),
    /// The image contradicts itself.
    #[error("the image is damaged: {0}")]
    Damaged(String),
}

impl EngineError {
    /// A failed system call, from errno.
    pub fn last_os(call: &'static str, what: impl Into<String>) -> Self {
        Self::System { call, what: what.into(), source: io::Error::last_os_error() }
    }

    /// A failed system call.
    pub fn system(
        call: &'static str,
        what: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::System { call, what: what.into(), source: source.into() }
    }

    /// Something read from the kernel that has not the expected form.
    pub fn odd(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::NotUnderstood { what: what.into(), found: found.into() }
    }

    /// Names the process and descriptor in a refusal that does not name them yet.
    #[must_use]
    pub fn at(self, pid: Pid, comm: &str, fd: i32) -> Self {
        match self {
            Self::Refused(refusal) => {
                Self::RefusedDescriptor { pid, comm: comm.to_owned(), fd, refusal }
            }
            other => other,
        }
    }

    /// Names the process in a refusal that does not name it yet.
    #[must_use]
    pub fn of(self, pid: Pid, comm: &str) -> Self {
        match self {
            Self::Refused(refusal) => Self::RefusedProcess { pid, comm: comm.to_owned(), refusal },
            other => other,
        }
    }
}

impl EngineError {
    /// Whether the same dump may well succeed once the job has run on for a moment.
    pub fn passes(&self) -> bool {
        match self {
            Self::RefusedDescriptor { refusal, .. }
            | Self::RefusedProcess { refusal, .. }
            | Self::Refused(refusal) => refusal.passes,
            _ => false,
        }
    }
}

impl EngineError {
    /// A mapping of a process, as the job numbers it, that appeared between the survey and the freeze.
    pub fn rearranged(pid: Pid) -> Self {
        let what = format!("process {pid}: its memory was being rearranged");
        Self::Refused(Refusal::passing(what, "the next checkpoint will take it"))
    }

    /// The error, with the last thing that its thread had begun where it does not name what it was about itself.
    pub fn with_place(&self, last: Option<Activity>) -> String {
        match (self, last) {
            (
                Self::System { .. }
                | Self::NotUnderstood { .. }
                | Self::Gone(_)
                | Self::TooLong { .. },
                Some(last),
            ) => format!("{self} (last: {last})"),
            // Refusals name it, and what is wrong with an image or the store is no process's doing.
            _ => self.to_string(),
        }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
