//! The run times of MPI: how their launchers are recognised, and what they are told so that their daemons start under
//! the agents of a cluster and their ranks can be separated.
//!
//! - [`recognise`](recognise()): whose launcher a program is.
//! - [`separate`]: ranks without shared memory.
//! - [`group`]: ranks with shared memory in groups, each below a daemon of its own.
//! - [`hosts`]: what launchers are told of the cluster's nodes.
//! - [`own`]: what users set themselves.
//! - [`launch`]: daemons by `ckptd rsh`, on the cluster's nodes.
//! - [`profile`]: what is known of each run time.
//! - [`tags`]: which rank has written a line, where the run time tells that.
//! - [`report`]: the same for `ckptd doctor --mpi`.

mod group;
mod hosts;
mod launch;
mod own;
mod profile;
mod recognise;
pub mod report;
mod separate;
pub mod tags;
mod version;

pub use group::{GroupError, Sharing};
pub use launch::{launch, launch_within};
pub use recognise::{Found, find_program, recognise, why_not_found};
pub use separate::{Reach, separate, separate_within};

/// Run times whose launchers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTime {
    /// Open MPI before 5, whose daemons are orteds.
    OpenMpi4,
    /// Open MPI 5 and newer, whose daemons are PRRTE's, and PRRTE by itself.
    OpenMpi5,
    /// MPICH and what is made from it: hydra.
    Mpich,
    /// Intel MPI: a hydra of its own.
    IntelMpi,
}

impl RunTime {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenMpi4, Self::OpenMpi5, Self::Mpich, Self::IntelMpi];
}

/// A setting by an environment variable.
type Setting = (&'static str, &'static str);
