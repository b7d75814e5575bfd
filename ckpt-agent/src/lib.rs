//! Acts on its own node.

pub mod store;
