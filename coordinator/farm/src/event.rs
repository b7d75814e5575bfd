//! What happens to a farm, and what it wants done.

use crate::entry::Entry;
use crate::settings::Limits;
use crate::task::{Attempt, Task};

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed; the first one begins the run.
    Clock,
    /// A task's process has ended.
    Ended(Task, How),
    /// A task could not be begun now, for a reason that passes: no room, no processes.
    NotNow(Task),
    /// A task could not be brought back from its checkpoint.
    NotRestored(Task),
    /// No checkpoints can be taken of a task, or no more.
    NotKept(Task),
    /// What a [`Action::Save`] has come to.
    Saved(Task, bool),
    /// A task has written more than it may.
    WroteTooMuch(Task),
    /// Whether records can be written.
    Recordable(bool),
    /// Somebody wants the run to end; a second time: at once, also if something can't be recorded.
    Interrupt(Reach),
    /// There is one more task, of an open farm; its number is the next one.
    Added(Limits),
    /// Somebody wants a task of an open farm to end, or not to begin. Nothing comes of it while the farm is brought to its end.
    Cancel(Task),
    /// Somebody wants a task of an open farm to be run again, which has failed or was cancelled. As above.
    Retry(Task),
    /// So many tasks run at a time from now on.
    Slots(usize),
    /// No more tasks come to an open farm: it is over once all have ended.
    Close,
}

/// Whom an interrupt has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The farm alone: a terminal's keys.
    Farm,
    /// It may have been all processes, as at a reboot or at the end of a service: tasks, too, were asked to end, and may do so
    /// with any status.
    All,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself, with this status.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
    /// By itself with status 0, without a file that it should have written.
    NoOutput,
}

impl How {
    /// Whether that may be the doing of somebody who ends everything: a reboot, a service's or a batch job's end. A shell
    /// tells a signal of its own child by a status.
    #[must_use]
    pub fn may_be_a_stop(self) -> bool {
        /// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM.
        const STOPS: [i32; 5] = [1, 2, 3, 9, 15];
        match self {
            Self::Exited(status) => STOPS.contains(&(i32::from(status) - 128)),
            Self::Signalled(signal) => STOPS.contains(&signal),
            // A task that was asked to end in the middle of its work says 0, too.
            Self::NoOutput => true,
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a task from its beginning.
    Begin(Task, Attempt),
    /// Start a task from its newest checkpoint.
    Restore(Task, Attempt),
    /// Take a checkpoint of a task now, and from now on one in each interval.
    Keep(Task),
    /// Take a last checkpoint of a task, and end it if that has been committed.
    Save(Task),
    /// Tell that a task's last checkpoint has taken too long: nobody waits for it any more.
    Unsaved(Task),
    /// Ask a task to end.
    Terminate(Task),
    /// End a task with all that it has started.
    Kill(Task),
    /// Remove the checkpoints of a task's try: they are of no use any more.
    Forget(Task, Attempt),
    /// Record it. All that follows may count on that.
    Record(Entry),
    /// The run is over.
    Finish(Outcome),
}

/// What was found of a task when a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The task.
    pub task: Task,
    /// Which time it was tried.
    pub attempt: Attempt,
    /// What there is.
    pub what: What,
}

/// What there is of a task's try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A checkpoint from which it can go on.
    Checkpoint,
    /// Word that it has ended by itself with this status, which nobody has recorded.
    End(u8),
    /// Nothing of use.
    Nothing,
}

/// How a run stands at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Tasks that have ended with status 0, in all parts of the run.
    pub right: u32,
    /// Tasks that have ended otherwise, in all parts of the run.
    pub failed: u32,
    /// Tasks that are not run since one has failed that they wait for, in all parts of the run.
    pub skipped: u32,
    /// Tasks that could not be brought back from their checkpoints.
    pub stuck: u32,
    /// All other tasks that have not ended.
    pub left: u32,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Whether [`Halt`](crate::Halt) has ended it.
    pub halted: bool,
}
