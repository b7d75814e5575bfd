//! Images that a user brings from elsewhere, in a folder of its own: this agent, which may be root, reads them there with
//! no other rights than that user's, and believes nothing.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use protocol::agent::{CheckpointNumber, CommitRecord};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::peer::ImageFile;

use super::digest::digest;
use super::error::CopyError;
use super::facts::facts_of_complete;
use super::files::{self, pack_path};
use super::own_files::{self, as_user};
use crate::driver::user::User;

/// The most bytes of an image's index files.
const MOST_INDEX: u64 = 1 << 30;
/// What is left out of a file where it is all zeros.
const HOLE: usize = 4096;
/// Bytes that are copied at a time.
const PIECE: usize = 256 * 1024;

/// Takes an image over from the folder `from` into the empty folder `to`: every byte is checked, and it must have that
/// digest. `room`: bytes that it may take, less those that it has taken afterwards.
///
/// # Errors
/// See [`CopyError`]. What is in `to` then is to be removed.
pub fn take_over(
    from: &Path,
    to: &Path,
    user: Option<&User>,
    record: &CommitRecord,
    expected: &str,
    callers: bool,
    room: &mut u64,
) -> Result<ImageFacts, CopyError> {
    let checkpoint = record.checkpoint;
    let place = from.to_owned();
    let listed = as_user(user, move || Ok(list(&place, checkpoint)));
    let all = listed.map_err(CopyError::file("read", from))??;
    files::check(&all, checkpoint, false)?;
    let needed = all.iter().fold(0, |sum: u64, file| sum.saturating_add(file.length));
    *room = room.checked_sub(needed).ok_or(CopyError::NoRoom { needed, room: *room })?;
    for file in &all {
        copy(from, to, file, user).map_err(CopyError::file("copy", &file.path))?;
        if own_files::is_content(&file.path) {
            let copied = File::open(to.join(&file.path));
            let copied = copied.map_err(CopyError::file("read", &file.path))?;
            own_files::must_be_content(&copied, &file.path)?;
        }
    }
    sync_folders(to, checkpoint).map_err(CopyError::files("copy the image"))?;
    // Before anything in it is looked at any closer.
    if digest(to, checkpoint)? != expected {
        return Err(CopyError::NotCommitted(checkpoint));
    }
    ckpt_store::verify_copy(to, checkpoint, &HashSet::new())?;
    own_files::verify(to, to, checkpoint)?;
    ckpt_store::commit_copy(to, checkpoint, record)?;
    facts_of_complete(to, checkpoint, callers)
}

/// The files of the image, without its mark, which the agent makes itself.
fn list(folder: &Path, checkpoint: CheckpointNumber) -> Result<Vec<ImageFile>, CopyError> {
    let mark = ckpt_store::mark(folder, checkpoint)?;
    let index = mark.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.length));
    if index > MOST_INDEX {
        return Err(CopyError::LongIndex { length: index, most: MOST_INDEX });
    }
    let own = own_files::list(folder, checkpoint)?.into_iter();
    let own = own.map(|(path, length)| ImageFile { path, length });
    let packs = mark.packs.iter();
    let packs = packs.map(|pack| ImageFile { path: pack_path(pack.id), length: pack.length });
    let index = mark.files.iter().map(|file| ImageFile {
        path: format!("checkpoints/{checkpoint}/{}", file.name),
        length: file.length,
    });
    Ok(own.chain(packs).chain(index).collect())
}

fn copy(from: &Path, to: &Path, file: &ImageFile, user: Option<&User>) -> io::Result<()> {
    let place = from.join(&file.path);
    let source = as_user(user, move || {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        File::options().read(true).custom_flags(flags.bits()).open(place)
    })?;
    let found = source.metadata()?;
    if !found.is_file() || found.len() != file.length {
        return Err(io::Error::other("it has changed"));
    }
    let place = to.join(&file.path);
    if let Some(parent) = place.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let target = File::options().write(true).create_new(true).mode(0o600).open(&place)?;
    let mut source = source.take(file.length);
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    while offset < file.length {
        let size = (file.length - offset).min(PIECE as u64) as usize;
        source.read_exact(&mut buffer[..size])?;
        for (index, part) in buffer[..size].chunks(HOLE).enumerate() {
            if part.iter().any(|byte| *byte != 0) {
                target.write_all_at(part, offset + (index * HOLE) as u64)?;
            }
        }
        offset += size as u64;
    }
    target.set_len(file.length)?;
    target.sync_all()
}

fn sync_folders(to: &Path, checkpoint: CheckpointNumber) -> io::Result<()> {
    let checkpoint = format!("checkpoints/{checkpoint}");
    for folder in ["packs", "files", "checkpoints", &checkpoint, "."] {
        match File::open(to.join(folder)) {
            Ok(folder) => folder.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_store::CheckpointWriter;
    use protocol::agent::{ImageSummary, InstanceId};

    const CHECKPOINT: u64 = 3;

    /// An image without processes, and its digest.
    fn image(folder: &Path) -> String {
        let writer = CheckpointWriter::create(folder, CHECKPOINT).unwrap();
        // What can't be compressed lies plain, from byte 4096 of its pack on.
        let mut noise = vec![0; 5000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        writer.submit(0, noise).unwrap();
        let (mut index, chunks) = writer.finish_chunks().unwrap();
        let chunks: Vec<_> = chunks.iter().map(|(_, chunk)| chunk).collect();
        index.put_json("graph.json", &chunks).unwrap();
        index.seal().unwrap().commit(&()).unwrap();
        digest(folder, CHECKPOINT).unwrap()
    }

    fn record() -> CommitRecord {
        CommitRecord {
            format: CommitRecord::FORMAT,
            job: "a-1".into(),
            checkpoint: CHECKPOINT,
            restored_from: None,
            taken_at_ms: 0,
            committed_at_ms: 0,
            pause_us: 0,
            log_length: 0,
            copies: 1,
            degraded: false,
            suspended: false,
            summary: ImageSummary::default(),
            agents: vec![InstanceId(1)].into(),
        }
    }

    /// Why an image in that folder is not taken over.
    fn refusal(from: &Path, expected: &str, mut room: u64) -> String {
        let to = tempfile::tempdir().unwrap();
        take_over(from, to.path(), None, &record(), expected, true, &mut room)
            .unwrap_err()
            .to_string()
    }

    fn pack(folder: &Path) -> std::path::PathBuf {
        fs::read_dir(folder.join("packs")).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn only_the_committed_image_is_taken_over_and_no_link_is_followed() {
        let (from, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = from.path();
        let right = image(from);
        assert!(refusal(from, "", u64::MAX).contains("not the one that was committed"));
        assert!(refusal(from, &right, 1000).contains("1000 are free"));
        // All bytes were taken: what is wrong with this one is that it is no graph.
        assert!(refusal(from, &right, u64::MAX).contains("graph.json"));
        let pack = pack(from);
        let mut bytes = fs::read(&pack).unwrap();
        bytes[4096 + 100] ^= 1;
        fs::write(&pack, &bytes).unwrap();
        let refused = refusal(from, &right, u64::MAX);
        assert!(!refused.contains("graph.json"), "{refused}");
        fs::write(&pack, &bytes[1..]).unwrap();
        assert!(refusal(from, &right, u64::MAX).contains("it has changed"));
        let secret = other.path().join("secret");
        fs::rename(&pack, &secret).unwrap();
        std::os::unix::fs::symlink(&secret, &pack).unwrap();
        assert!(refusal(from, &right, u64::MAX).contains("symbolic links"));
    }
}
