//! What each helper has to know of the process that it becomes, while it is a copy of the init still.
//!
//! It lies in a file in memory, from which a helper reads its own. The page tables of what the init had of all processes
//! in its own memory would be copied with every fork: a job of twice as many processes would take four times as long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::super::control_groups::{self, Groups};
use super::super::error::{EngineError, Result};
use super::super::graph::{Descriptor, OwnNamespace, Pid, ProcessImage, SignalAction};
use super::super::objects::RestoreContext;
use super::super::sys::memfd;
use super::image::Processes;
use super::namespaces::is_among_other_mounts;
use super::tree::HelperError;

/// What a process sets up by itself, before its memory is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// `None`: it is entered once the process's own mounts are there.
    pub(super) working_directory: Option<String>,
    /// Permission bits of one that is removed.
    pub(super) removed_directory: Option<u32>,
    /// Number of its inode.
    pub(super) removed_inode: Option<u64>,
    pub(super) umask: u32,
    pub(super) nice: i32,
    pub(super) oom_score_adj: i32,
    pub(super) core_filter: Option<u32>,
    pub(super) control_groups: Groups,
    /// For the audit log.
    pub(super) login_user: Option<u32>,
    /// Ascending.
    pub(super) descriptors: Vec<Descriptor>,
    /// Those that are not plain SIG_DFL.
    pub(super) actions: Vec<SignalAction>,
}

impl Order {
    fn of(process: &ProcessImage, namespaces: &[OwnNamespace], of_job: &Groups) -> Self {
        let elsewhere = is_among_other_mounts(process, namespaces);
        Self {
            working_directory: (!elsewhere).then(|| process.working_directory.clone()),
            removed_directory: process.removed_directory,
            removed_inode: process.removed_inode,
            umask: process.umask,
            nice: process.nice,
            oom_score_adj: process.oom_score_adj,
            core_filter: process.attributes.core_filter,
            control_groups: control_groups::wanted(&process.control_groups, of_job),
            login_user: process.attributes.login_user,
            descriptors: process.descriptors.clone(),
            actions: process.actions.clone(),
        }
    }
}

/// Those of all processes.
#[derive(Debug)]
pub(super) struct Orders {
    file: File,
    /// Where each begins, and its length.
    places: BTreeMap<Pid, (u64, u32)>,
}

impl Orders {
    /// Writes them down.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub(super) fn write(processes: &Processes, context: &RestoreContext<'_>) -> Result<Self> {
        let failed = |error: std::io::Error| EngineError::system("memfd_create", "orders", error);
        let made = memfd::make(c"ckptd-orders", libc::MFD_CLOEXEC);
        let file = made.map_err(|errno| failed(errno.into()))?;
        let of_job = control_groups::of("self");
        let namespaces = &context.graph.namespaces;
        let orders = processes
            .values()
            .map(|process| (process.pid, Order::of(process, namespaces, &of_job)));
        // Helpers put their own descriptors in place before all of them have read theirs.
        Self::write_to(context.lift(file)?, orders).map_err(failed)
    }

    fn write_to(
        file: OwnedFd,
        orders: impl Iterator<Item = (Pid, Order)>,
    ) -> std::io::Result<Self> {
        let mut writer = std::io::BufWriter::new(File::from(file));
        let (mut places, mut at) = (BTreeMap::new(), 0_u64);
        for (pid, order) in orders {
            let text = serde_json::to_vec(&order)?;
            writer.write_all(&text)?;
            let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
            places.insert(pid, (at, length));
            at += u64::from(length);
        }
        let file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(Self { file, places })
    }

    /// The one of a process.
    ///
    /// # Errors
    /// A process that has none.
    pub(super) fn read(&self, pid: Pid) -> Result<Order, HelperError> {
        let (at, length) = *self.places.get(&pid).ok_or(HelperError::NoImage(pid))?;
        let mut text = vec![0; length as usize];
        self.file.read_exact_at(&mut text, at).map_err(HelperError::system("read its order"))?;
        serde_json::from_slice(&text)
            .map_err(|error| HelperError::system("read its order")(std::io::Error::from(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::graph::FileId;
    use super::*;

    #[test]
    fn each_reads_its_own() {
        let order = |pid: Pid| Order {
            working_directory: (pid != 7).then(|| format!("/of/{pid}")),
            removed_directory: (pid == 7).then_some(0o711),
            removed_inode: None,
            umask: 0o22,
            nice: -pid,
            oom_score_adj: pid,
            core_filter: None,
            control_groups: Groups::new(),
            login_user: None,
            descriptors: vec![Descriptor { fd: pid, file: FileId(3), close_on_exec: true }],
            actions: vec![SignalAction { signal: pid, words: [u64::MAX, 1, 2, 3] }],
        };
        let file = memfd::make(c"test", libc::MFD_CLOEXEC).unwrap();
        let pids = [7, 400, 8];
        let orders = Orders::write_to(file, pids.map(|pid| (pid, order(pid))).into_iter()).unwrap();
        for pid in pids {
            assert_eq!(orders.read(pid).unwrap(), order(pid));
        }
        assert!(matches!(orders.read(9), Err(HelperError::NoImage(9))));
    }
}
