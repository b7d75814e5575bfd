//! How often a machine may show a wrong token or login, where other machines can connect.

use protocol::transport::source;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong ones of one machine within [`WINDOW`]; then it is told to wait, and wrong ones are counted no more.
pub const MOST_WRONG: u32 = 10;
/// For how long a wrong one counts.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Machines that are remembered; where there are more, the one goes whose window began first.
const MOST_SOURCES: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Wrong {
    since: Instant,
    count: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<BTreeMap<IpAddr, Wrong>>);

impl Tries {
    /// For how long whoever shows a wrong one there is told to wait; None: it may try.
    pub fn closed(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = all.get(&source(from)).filter(|wrong| wrong.count >= MOST_WRONG)?;
        let passed = now.saturating_duration_since(wrong.since);
        WINDOW.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// It has shown a wrong one.
    pub fn wrong(&self, from: IpAddr, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = source(from);
        if !all.contains_key(&from) && all.len() >= MOST_SOURCES {
            let oldest = all.iter().min_by_key(|(_, wrong)| wrong.since).map(|(from, _)| *from);
            oldest.map(|oldest| all.remove(&oldest));
        }
        let wrong = all.entry(from).or_insert(Wrong { since: now, count: 0 });
        if now.saturating_duration_since(wrong.since) >= WINDOW {
            *wrong = Wrong { since: now, count: 0 };
        }
        wrong.count = wrong.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_may_be_wrong_a_few_times_a_minute() {
        let (tries, now) = (Tries::default(), Instant::now());
        let (one, beside): (IpAddr, IpAddr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..MOST_WRONG {
            assert!(tries.closed(one, now).is_none());
            tries.wrong(one, now);
        }
        assert_eq!(tries.closed(one, now), Some(WINDOW));
        // Whoever has one address of IPv6 has those beside it.
        assert!(tries.closed(beside, now).is_some() && tries.closed(other, now).is_none());
        let later = now + WINDOW;
        assert!(tries.closed(one, later).is_none());
        tries.wrong(one, later);
        assert!(tries.closed(one, later).is_none());
    }

    #[test]
    fn machines_that_are_remembered_are_few() {
        let (tries, now) = (Tries::default(), Instant::now());
        for number in 0..u32::try_from(MOST_SOURCES).unwrap() + 10 {
            tries.wrong(IpAddr::from(std::net::Ipv4Addr::from(number)), now);
        }
        assert_eq!(tries.0.lock().unwrap().len(), MOST_SOURCES);
    }
}
