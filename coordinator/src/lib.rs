//! Decides; never touches a process.
//!
//! [`JobMachine`] is a state machine without I/O: time and events are handed in, actions come out.
//! [`History`] is what the coordinator's log says of a job, [`log`] that log on disk.

pub mod event;
mod history;
pub mod log;
mod machine;
mod settings;

pub use event::{Action, Event, Notice, Outcome, StepTimes, Ticket, Time};
pub use history::{CommittedState, End, Entry, History};
pub use machine::JobMachine;
pub use settings::{Interval, Limits, Settings};
