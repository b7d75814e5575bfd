//! The addresses of a job's logical nodes where they differ from those of the machines on which its
//! processes are. Pushed to every instance, so that no call of a process waits for a question.

use super::NodeName;
use crate::compact::Shared;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// What has moved. Of logical nodes that are where they were nothing is said: empty, nothing has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    /// Logical nodes that are, at least in part, elsewhere, or have listeners that are.
    pub nodes: Shared<Vec<LogicalAddresses>>,
}

/// One logical node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalAddresses {
    /// Its name, which is the host name that its processes see.
    pub name: NodeName,
    /// The addresses by which the job knows it.
    pub addresses: Vec<IpAddr>,
    /// The machines that have instances of it.
    pub places: Vec<Place>,
    /// Its listening TCP sockets, as far as they have to be known; of two for one address the later counts.
    pub listeners: Vec<KnownListener>,
}

/// Where instances of a logical node are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine.
    pub machine: NodeName,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The ports from which these instances connect: a connection from this machine and one of them comes
    /// from this logical node. None: it is the logical node's own machine.
    pub source: Option<PortRange>,
}

/// Neighbouring ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// How many.
    pub count: u16,
}

impl PortRange {
    /// Whether a port is one of them.
    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        port >= self.first && port - self.first < self.count
    }
}

/// A listening TCP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownListener {
    /// As the job knows it; an unspecified address stands for all of the logical node's.
    pub logical: SocketAddr,
    /// The machine that has it.
    pub machine: NodeName,
    /// Its address there.
    pub actual: SocketAddr,
    /// It takes no connections by IPv4.
    pub v6_only: bool,
    /// It is known by the machine's own addresses.
    #[serde(default)]
    pub plain: bool,
}
