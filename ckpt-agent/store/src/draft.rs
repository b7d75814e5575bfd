//! The files of a checkpoint that is not committed yet, and their removal if it never will be.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::{Disk, DiskFile};
use super::error::StoreError;
use super::layout::{Layout, MARK, MARK_DRAFT, StoreLock};
use super::sweep;

/// Files of a draft that may be open at a time, waiting to be made durable.
const MOST_UNSYNCED: usize = 64;

/// The folder, the pack and the lock of a checkpoint in the making.
pub(super) struct Draft {
    disk: Arc<dyn Disk>,
    layout: Layout,
    number: u64,
    /// In the order of their making.
    files: Vec<PathBuf>,
    /// Those of them that are written and not durable yet. Locked, since threads share a writer to take buffers.
    unsynced: Mutex<Vec<(PathBuf, Box<dyn DiskFile>)>>,
    committed: bool,
    _lock: StoreLock,
}

impl Draft {
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        job_dir: &Path,
        number: u64,
    ) -> Result<Self, StoreError> {
        let layout = Layout::new(job_dir);
        for folder in [layout.job().to_path_buf(), layout.checkpoints(), layout.packs()] {
            make_dir(&*disk, &folder)?;
        }
        let lock = layout.lock()?;
        if std::fs::symlink_metadata(layout.checkpoint(number).join(MARK)).is_ok() {
            return Err(StoreError::Committed { number });
        }
        sweep::leftovers(&*disk, &layout)?;
        let folder = layout.checkpoint(number);
        disk.make_dir(&folder).map_err(|error| StoreError::io("create", &folder, &error))?;
        Ok(Self {
            disk,
            layout,
            number,
            files: Vec::new(),
            unsynced: Mutex::default(),
            committed: false,
            _lock: lock,
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes a file, which is removed with the draft.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        self.files.push(path.to_path_buf());
        Ok(file)
    }

    /// Removes a file of the draft that is not needed after all.
    pub(super) fn remove(&mut self, path: &Path) -> Result<(), StoreError> {
        self.disk.remove_file(path).map_err(|error| StoreError::io("remove", path, &error))?;
        self.files.retain(|file| file != path);
        Ok(())
    }

    /// Writes a whole file into the checkpoint's folder, durably.
    pub(super) fn write(&mut self, name: &str, text: &[u8]) -> Result<(), StoreError> {
        let (path, mut file) = self.fill(name, text)?;
        file.sync().map_err(|error| StoreError::io("write", &path, &error))
    }

    fn fill(
        &mut self,
        name: &str,
        text: &[u8],
    ) -> Result<(PathBuf, Box<dyn DiskFile>), StoreError> {
        let path = self.folder().join(name);
        let mut file =
            self.create(&path).map_err(|error| StoreError::io("create", &path, &error))?;
        file.append(&[text]).map_err(|error| StoreError::io("write", &path, &error))?;
        Ok((path, file))
    }

    /// Writes a whole file into the checkpoint's folder, which is durable once [`Draft::sync_folders`] has returned. A
    /// file system with a journal waits for the disk once for many files where it has begun with all of them.
    pub(super) fn write_later(&mut self, name: &str, text: &[u8]) -> Result<(), StoreError> {
        let (path, mut file) = self.fill(name, text)?;
        file.begin_sync();
        let unsynced = self.unsynced.get_mut().unwrap_or_else(PoisonError::into_inner);
        unsynced.push((path, file));
        if unsynced.len() < MOST_UNSYNCED {
            return Ok(());
        }
        self.sync_files()
    }

    fn sync_files(&mut self) -> Result<(), StoreError> {
        let unsynced = self.unsynced.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (path, mut file) in unsynced.drain(..) {
            file.sync().map_err(|error| StoreError::io("write", &path, &error))?;
        }
        Ok(())
    }

    /// Makes every name durable that leads to the checkpoint and its pack.
    pub(super) fn sync_folders(&mut self) -> Result<(), StoreError> {
        self.sync_files()?;
        let layout = &self.layout;
        let folders =
            [layout.packs(), self.folder(), layout.checkpoints(), layout.job().to_path_buf()];
        folders.iter().try_for_each(|folder| self.sync_dir(folder))
    }

    /// Gives the commit mark its name: from here on the checkpoint exists.
    pub(super) fn publish(mut self) -> Result<(), StoreError> {
        let folder = self.folder();
        let mark = folder.join(MARK);
        self.disk
            .rename(&folder.join(MARK_DRAFT), &mark)
            .map_err(|error| StoreError::io("rename", &mark, &error))?;
        self.files.push(mark);
        // Should this fail, the mark's fate is unknown, and the draft removes it.
        self.sync_dir(&folder)?;
        self.committed = true;
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.layout.checkpoint(self.number)
    }

    fn sync_dir(&self, folder: &Path) -> Result<(), StoreError> {
        self.disk.sync_dir(folder).map_err(|error| StoreError::io("write", folder, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // The mark, if any, was made last and goes first.
        for path in self.files.iter().rev() {
            match self.disk.remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "an unfinished file stays");
                }
                _ => {}
            }
        }
        // The agent may have put the list of the job's own files beside ours.
        if let Err(error) = sweep::remove_checkpoint(&*self.disk, &self.layout, self.number) {
            tracing::warn!(checkpoint = self.number, %error, "an unfinished checkpoint stays");
        }
    }
}

fn make_dir(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match disk.make_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::io("create", path, &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::RealDisk;
    use super::*;

    #[test]
    fn a_draft_takes_everything_in_its_folder_with_it() {
        let job = tempfile::tempdir().unwrap();
        let mut draft = Draft::begin(Arc::new(RealDisk), job.path(), 3).unwrap();
        draft.write("graph.json", b"{}").unwrap();
        let folder = draft.folder();
        std::fs::write(folder.join("FILES"), "of somebody else").unwrap();
        drop(draft);
        assert!(!folder.exists());
    }
}
