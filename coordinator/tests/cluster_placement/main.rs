//! What a plan promises, over random clusters and images.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod losses;
mod newcomers;
mod rig;
mod speeds;
