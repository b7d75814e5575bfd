//! Where a copy comes together: in a folder of its own, until all of it is durable and checked. Only then its files get
//! their names, so that whatever another node sends, nothing is ever taken for a part of an image that is not one.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ckpt_store::Arriving;
use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::ImageFile;
use protocol::task;
use tokio::runtime::Handle;

use super::error::CopyError;
use super::own_files;

/// See the module. What is left in it goes with it.
#[derive(Debug)]
pub struct Arrival {
    /// Where the files are now, by their later paths.
    come: PathBuf,
    /// The instance's folder.
    folder: PathBuf,
    checkpoint: CheckpointNumber,
}

impl Arrival {
    /// A fresh one below `parent`, which lies in the same file system as the instance's folder, with room for so many
    /// bytes.
    ///
    /// # Errors
    /// Where there is not so much room, or what the kernel refuses.
    pub async fn new(
        parent: &Path,
        folder: &Path,
        checkpoint: CheckpointNumber,
        needed: u64,
    ) -> Result<Self, CopyError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let come = parent.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        let arrival = Self { come, folder: folder.to_owned(), checkpoint };
        let come = arrival.come.clone();
        task::blocking(move || {
            let failed = CopyError::files("make room for a copy");
            let all =
                [format!("checkpoints/{checkpoint}"), "packs".into(), own_files::FOLDER.into()];
            all.iter().try_for_each(|part| make(&come.join(part))).map_err(&failed)?;
            let room = ckpt_store::archive::free(&come).map_err(&failed)?;
            if needed > room { Err(CopyError::NoRoom { needed, room }) } else { Ok(()) }
        })
        .await?;
        Ok(arrival)
    }

    /// Where the files come to.
    #[must_use]
    pub fn come(&self) -> &Path {
        &self.come
    }

    /// The instance's folder, where the files are to be.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Of which checkpoint they are.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointNumber {
        self.checkpoint
    }

    /// What has come, over what was here already.
    #[must_use]
    pub fn image(&self) -> Arriving {
        Arriving::new(&self.come, &self.folder)
    }

    /// The checkpoint is committed here, and only packs and files of the job come again: they are checked with what the
    /// index here says.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub async fn with_own_index(&self) -> Result<(), CopyError> {
        let part = Path::new("checkpoints").join(self.checkpoint.to_string());
        let (from, to) = (self.folder.join(&part), self.come.join(&part));
        task::blocking(move || {
            let copied = fs::read_dir(from).and_then(|listing| {
                for entry in listing {
                    let entry = entry?;
                    if entry.file_type()?.is_file() {
                        fs::copy(entry.path(), to.join(entry.file_name()))?;
                    }
                }
                Ok(())
            });
            copied.map_err(CopyError::files("copy an index"))
        })
        .await
    }

    /// Gives the files that have come their names, the checkpoint's last: all of its own at once. Packs that are here
    /// stay, but for those that are asked for because they are damaged.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub async fn settle(self, files: Vec<ImageFile>, packs: Packs) -> Result<(), CopyError> {
        task::blocking(move || self.name_all(&files, packs)).await
    }

    fn name_all(&self, files: &[ImageFile], packs: Packs) -> Result<(), CopyError> {
        let failed = CopyError::files("make a copy durable");
        let own = Path::new("checkpoints").join(self.checkpoint.to_string());
        for part in ["checkpoints", "packs", own_files::FOLDER] {
            make(&self.folder.join(part)).map_err(&failed)?;
        }
        if packs == Packs::Replace {
            self.image().spares_others(self.checkpoint)?;
        }
        let mut parts = HashSet::new();
        for file in files.iter().filter(|file| !Path::new(&file.path).starts_with(&own)) {
            let last = self.folder.join(&file.path);
            if packs == Packs::Replace || fs::symlink_metadata(&last).is_err() {
                fs::rename(self.come.join(&file.path), &last).map_err(&failed)?;
            }
            parts.extend(last.parent().map(Path::to_owned));
        }
        let sync = |part: &Path| File::open(part)?.sync_all();
        parts.iter().try_for_each(|part| sync(part)).map_err(&failed)?;
        if files.iter().any(|file| Path::new(&file.path).starts_with(&own)) {
            self.name_checkpoint(&own).map_err(&failed)?;
        }
        sync(&self.folder.join("checkpoints")).and_then(|()| sync(&self.folder)).map_err(failed)
    }

    /// What was there before is of an older attempt, or is not what was committed.
    fn name_checkpoint(&self, own: &Path) -> io::Result<()> {
        let (come, last) = (self.come.join(own), self.folder.join(own));
        File::open(&come)?.sync_all()?;
        match fs::rename(&last, self.come.join("replaced")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(come, last)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let come = std::mem::take(&mut self.come);
        // What can't be removed, or is left by an agent that ends, goes when it starts again.
        if Handle::try_current().is_ok() {
            task::spawn_blocking(move || drop(fs::remove_dir_all(come)));
        }
    }
}

/// What becomes of packs that are here when others of the same names have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packs {
    /// They stay.
    Keep,
    /// What has come is better: these are damaged.
    Replace,
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
