//! The agent: what runs on every node of a cluster. It acts on what `ckpt-node` decides, with the engine that freezes,
//! dumps and restores processes and the store that keeps their images.

#![forbid(unsafe_code)]

pub mod doctor;
pub mod driver;
pub mod images;
pub mod look;
pub mod port;
pub mod rewire;
