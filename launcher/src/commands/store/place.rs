//! A folder or a bucket.

use super::folder::{self, ENDING, Folder};
use crate::bucket::{self, Address, Claim, GiveUp};
use crate::failure::Failure;
use std::io;
use std::path::{Path, PathBuf};

/// Where one job is kept.
#[derive(Debug)]
pub(super) enum Place {
    Folder(Folder),
    /// An object of S3.
    Bucket {
        object: Address,
        /// Held as long as the job runs.
        claim: Claim,
    },
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
        let tells = |text: &str| eprintln!("ckptd: {object}: {text}");
        // Another run's upload that is on its way is not touched before.
        let claim = Claim::take(&object, give_up, tells);
        let claim = claim.map_err(|error| Failure::of(what(), error))?;
        bucket::check(&object, give_up).map_err(|error| Failure::of(what(), error))?;
        Ok(Self::Bucket { object, claim })
    }

    /// The archive, as `import` is told, and the user.
    pub(super) fn archive(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.archive(),
            Self::Bucket { object, .. } => object.to_string().into(),
        }
    }

    pub(super) fn has_archive(&self, give_up: &GiveUp) -> io::Result<bool> {
        match self {
            Self::Folder(folder) => folder.has_archive(),
            Self::Bucket { object, .. } => {
                bucket::exists(object, give_up).map_err(io::Error::other)
            }
        }
    }

    pub(super) fn draft(&self) -> io::Result<Draft> {
        match self {
            Self::Folder(folder) => folder.draft().map(Draft::Folder),
            Self::Bucket { object, .. } => Ok(Draft::Bucket(object.to_string().into())),
        }
    }

    /// By which `export` knows that the archive still is this run's to replace.
    pub(super) fn claim(&self) -> Option<&str> {
        match self {
            Self::Folder(_) => None,
            Self::Bucket { claim, .. } => Some(claim.run()),
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
            Self::Bucket { object, claim } => {
                bucket::remove(object, claim, give_up).map_err(io::Error::other)
            }
        }
    }
}
