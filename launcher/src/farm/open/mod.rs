//! A farm whose tasks are submitted one by one.
//!
//! - `submission`: a task as it was submitted, in bytes.
//! - `spool`: all of them, on the disk.
//! - `gate`: who may add to them.
//! - `request`: what commands ask the worker for.
//! - `reach`: asking it, and starting it where there is none.
//! - `ends`: what has ended, by a journal that grows.
//! - `stopped`: that somebody has stopped it.
//! - `stuck`: tasks that could not be brought back, and why.

mod ends;
mod gate;
mod reach;
mod request;
mod spool;
mod stopped;
mod stuck;
mod submission;

pub use ends::Ends;
pub use gate::Gate;
pub use reach::{ask, begin, go_on, serve, until_gone};
pub use request::{MAX_REQUEST, Reply, Request, RunningTask, SOCKET};
pub use spool::{Spool, submit};
pub use stopped::{is_stopped, note_stop};
pub use stuck::{Stuck, forget_stuck, note_loose, note_stuck};
pub use submission::Submission;
