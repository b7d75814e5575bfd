//! Takes an instance apart: which of its processes go where, and what becomes of the kernel objects
//! between them. Pure: every machine that brings back a part works out the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::graph::Pid;

/// Which part of an instance is to be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOrder {
    /// The part of every living process; zombies and stand-ins follow their parents and children.
    pub assignment: BTreeMap<Pid, u32>,
    /// Which part is wanted.
    pub part: u32,
    /// Prefix of the names of new relays: unique for every restore of an instance.
    pub origin: String,
}
