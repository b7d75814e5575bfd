//! A job that runs in the foreground, with its embedded coordinator and agent.

mod attached;
pub mod callers;
pub mod detached;
mod input;
pub mod joblog;
mod output;
mod rehearsals;
mod runner;
pub mod signals;
pub mod sink;
pub mod streams;
pub mod terminal;
mod terminal_guard;
pub mod typing;

pub use runner::{Begin, Session, run};
pub use streams::{launch_streams, streams_of_nobody, window};
pub use terminal_guard::{NAME as TERMINAL_GUARD_NAME, keep as keep_terminal};
