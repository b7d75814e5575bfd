//! What runs on every node: the engine that freezes, dumps and restores processes from
//! outside, the store that keeps their images, and the job's init.

mod agent;
pub mod daemon;
pub mod doctor;
pub mod engine;
mod fault;
pub mod look;
pub mod rewire;
pub mod store;

pub use agent::{
    Adopted, Agent, AgentError, InstanceEvent, Launched, Rehearsed, RestoreOrder, Restored,
    rehearse, temporary::remove as remove_temporary,
};

pub use engine::graph::OuterEnd;
pub use engine::job_init::{ClusterOrder, INIT_NAME, UserOrder};
pub use engine::split::PartOrder;

/// Acts as a job's init, for a process started under [`INIT_NAME`]: to be called before any thread is
/// made. Returns the exit status.
pub fn run_init() -> u8 {
    u8::try_from(engine::job_init::run()).unwrap_or(1)
}
