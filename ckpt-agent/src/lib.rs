//! Acts on its own node.
