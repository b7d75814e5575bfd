//! What is kept of a job's checkpoints: the images of this machine, hashed, and where agents keep those of others.
//!
//! ```text
//! JOB/dmtcp/images/           where DMTCP writes; it replaces images at each checkpoint
//! JOB/dmtcp/N/                a committed checkpoint's images, and
//! JOB/dmtcp/N/images.json     what they are, and where agents keep those of other machines
//! ```
//!
//! - `shared`: agents take images in, partners get copies, and what is lost is restarted from these.

mod error;
mod shared;

pub use error::ImageError;

use crate::cluster::Cluster;
use crate::machine::{Checkpoint, Image};
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::linkat;
use protocol::cluster::NodeName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of images.json.
const FORMAT: u32 = 1;

/// The largest images.json that is read, in bytes.
const MAX_DESCRIPTION: u64 = 64 * 1024 * 1024;

/// What a checkpoint has.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    format: u32,
    /// The computation, as DMTCP names it.
    pub group: String,
    /// Its images.
    pub images: Vec<Kept>,
}

/// An image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The host, as its process knows it.
    pub host: String,
    /// The file as DMTCP wrote it.
    pub path: String,
    /// The process's program.
    pub program: String,
    /// Its name in the checkpoint's folder; None: it is on its own machine only.
    pub file: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3 hash.
    pub blake3: Option<String>,
    /// Where agents keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Place>,
}

/// What agents keep of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine's number in the job.
    pub instance: u32,
    /// Its node at the checkpoint.
    pub node: NodeName,
    /// Nodes that hold its images.
    pub holders: Vec<NodeName>,
}

/// What is kept of one checkpoint, in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of its images.
    pub bytes: u64,
    /// Machines that have each image, at least.
    pub copies: u32,
    /// Whether some image is on fewer than it should be.
    pub degraded: bool,
}

/// The images of a job.
#[derive(Debug, Clone)]
pub struct Images {
    folder: PathBuf,
    job: String,
}

impl Images {
    /// Those of the job with that folder and id.
    #[must_use]
    pub fn of(job: &Path, id: &str) -> Self {
        Self { folder: job.join("dmtcp"), job: id.to_owned() }
    }

    /// Where they are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where DMTCP writes.
    #[must_use]
    pub fn written_in(&self) -> PathBuf {
        self.folder.join("images")
    }

    /// Keeps those of a checkpoint; with a cluster, by its agents.
    ///
    /// # Errors
    /// Where images can't be kept: then the checkpoint must not count.
    pub fn keep(
        &self,
        number: u64,
        checkpoint: &Checkpoint,
        cluster: Option<&Cluster>,
    ) -> Result<Amount, ImageError> {
        let taken = match cluster {
            Some(cluster) => self.take_in(cluster, number, checkpoint)?,
            None => BTreeMap::new(),
        };
        let bytes = self.write(number, checkpoint, &taken)?;
        let holders = |index| taken.get(&index).and_then(|kept: &Kept| kept.share.as_ref());
        let copies = (0..checkpoint.images.len())
            .map(|index| holders(index).map_or(1, |place| place.holders.len()))
            .min()
            .unwrap_or(1);
        let degraded = cluster.is_some() && copies < shared::COPIES;
        Ok(Amount { bytes, copies: u32::try_from(copies).unwrap_or(u32::MAX), degraded })
    }

    /// Removes `old` checkpoints, and has agents keep no others than these. What can't be removed is removed with the job.
    pub fn collect(&self, old: &[u64], kept: &[u64], cluster: Option<&Cluster>) {
        for number in old {
            let _ = fs::remove_dir_all(self.folder.join(number.to_string()));
        }
        if let Some(cluster) = cluster {
            self.collect_shared(cluster, kept);
        }
    }

