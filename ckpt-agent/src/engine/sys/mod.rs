//! Safe wrappers of system calls that nix lacks or wraps otherwise. One file per call or family.

pub mod allocator;
pub mod clone3;
pub mod close_range;
pub mod cpu_features;
pub mod disconnect;
pub mod file_user;
pub mod futex;
pub mod kcmp;
pub mod limits;
pub mod memory_map;
pub mod message;
pub mod owner;
pub mod pidfd;
pub mod poll;
pub mod proc_net;
pub mod reap;
pub mod robust_list;
pub mod rounds;
pub mod schedule;
pub mod signals;
pub mod sock_diag;
pub mod sockopt;
pub mod spawn;
pub mod stat;
pub mod trial;
pub mod tty;
