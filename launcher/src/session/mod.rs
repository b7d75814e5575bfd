//! A job that runs in the foreground, with its embedded coordinator and agent.

mod input;
mod joblog;
mod keeper;
pub mod mpi;
mod output;
mod rehearsals;
mod runner;
pub mod signals;
pub mod sink;
pub mod streams;
pub mod terminal;

pub use keeper::{NAME as KEEPER_NAME, keep as keep_terminal};
pub use runner::{Begin, Session, run};
pub use streams::{launch_streams, window};
