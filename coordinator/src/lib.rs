//! Decides; never touches a process.
//!
//! [`JobMachine`] is a state machine without I/O: time and events are handed in, actions come out.
//! [`cluster::ClusterMachine`] is the same for a whole cluster. [`History`] is what the coordinator's log says of a job, [`log`] that
//! log on disk. [`server`] is the I/O around the cluster's machine: the process that decides for all.

#![forbid(unsafe_code)]

mod checkpoint;
pub mod cluster;
pub mod event;
mod fault;
mod follower;
mod history;
mod journal;
pub mod log;
pub mod server;
mod settings;

pub use checkpoint::JobMachine;
pub use event::{Action, Event, Notice, Outcome, StepTimes, Ticket, Time};
pub use follower::{Followed, Follower};
pub use history::{CommittedState, End, Entry, History};
pub use journal::{Journal, MAX_LOG};
pub use settings::{Chosen, Departures, Interval, Limits, Settings};
