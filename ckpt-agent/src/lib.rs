//! What runs on every node: the engine that freezes, dumps and restores processes from
//! outside, the store that keeps their images, and the job's init.

pub mod engine;
pub mod store;
