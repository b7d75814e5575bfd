//! Safe wrappers of system calls that nix does not have. One file per call or family.

pub mod limits;
pub mod robust_list;
pub mod schedule;
