//! Contents of files that are read while the job still runs. While it stands, a copy is taken for the content
//! if the file's times and size are what they were before it was read.
//!
//! What makes that true (fs/inode.c, mm/filemap.c, mm/memory.c; tried on Linux 6.18):
//!
//! - Every change of a content sets the inode's change time *when it begins*, by a clock that lags by up to 10 ms.
//!   A call that writes for long has set it long before: a file is left out while somebody may be within such a
//!   call, that is who has it open for writing ([`busy`]). It is not left out if its times are those of the last
//!   moment at which the job stood, since nobody was within a call then, and none has begun since.
//! - A write through a shared mapping sets it at the first fault of a page, and not again while the page stays
//!   writable: what is mapped so when the copying begins is left out. Who maps it later has to fault first. tmpfs
//!   does not always set it then (a page that was read before is written to without a fault), network file systems
//!   tell times that may be old: only file systems of [`TRUE_TIMES`] are read ahead.

mod busy;
mod candidates;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::stat::FileStat;
use nix::sys::statfs::fstatfs;

use super::super::error::Result;
use super::super::job_init::UserOrder;
use super::super::objects::{BlobData, DumpContext};
use super::super::proc::Members;
use super::super::sys::file_user::FileUser;
use super::super::sys::stat::{changed_ns, identity, modified_ns, size};
use super::content;
use super::copying::Copying;
use super::free_memory::available_memory;
use busy::Busy;
use candidates::Opened;

/// statfs(2) of file systems that keep the change time as described: ext2 to ext4, XFS, Btrfs, F2FS.
const TRUE_TIMES: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
/// A file must not have changed for so long before the copying begins: change times lag.
const REST: Duration = Duration::from_millis(50);
/// How long others of a cluster, who may stand already, are kept waiting.
const CLUSTER_LIMIT: Duration = Duration::from_secs(1);

/// (device, inode)
type Key = (u64, u64);

/// What a later content of a file differs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Stamp {
    fn of(stat: &FileStat) -> Self {
        let (modified_ns, changed_ns) = (modified_ns(stat), changed_ns(stat));
        Self { size: size(stat), modified_ns, changed_ns }
    }

    fn is_older_than(&self, moment_ns: i64) -> bool {
        let rest = i64::try_from(REST.as_nanos()).unwrap_or(i64::MAX);
        self.changed_ns.max(self.modified_ns) < moment_ns.saturating_sub(rest)
    }
}

/// Files whose content was taken while the job stood, as they were then.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// When the job came to stand, in nanoseconds since 1970.
    stood_ns: i64,
    files: HashMap<Key, Stamp>,
}

impl Taken {
    /// Of a job that stands since now.
    pub fn begin() -> Self {
        Self { stood_ns: now_ns(), files: HashMap::new() }
    }

    fn has(&self, key: Key, stamp: Stamp) -> bool {
        stamp.is_older_than(self.stood_ns) && self.files.get(&key) == Some(&stamp)
    }
}

/// What the copying is told about the job.
#[derive(Debug)]
pub struct Order<'a> {
    /// Its processes.
    pub members: &'a Members,
    /// Folders whose whole content belongs to the image.
    pub folders: Vec<PathBuf>,
    /// Bytes of files that go into an image at most.
    pub files_limit: u64,
    /// The user for whom a root agent runs the job.
    pub user: Option<&'a UserOrder>,
    /// What the last image has.
    pub seen: &'a Taken,
    /// Whether others of a cluster may be standing already.
    pub cluster: bool,
    /// Counts what is read.
    pub copying: &'a Copying,
}

/// Contents that were read ahead.
#[derive(Debug, Default)]
pub struct Copies(HashMap<Key, (Stamp, BlobData)>);

impl Copies {
    /// Reads what the next image will have of files, as far as it can be known. The job runs. What does not work is left to the
    /// moment when the job stands, which tells it.
    pub fn make(order: &Order<'_>) -> Self {
        let mut copies = Self::default();
        let began_ns = now_ns();
        if let Err(error) = copies.fill(order, began_ns, keeps_true_times) {
            tracing::debug!("reading files ahead: {error}");
        }
        copies
    }

    /// `fits`: whether a file lies where times can be relied on.
    fn fill(
        &mut self,
        order: &Order<'_>,
        began_ns: i64,
        fits: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Result<()> {
        if order.folders.is_empty() && order.seen.files.is_empty() {
            return Ok(());
        }
        // In this order: whoever begins to write after it has set the change time after `began_ns`.
        let busy = Busy::of(order.members, |key| order.seen.files.contains_key(&key))?;
        let mut budget = Budget::new(order);
        // What has no room there is not worth the way to the disk.
        let copying = order.copying.ahead();
        let user = order.user;
        let _acting =
            user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups)).transpose()?;
        let may_be_read = |stat: &FileStat| {
            let (key, stamp) = (identity(stat), Stamp::of(stat));
            stamp.is_older_than(began_ns)
                && !busy.is_leased(key)
                && !busy.is_mapped(key)
                && (!busy.is_open_for_writing(key) || order.seen.has(key, stamp))
        };
        let mut take = |opened: Opened| {
            let (key, stamp) = (identity(&opened.stat), Stamp::of(&opened.stat));
            let size = stamp.size;
            if self.0.contains_key(&key) || !fits(opened.fd.as_fd()) {
                return true;
            }
            if !budget.has_room_for(size) {
                return budget.goes_on();
            }
            if let Ok(data) = content::read(opened.fd.as_fd(), size, &copying) {
                self.0.insert(key, (stamp, data));
            }
            budget.goes_on()
        };
        let _ = busy.seen().all(|path| candidates::at(path, &may_be_read).is_none_or(&mut take))
            && order.folders.iter().all(|path| candidates::below(path, &may_be_read, &mut take));
        Ok(())
    }

    /// The content of a file, if it is still what was read.
    fn take(&mut self, stat: &FileStat) -> Option<BlobData> {
        let (stamp, data) = self.0.remove(&identity(stat))?;
        (stamp == Stamp::of(stat)).then_some(data)
    }
}

/// The content of a file while the job stands: what was read ahead, if it is still that, else it is read now.
///
/// # Errors
/// As [`content::read`].
pub fn content_of(
    context: &mut DumpContext,
    fd: BorrowedFd<'_>,
    stat: &FileStat,
) -> Result<BlobData> {
    context.seen.files.insert(identity(stat), Stamp::of(stat));
    let ahead = context.copies.take(stat);
    if let Some(data) = ahead {
        return Ok(data);
    }
    match context.leased.has(identity(stat).1) {
        true => content::read_through(fd, size(stat), &context.copying),
        false => content::read(fd, size(stat), &context.copying),
    }
}

/// Whether every change of this file's content moves its change time. On tmpfs a write through a mapping does not.
pub fn keeps_true_times(fd: BorrowedFd<'_>) -> bool {
    // The type is a signed word on some machines.
    let kind = fstatfs(fd).map(|found| found.filesystem_type().0 as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| TRUE_TIMES.contains(&kind))
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// How much is read ahead, and for how long.
struct Budget {
    bytes: u64,
    until: Option<Instant>,
}

impl Budget {
    fn new(order: &Order<'_>) -> Self {
        // The other half is for what has to be read while the job stands.
        let memory = available_memory().map_or(u64::MAX, |bytes| bytes / 2);
        let until = order.cluster.then(|| Instant::now() + CLUSTER_LIMIT);
        Self { bytes: order.files_limit.min(memory), until }
    }

    fn has_room_for(&mut self, bytes: u64) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }

    fn goes_on(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests;
