//! Filling memory on demand: a restored job runs as soon as all but its pages is there. Those come when they are touched,
//! and all others behind that, by a process of its own, the *pager*.
//!
//! The kernel tells of missing pages (userfaultfd(2)) by one descriptor for each process's memory. If nobody had it any
//! more, missing pages would be zeros. So two have it: the pager, which lives in the machine's namespaces and ends by
//! itself, and the job's init, which ends the job if the pager fails. What the program does to memory that is not filled yet
//! (fork, mremap, madvise, munmap) waits until the pager has been told.
//!
//! - `pager`: the process that fills; `context`: one process's memory; `table`: what is still to be filled in it;
//!   `order`: what the program has done to its mappings, in the order in which it did; `work`: the pager's threads;
//! - `feeder`: the init's side.

mod context;
mod feeder;
mod order;
mod pager;
mod table;
mod work;

pub use feeder::{Feeder, Heard};
pub use pager::{Pager, start};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::graph::Pid;

/// The variable that says when memory is filled.
pub const VARIABLE: &str = "CKPTD_PAGES";

/// Less content than this is in place before a pager has begun: of a job, and of one of its processes.
const LEAST_OF_JOB: u64 = 64 << 20;
const LEAST_OF_PROCESS: u64 = 4 << 20;
/// And of one mapping.
const LEAST_OF_AREA: u64 = 1 << 20;

/// When memory is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// On demand where that gains something, and costs nothing later: `large`.
    Fitting,
    /// Before the job runs: `advance`, or nothing. What a program may do to memory that is not filled yet and the kernel does not
    /// tell (guards, MADV_WIPEONFORK) makes this the default.
    Advance,
    /// On demand wherever that can be, however little it is: `demand`. For tests.
    Demand,
}

impl Wish {
    /// As the environment has it.
    pub fn of_environment() -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok("large") => Self::Fitting,
            Ok("demand") => Self::Demand,
            _ => Self::Advance,
        }
    }

    /// How much content a job, a process and an area must have.
    pub fn least(self) -> [u64; 3] {
        match self {
            Self::Fitting => [LEAST_OF_JOB, LEAST_OF_PROCESS, LEAST_OF_AREA],
            Self::Demand => [1; 3],
            Self::Advance => [u64::MAX; 3],
        }
    }

    /// Whether anything is filled on demand here.
    pub fn is_for_demand(self) -> bool {
        match self {
            Self::Advance => false,
            Self::Demand => true,
            // Filled page by page memory gets no huge pages, which it would have got at once.
            Self::Fitting => !pages_are_huge(),
        }
    }
}

/// Whether all memory gets huge pages where it can.
fn pages_are_huge() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| setting.contains("[always]"))
}

/// What the init tells the pager.
#[derive(Debug, Serialize, Deserialize)]
enum ToPager {
    /// Of this checkpoint.
    Open {
        /// The job's folder.
        job_dir: PathBuf,
        /// Its number.
        checkpoint: u64,
    },
    /// The memory of a process is to be filled. Sent with its descriptor of missing pages, and one of the process.
    Watch {
        /// By which both call it.
        id: u32,
        /// The process, as the image numbers it.
        pid: Pid,
        /// Areas that are watched, none of whose pages is there.
        areas: Vec<(u64, u64)>,
    },
    /// These are all. Answered by [`FromPager::Ready`].
    All,
    /// The job runs: fill what nobody waits for.
    Go,
    /// The init has closed its copy.
    Closed {
        /// Of this one.
        id: u32,
    },
}

/// What the pager tells the init.
#[derive(Debug, Serialize, Deserialize)]
enum FromPager {
    /// It has all that it needs.
    Ready,
    /// A process has forked: a copy of the child's descriptor.
    Child {
        /// By which both call it.
        id: u32,
    },
    /// Nothing of it is missing any more: the init is to close its copy.
    Done {
        /// Of this one.
        id: u32,
    },
    /// So many bytes are filled.
    Progress {
        /// In all.
        bytes: u64,
    },
    /// Nothing is missing any more.
    Filled,
    /// A page can't be had. The job must end before anybody sees what is in its place.
    Failed(String),
}
