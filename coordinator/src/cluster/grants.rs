//! Grants of instances that run for long: each order carries those that it takes, and they run out.

use super::ClusterMachine;
use super::event::Now;
use super::job::Job;
use super::shared::Shared;
use crate::settings::SECOND;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::grant::LIFETIME_MS;

/// From one renewal to the next, in nanoseconds: some may fail, as where a machine is not there.
const RENEWAL: u64 = LIFETIME_MS / 1000 * SECOND / 4;

impl ClusterMachine {
    /// Names the partners of all instances again, from time to time: with that come fresh grants to give them copies.
    pub(super) fn renew_grants(&mut self, now: Now) {
        let due = self.grants_due.get_or_insert(now.nanos.saturating_add(RENEWAL));
        if now.nanos < *due {
            return;
        }
        *due = now.nanos.saturating_add(RENEWAL);
        for job in self.jobs.values() {
            job.name_partners(&mut self.shared);
        }
    }
}

impl Job {
    fn name_partners(&self, shared: &mut Shared) {
        for (number, instance) in self.live.present() {
            let nodes = instance.partners.clone();
            shared.send(&instance.record.node, ToAgent::Partners { key: self.key(number), nodes });
        }
    }
}
