//! What has happened to a job: the last events, numbered in the order of the log, so that whoever asks again is told of each
//! once, also by a coordinator that was started again.

use protocol::cluster::job_event::JobEvent;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Events remembered.
const MOST: usize = 64;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cluster) struct Events {
    /// How many there have been.
    count: u64,
    /// The last of them.
    kept: VecDeque<JobEvent>,
}

/// What somebody has not been told yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    /// The events, the newest last.
    pub(super) events: Vec<JobEvent>,
    /// How many before these are not remembered any more.
    pub(super) forgotten: u64,
    /// How many there have been.
    pub(super) count: u64,
}

impl Events {
    /// One more.
    pub(super) fn add(&mut self, event: JobEvent) {
        if self.kept.len() >= MOST {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
        self.count = self.count.saturating_add(1);
    }

    /// Those behind the first `known`. Who knows of more than there are was told by a coordinator that was lost with the end
    /// of its log: nothing is told twice then.
    pub(super) fn since(&self, known: u64) -> News {
        let first = self.count.saturating_sub(self.kept.len() as u64);
        let skipped = usize::try_from(known.saturating_sub(first)).unwrap_or(usize::MAX);
        News {
            events: self.kept.iter().skip(skipped).cloned().collect(),
            forgotten: first.saturating_sub(known),
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::job_event::Happening;

    fn event(number: u64) -> JobEvent {
        JobEvent { at_ms: None, what: Happening::failed(number, "slow") }
    }

    #[test]
    fn each_is_told_once_and_old_ones_are_counted() {
        let mut events = Events::default();
        assert_eq!(events.since(0), News { events: vec![], forgotten: 0, count: 0 });
        (0..3).for_each(|number| events.add(event(number)));
        let news = events.since(1);
        assert_eq!(news, News { events: vec![event(1), event(2)], forgotten: 0, count: 3 });
        assert!(events.since(news.count).events.is_empty());
        // By another coordinator, which knows of fewer.
        assert_eq!(events.since(7), News { events: vec![], forgotten: 0, count: 3 });
        (3..MOST as u64 + 5).for_each(|number| events.add(event(number)));
        let news = events.since(3);
        assert_eq!((news.events.len(), news.forgotten), (MOST, 2));
        assert_eq!(news.events.first(), Some(&event(5)));
    }
}
