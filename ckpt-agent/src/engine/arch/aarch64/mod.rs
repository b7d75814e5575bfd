//! 64-bit ARM.
