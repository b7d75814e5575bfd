//! Keeps what encrypts jobs' traffic up to date, before any order follows that relies on it.

use protocol::cluster::agent::Rewire;

use super::Driver;
use crate::driver::host::addresses;
use crate::driver::traffic::{TrafficError, jobs_in};

impl Driver {
    /// Members, this machine's address or the coordinator's have changed. Before there was a connection to the coordinator
    /// nothing is known, and what an agent of before has left stays.
    pub(super) fn update_traffic(&mut self) {
        let (Some(traffic), Some(coordinator)) = (&self.parts.traffic, &self.coordinator) else {
            return;
        };
        let members = self.parts.peers.all();
        if members.is_empty() {
            return;
        }
        let own = coordinator.address;
        let coordinators = self.parts.identity.addresses();
        let jobs = jobs_in(&self.parts.folders);
        let updated = traffic.update(own, addresses(own.ip()), coordinators, &members, jobs);
        self.traffic_failure = updated.err().or(self.traffic_failure.take());
    }

    /// Why jobs' traffic can't be encrypted any more.
    pub fn traffic_failure(&mut self) -> Option<TrafficError> {
        self.traffic_failure.take()
    }

    /// Connections of jobs are made through what encrypts them.
    pub(super) fn encrypted(&self, mut connections: Vec<Rewire>) -> Vec<Rewire> {
        if let Some(traffic) = &self.parts.traffic {
            for to in connections.iter_mut().filter_map(|wanted| wanted.connect_to.as_mut()) {
                *to = traffic.way_to(*to);
            }
        }
        connections
    }
}
