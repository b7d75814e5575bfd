//! A job that runs in the foreground, with its embedded coordinator and agent.

mod input;
mod joblog;
pub mod mpi;
mod output;
mod runner;
mod signals;
mod sink;
mod streams;
mod terminal;

pub use runner::{Begin, Session, run};
pub use streams::{launch_streams, window};
