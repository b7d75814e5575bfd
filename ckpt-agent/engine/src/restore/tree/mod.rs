//! Rebuilds the process tree: numbers, parents, sessions, process groups, zombies.
//!
//! [`plan()`] works out from the recorded tree who forks whom, in which session, and which
//! temporary processes stand in for those that ended before the checkpoint; it touches nothing.
//! [`grow`] carries a plan out with real processes, in the job's init.

mod birth;
mod checked;
mod error;
mod inside;
mod life;
mod lineage;
mod number_table;
mod plan;
mod recorded;
#[cfg(test)]
mod simulator;
mod turns;
mod zombie;

pub use birth::{BirthError, Grown, Here, Hooks, grow};
pub use checked::plan;
pub use error::HelperError;
pub(in super::super) use life::end_with;
pub use plan::{Birth, GroupStep, Index, Plan, Role, Round};
pub use recorded::TreeError;
