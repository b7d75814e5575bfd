//! Safe wrappers of system calls that nix does not have. One file per call or family.

pub mod message;
pub mod poll;
pub mod sock_diag;
pub mod sockopt;
pub mod tty;
