//! Connections that their programs have closed before everything was sent: the kernel goes on sending, and lists them
//! without an inode.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::super::super::error::Result;
use super::super::super::sys::sock_diag::{self, TcpEntry};
use super::diag::{self, PairKey};

/// Between two looks at the list of all sockets.
pub(super) const PAUSE: Duration = Duration::from_micros(300);
/// Orphans that get rid of nothing for so long are not waited for: their peers do not read.
const SILENT: Duration = Duration::from_millis(20);

/// All of them on this machine. They belong to no process any more, maybe not to this job, and what they still send has
/// to arrive before queues are read.
#[derive(Default)]
pub(super) struct Orphans {
    left: u64,
    changed: Option<Instant>,
}

impl Orphans {
    /// Whether any of them still gets rid of bytes.
    pub(super) fn still_send(&mut self, began: Instant, limit: Duration) -> Result<bool> {
        let left = sock_diag::tcp_sockets()?
            .iter()
            .filter(|entry| is_orphan(entry))
            .map(|entry| u64::from(entry.send_queue).max(1))
            .sum();
        if left != self.left || self.changed.is_none() {
            self.left = left;
            self.changed = Some(Instant::now());
        }
        let stuck = self.changed.map_or(Duration::ZERO, |changed| changed.elapsed());
        Ok(left > 0 && stuck < SILENT && began.elapsed() < limit)
    }
}

/// Both addresses of each, as it sees them.
pub(super) fn keys() -> Result<HashSet<PairKey>> {
    let listed = sock_diag::tcp_sockets()?;
    Ok(listed.iter().filter(|entry| is_orphan(entry)).map(diag::entry_key).collect())
}

/// Whether its program has closed it, and the kernel has not sent everything.
fn is_orphan(entry: &TcpEntry) -> bool {
    let state = i32::from(entry.state);
    entry.inode == 0 && matches!(state, diag::FIN_WAIT1 | diag::CLOSING | diag::LAST_ACK)
}
