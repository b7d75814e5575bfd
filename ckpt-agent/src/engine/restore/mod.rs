//! Makes processes out of a checkpoint.

pub mod tree;
