//! Freezes, dumps and restores process trees by the kernel's own interfaces.
//!
//! * [`session`]: one job or instance on this machine, from its start to its end: what users of this crate talk to;
//! * [`graph`]: what a checkpoint says, without a word about machines;
//! * [`objects`]: one handler per kind of kernel object, its dump and its restore side by side;
//! * [`split`]: which part of an instance goes where;
//! * [`inodes`]: files and memory whose content travels; [`folders`]: whole folders; [`locks`]: file locks;
//! * [`demand`]: memory that is filled while a restored job runs already;
//! * [`doing`]: what a thread of the engine is at, for errors, and where spans are and where they must not be;
//! * [`sys`]: safe wrappers of system calls; [`proc`]: what /proc says.
//!
//! `unsafe` is allowed in this crate only.

mod aio;
pub mod arch;
mod control_groups;
pub mod demand;
pub mod doing;
pub mod dump;
pub mod error;
pub mod fault;
mod file_check;
pub mod folders;
pub mod freeze;
pub mod graph;
pub mod inodes;
pub mod interfaces;
pub mod ipc;
pub mod job_init;
pub mod late;
mod leases;
mod local_descriptors;
pub mod locks;
mod names;
pub mod objects;
pub mod probe;
pub mod proc;
pub mod restore;
pub mod session;
pub mod split;
pub mod sys;
pub mod trace;
pub mod tracking;

pub use error::{EngineError, Refusal, Result};

pub use graph::OuterEnd;
pub use job_init::{INIT_NAME, InstanceOrder, UserOrder};
pub use session::{
    Adoptable, Rehearsed, RestoreOrder, Session, SessionError, Started, TakenOver, living_stranger,
    rehearse, temporary::remove as remove_temporary, try_to_adopt,
};
pub use split::PartOrder;

/// Acts as a job's init, for a process started under [`INIT_NAME`]: to be called before any thread is
/// made. Returns the exit status.
pub fn run_init() -> u8 {
    u8::try_from(job_init::run()).unwrap_or(1)
}
