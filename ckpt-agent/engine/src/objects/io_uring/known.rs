//! Which ring it is whose memory a process has mapped.

use std::collections::HashMap;

use super::super::super::error::{Refusal, Result};
use super::super::super::graph::FileId;
use super::super::super::proc::Mapping;
use super::super::super::sys::uring::{COMPLETIONS_AT, REQUESTS_AT, RINGS_AT};

/// The rings that a dump has met, by their inodes.
#[derive(Debug, Default)]
pub struct Rings {
    found: HashMap<(u64, u64), Known>,
}

#[derive(Debug)]
struct Known {
    /// `None`: several have this inode.
    file: Option<FileId>,
    /// The one process that may have it, as this machine numbers it.
    keeper: Option<i32>,
}

impl Rings {
    pub(super) fn add(&mut self, inode: (u64, u64), file: FileId, keeper: Option<i32>) {
        let known = self.found.entry(inode).or_insert(Known { file: Some(file), keeper });
        if known.file != Some(file) {
            known.file = None;
        }
    }

    /// The ring whose memory a process has mapped.
    ///
    /// # Errors
    /// A refusal where it can't be told, or mapped again.
    pub fn of(&self, host_pid: i32, mapping: &Mapping) -> Result<FileId> {
        let refuse = |what: &str, way_out: &str| {
            Err(Refusal::new(
                format!("memory of an io_uring at {:#x} {what}", mapping.start),
                way_out,
            )
            .into())
        };
        let Some(known) = self.found.get(&(mapping.device, mapping.inode)) else {
            return refuse(
                "is mapped, of which no process holds a descriptor",
                "keep it open, or unmap its memory",
            );
        };
        let Some(file) = known.file else {
            return refuse(
                "is one of several that this kernel does not tell apart",
                "use one ring",
            );
        };
        if known.keeper.is_some_and(|keeper| keeper != host_pid) {
            return refuse(
                "has a thread of the kernel's (IORING_SETUP_SQPOLL) in another process",
                "unmap it in all but one",
            );
        }
        match mapping.offset {
            RINGS_AT | COMPLETIONS_AT | REQUESTS_AT => Ok(file),
            _ => refuse("is not its rings or requests", "map those as a whole, and nothing else"),
        }
    }
}
