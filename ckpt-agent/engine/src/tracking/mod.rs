//! Which pages of the job's processes have not been written since an earlier checkpoint, so that they need not be read
//! again.
//!
//! The kernel tells (Linux 6.7): memory that is watched by a userfaultfd in its asynchronous mode (WP_ASYNC) has its pages
//! protected, the first write to one ends its protection, and PAGEMAP_SCAN tells which are protected still. The
//! descriptor is made by an injected call and then held by the agent alone: the process sees nothing of it, and where the
//! agent ends, the kernel ends the watch. It costs no fault that there would not be anyway: the copy that a checkpoint
//! makes of the memory ([`SnapshotProcess`](super::dump::snapshot_process)) has the first write to each page fault.
//!
//! A page counts as unwritten only if it is a page of the process's own, protected and watched. Whatever else befalls memory
//! makes pages without that mark: a mapping that is new or has moved (mremap) or is of another program (execve) is not
//! watched, one that was thrown away (MADV_DONTNEED) has new pages, a child of fork has none that are protected. What is
//! written without the page table is what pages are pinned for: memory that an io_uring has registered.

mod process;
mod ranges;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sys::resource::Resource;

use super::error::Result;
use super::sys::limits;
use super::sys::trial::Call;
use super::trace::Remote;
use process::{Look, Tracked};

pub use ranges::Ranges;

/// Less memory than this is read faster than it is watched.
const LEAST: u64 = 4 << 20;

/// A process that writes nearly all of its memory from checkpoint to checkpoint is not watched for so many of them.
const FIRST_REST: u32 = 8;
/// And at last for so many.
const LONGEST_REST: u32 = 64;

/// Each process that is watched takes a descriptor of the agent's: one in so many of those that it may have.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// What is wanted by `CKPTD_TRACKING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Pages that were not written are not read.
    On,
    /// Also of processes that are so small that it does not pay: `all`. For tests.
    All,
    /// All pages are read, as if nothing were known: `off`.
    Off,
    /// As for all, but every page is read, and a checkpoint fails if one is another than it must be: `verify`. For tests.
    Verify,
}

impl Wish {
    /// As the environment has it.
    pub fn of_environment() -> Self {
        static WISH: OnceLock<Wish> = OnceLock::new();
        *WISH.get_or_init(|| match std::env::var("CKPTD_TRACKING").as_deref() {
            Ok("off") => Self::Off,
            Ok("all") => Self::All,
            Ok("verify") => Self::Verify,
            _ => Self::On,
        })
    }
}

/// Pages of a process that were not written since checkpoints, by these numbers.
pub type Unwritten = BTreeMap<u64, Ranges>;

/// A process as it is to be looked at.
#[derive(Debug)]
pub struct Looked<'a> {
    /// By its number on this machine.
    pub host_pid: i32,
    /// When it began, in the kernel's ticks: another process may get the number.
    pub began: u64,
    /// Bytes that it has in memory.
    pub resident: u64,
    /// Its private mappings that are no file's, in ascending order.
    pub mappings: &'a [(u64, u64)],
    /// So many processes the job has.
    pub processes: usize,
    /// Whether something writes to its memory that the page table does not show, or it has a userfaultfd of its own.
    pub hidden: bool,
    /// The checkpoint that is being taken.
    pub checkpoint: u64,
    /// Whether to give up where it writes nearly everything between two checkpoints.
    pub gives_up: bool,
    /// Bytes per page.
    pub page: u64,
}

/// A process of the job.
#[derive(Debug)]
enum Known {
    Tracked(Tracked),
    /// Watching it gained nothing. It is not watched for so many looks, and then for twice as many if that is still so.
    Resting {
        began: u64,
        left: u32,
        next: u32,
    },
}

impl Known {
    fn began(&self) -> u64 {
        match self {
            Self::Tracked(tracked) => tracked.began(),
            Self::Resting { began, .. } => *began,
        }
    }
}

/// What is watched of the job, from one checkpoint to the next.
#[derive(Debug, Clone, Default)]
pub struct Tracking(Arc<Mutex<HashMap<i32, Known>>>);

impl Tracking {
    /// Looks at a process that stands, and watches what it writes from now on. Where it can't be watched, nothing is known.
    ///
    /// # Errors
    /// The process's end.
    pub fn look(&self, remote: &mut Remote<'_>, looked: &Looked<'_>) -> Result<Unwritten> {
        let wish = Wish::of_environment();
        let is_forbidden = !Call::Userfaultfd.may_be_made();
        let is_small = looked.resident < LEAST && wish == Wish::On;
        if wish == Wish::Off || is_forbidden || is_small || looked.hidden {
            self.let_go(looked.host_pid);
            return Ok(Unwritten::new());
        }
        // The watch of a process that is no more ends here, before another one begins.
        let known = self.lock().remove(&looked.host_pid);
        let tracked = match known.filter(|known| known.began() == looked.began) {
            Some(Known::Tracked(known)) => Some(known),
            Some(Known::Resting { began, left, next }) if left > 0 => {
                let known = Known::Resting { began, left: left - 1, next };
                self.lock().insert(looked.host_pid, known);
                return Ok(Unwritten::new());
            }
            Some(Known::Resting { next, .. }) => self.begin(remote, looked, next)?,
            None => self.begin(remote, looked, FIRST_REST)?,
        };
        let Some(mut tracked) = tracked else { return Ok(Unwritten::new()) };
        match tracked.look(remote, looked) {
            Ok(Look::Unwritten(unwritten)) => {
                self.lock().insert(looked.host_pid, Known::Tracked(tracked));
                Ok(unwritten)
            }
            Ok(Look::InVain) => {
                let left = tracked.rest();
                tracing::debug!(looked.host_pid, left, "it writes all its memory: not watched");
                let next = left.saturating_mul(2).min(LONGEST_REST);
                let known = Known::Resting { began: looked.began, left, next };
                self.lock().insert(looked.host_pid, known);
                Ok(Unwritten::new())
            }
            // Its watch ends with it.
            Err(error) => {
                tracing::debug!(host_pid = looked.host_pid, "its writes are not watched: {error}");
                Ok(Unwritten::new())
            }
        }
    }

    fn begin(
        &self,
        remote: &mut Remote<'_>,
        looked: &Looked<'_>,
        rest: u32,
    ) -> Result<Option<Tracked>> {
        let count = self.lock().len() as u64;
        let most = limits::own(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        let has_room = count < most / SHARE_OF_DESCRIPTORS;
        if has_room { Tracked::begin(remote, looked, rest) } else { Ok(None) }
    }

    /// Whether what it writes is watched.
    pub fn watches(&self, host_pid: i32) -> bool {
        matches!(self.lock().get(&host_pid), Some(Known::Tracked(_)))
    }

    /// Ends the watch of a process.
    pub fn let_go(&self, host_pid: i32) {
        self.lock().remove(&host_pid);
    }

    /// Ends the watch of all but these.
    pub fn retain(&self, living: &BTreeSet<i32>) {
        self.lock().retain(|host_pid, _| living.contains(host_pid));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
