//! Safe wrappers of system calls that nix lacks or wraps otherwise. One file per call or family.

pub mod close_range;
pub mod kcmp;
pub mod limits;
pub mod pidfd;
pub mod robust_list;
pub mod schedule;
