//! Which readings of logs the audit log tells of already.

use protocol::cluster::audit::Order;
use std::collections::BTreeSet;

/// How many readings of logs are remembered as noted: when there are more, all are noted anew.
const MAX_NOTED: usize = 1000;

/// Readings of logs that were noted since this coordinator began. Whoever follows a log, or reads it in parts, asks again
/// and again: that is noted once. A reading from the beginning is noted each time.
#[derive(Debug, Default)]
pub(super) struct NotedReadings(BTreeSet<Order>);

impl NotedReadings {
    /// Whether this one is new, which it is no more from now on.
    pub(super) fn is_new(&mut self, order: &Order) -> bool {
        if self.0.contains(order) {
            return false;
        }
        if self.0.len() >= MAX_NOTED {
            self.0.clear();
        }
        self.0.insert(order.clone())
    }
}
