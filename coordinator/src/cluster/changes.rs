//! Which members have changed, in the order in which they did: who keeps something of all members reads only what is new.

use protocol::cluster::NodeName;
use std::collections::VecDeque;

/// Changes that are remembered. Who has read fewer than all before them begins anew.
const MOST: usize = 4096;

/// How many changes there were when something was read.
pub(super) type Revision = u64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Changes {
    forgotten: Revision,
    names: VecDeque<NodeName>,
}

impl Changes {
    pub(super) fn note(&mut self, node: &NodeName) {
        if self.names.len() >= MOST {
            self.names.pop_front();
            self.forgotten += 1;
        }
        self.names.push_back(node.clone());
    }

    /// How many there were.
    pub(super) fn revision(&self) -> Revision {
        self.forgotten + self.names.len() as Revision
    }

    /// Those since then, some of them more than once; None: some are forgotten.
    pub(super) fn since(&self, revision: Revision) -> Option<impl Iterator<Item = &NodeName>> {
        let read = usize::try_from(revision.checked_sub(self.forgotten)?).ok()?;
        Some(self.names.iter().skip(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_read_and_what_is_forgotten_is_said_to_be() {
        let mut changes = Changes::default();
        let name = |number: usize| -> NodeName { format!("node{number}").parse().unwrap() };
        changes.note(&name(1));
        let read = changes.revision();
        assert_eq!(changes.since(read).unwrap().count(), 0);
        changes.note(&name(2));
        changes.note(&name(1));
        let new: Vec<_> = changes.since(read).unwrap().cloned().collect();
        assert_eq!(new, [name(2), name(1)]);
        (0..MOST).for_each(|number| changes.note(&name(number)));
        assert!(changes.since(read).is_none());
        assert_eq!(changes.since(changes.revision()).unwrap().count(), 0);
    }
}
