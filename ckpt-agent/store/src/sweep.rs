//! Removing checkpoints, and packs that nobody refers to.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::checkpoint::read_mark;
use super::chunk::PackId;
use super::disk::{Disk, RealDisk};
use super::error::{Damage, StoreError};
use super::layout::{Layout, MARK};

/// What a collection has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Checkpoints, committed or not.
    pub checkpoints: Vec<u64>,
    /// Packs.
    pub packs: Vec<PackId>,
    /// The length of those packs in bytes.
    pub bytes: u64,
}

/// Removes every checkpoint of the job kept in `job_dir` but those to `keep`, and then the packs
/// that none of these refers to. Uncommitted checkpoints go in any case. While the commit mark of
/// one to keep can't be read, no pack is removed: it may be needed to repair it.
///
/// # Errors
/// [`StoreError::Busy`] while a checkpoint is being written; what the kernel refuses.
pub fn collect(job_dir: &Path, keep: &[u64]) -> Result<Collected, StoreError> {
    collect_on(&RealDisk, job_dir, keep)
}

/// Like [`collect`], on another disk.
///
/// # Errors
/// As there.
pub fn collect_on(disk: &dyn Disk, job_dir: &Path, keep: &[u64]) -> Result<Collected, StoreError> {
    let layout = Layout::new(job_dir);
    if !layout.checkpoints().is_dir() {
        return Ok(Collected::default());
    }
    let _lock = layout.lock()?;
    clear(disk, &layout, |number| keep.contains(&number))
}

/// Removes what interrupted writers and collectors have left. The caller holds the lock.
pub(super) fn leftovers(disk: &dyn Disk, layout: &Layout) -> Result<Collected, StoreError> {
    clear(disk, layout, |_| true)
}

fn clear(
    disk: &dyn Disk,
    layout: &Layout,
    keep: impl Fn(u64) -> bool,
) -> Result<Collected, StoreError> {
    let folder = layout.checkpoints();
    let numbers = layout.numbers().map_err(|error| StoreError::io("read", &folder, &error))?;
    let mut collected = Collected::default();
    let mut needed: Option<HashSet<PackId>> = Some(HashSet::new());
    for number in numbers {
        match read_mark(layout, number) {
            Ok(mark) if keep(number) => {
                if let Some(needed) = &mut needed {
                    needed.extend(mark.packs.iter().map(|pack| pack.id));
                }
            }
            Err(damage) if keep(number) && !matches!(damage, Damage::Incomplete { .. }) => {
                tracing::warn!(%damage, "packs are not collected");
                needed = None;
            }
            _ => {
                remove_checkpoint(disk, layout, number)?;
                collected.checkpoints.push(number);
            }
        }
    }
    if let Some(needed) = needed {
        // The marks must be gone for good before the packs that they name.
        if !collected.checkpoints.is_empty() {
            sync_dir(disk, &folder)?;
        }
        remove_packs(disk, layout, &needed, &mut collected)?;
    }
    Ok(collected)
}

/// Removes a checkpoint's folder with all that is in it, the mark first. Its packs stay.
pub(super) fn remove_checkpoint(
    disk: &dyn Disk,
    layout: &Layout,
    number: u64,
) -> Result<(), StoreError> {
    let folder = layout.checkpoint(number);
    // Without its mark it is a leftover, should we be interrupted from here on.
    if remove_file(disk, &folder.join(MARK))? {
        sync_dir(disk, &folder)?;
    }
    let failed = |error: io::Error| StoreError::io("read", &folder, &error);
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        remove_file(disk, &entry.map_err(failed)?.path())?;
    }
    disk.remove_dir(&folder).map_err(|error| StoreError::io("remove", &folder, &error))
}

fn remove_packs(
    disk: &dyn Disk,
    layout: &Layout,
    needed: &HashSet<PackId>,
    collected: &mut Collected,
) -> Result<(), StoreError> {
    let folder = layout.packs();
    let packs = layout.pack_ids().map_err(|error| StoreError::io("read", &folder, &error))?;
    for pack in packs.into_iter().filter(|pack| !needed.contains(pack)) {
        let path = layout.pack(pack);
        collected.bytes += std::fs::symlink_metadata(&path).map_or(0, |found| found.len());
        remove_file(disk, &path)?;
        collected.packs.push(pack);
    }
    Ok(())
}

/// Whether there was such a file.
fn remove_file(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    match disk.remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("remove", path, &error)),
    }
}

fn sync_dir(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    disk.sync_dir(folder).map_err(|error| StoreError::io("write", folder, &error))
}
