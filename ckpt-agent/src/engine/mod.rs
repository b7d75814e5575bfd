//! Freezes, dumps and restores process trees by the kernel's own interfaces.
//!
//! * [`graph`]: what a checkpoint says, without a word about machines;
//! * [`objects`]: one room per kind of kernel object, its dump and its restore side by side;
//! * [`split`]: which part of an instance goes where;
//! * [`inodes`]: files and memory whose content travels; [`folders`]: whole folders; [`locks`]: file locks;
//! * [`doing`]: what a thread of the engine is at, for errors, and where spans are and where they must not be;
//! * [`sys`]: safe wrappers of system calls; [`proc`]: what /proc says.
//!
//! `unsafe` is allowed below this module only.

pub mod arch;
pub mod doing;
pub mod dump;
pub mod error;
pub mod folders;
pub mod freeze;
pub mod graph;
pub mod inodes;
pub mod job_init;
pub mod late;
pub mod locks;
pub mod objects;
pub mod probe;
pub mod proc;
pub mod restore;
pub mod split;
pub mod sys;
pub mod trace;

pub use error::{EngineError, Refusal, Result};
