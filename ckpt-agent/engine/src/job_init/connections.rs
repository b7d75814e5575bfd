//! Connections that the agent has made for an instance.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, RelayEnd};
use super::channel::Channel;
use super::instance::Connection;

/// Connections that the agent has made.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) made: BTreeMap<FileId, OwnedFd>,
    /// Other ends of those whose peers have departed.
    pub(super) absent: Vec<(RelayEnd, OwnedFd)>,
}

impl Connections {
    /// Those that the agent sends along with its order.
    pub(super) fn receive(channel: &Channel, count: u32) -> Result<Self> {
        let mut connections = Self::default();
        for _ in 0..count {
            let (Connection { file, absent }, descriptors) = channel
                .receive()
                .map_err(|error| EngineError::odd("connection", error.to_string()))?;
            let descriptor = descriptors
                .into_iter()
                .next()
                .ok_or_else(|| EngineError::odd("connection", "no descriptor"))?;
            match absent {
                Some(end) => connections.absent.push((end, descriptor)),
                None => drop(connections.made.insert(file, descriptor)),
            }
        }
        Ok(connections)
    }
}
