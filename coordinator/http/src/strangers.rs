//! Connections over which nobody has shown a secret yet. Everybody on the machine can make them, so they have few places, and
//! whoever comes when all are taken is given one of the machine that has most, that of the one that has been there longest: those who
//! know the secret come in, unless a crowd comes from their own machine before they have said it, and stay.

use protocol::transport::source;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The connections of strangers.
#[derive(Debug)]
pub struct Strangers {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// The one that has been there longest comes first.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    source: IpAddr,
    leave: oneshot::Sender<()>,
}

impl Inside {
    /// Takes the place of one of the machine that has most.
    fn make_room(&mut self) -> Option<Waiting> {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.source).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        // Of several such machines, that of the one that has been there longest.
        let oldest =
            self.waiting.iter().position(|waiting| counts.get(&waiting.source) == Some(&most))?;
        self.waiting.remove(oldest)
    }
}

/// A connection among them, until it is known or ends.
#[derive(Debug)]
pub struct Stranger {
    all: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// With so many places.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inside: Mutex::default() })
    }

    /// Takes a place. What is returned besides is ready once another needs it.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> (Stranger, oneshot::Receiver<()>) {
        let (leave, left) = oneshot::channel();
        let mut inside = self.inside();
        while inside.waiting.len() >= self.most {
            let Some(longest) = inside.make_room() else { break };
            // It may have ended just now.
            let _ = longest.leave.send(());
        }
        let number = inside.next;
        inside.next += 1;
        inside.waiting.push_back(Waiting { number, source: source(from), leave });
        (Stranger { all: Arc::clone(self), number }, left)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No stranger any more. Its sender is gone then, which is no message to leave.
    fn forget(&self, number: u64) {
        self.inside().waiting.retain(|waiting| waiting.number != number);
    }
}

impl Stranger {
    /// It has shown a secret.
    pub fn is_known(&self) {
        self.all.forget(self.number);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.forget(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_machine_takes_places_from_itself() {
        let strangers = Strangers::new(3);
        let (_honest, mut honest_left) = strangers.enter("192.0.2.1".parse().unwrap());
        let crowd: Vec<_> = (0..9).map(|_| strangers.enter(HERE)).collect();
        assert!(honest_left.try_recv().is_err());
        let left = crowd.into_iter().map(|(_stranger, mut left)| left.try_recv().is_ok());
        assert_eq!(left.filter(|left| *left).count(), 7);
    }

    #[test]
    fn who_is_known_keeps_its_place() {
        let strangers = Strangers::new(2);
        let (known, mut known_left) = strangers.enter(HERE);
        known.is_known();
        let (_first, mut first_left) = strangers.enter(HERE);
        let (second, mut second_left) = strangers.enter(HERE);
        let (_third, mut third_left) = strangers.enter(HERE);
        assert_eq!(first_left.try_recv(), Ok(()));
        drop(second);
        let (_fourth, mut fourth_left) = strangers.enter(HERE);
        for left in [&mut known_left, &mut second_left, &mut third_left, &mut fourth_left] {
            assert!(left.try_recv().is_err());
        }
    }
}
