//! When a battery is too low to stay in the cluster.

/// Looks at a low battery, one each heartbeat, from one announcement of a departure to the next, where the cluster could
/// not do without this node.
const LOOKS_UNTIL_AGAIN: u32 = 60;

/// How a battery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// In percent of what it holds when full.
    pub percent: u8,
    /// Whether the machine lives on it: nothing charges it.
    pub drains: bool,
}

/// Decides when a battery is too low to stay.
#[derive(Debug)]
pub struct BatteryGuard {
    leave_below: Option<u8>,
    /// Looks until it may be announced again.
    rest: u32,
}

impl BatteryGuard {
    /// One that leaves when less than `leave_below` percent are left; None: never.
    #[must_use]
    pub fn new(leave_below: Option<u8>) -> Self {
        Self { leave_below, rest: 0 }
    }

    /// Why the node is to leave the cluster now, if it is. To be asked once each heartbeat.
    pub fn look(&mut self, charge: Option<Charge>) -> Option<String> {
        let below = self.leave_below?;
        let Some(charge) = charge.filter(|charge| charge.drains && charge.percent < below) else {
            self.rest = 0;
            return None;
        };
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.rest = LOOKS_UNTIL_AGAIN;
        Some(format!("its battery has {} % left, less than {below} %", charge.percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_below_the_threshold_while_it_drains() {
        let at = |percent, drains| Some(Charge { percent, drains });
        let mut guard = BatteryGuard::new(Some(15));
        assert_eq!(guard.look(None), None);
        assert_eq!(guard.look(at(15, true)), None);
        assert_eq!(guard.look(at(14, false)), None);
        let reason = guard.look(at(14, true));
        assert_eq!(reason.as_deref(), Some("its battery has 14 % left, less than 15 %"));
        // Announced once a minute at most, and at once after it was charged in between.
        assert_eq!((0..LOOKS_UNTIL_AGAIN).find_map(|_| guard.look(at(13, true))), None);
        assert!(guard.look(at(13, true)).is_some());
        assert_eq!(guard.look(at(13, false)), None);
        assert!(guard.look(at(12, true)).is_some());
        let mut never = BatteryGuard::new(None);
        assert_eq!(never.look(at(0, true)), None);
    }
}
