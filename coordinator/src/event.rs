//! What goes into the state machine of a job, and what comes out.

use crate::history::Entry;
use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ExitKind, InstanceId, Step,
};
pub use protocol::clock::Time;
use protocol::control::Reply;

/// Names a caller who waits for an answer; chosen by the caller of the machine.
pub type Ticket = u64;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The job's processes run. Once, and before everything else.
    Started {
        /// The checkpoint that it was restored from; None for a new job.
        restored_from: Option<CheckpointNumber>,
    },
    /// Nothing but the time.
    Clock,
    /// Somebody wants a checkpoint now.
    Request {
        /// Who waits for it.
        ticket: Ticket,
    },
    /// The job is to go on elsewhere: a checkpoint is taken as soon as one can be, in which it is not let
    /// go, and [`Action::Parked`] follows its commit. Where it fails, or the job is being ended, the job
    /// runs on, and this is over.
    Park,
    /// Somebody wants the job ended.
    Stop {
        /// Who waits for it.
        ticket: Ticket,
        /// Whether a checkpoint is to be taken first.
        checkpoint: bool,
    },
    /// The user or the system wants the job ended, now harder than the last time.
    Interrupt {
        /// The signal by which that was said.
        signal: i32,
        /// Whether the job has got it already, through its terminal.
        delivered: bool,
    },
    /// The user goes on working with a job that a terminal's signal did not end.
    InputAfterInterrupt,
    /// An agent's report.
    Agent {
        /// The agent.
        agent: InstanceId,
        /// What it says.
        event: AgentEvent,
    },
    /// An agent is gone for good, and with it the processes that it held.
    AgentLost {
        /// The agent.
        agent: InstanceId,
        /// Why, in one line.
        reason: String,
    },
    /// Answer to [`Action::DrainConsole`].
    ConsoleDrained {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Length of the job's log, with all in it that the job has written.
        log_length: u64,
    },
    /// The streams could not be emptied, or the log not be written.
    DrainFailed {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Why, in one line.
        reason: String,
    },
    /// Answer to [`Action::Append`] of a commit: it is durable.
    Recorded {
        /// The checkpoint.
        checkpoint: CheckpointNumber,
    },
    /// The log could not be appended to.
    RecordFailed {
        /// The checkpoint that the entry was about.
        checkpoint: CheckpointNumber,
        /// Why, in one line.
        reason: String,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Hand a command to an agent.
    Tell {
        /// The agent.
        agent: InstanceId,
        /// The command.
        command: AgentCommand,
    },
    /// Read the job's streams until they are empty, append what comes to the job's log, and
    /// answer with [`Event::ConsoleDrained`] or [`Event::DrainFailed`].
    DrainConsole {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// Append to the coordinator's log and make it durable. A commit is answered by
    /// [`Event::Recorded`]; any failure about a checkpoint by [`Event::RecordFailed`].
    Append(Entry),
    /// Answer somebody who waits.
    Reply {
        /// Who.
        ticket: Ticket,
        /// The answer.
        reply: Reply,
    },
    /// Tell the user and mark the log.
    Notify(Notice),
    /// The job stands still behind a committed checkpoint, from which it is to go on elsewhere.
    Parked {
        /// The checkpoint.
        checkpoint: CheckpointNumber,
    },
    /// The job is over; the last action of all.
    Finish(Outcome),
}

/// Steps of a checkpoint in order, and nanoseconds that each took on the coordinator's clock: from its
/// command to the last answer.
pub type StepTimes = Vec<(Step, u64)>;

/// What the user is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A checkpoint is committed.
    Committed {
        /// Its record.
        record: CommitRecord,
        /// What each step took.
        steps: StepTimes,
    },
    /// A checkpoint was given up; the job runs on.
    Abandoned {
        /// Its number.
        checkpoint: CheckpointNumber,
        /// The step that failed.
        step: Step,
        /// Why, in one line.
        reason: String,
        /// What each step took, the failed one last.
        steps: StepTimes,
        /// Whether the one before it was given up at the same step for the same reason: nothing new to tell.
        again: bool,
    },
    /// Something that the user should know and that stops nothing.
    Warning(String),
    /// The job has been sent a signal that is to end it.
    Ending {
        /// The signal.
        signal: i32,
    },
}

/// How it came to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job ended.
    Ended {
        /// How.
        status: ExitKind,
        /// Whether somebody had asked for the end.
        asked: bool,
    },
    /// The agent is gone and the job with it.
    Lost {
        /// Why, in one line.
        reason: String,
    },
}
