//! The numbers that processes of a computation are given.

use std::collections::BTreeSet;

/// The first one. Between two of them there is room for a process's threads.
const FIRST: i32 = 40_000;
const STEP: i32 = 1000;

/// DMTCP's own last one. It can't have more processes than fit; we go on above.
const LAST: i32 = 1_000_000;
const FAR_FIRST: i32 = LAST + STEP;
const FAR_LAST: i32 = 1_000_000_000;

const NEAR: usize = ((LAST - FIRST) / STEP) as usize + 1;

/// Those that are taken, and the next ones.
#[derive(Debug)]
pub struct VirtualPids {
    taken: BTreeSet<i32>,
    near: usize,
    next: i32,
    next_far: i32,
}

impl Default for VirtualPids {
    fn default() -> Self {
        Self { taken: BTreeSet::new(), near: 0, next: FIRST, next_far: FAR_FIRST }
    }
}

impl VirtualPids {
    /// One that is free.
    pub fn take(&mut self) -> Option<i32> {
        if self.near < NEAR {
            for _ in 0..NEAR {
                let pid = self.next;
                self.next = if pid >= LAST { FIRST } else { pid + STEP };
                if self.insert(pid) {
                    return Some(pid);
                }
            }
        }
        for _ in 0..=self.taken.len() {
            let pid = self.next_far;
            self.next_far = if pid >= FAR_LAST { FAR_FIRST } else { pid + STEP };
            if self.insert(pid) {
                return Some(pid);
            }
        }
        None
    }

    /// Takes that one; false where it is taken.
    pub fn insert(&mut self, pid: i32) -> bool {
        let new = self.taken.insert(pid);
        self.near += usize::from(new && is_near(pid));
        new
    }

    /// Gives it back.
    pub fn remove(&mut self, pid: i32) {
        if self.taken.remove(&pid) && is_near(pid) {
            self.near -= 1;
        }
    }
}

fn is_near(pid: i32) -> bool {
    (FIRST..=LAST).contains(&pid) && pid % STEP == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dmtcp_s_as_far_as_they_last() {
        let mut pids = VirtualPids::default();
        let first: Vec<i32> = (0..3).filter_map(|_| pids.take()).collect();
        assert_eq!(first, [40_000, 41_000, 42_000]);
        pids.remove(41_000);
        assert!(!pids.insert(40_000));
        let rest: BTreeSet<i32> = (0..10_000).filter_map(|_| pids.take()).collect();
        assert_eq!(rest.len(), 10_000);
        assert!(rest.contains(&41_000) && rest.contains(&1_000_000) && rest.contains(&1_001_000));
    }
}
