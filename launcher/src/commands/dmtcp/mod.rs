//! DMTCP: its processes as a job's engine, and its command names for the native one.
//!
//! - `doctor`: what an installed DMTCP can do here, and what it can't.
//! - `engine`, `records`: `ckptd run --engine dmtcp`, and what is kept of its checkpoints.
//! - `verify`: whether all images are whole.
//! - `computations`: what is kept of those that a cluster's coordinator serves.
//! - `names`: jobs for ckptd called as dmtcp_launch, dmtcp_restart, dmtcp_command or dmtcp_coordinator.
//!
//! All else of DMTCP is in `coordinator/dmtcp`. Here is what is made of the command's own jobs, logs and options.

mod computations;
mod doctor;
pub mod engine;
mod names;
mod records;
mod verify;

pub use computations::port;
pub use doctor::examine;
pub use names::called;
pub use verify::{unkept, verify};

use crate::failure::Failure;
use crate::jobs::JobFolder;

/// Refuses what can only be done with checkpoints of the native engine.
pub fn refuse(job: &JobFolder, what: &str) -> Result<(), Failure> {
    if job.record().settings.engine == crate::cli::EngineSetting::Dmtcp {
        let cause = format!(
            "its checkpoints are DMTCP's own images, in {}",
            records::images(job).folder().display()
        );
        return Err(Failure::of(format!("{what} {}", job.name()), cause));
    }
    Ok(())
}
