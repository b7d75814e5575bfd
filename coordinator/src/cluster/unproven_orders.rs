//! How many lines of the audit log orders may fill that a member gives for users for whom it does not speak. Each order of
//! others is noted; of these so many, then some a minute, and how many there were besides.

use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// In nanoseconds: after so long more are noted, and what was left out is told of.
const MINUTE: u64 = 60_000_000_000;

/// Members whose word did not count, lately.
#[derive(Debug, Default)]
pub(super) struct UnprovenOrders(BTreeMap<(NodeName, Kind), Tally>);

/// Kinds of such orders. Those of one kind must not keep those of another from being obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It is refused whatever it is about.
    Refused,
    /// It may come to something, as a login.
    Possible,
    /// So may this one, which the machine's owner gives: to take the machine away.
    Owners,
}

impl Kind {
    /// Orders that are noted one after the other, and then in each minute.
    fn allowance(self) -> (u64, u64) {
        match self {
            Self::Refused => (30, 1),
            Self::Possible | Self::Owners => (200, 30),
        }
    }
}

#[derive(Debug)]
struct Tally {
    /// Orders that may still be noted.
    left: u64,
    /// Since when one more is awaited, in nanoseconds.
    since: u64,
    /// Orders that were not noted, and since when.
    left_out: u64,
    first: u64,
}

impl UnprovenOrders {
    /// Whether an order of that member's is noted. One that is not is counted.
    pub(super) fn is_noted(&mut self, now: u64, node: &NodeName, kind: Kind) -> bool {
        let (burst, _) = kind.allowance();
        let full = Tally { left: burst, since: now, left_out: 0, first: now };
        let tally = self.0.entry((node.clone(), kind)).or_insert(full);
        tally.refill(now, kind);
        if tally.left > 0 {
            tally.left -= 1;
            return true;
        }
        if tally.left_out == 0 {
            tally.first = now;
        }
        tally.left_out = tally.left_out.saturating_add(1);
        false
    }

    /// How many orders of which members were left out, a minute after the first of them.
    pub(super) fn due(&mut self, now: u64) -> Vec<(NodeName, u64)> {
        let mut due = Vec::new();
        self.0.retain(|(node, kind), tally| {
            tally.refill(now, *kind);
            if tally.tells_at().is_some_and(|at| at <= now) {
                due.push((node.clone(), std::mem::take(&mut tally.left_out)));
            }
            tally.left < kind.allowance().0 || tally.left_out > 0
        });
        due
    }

    /// When [`due`](Self::due) has something to tell, in nanoseconds.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.0.values().filter_map(Tally::tells_at).min()
    }
}

impl Tally {
    fn refill(&mut self, now: u64, kind: Kind) {
        let (burst, each) = kind.allowance();
        let minutes = now.saturating_sub(self.since) / MINUTE;
        self.left = self.left.saturating_add(minutes.saturating_mul(each)).min(burst);
        self.since += minutes * MINUTE;
    }

    fn tells_at(&self) -> Option<u64> {
        (self.left_out > 0).then(|| self.first.saturating_add(MINUTE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u64 = 30;

    #[test]
    fn a_member_that_gives_orders_for_others_without_end_fills_two_lines_a_minute() {
        let (mut orders, node, other) = (UnprovenOrders::default(), name("a"), name("b"));
        let noted = |orders: &mut UnprovenOrders, now, node, times: u64| {
            (0..times).filter(|_| orders.is_noted(now, node, Kind::Refused)).count() as u64
        };
        assert_eq!(noted(&mut orders, 0, &node, 1000), BURST);
        assert_eq!(noted(&mut orders, 0, &other, 5), 5, "others are not concerned");
        assert!(orders.is_noted(0, &node, Kind::Owners), "nor is who may take the machine away");
        assert_eq!(orders.deadline(), Some(MINUTE));
        assert!(orders.due(MINUTE - 1).is_empty());
        assert_eq!(orders.due(MINUTE), [(node.clone(), 1000 - BURST)]);
        assert_eq!(orders.deadline(), None);
        let (mut each, mut told) = (0, 0);
        for second in 60..3660 {
            let now = second * MINUTE / 60;
            each += noted(&mut orders, now, &node, 10);
            told += orders.due(now).len();
        }
        assert!(each <= 61 && told <= 60, "{each} {told}");
        // Who has been quiet is as one that is new, and nothing is remembered of it.
        assert_eq!(orders.due(200 * MINUTE).len(), 1);
        assert!(orders.0.is_empty());
        assert_eq!(noted(&mut orders, 200 * MINUTE, &node, 1000), BURST);
    }

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }
}
