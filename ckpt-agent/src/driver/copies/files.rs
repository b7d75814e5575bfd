//! The files of an image, and which names are believed.

use std::collections::HashSet;
use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::ImageFile;
use protocol::task;

use super::arrival::Arrival;
use super::error::CopyError;
use super::own_files;
use crate::driver::folders::Folders;
use ckpt_store::PackId;

/// The most files of an image.
const MOST_FILES: usize = 100_000;
/// The commit mark's name.
const MARK: &str = "COMMITTED";

/// All files of an image; of a committed one with its mark, which comes last.
pub async fn list(
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<Vec<ImageFile>, CopyError> {
    let folder = folder.to_owned();
    task::blocking(move || {
        let mark = ckpt_store::survey(&folder, checkpoint)?;
        let packs = mark
            .packs
            .iter()
            .map(|pack| ImageFile { path: pack_path(pack.id), length: pack.length });
        let index = mark.files.iter().map(|file| ImageFile {
            path: format!("checkpoints/{checkpoint}/{}", file.name),
            length: file.length,
        });
        // They get their names in this order on the other side: the mark comes last.
        let own = own_files::list(&folder, checkpoint)?;
        let own = own.into_iter().map(|(path, length)| ImageFile { path, length });
        let mut files: Vec<ImageFile> = own.chain(packs).chain(index).collect();
        let path = format!("checkpoints/{checkpoint}/{MARK}");
        if let Ok(found) = std::fs::metadata(folder.join(&path)) {
            files.push(ImageFile { path, length: found.len() });
        }
        Ok(files)
    })
    .await
}

/// Whether all names are those of an image's files, and none twice.
pub fn check(
    files: &[ImageFile],
    checkpoint: CheckpointNumber,
    committed: bool,
) -> Result<(), CopyError> {
    if files.len() > MOST_FILES {
        return Err(CopyError::TooManyFiles);
    }
    let mut seen = std::collections::BTreeSet::new();
    for file in files {
        let known = is_pack(&file.path)
            || own_files::is_content(&file.path)
            || file.path == format!("checkpoints/{checkpoint}/{}", own_files::LIST)
            || is_index(&file.path, checkpoint)
            || committed && file.path == format!("checkpoints/{checkpoint}/{MARK}");
        if !known || !seen.insert(&file.path) {
            return Err(CopyError::NotOfImage(file.path.clone()));
        }
    }
    Ok(())
}

fn is_pack(path: &str) -> bool {
    pack_id(path).is_some()
}

/// Path of a pack in an instance's folder.
pub(super) fn pack_path(id: PackId) -> String {
    format!("packs/{id}.tar")
}

fn pack_id(path: &str) -> Option<PackId> {
    let name = path.strip_prefix("packs/")?.strip_suffix(".tar")?;
    PackId::parse(name)
}

/// Whether a path is that of an index file of the checkpoint.
pub(super) fn is_index(path: &str, checkpoint: CheckpointNumber) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    path.strip_prefix(&format!("checkpoints/{checkpoint}/")).is_some_and(|name| {
        name.len() <= 100
            && name.ends_with(".json")
            && !name.starts_with('.')
            && !name.contains("..")
            && name.bytes().all(plain)
    })
}

/// Which files are not there. Index files are always wanted: they are small, and an older attempt at the same checkpoint
/// may have left others.
pub async fn lacking(folder: &Path, files: &[ImageFile]) -> Result<Vec<ImageFile>, CopyError> {
    let (folder, files) = (folder.to_owned(), files.to_vec());
    task::blocking(move || {
        let is_here = |file: &ImageFile| {
            if own_files::is_content(&file.path) {
                return own_files::is_here(&folder, &file.path, file.length);
            }
            is_pack(&file.path)
                && std::fs::symlink_metadata(folder.join(&file.path))
                    .is_ok_and(|found| found.is_file() && found.len() == file.length)
        };
        Ok(files.into_iter().filter(|file| !is_here(file)).collect())
    })
    .await
}

/// Bytes of these files; more than any disk has, where they can't be added up.
pub fn size(files: &[ImageFile]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.length))
}

/// Which bytes of a copy are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// All of them.
    Everything,
    /// Those that came now: what a committed checkpoint refers to was checked when it came.
    WhatCame,
}

/// Checks a copy of which these files have come. The job's own files, which are named by their contents, were checked when
/// they came.
pub async fn verify(
    arrival: &Arrival,
    fresh: &[ImageFile],
    thoroughness: Thoroughness,
) -> Result<(), CopyError> {
    let (come, folder) = (arrival.come().to_owned(), arrival.folder().to_owned());
    let (image, checkpoint, fresh) = (arrival.image(), arrival.checkpoint(), fresh.to_vec());
    task::blocking(move || {
        let trusted = match thoroughness {
            Thoroughness::Everything => HashSet::new(),
            Thoroughness::WhatCame => {
                let came: HashSet<PackId> =
                    fresh.iter().filter_map(|file| pack_id(&file.path)).collect();
                ckpt_store::packs(&folder)?
                    .into_iter()
                    .filter(|pack| !came.contains(pack))
                    .collect()
            }
        };
        image
            .verify(checkpoint, &trusted)
            .map_err(CopyError::from)
            .and_then(|_| own_files::verify(&come, &folder, checkpoint))
            .map_err(|damage| CopyError::NotWhole(Box::new(damage)))
    })
    .await
}

/// A job of which nothing is left here needs no folder.
pub fn forget_files(folders: &Folders, job: &str) {
    if folders.instances(job).is_empty() {
        let _ = std::fs::remove_dir(folders.job(job).join("instances"));
        // Fails where there is something else in it, as it should.
        let _ = std::fs::remove_dir(folders.job(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_images_are_believed() {
        let file = |path: &str| vec![ImageFile { path: path.to_owned(), length: 1 }];
        let content = format!("files/{}", "0a".repeat(32));
        let known =
            ["packs/0123456789ab.tar", "checkpoints/3/graph.json", "checkpoints/3/FILES", &content];
        for good in known {
            assert!(check(&file(good), 3, false).is_ok(), "{good}");
        }
        let bad = [
            "packs/../x.tar",
            "packs/a/b.tar",
            "/packs/a.tar",
            "packs/.tar",
            "files/../x",
            "files/0a",
            "checkpoints/4/FILES",
            "checkpoints/4/graph.json",
            "checkpoints/3/../graph.json",
            "checkpoints/3/.json",
            "checkpoints/3/COMMITTED",
            "checkpoints/3/a..json",
            "instance.json",
            "",
        ];
        for bad in bad {
            assert!(check(&file(bad), 3, false).is_err(), "{bad}");
        }
        assert!(check(&file("checkpoints/3/COMMITTED"), 3, true).is_ok());
        let twice = [file("packs/00000000000a.tar"), file("packs/00000000000a.tar")].concat();
        assert!(check(&twice, 3, true).is_err());
    }
}