    /// Makes a checkpoint's folder whole or not at all; the bytes of its images.
    fn write(
        &self,
        number: u64,
        checkpoint: &Checkpoint,
        taken: &BTreeMap<usize, Kept>,
    ) -> io::Result<u64> {
        let own = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        let new = self.folder.join(format!(".{number}.new"));
        let _ = fs::remove_dir_all(&new);
        fs::create_dir_all(&new)?;
        let mut images = Vec::new();
        for (index, image) in checkpoint.images.iter().enumerate() {
            images.push(match taken.get(&index) {
                Some(kept) => kept.clone(),
                None => keep_image(&new, index, image, &own)?,
            });
        }
        let bytes = images.iter().map(|image| image.bytes).sum();
        let description =
            Description { format: FORMAT, group: checkpoint.group.to_string(), images };
        let path = new.join("images.json");
        fs::write(&path, serde_json::to_vec_pretty(&description)?)?;
        File::open(&path)?.sync_all()?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.folder.join(number.to_string()))?;
        File::open(&self.folder)?.sync_all()?;
        Ok(bytes)
    }

    /// The images of a committed checkpoint, each checked against its hash.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn files(&self, number: u64) -> Result<Vec<PathBuf>, ImageError> {
        let mut images = Vec::new();
        for image in self.description(number)?.images {
            if let Some(place) = &image.share {
                let Place { node, holders, .. } = place.clone();
                return Err(ImageError::WithAgents { path: image.path, node, holders });
            }
            images.push(self.checked(number, &image)?);
        }
        Ok(images)
    }

    /// The numbers of the checkpoints that are kept.
    fn numbers(&self) -> Vec<u64> {
        let listing = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// What a committed checkpoint has.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn description(&self, number: u64) -> Result<Description, ImageError> {
        let place = self.folder.join(number.to_string());
        let path = place.join("images.json");
        let failed = |source| ImageError::Read { path: path.clone(), source };
        if fs::metadata(&path).map_err(failed)?.len() > MAX_DESCRIPTION {
            return Err(ImageError::TooLong(path));
        }
        let description: Description = protocol::json::read(&fs::read(&path).map_err(failed)?)
            .map_err(|source| ImageError::Json { path: path.clone(), source })?;
        if description.format > FORMAT {
            return Err(ImageError::Newer(path));
        }
        Ok(description)
    }

    /// An image that is kept on this machine, checked against its hash.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn checked(&self, number: u64, image: &Kept) -> Result<PathBuf, ImageError> {
        let place = self.folder.join(number.to_string());
        let Some(file) = &image.file else {
            let (path, host) = (image.path.clone(), image.host.clone());
            return Err(ImageError::Elsewhere { path, host });
        };
        // A name, never a path.
        let found = place.join(Path::new(file).file_name().unwrap_or_default());
        let failed = |source| ImageError::Read { path: found.clone(), source };
        let hash = File::open(&found).and_then(hash).map_err(failed)?;
        if image.blake3.as_deref() != Some(hash.as_str()) {
            return Err(ImageError::Damaged(found));
        }
        Ok(found)
    }
}

fn keep_image(new: &Path, index: usize, image: &Image, own: &str) -> io::Result<Kept> {
    let path = Path::new(&image.name.path);
    let mut kept = Kept {
        host: image.name.host.clone(),
        path: image.name.path.clone(),
        program: image.program.clone(),
        file: None,
        bytes: 0,
        blake3: None,
        share: None,
    };
    // One of whose process nobody knows the user is not opened here: its path may be anything, and its host's name, too.
    let Some(owner) = image.owner.filter(|_| image.name.host == own) else { return Ok(kept) };
    let source = open_image(path, owner)?;
    let base = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let file = match base {
        Some(base) if !new.join(&base).exists() => base,
        _ => format!("{index}.dmtcp"),
    };
    let place = new.join(&file);
    // DMTCP replaces images by new files, so that a second name keeps this one: the file that was looked at, by its descriptor.
    let found = format!("/proc/self/fd/{}", source.as_raw_fd());
    if linkat(AT_FDCWD, found.as_str(), AT_FDCWD, &place, AtFlags::AT_SYMLINK_FOLLOW).is_err() {
        let mut target = File::options().write(true).create_new(true).mode(0o600).open(&place)?;
        io::copy(&mut &source, &mut target)?;
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits()).open(&place)?;
    opened.sync_all()?;
    kept.bytes = opened.metadata()?.len();
    kept.blake3 = Some(hash(opened)?);
    kept.file = Some(file);
    Ok(kept)
}

/// An image that a process of this user has written: a plain file of the user's own, whatever its path leads to.
fn open_image(path: &Path, owner: u32) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    match found.is_file() && found.uid() == owner {
        true => Ok(file),
        false => {
            let reason = format!("{} is no plain file of user {owner}", path.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
        }
    }
}

fn hash(file: File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Identity;
    use crate::wire::ImageName;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;

    fn image(path: &Path, owner: Option<u32>) -> Image {
        let (host, path) = ("here".to_owned(), path.display().to_string());
        Image {
            name: ImageName { host, shell: String::new(), path },
            identity: Identity::default(),
            program: "p".into(),
            remote: Ipv4Addr::LOCALHOST,
            owner,
        }
    }

    #[test]
    fn only_plain_files_of_the_processs_own_user_are_kept() {
        let (disk, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let good = disk.path().join("ckpt.dmtcp");
        fs::write(&good, b"image").unwrap();
        let own = fs::metadata(&good).unwrap().uid();
        let link = disk.path().join("link.dmtcp");
        symlink(&good, &link).unwrap();
        let folder = disk.path().join("folder.dmtcp");
        fs::create_dir(&folder).unwrap();
        let keep = |image: &Image| keep_image(new.path(), 0, image, "here");
        for bad in [image(&good, Some(own + 1)), image(&link, Some(own)), image(&folder, Some(own))]
        {
            assert!(keep(&bad).is_err(), "{bad:?}");
        }
        // Of whose process nobody knows the user, or on another host: named, and not opened.
        for elsewhere in [image(&link, None), image(&good, None)] {
            assert_eq!(keep(&elsewhere).unwrap().file, None);
        }
        assert_eq!(fs::read_dir(new.path()).unwrap().count(), 0);
        let kept = keep(&image(&good, Some(own))).unwrap();
        assert_eq!((kept.bytes, kept.file.as_deref()), (5, Some("ckpt.dmtcp")));
        // The very file, under a second name.
        let there = fs::metadata(new.path().join("ckpt.dmtcp")).unwrap();
        assert_eq!(there.ino(), fs::metadata(&good).unwrap().ino());
    }
}
