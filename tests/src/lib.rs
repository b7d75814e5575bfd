//! The test harness: builds the programs under `tests/programs`, runs them under `ckptd` as
//! different users, kills everything, restarts, and tells what went wrong.

pub mod account;
pub mod bench;
pub mod build;
pub mod cluster;
pub mod collector;
pub mod huge_pages;
pub mod job;
pub mod network;
pub mod processes;
pub mod programs;
pub mod run_times;
pub mod scenario;
pub mod unnamespaced;
pub mod workspace;
