//! Safe wrappers of system calls that nix lacks or wraps otherwise.

pub mod close_range;
pub mod kcmp;
pub mod pidfd;
