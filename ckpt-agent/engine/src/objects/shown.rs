//! Empty messages in a queue. The kernel shows each of them once to whoever looks with an offset (SO_PEEK_OFF), and passes
//! over it from then on (net/core/datagram.c, __skb_try_recv_from_queue: `skb->peeked`); only as the first of its queue it
//! is shown to those who look without. So what a queue had is remembered, and the messages that are seen again tell which
//! of the empty ones must still be between them. Messages that are the same by chance may deceive.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Sockets whose queues are remembered at most.
const MOST_QUEUES: usize = 65_536;

/// Queues with empty messages as they were at the last look, by their sockets' cookies.
#[derive(Debug, Clone, Default)]
pub struct Shown(Arc<Mutex<HashMap<u64, Vec<Known>>>>);

/// A message that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// A hash of its bytes.
    Bytes(u64),
    Empty {
        from: Vec<u8>,
        rights: usize,
    },
}

/// A message in a queue.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    /// Its sender's address, as the kernel tells it.
    pub(super) from: Vec<u8>,
    /// Its sender's process, as this machine numbers it, where the message tells.
    pub(super) process: Option<i32>,
    /// The descriptors that come with it, if it was shown.
    pub(super) descriptors: Vec<OwnedFd>,
    /// How many come with it.
    pub(super) rights: usize,
}

impl Shown {
    /// Adds the empty messages that are not shown any more to those that were `visible` by offsets. `head`: the queue's
    /// first one, if that is empty; it was looked at before the others.
    pub(super) fn complete(
        &self,
        cookie: u64,
        head: Option<Item>,
        visible: Vec<Item>,
    ) -> Vec<Item> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = merge(queues.get(&cookie).map_or(&[], Vec::as_slice), head, visible);
        if all.iter().any(|item| item.bytes.is_empty()) {
            if queues.len() >= MOST_QUEUES {
                queues.clear();
            }
            queues.insert(cookie, all.iter().map(Known::of).collect());
        } else {
            queues.remove(&cookie);
        }
        all
    }
}

impl Known {
    fn of(item: &Item) -> Self {
        match item.bytes.is_empty() {
            true => Self::Empty { from: item.from.clone(), rights: item.rights },
            false => Self::Bytes(hash(&item.bytes)),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Empty { .. })
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn merge(known: &[Known], head: Option<Item>, visible: Vec<Item>) -> Vec<Item> {
    // Nothing that was seen before comes after an empty message that is shown now.
    let seen_again: Vec<u64> = visible
        .iter()
        .take_while(|item| !item.bytes.is_empty())
        .map(|item| hash(&item.bytes))
        .collect();
    let mut left = remaining(known, &seen_again);
    let leading = left.iter().take_while(|known| known.is_empty()).count();
    let mut all: Vec<Item> = Vec::new();
    if let Some(head) = head {
        all.push(head);
        left = left.get(leading.min(1)..).unwrap_or_default();
    } else {
        left = left.get(leading..).unwrap_or_default();
    }
    let mut visible = visible.into_iter();
    for known in left {
        match known {
            Known::Bytes(_) => all.extend(visible.next()),
            Known::Empty { from, rights } => {
                all.push(Item { from: from.clone(), rights: *rights, ..Item::default() });
            }
        }
    }
    all.extend(visible);
    all
}

/// What of a queue has not been received, as far as the messages that are `seen_again` tell: as much as may be.
fn remaining<'a>(known: &'a [Known], seen_again: &[u64]) -> &'a [Known] {
    let mut start = 0;
    loop {
        let left = known.get(start..).unwrap_or_default();
        let bytes = left.iter().filter_map(|known| match known {
            Known::Bytes(hash) => Some(*hash),
            Known::Empty { .. } => None,
        });
        let count = bytes.clone().count();
        if seen_again.get(..count).is_some_and(|first| first.iter().copied().eq(bytes)) {
            return left;
        }
        // Behind the next message that may have been received.
        let next = left.iter().position(|known| !known.is_empty());
        start += next.map_or(left.len(), |place| place + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(messages: &str) -> Vec<Item> {
        let item = |each: char| Item {
            bytes: if each == '.' { Vec::new() } else { vec![each as u8] },
            ..Item::default()
        };
        messages.chars().map(item).collect()
    }

    fn look(shown: &Shown, head: bool, visible: &str) -> String {
        let head = head.then(Item::default);
        let all = shown.complete(1, head, items(visible));
        all.iter().map(|item| item.bytes.first().map_or('.', |&byte| byte as char)).collect()
    }

    #[test]
    fn empty_messages_are_remembered_in_their_places() {
        let shown = Shown::default();
        assert_eq!(look(&shown, true, "a..b."), ".a..b.");
        // Nothing is shown again.
        assert_eq!(look(&shown, true, "ab"), ".a..b.");
        // Three were received, one has come.
        assert_eq!(look(&shown, true, "bc."), "..b.c.");
        assert_eq!(look(&shown, false, "c"), "c.");
        assert_eq!(look(&shown, true, ""), ".");
        assert_eq!(look(&shown, false, ""), "");
        assert_eq!(look(&shown, false, "ab"), "ab");
    }

    #[test]
    fn what_is_new_is_not_taken_for_what_was_received() {
        let shown = Shown::default();
        assert_eq!(look(&shown, false, "a.b"), "a.b");
        // All of it was received, and another empty one has come.
        assert_eq!(look(&shown, true, "c."), ".c.");
        assert_eq!(look(&shown, true, "c"), ".c.");
    }
}
