//! userfaultfd(2): whoever reads it fills pages of a process that are missing. It is of the process that has made it,
//! which is taken to be the only one that holds it, and is made again by that process ([`super::super::restore`]),
//! with the ranges that it watches. Those are in the process's areas.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::dump::pages::Pagemap;
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::Watched;
use super::super::proc::{Mapping, read_smaps};
use super::super::sys::page::page_size;
use super::super::sys::userfault::{IS_READY, TELLS_FORKS};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// What the user can do about all of it.
const CLOSE: &str = "close it while checkpoints are taken, or run without it";

/// A descriptor of missing pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Userfault {
    /// UFFD_FEATURE_*, as the program has asked for them; `None`: it has not asked yet (UFFDIO_API).
    pub features: Option<u64>,
}

impl ObjectKind for Userfault {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[userfaultfd]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        if probe.info.number("total", 10)? > 0 {
            let what = "a userfaultfd with a page fault that is not answered yet";
            return Err(Refusal::passing(what, "answer it: try again").into());
        }
        // `API: aa:80000000:1ff`: version, features asked for, features known (fs/userfaultfd.c,
        // userfaultfd_show_fdinfo).
        let api = probe.info.need("API")?;
        let odd = || EngineError::odd("fdinfo field API", api);
        let features = api.split(':').nth(1).ok_or_else(odd)?;
        let features = u64::from_str_radix(features, 16).map_err(|_| odd())?;
        if features & TELLS_FORKS != 0 {
            let what = "a userfaultfd that tells of forks (UFFD_FEATURE_EVENT_FORK)";
            return Err(Refusal::new(what, CLOSE).into());
        }
        let is_ready = features & IS_READY != 0;
        Ok(Self { features: is_ready.then_some(features & !IS_READY) })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut owners = BTreeSet::new();
        for found in &*all {
            let probe = found.probe;
            let named =
                |error: Refusal| EngineError::from(error).at(probe.pid, &probe.comm, probe.fd);
            let holders = context.holders(found.id);
            let [owner] = holders.as_slice() else {
                let what = "a userfaultfd that several processes hold";
                return Err(named(Refusal::new(what, "close it in all but one")));
            };
            let several = !owners.insert(*owner);
            // Or what ckptd watches would be taken for the program's own.
            context.tracking.let_go(*owner);
            let ranges = watched(*owner).map_err(|e| e.at(probe.pid, &probe.comm, probe.fd))?;
            if several && !ranges.is_empty() {
                let what = "one of several userfaultfds of a process that watches memory";
                return Err(named(Refusal::new(what, CLOSE)));
            }
            context.watched.insert(*owner, ranges);
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// Whether this memory is watched as ckptd itself watches it, and in no other way.
pub fn is_write_watched(smaps: &Mapping) -> bool {
    smaps.has(b"uw") && !smaps.has(b"um") && !smaps.has(b"ui")
}

/// Whether anybody is told of faults in this memory.
pub fn is_watched(smaps: &Mapping) -> bool {
    [b"um", b"uw", b"ui"].into_iter().any(|flag| smaps.has(flag))
}

/// What is watched in a process that stands: first address, and what is told of it.
fn watched(host_pid: i32) -> Result<Vec<(u64, Watched)>> {
    let mut ranges = Vec::new();
    for mapping in read_smaps(host_pid)?.iter().filter(|mapping| is_watched(mapping)) {
        let is_plain = mapping.has(b"um") && !mapping.has(b"uw") && !mapping.has(b"ui");
        let is_own = !mapping.shared && mapping.inode == 0;
        if !is_plain || !is_own || mapping.has(b"lo") {
            let what = format!(
                "a userfaultfd that watches more than missing pages of memory of the process's own, at {:#x}",
                mapping.start
            );
            return Err(Refusal::new(what, CLOSE).into());
        }
        let zeros = Pagemap::of(host_pid, page_size())?.zeros(mapping.start, mapping.end)?;
        let Some(zeros) = zeros else {
            let what = "a userfaultfd that watches memory, under a kernel that tells no pages of zeros (Linux 6.7)";
            return Err(Refusal::new(what, CLOSE).into());
        };
        ranges.push((mapping.start, Watched { zeros }));
    }
    Ok(ranges)
}
