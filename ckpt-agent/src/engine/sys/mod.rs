//! Safe wrappers of system calls that nix does not have. One file per call or family.

pub mod clone3;
pub mod futex;
pub mod signals;
