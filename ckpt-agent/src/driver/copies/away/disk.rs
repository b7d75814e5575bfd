//! The store's view of an image that goes elsewhere: a disk on which the files of that image take no room.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ckpt_store::{Disk, DiskFile, NotTaken, RealDisk};

use super::super::files::{is_index, is_pack};
use super::{Away, MOST_INDEX};

/// See the module. All else is on the machine's own disk.
pub struct AwayDisk(pub Arc<Away>);

/// What is made of a file.
enum Kind {
    /// It goes elsewhere.
    Away(String),
    /// The mark of the commit, which whoever has the image makes of the coordinator's record.
    Mark,
    /// It is none of the image.
    Here,
}

impl AwayDisk {
    fn kind(&self, path: &Path) -> Kind {
        let Some(below) = path.strip_prefix(&self.0.folder).ok().and_then(Path::to_str) else {
            return Kind::Here;
        };
        if is_pack(below) || is_index(below, self.0.checkpoint) {
            Kind::Away(below.to_owned())
        } else if self.is_folder(path.parent().unwrap_or(path)) {
            Kind::Mark
        } else {
            Kind::Here
        }
    }

    /// Whether it is the checkpoint's folder, which is not here.
    fn is_folder(&self, path: &Path) -> bool {
        let number = self.0.checkpoint.to_string();
        path == self.0.folder.join("checkpoints").join(number)
    }
}

impl Disk for AwayDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_folder(path) { Ok(()) } else { RealDisk.make_dir(path) }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        match self.kind(path) {
            Kind::Away(path) => {
                if !self.0.state().begun.insert(path.clone()) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Ok(Box::new(AwayFile { away: self.0.clone(), path, offset: 0 }))
            }
            Kind::Mark => Ok(Box::new(NoFile)),
            Kind::Here => RealDisk.create(path),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.kind(from) {
            Kind::Mark => Ok(()),
            Kind::Away(_) => Err(io::ErrorKind::Unsupported.into()),
            Kind::Here => RealDisk.rename(from, to),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let Kind::Away(below) = self.kind(path) else { return RealDisk.remove_file(path) };
        let mut state = self.0.state();
        if !state.begun.remove(&below) {
            // A pack of before.
            drop(state);
            return RealDisk.remove_file(path);
        }
        if is_index(&below, self.0.checkpoint) || state.begun.is_empty() {
            // The image is given up. A pack alone is removed where nothing is in it.
            state.link = None;
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_folder(path) { Ok(()) } else { RealDisk.sync_dir(path) }
    }

    fn is_beside_others(&self) -> bool {
        false
    }
}

struct AwayFile {
    away: Arc<Away>,
    path: String,
    offset: u64,
}

impl DiskFile for AwayFile {
    fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let not_taken = |reason: String| io::Error::other(NotTaken(reason));
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        if is_index(&self.path, self.away.checkpoint)
            && !self.away.state().index.append(name, parts, MOST_INDEX)
        {
            let most = MOST_INDEX >> 20;
            return Err(not_taken(format!("its index has more than {most} MiB")));
        }
        let sent = self.away.send(&self.path, self.offset, parts);
        sent.map_err(|reason| not_taken(reason.to_string()))?;
        self.offset += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }

    /// It is durable when [`Away::finish`] has returned, and before that nothing counts on it.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is written nowhere.
struct NoFile;

impl DiskFile for NoFile {
    fn append(&mut self, _: &[&[u8]]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
