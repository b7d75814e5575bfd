//! A folder or a bucket.

use super::folder::{self, ENDING, Folder};
use crate::bucket::{self, Address, GiveUp};
use crate::failure::Failure;
use std::io;
use std::path::{Path, PathBuf};

/// Where one job is kept.
#[derive(Debug)]
pub(super) enum Place {
    Folder(Folder),
    /// An object of S3, which nothing keeps another run of the same name from.
    Bucket(Address),
}

/// Where an archive is written that is to replace the one that is there.
pub(super) enum Draft {
    Folder(folder::Draft),
    /// An upload shows only once it is whole.
    Bucket(PathBuf),
}

impl Draft {
    /// What `export` is told.
    pub(super) fn target(&self) -> PathBuf {
        match self {
            Self::Folder(draft) => draft.archive(),
            Self::Bucket(object) => object.clone(),
        }
    }
}

impl Place {
    /// Of a job of that name. What a run before has left unfinished is removed.
    ///
    /// # Errors
    /// Where nothing can be written, which is told before the job begins.
    pub(super) fn of(place: &Path, name: &str, give_up: &GiveUp) -> Result<Self, Failure> {
        let what = || format!("keep jobs in {}", place.display());
        let prefix = Address::of(place).map_err(|error| Failure::of(what(), error))?;
        let Some(prefix) = prefix else { return Folder::of(place, name).map(Self::Folder) };
        let object = prefix.below(&format!("{name}.{ENDING}"));
        bucket::check(&object, give_up).map_err(|error| Failure::of(what(), error))?;
        Ok(Self::Bucket(object))
    }

    /// The archive, as `import` is told, and the user.
    pub(super) fn archive(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.archive(),
            Self::Bucket(object) => object.to_string().into(),
        }
    }

    pub(super) fn has_archive(&self, give_up: &GiveUp) -> io::Result<bool> {
        match self {
            Self::Folder(folder) => folder.has_archive(),
            Self::Bucket(object) => bucket::exists(object, give_up).map_err(io::Error::other),
        }
    }

    pub(super) fn draft(&self) -> io::Result<Draft> {
        match self {
            Self::Folder(folder) => folder.draft().map(Draft::Folder),
            Self::Bucket(object) => Ok(Draft::Bucket(object.to_string().into())),
        }
    }

    /// What was written replaces the archive.
    pub(super) fn replace(&self, draft: Draft) -> io::Result<()> {
        match (self, draft) {
            (Self::Folder(folder), Draft::Folder(draft)) => folder.replace(draft),
            _ => Ok(()),
        }
    }

    pub(super) fn remove(&self, give_up: &GiveUp) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.remove(),
            Self::Bucket(object) => bucket::remove(object, give_up).map_err(io::Error::other),
        }
    }
}
