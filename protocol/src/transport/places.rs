//! Places for connections: so many in all, so many of one source, and some kept for those who are known.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many places there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimits {
    /// In all.
    pub all: usize,
    /// For one source.
    pub each: usize,
    /// Of all, for those alone who are known.
    pub kept: usize,
}

/// The places; clones are the same ones. `K`: what tells sources apart.
#[derive(Debug)]
pub struct Places<K> {
    limits: PlaceLimits,
    table: Arc<Mutex<Table<K>>>,
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self { limits: self.limits, table: Arc::clone(&self.table) }
    }
}

#[derive(Debug)]
struct Table<K> {
    next: u64,
    /// Ascending: the oldest comes first.
    taken: BTreeMap<u64, Taken<K>>,
}

#[derive(Debug)]
struct Taken<K> {
    source: K,
    known: bool,
    settled: bool,
    lost: Arc<Notify>,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub struct Place<K> {
    number: u64,
    table: Arc<Mutex<Table<K>>>,
    lost: Arc<Notify>,
}

fn lock<K>(table: &Mutex<Table<K>>) -> MutexGuard<'_, Table<K>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: PartialEq> Table<K> {
    fn count(&self, which: impl Fn(&Taken<K>) -> bool) -> usize {
        self.taken.values().filter(|taken| which(taken)).count()
    }

    /// Takes the oldest place that is not settled from its holder. Whether there is one.
    fn free(&mut self, which: impl Fn(&Taken<K>) -> bool) -> bool {
        let oldest = self.taken.iter().find(|(_, taken)| !taken.settled && which(taken));
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(taken) = self.taken.remove(&number) {
            taken.lost.notify_one();
        }
        true
    }
}

impl<K: PartialEq> Places<K> {
    /// So many.
    #[must_use]
    pub fn new(limits: PlaceLimits) -> Self {
        let table = Table { next: 0, taken: BTreeMap::new() };
        Self { limits, table: Arc::new(Mutex::new(table)) }
    }

    /// A place for a source. Where there is none, the oldest one goes that is not settled: of the same source first, never that of
    /// somebody known for a stranger. `None`: all are settled.
    #[must_use]
    pub fn enter(&self, source: K, known: bool) -> Option<Place<K>> {
        let PlaceLimits { all, each, kept } = self.limits;
        let mut table = lock(&self.table);
        let same = |taken: &Taken<K>| taken.source == source;
        let stranger = |taken: &Taken<K>| !taken.known;
        if table.count(same) >= each && !table.free(same) {
            return None;
        }
        let full = match known {
            true => table.count(|_| true) >= all,
            false => table.count(stranger) >= all.saturating_sub(kept),
        };
        if full && !table.free(stranger) && !(known && table.free(|_| true)) {
            return None;
        }
        table.next += 1;
        let (number, lost) = (table.next, Arc::new(Notify::new()));
        let taken = Taken { source, known, settled: false, lost: Arc::clone(&lost) };
        table.taken.insert(number, taken);
        Some(Place { number, table: Arc::clone(&self.table), lost })
    }
}

impl<K> Place<K> {
    /// Its holder has said what it is here for: the place is not taken from it any more.
    pub fn secure(&self) {
        if let Some(taken) = lock(&self.table).taken.get_mut(&self.number) {
            taken.settled = true;
        }
    }

    /// Waits until it is taken from its holder.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl<K> Drop for Place<K> {
    fn drop(&mut self) {
        lock(&self.table).taken.remove(&self.number);
    }
}

/// What tells addresses apart: whoever has one of IPv6 has the 2^64 around it.
#[must_use]
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places<u32> {
        Places::new(PlaceLimits { all: 6, each: 3, kept: 2 })
    }

    /// Whether a place has been taken from its holder.
    fn is_lost(place: &Place<u32>) -> bool {
        !lock(&place.table).taken.contains_key(&place.number)
    }

    #[test]
    fn one_source_takes_places_from_itself_alone() {
        let places = places();
        let other = places.enter(2, false).unwrap();
        let own: Vec<_> = (0..5).map(|_| places.enter(1, false).unwrap()).collect();
        assert_eq!(own.iter().map(is_lost).collect::<Vec<_>>(), [true, true, false, false, false]);
        assert!(!is_lost(&other));
        own.iter().for_each(Place::secure);
        assert!(places.enter(1, false).is_none(), "settled ones stay");
        drop(own);
        assert!(places.enter(1, false).is_some());
    }

    #[test]
    fn strangers_leave_room_for_those_who_are_known() {
        let places = places();
        let strangers: Vec<_> =
            (10..30).map(|source| places.enter(source, false).unwrap()).collect();
        assert_eq!(strangers.iter().filter(|place| !is_lost(place)).count(), 4);
        let known: Vec<_> = (1..7).map(|source| places.enter(source, true).unwrap()).collect();
        assert!(strangers.iter().all(is_lost) && !known.iter().any(is_lost));
        let late = places.enter(99, false).map(drop);
        assert!(late.is_some() && !known.iter().any(is_lost));
    }

    #[tokio::test]
    async fn the_holder_hears_of_it() {
        let places = Places::new(PlaceLimits { all: 1, each: 1, kept: 0 });
        let first = places.enter(1, false).unwrap();
        let second = places.enter(2, false).unwrap();
        first.lost().await;
        drop(first);
        assert!(!is_lost(&second));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
