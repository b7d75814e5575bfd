//! The watch of one process.

use std::os::fd::AsRawFd;

use nix::errno::Errno;

use super::super::dump::pages::{Pagemap, join};
use super::super::error::{EngineError, Result};
use super::super::sys::pidfd::PidFd;
use super::super::sys::userfault::{USER_MODE_ONLY, WriteWatch};
use super::super::trace::Remote;
use super::{Looked, Ranges, Unwritten};

/// Of so many checkpoints it is known what was not written since: an image refers to one of those before the last, and
/// some fail.
const MOST_CHECKPOINTS: usize = 6;
/// At least one page of so many must be as it was, or the watch costs more than it gains: the first write to each page may take
/// half a microsecond longer.
const LEAST_GAIN: u64 = 8;
/// So often in a row it may gain less.
const MOST_IN_VAIN: u32 = 2;
/// What is known of all processes of a job together has so many ranges at most for each checkpoint, of 16 bytes each: the
/// agent's memory is not the job's to fill.
const MOST_RANGES: usize = 1 << 20;
/// But each process may have so many.
const LEAST_RANGES: usize = 1 << 10;
/// Each mapping is watched by a call of its own, while the process stands.
const MOST_MAPPINGS: usize = 8192;

/// What is known of a process.
#[derive(Debug)]
pub(super) struct Tracked {
    began: u64,
    watch: WriteWatch,
    unwritten: Unwritten,
    /// How often in a row nearly all pages had been written.
    in_vain: u32,
    /// For how many checkpoints it is left alone if watching it gains nothing.
    rest: u32,
}

/// What a look at a process has found.
#[derive(Debug)]
pub(super) enum Look {
    /// Pages that were not written since earlier checkpoints.
    Unwritten(Unwritten),
    /// It writes nearly everything between two checkpoints, so that watching it costs and gains nothing.
    InVain,
}

impl Tracked {
    /// Has the process make a descriptor, and takes it from it. `None`: it can't, or this kernel has none of the kind.
    ///
    /// # Errors
    /// The process's end.
    pub(super) fn begin(
        remote: &mut Remote<'_>,
        looked: &Looked<'_>,
        rest: u32,
    ) -> Result<Option<Self>> {
        let watch = make(remote, looked.host_pid)?;
        let unwritten = Unwritten::new();
        Ok(watch.map(|watch| Self { began: looked.began, watch, unwritten, in_vain: 0, rest }))
    }

    pub(super) fn began(&self) -> u64 {
        self.began
    }

    pub(super) fn rest(&self) -> u32 {
        self.rest
    }

    /// Which pages were not written since earlier checkpoints; from now on it is watched what is written after this one.
    ///
    /// # Errors
    /// What the kernel refuses; the process's end.
    pub(super) fn look(&mut self, remote: &mut Remote<'_>, looked: &Looked<'_>) -> Result<Look> {
        if looked.mappings.len() > MOST_MAPPINGS {
            return Err(EngineError::odd("the mappings", "too many"));
        }
        let pagemap = Pagemap::of(looked.host_pid, looked.page)?;
        let stretches = touching(looked.mappings);
        let found = pagemap.watched(&stretches)?;
        let most_ranges = (MOST_RANGES / looked.processes.max(1)).max(LEAST_RANGES);
        let unwritten = Ranges::of(found.unwritten).longest(most_ranges, looked.page);
        let before = self.unwritten.last_key_value().map_or(0, |(_, since)| since.bytes());
        for since in self.unwritten.values_mut() {
            *since = since.and(&unwritten);
        }
        let left = self.unwritten.last_key_value().map_or(0, |(_, since)| since.bytes());
        let is_in_vain = left.saturating_mul(LEAST_GAIN) < before && looked.gives_up;
        self.in_vain = if is_in_vain { self.in_vain + 1 } else { 0 };
        if self.in_vain >= MOST_IN_VAIN {
            return Ok(Look::InVain);
        }
        let told = self.unwritten.clone();
        self.watch_more(remote, looked, found.unwatched, found.marked)?;
        let protected = pagemap.protect(&stretches)?;
        // All that is protected now. As long as nothing writes, a third look would find the same.
        let now = unwritten.or(&Ranges::of(protected));
        self.unwritten.insert(looked.checkpoint, now.longest(most_ranges, looked.page));
        self.unwritten.retain(|_, since| !since.is_empty());
        while self.unwritten.len() > MOST_CHECKPOINTS {
            self.unwritten.pop_first();
        }
        Ok(Look::Unwritten(told))
    }

    /// Watches mappings in which there are pages that are not watched. `marked`: those of them that seem to be protected.
    fn watch_more(
        &mut self,
        remote: &mut Remote<'_>,
        looked: &Looked<'_>,
        unwatched: Vec<(u64, u64)>,
        marked: Vec<(u64, u64)>,
    ) -> Result<()> {
        let (unwatched, marked) = (Ranges::of(unwatched), Ranges::of(marked));
        let mut is_new = false;
        for (start, end) in looked.mappings {
            if unwatched.within(*start, *end).next().is_none() {
                continue;
            }
            let mut answer = self.watch.watch(*start, *end);
            if answer == Err(Errno::ENOMEM) && !is_new {
                // It has executed another program since.
                let Some(watch) = make(remote, looked.host_pid)? else {
                    return Err(EngineError::odd("userfaultfd", "can't be made again"));
                };
                (self.watch, is_new) = (watch, true);
                self.unwritten.clear();
                answer = self.watch.watch(*start, *end);
            }
            match answer {
                Ok(()) => {}
                // Somebody else watches it, or it is of a kind that can't be.
                Err(Errno::EBUSY | Errno::EINVAL | Errno::EPERM) => continue,
                Err(errno) => return Err(EngineError::system("watch", "memory", errno)),
            }
            for (start, end) in marked.within(*start, *end) {
                self.watch
                    .unprotect(start, end)
                    .map_err(|errno| EngineError::system("watch", "pages", errno))?;
            }
        }
        Ok(())
    }
}

/// Stretches of mappings of which one begins where the one before it ends.
fn touching(mappings: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut stretches = Vec::new();
    mappings.iter().for_each(|(start, end)| join(&mut stretches, *start, *end));
    stretches
}

/// A watch of the process's memory, of which nothing stays in the process.
fn make(remote: &mut Remote<'_>, host_pid: i32) -> Result<Option<WriteWatch>> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    let number = remote.raw(libc::SYS_userfaultfd, &[flags as u64])?;
    let Ok(number) = u64::try_from(number) else { return Ok(None) };
    let descriptor = PidFd::open(host_pid).and_then(|process| process.descriptor(number as i32));
    remote.raw(libc::SYS_close, &[number])?;
    // No descriptors left: then nothing is known of the process. Whoever shares its table from outside of the job could
    // have put something else there.
    let own = descriptor.ok().filter(|descriptor| {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        name.is_ok_and(|name| name.as_os_str() == "anon_inode:[userfaultfd]")
    });
    Ok(own.and_then(|descriptor| WriteWatch::begin(descriptor).ok()))
}
