//! What a dump is told of the job.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;

use super::{FREEZE_LIMIT, Job};
use crate::EngineError;
use crate::dump::DumpSettings;
use crate::graph::OuterEnd;
use crate::inodes::ahead::Taken;
use crate::inodes::copying::Copying;
use crate::job_init::NO_ROOT;
use crate::objects::{ConsoleTerminal, HeldRelay, Shown, StdioRole};
use crate::tracking::Tracking;

impl Job {
    /// What a dump of this job is told.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn dump_settings(&self) -> Result<DumpSettings, EngineError> {
        let failed = |error| EngineError::system("dup", "a stream of the job", error);
        let mut stdio = HashMap::new();
        let mut terminal = None;
        for (role, end) in &self.streams {
            if *role == StdioRole::Terminal {
                terminal = Some(ConsoleTerminal::Launchers(end.try_clone().map_err(failed)?));
                if let Some(slave) = self.slave_inode(end) {
                    stdio.insert(slave, *role);
                }
            } else {
                let stat = nix::sys::stat::fstat(end)
                    .map_err(|errno| EngineError::system("fstat", "a stream", errno))?;
                stdio.insert(crate::sys::stat::identity(&stat), *role);
            }
        }
        if self.is_adopted() {
            (terminal, stdio) = self.streams_of_adopted()?;
        }
        let mut relays = Vec::new();
        for (end, fd) in &self.outer {
            if let OuterEnd::Relay(end) = end {
                relays.push(HeldRelay::of(end.clone(), fd)?);
            }
        }
        Ok(DumpSettings {
            init: self.init,
            members: self.members.clone(),
            root: self.root.unwrap_or(NO_ROOT),
            session_directories: self.session_directories.clone(),
            kept: self.kept.clone(),
            external: self.external,
            user: self.user.clone(),
            stdio,
            terminal,
            cluster: self.instance.is_some(),
            machines: BTreeSet::new(),
            relays,
            offers: self.offers.clone(),
            freeze_limit: FREEZE_LIMIT,
            seen: Taken::default(),
            shown: Shown::default(),
            copying: Copying::default(),
            tracking: Tracking::default(),
            checkpoint: 0,
        })
    }

    fn slave_inode(&self, master: &OwnedFd) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let index = crate::sys::tty::master_index(master).ok()?;
        let path = format!("/proc/{}/root/dev/pts/{index}", self.init);
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }
}
