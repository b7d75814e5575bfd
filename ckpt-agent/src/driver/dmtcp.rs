//! Images that DMTCP has written on this machine, in the store: each file is a blob, and an index names them. So they are
//! hashed, copied to other nodes, checked and collected like those of the native engine.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::JobUser;
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpPath};
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;

use super::copies::as_user;
use super::user::{User, UserError};
use ckpt_store::{Blob, Checkpoint, CheckpointWriter, Damage, StoreError};

/// The index of such an image.
const INDEX: &str = "dmtcp.json";
/// Version of the index.
const FORMAT: u32 = 1;
/// How names of images end.
const SUFFIX: &str = ".dmtcp";
/// How names of images end that were put out for a restart.
const OUT: &str = ".restart.dmtcp";

/// Why images of DMTCP were not taken in, or not put out.
#[derive(Debug, thiserror::Error)]
pub enum DmtcpError {
    /// An image can't be read where it was written.
    #[error("read the image {path}: {source}")]
    Read {
        /// Its path.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The store does not take an image.
    #[error("read the image {path}: {source}")]
    Store {
        /// Its path.
        path: String,
        /// Why not.
        source: StoreError,
    },
    /// The store does not take the checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] StoreError),
    /// What is in the store is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// What is in the store has a form that is not known here.
    #[error("the image is of a newer ckptd")]
    Newer,
    /// The path in the store's index is none of an image.
    #[error("{0:?} is no path of an image")]
    NoPath(String),
    /// An image can't be written for the restart.
    #[error("write the image {}: {source}", path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its owner is not to be had here.
    #[error(transparent)]
    User(#[from] UserError),
    /// A thread ended early: a defect of ckptd.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    format: u32,
    files: Vec<Stored>,
}

/// A file in the store.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    path: String,
    /// Whose it is: for whom it may be restarted.
    owner: JobUser,
    content: Blob,
}

/// Images of one user, put out for a restart.
#[derive(Debug, PartialEq, Eq)]
pub struct PutOut {
    /// The user; None: this process's own.
    pub user: Option<User>,
    /// Their paths.
    pub images: Vec<PathBuf>,
    /// Where they were written, if that was one folder.
    pub folder: Option<PathBuf>,
}

/// Reads, and hashes what was read.
struct Hashing<'a> {
    file: &'a File,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Read for Hashing<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(room)?;
        self.hasher.update(&room[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Takes files into the store of an instance, as a checkpoint that is complete. Whether it counts, the coordinator's log says.
///
/// Paths come from whoever may connect to the coordinator's port for DMTCP. So only plain files are taken that are named as
/// images of DMTCP are; each is opened with the rights of its own owner, and given back to that owner alone. Where the user
/// of the process is known, that must be the owner.
///
/// # Errors
/// Nothing of it is left then.
pub fn take_in(
    folder: &Path,
    checkpoint: CheckpointNumber,
    named: &[DmtcpPath],
    user_for: impl Fn(&JobUser) -> Result<Option<User>, UserError>,
) -> Result<Vec<DmtcpFile>, DmtcpError> {
    let writer = CheckpointWriter::create(folder, checkpoint)?;
    let (mut taken, mut pending) = (Vec::new(), Vec::new());
    for DmtcpPath { path, owner } in named {
        let (file, owner) = open(path, owner.as_ref(), &user_for)?;
        let mut source = Hashing { file: &file, hasher: blake3::Hasher::new(), bytes: 0 };
        let blob = writer.submit_blob(&mut source);
        let blob = blob.map_err(|source| DmtcpError::Store { path: path.clone(), source })?;
        let blake3 = source.hasher.finalize().to_hex().to_string();
        taken.push(DmtcpFile { path: path.clone(), bytes: source.bytes, blake3 });
        pending.push((path, owner, blob));
    }
    let done = writer.finish_chunks().and_then(|(mut index, chunks)| {
        let stored = pending.into_iter().filter_map(|(path, owner, blob)| {
            Some(Stored { path: path.clone(), owner, content: chunks.blob(&blob)? })
        });
        let files: Vec<Stored> = stored.collect();
        index.put_json(INDEX, &Index { format: FORMAT, files })?;
        index.seal()?.commit(&serde_json::Value::Null)
    });
    done?;
    Ok(taken)
}

/// An image, and whose it is.
fn open(
    path: &str,
    wanted: Option<&JobUser>,
    user_for: impl Fn(&JobUser) -> Result<Option<User>, UserError>,
) -> Result<(File, JobUser), DmtcpError> {
    let failed = |source| DmtcpError::Read { path: path.to_owned(), source };
    if !path.starts_with('/') || !path.ends_with(SUFFIX) {
        return Err(failed(refused("it is not named as an image of DMTCP is")));
    }
    let number = fs::symlink_metadata(path).map_err(failed)?.uid();
    let owner = JobUser::of(number);
    if wanted.is_some_and(|wanted| wanted.name != owner.name) {
        return Err(failed(refused("it does not belong to the user of the process that names it")));
    }
    let user = user_for(&owner)?;
    let opened = as_user(user.as_ref(), || {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(refused("it is no plain file"));
        }
        match found.uid() == number {
            true => Ok(file),
            false => Err(refused("it has become another's file")),
        }
    });
    Ok((opened.map_err(failed)?, owner))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Puts the images of a checkpoint where they were written, under names of their own, each as its owner.
///
/// # Errors
/// See [`DmtcpError`].
pub fn put_out(
    folder: &Path,
    checkpoint: CheckpointNumber,
    user_for: impl Fn(&JobUser) -> Result<Option<User>, UserError>,
) -> Result<Vec<PutOut>, DmtcpError> {
    let image = Checkpoint::open(folder, checkpoint)?;
    let index: Index = image.read_json(INDEX)?;
    if index.format > FORMAT {
        return Err(DmtcpError::Newer);
    }
    let reader = image.reader()?;
    let mut groups: Vec<(JobUser, PutOut)> = Vec::new();
    for stored in index.files {
        let user = user_for(&stored.owner)?;
        let (from, place) =
            place(&stored.path).ok_or_else(|| DmtcpError::NoPath(stored.path.clone()))?;
        let write = || -> io::Result<()> {
            fs::create_dir_all(&from)?;
            let draft = place.with_extension("part");
            let _ = fs::remove_file(&draft);
            let file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
            let mut buffered = BufWriter::with_capacity(1 << 20, &file);
            reader.read_blob(&stored.content, &mut buffered).map_err(io::Error::other)?;
            buffered.flush()?;
            fs::rename(&draft, &place)
        };
        as_user(user.as_ref(), write)
            .map_err(|source| DmtcpError::Write { path: place.clone(), source })?;
        match groups.iter_mut().find(|(owner, _)| *owner == stored.owner) {
            Some((_, group)) => {
                group.images.push(place);
                group.folder.take_if(|known| *known != from);
            }
            None => {
                let group = PutOut { user, images: vec![place], folder: Some(from) };
                groups.push((stored.owner, group));
            }
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// The folder of an image, and where it is put for a restart: DMTCP may be writing the next one under its own name.
fn place(path: &str) -> Option<(PathBuf, PathBuf)> {
    let stem = path.strip_suffix(SUFFIX)?;
    let stem = stem.strip_suffix(".restart").unwrap_or(stem);
    let place = PathBuf::from(format!("{stem}{OUT}"));
    let plain = place.is_absolute() && place.components().all(|part| part.as_os_str() != "..");
    plain.then(|| place.parent().map(Path::to_owned).map(|folder| (folder, place)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> DmtcpPath {
        DmtcpPath { path: path.to_owned(), owner: None }
    }

    fn own(_: &JobUser) -> Result<Option<User>, UserError> {
        Ok(None)
    }

    #[test]
    fn images_are_hashed_and_come_back_as_they_were() {
        let (store, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = disk.path().join("a/ckpt_p_1-2-3.dmtcp");
        fs::create_dir(disk.path().join("a")).unwrap();
        let bytes: Vec<u8> = (0..700_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let paths = [named(&path.display().to_string())];
        let taken = take_in(store.path(), 3, &paths, own).unwrap();
        assert_eq!(taken[0].bytes, 700_000);
        assert_eq!(taken[0].blake3, blake3::hash(&bytes).to_hex().to_string());
        // Its disk is lost.
        fs::remove_dir_all(disk.path().join("a")).unwrap();
        let out = put_out(store.path(), 3, own).unwrap();
        let place = disk.path().join("a/ckpt_p_1-2-3.restart.dmtcp");
        let folder = Some(disk.path().join("a"));
        assert_eq!(out, [PutOut { user: None, images: vec![place.clone()], folder }]);
        assert_eq!(fs::read(place).unwrap(), bytes);
        // A later image of a process that was restarted goes to the same place.
        let (_, again) = super::place("/a/ckpt_p.restart.dmtcp").unwrap();
        assert_eq!(again, Path::new("/a/ckpt_p.restart.dmtcp"));
    }

    #[test]
    fn only_images_are_taken_and_nothing_is_left_of_half_a_checkpoint() {
        let (store, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let good = disk.path().join("ckpt_p.dmtcp").display().to_string();
        fs::write(&good, b"image").unwrap();
        let link = disk.path().join("link.dmtcp").display().to_string();
        std::os::unix::fs::symlink(&good, &link).unwrap();
        let folder = disk.path().join("folder.dmtcp").display().to_string();
        fs::create_dir(&folder).unwrap();
        for bad in ["/etc/passwd", "ckpt_p.dmtcp", &link, &folder, "/nowhere/x.dmtcp"] {
            let failed = take_in(store.path(), 1, &[named(&good), named(bad)], own);
            assert!(failed.is_err(), "{bad}");
        }
        assert!(Checkpoint::open(store.path(), 1).is_err());
        assert!(super::place("/a/../etc/x.dmtcp").is_none());
        take_in(store.path(), 1, &[named(&good)], own).unwrap();
    }

    #[test]
    fn where_the_processs_user_is_known_only_that_users_files_are_taken() {
        let (store, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = disk.path().join("ckpt_p.dmtcp").display().to_string();
        fs::write(&path, b"image").unwrap();
        let owner = JobUser::of(fs::metadata(&path).unwrap().uid());
        let other = JobUser { uid: owner.uid + 1, name: "somebody-else".to_owned() };
        let by = |owner| [DmtcpPath { path: path.clone(), owner: Some(owner) }];
        let denied = take_in(store.path(), 1, &by(other), own).unwrap_err();
        assert!(denied.to_string().contains("does not belong to the user"), "{denied}");
        assert!(Checkpoint::open(store.path(), 1).is_err());
        assert_eq!(take_in(store.path(), 1, &by(owner), own).unwrap().len(), 1);
    }

    #[test]
    fn damage_is_found_before_anything_is_restarted() {
        let (store, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let good = disk.path().join("ckpt_p.dmtcp").display().to_string();
        fs::write(&good, vec![7; 10_000]).unwrap();
        take_in(store.path(), 1, &[named(&good)], own).unwrap();
        let pack = fs::read_dir(store.path().join("packs")).unwrap().next().unwrap().unwrap();
        let mut bytes = fs::read(pack.path()).unwrap();
        for byte in &mut bytes[512..] {
            *byte ^= 0x55;
        }
        fs::write(pack.path(), bytes).unwrap();
        assert!(put_out(store.path(), 1, own).is_err());
        assert!(!disk.path().join("ckpt_p.restart.dmtcp").exists());
    }
}
