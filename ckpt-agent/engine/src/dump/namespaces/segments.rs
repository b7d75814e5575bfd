//! In which IPC namespace the segments are that processes have attached. A mapping tells the number of its segment, and every
//! namespace has its own numbers; a segment tells how many mappings it has. So a mapping belongs to the namespace of its
//! process, if there is such a segment, else to the job's, and all of them together must be as many as each segment has.

use std::collections::BTreeMap;

use super::super::super::error::Result;
use super::super::super::inodes::segments::{may_show, number};
use super::super::super::ipc::{ListedSegment, Told};
use super::super::super::proc::{Mapping, read_maps};
use super::refuse;

/// What there is in IPC namespaces: those of processes' own by their places; `None`: the job's.
pub(super) type Lists = BTreeMap<Option<u32>, Told>;

/// How many mappings of a segment have been met, by its namespace and number.
#[derive(Debug, Default)]
pub(super) struct Attached(BTreeMap<(Option<u32>, i32), u64>);

impl Attached {
    /// Counts what a process has attached. `own`: its own IPC namespace.
    ///
    /// # Errors
    /// The refusal of a segment that is in neither namespace.
    pub(super) fn add(&mut self, pid: i32, own: Option<u32>, lists: &Lists) -> Result<()> {
        self.add_all(&read_maps(pid)?, own, lists)
    }

    fn add_all(&mut self, mappings: &[Mapping], own: Option<u32>, lists: &Lists) -> Result<()> {
        let attached = mappings.iter().filter_map(|mapping| Some((mapping, number(mapping)?)));
        for (mapping, number) in attached {
            let found = [own, None].into_iter().find_map(|namespace| {
                let segment = of(lists.get(&namespace)?, number)?;
                Some((namespace, segment))
            });
            let Some((namespace, segment)) = found else {
                if own.is_none() && !lists.contains_key(&None) {
                    // The machine's, which is refused elsewhere.
                    continue;
                }
                return Err(elsewhere(number));
            };
            if !may_show(mapping, segment) {
                return Err(elsewhere(number));
            }
            *self.0.entry((namespace, number)).or_default() += 1;
        }
        Ok(())
    }

    /// Compares with what segments tell themselves.
    ///
    /// # Errors
    /// The refusal of one that is attached by a process in another IPC namespace, and the segment's namespace.
    pub(super) fn check(&self, lists: &Lists) -> Result<(), (Option<u32>, super::EngineError)> {
        for (namespace, told) in lists {
            for segment in &told.segments {
                let number = segment.identity.number;
                let met = self.0.get(&(*namespace, number)).copied().unwrap_or_default();
                if met != segment.attached {
                    return Err((*namespace, elsewhere(number)));
                }
            }
        }
        Ok(())
    }
}

fn of(told: &Told, number: i32) -> Option<&ListedSegment> {
    told.segments.iter().find(|segment| segment.identity.number == number)
}

fn elsewhere(number: i32) -> super::EngineError {
    refuse(format!(
        "has to do with a shared memory segment {number} that is attached in another IPC namespace than its own"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::super::graph::{IpcIdentity, Protection};
    use super::*;

    fn mapping(number: u64, key: u32) -> Mapping {
        Mapping {
            start: 0x1000,
            end: 0x2000,
            protection: Protection(3),
            shared: true,
            offset: 0,
            device: 1,
            inode: number,
            name: format!("/SYSV{key:08x} (deleted)"),
            flags: Vec::new(),
            page_size: 0,
            given: String::new(),
            key: 0,
            policy: None,
        }
    }

    fn told(number: i32, key: i32, attached: u64) -> Told {
        let identity = IpcIdentity { number, key, ..IpcIdentity::default() };
        let segment = ListedSegment { identity, mode: 0o600, size: 4096, attached };
        Told { segments: vec![segment], ..Told::default() }
    }

    #[test]
    fn a_number_is_that_of_the_own_namespace_first() {
        let lists = Lists::from([(None, told(0, 7, 1)), (Some(4), told(0, 7, 2))]);
        let mut attached = Attached::default();
        attached.add_all(&[mapping(0, 7), mapping(0, 7)], Some(4), &lists).unwrap();
        assert!(attached.check(&lists).is_err());
        attached.add_all(&[mapping(0, 7)], None, &lists).unwrap();
        assert!(attached.check(&lists).is_ok());
    }

    #[test]
    fn what_was_attached_before_is_the_jobs() {
        let lists = Lists::from([(None, told(3, 0, 1)), (Some(4), told(0, 7, 0))]);
        let mut attached = Attached::default();
        attached.add_all(&[mapping(3, 0)], Some(4), &lists).unwrap();
        assert!(attached.check(&lists).is_ok());
    }

    #[test]
    fn what_is_attached_elsewhere_is_refused() {
        let lists = Lists::from([(None, told(1, 0, 0)), (Some(4), told(0, 7, 1))]);
        for (mapping, own) in
            [(mapping(0, 7), None), (mapping(0, 8), Some(4)), (mapping(9, 0), Some(4))]
        {
            assert!(Attached::default().add_all(&[mapping], own, &lists).is_err());
        }
        // The machine's segments are nobody's here.
        let alone = Lists::from([(Some(4), told(0, 7, 0))]);
        assert!(Attached::default().add_all(&[mapping(5, 0)], None, &alone).is_ok());
    }
}
