//! Decides which of many tasks runs when; never touches a process.
//!
//! [`Farm`] is a state machine without I/O: time and events are handed in, actions come out. What it wants recorded is in
//! order, and from these records alone, with the checkpoints that are there, another one goes on.

#![forbid(unsafe_code)]

mod entry;
mod event;
mod farm;
mod flow;
mod graph;
mod order;
mod settings;
mod task;

pub use entry::{Entry, Try, Verdict};
pub use event::{Action, Event, Found, How, Outcome, Reach, What};
pub use farm::{Farm, Stage};
pub use flow::Plan;
pub use graph::{BadGraph, Graph, MOST_EDGES};
pub use order::{BadOrder, Order};
pub use settings::{Bad, Counted, Halt, Limits, Settings, Urgency};
pub use task::{Attempt, Task};
