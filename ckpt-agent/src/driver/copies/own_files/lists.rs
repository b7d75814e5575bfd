//! Lists of the files that travel beside an image, as they lie on the disk.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ckpt_store::{ChunkHash, ImageKey, SealedText};
use protocol::agent::CheckpointNumber;
use serde::{Deserialize, Serialize};

use super::super::error::CopyError;
use super::{FOLDER, LIST, is_content};

/// The longest list that is read, bytes.
pub const LONGEST_LIST: u64 = 16 * 1024 * 1024;
/// Version of a list in clear.
const FORMAT: u32 = 1;
/// Version of an encrypted list.
const SEALED_FORMAT: u32 = 2;

/// A file, as a list has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OwnFile {
    pub(super) path: String,
    pub(super) hash: String,
    pub(super) size: u64,
    pub(super) modified_ns: i64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// How its content is encrypted; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed: Option<Sealed>,
}

/// How a content is encrypted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// By which its key is told.
    pub(super) name: ChunkHash,
    /// Bytes of what is stored.
    pub(super) stored: u64,
}

/// What whoever holds a content must know of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Content {
    /// Of what is stored.
    pub(super) hash: String,
    /// Bytes of what is stored.
    pub(super) size: u64,
}

impl OwnFile {
    pub(super) fn content(&self) -> Content {
        let size = self.sealed.as_ref().map_or(self.size, |sealed| sealed.stored);
        Content { hash: self.hash.clone(), size }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct List {
    format: u32,
    files: Vec<OwnFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SealedList {
    format: u32,
    contents: Vec<Content>,
    list: SealedText,
}

/// What every version says of itself.
#[derive(Deserialize)]
struct Form {
    format: u32,
}

/// The JSON of a list.
pub(super) fn list_of(
    files: Vec<OwnFile>,
    checkpoint: CheckpointNumber,
    key: Option<&ImageKey>,
) -> Result<Vec<u8>, CopyError> {
    let failed = |error: serde_json::Error| {
        CopyError::files("write the list of the job's files")(error.into())
    };
    let Some(key) = key else {
        return serde_json::to_vec(&List { format: FORMAT, files }).map_err(failed);
    };
    let contents: BTreeSet<Content> = files.iter().map(OwnFile::content).collect();
    let text = serde_json::to_vec(&List { format: FORMAT, files }).map_err(failed)?;
    let list = SealedText::seal(key, &context(checkpoint), &text)?;
    let contents = contents.into_iter().collect();
    serde_json::to_vec(&SealedList { format: SEALED_FORMAT, contents, list }).map_err(failed)
}

fn context(checkpoint: CheckpointNumber) -> String {
    format!("files {checkpoint}")
}

/// Where an image's list is.
pub(super) fn list_path(folder: &Path, checkpoint: CheckpointNumber) -> PathBuf {
    folder.join("checkpoints").join(checkpoint.to_string()).join(LIST)
}

/// A list as it lies on the disk.
enum AnyList {
    Clear(List),
    Sealed(SealedList),
}

fn read_any(folder: &Path, checkpoint: CheckpointNumber) -> Result<Option<AnyList>, CopyError> {
    let path = list_path(folder, checkpoint);
    let damaged = || CopyError::List(path.clone());
    let mut text = Vec::new();
    match File::open(&path) {
        Ok(file) => file
            .take(LONGEST_LIST + 1)
            .read_to_end(&mut text)
            .map_err(CopyError::file("read", &path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CopyError::File { action: "read", path, source }),
    };
    let (hash, json) = text.split_at_checked(65).ok_or_else(damaged)?;
    if hash != [blake3::hash(json).to_hex().as_bytes(), b"\n"].concat() {
        return Err(damaged());
    }
    let form: Form = protocol::json::read(json).map_err(|_| damaged())?;
    let list = match form.format {
        FORMAT => protocol::json::read(json).map(AnyList::Clear),
        SEALED_FORMAT => protocol::json::read(json).map(AnyList::Sealed),
        _ => return Err(damaged()),
    };
    list.map(Some).map_err(|_| damaged())
}

/// The contents that an image needs; none of an image without a list. Needs no key.
pub(super) fn read_contents(
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<Option<Vec<Content>>, CopyError> {
    let contents: Vec<Content> = match read_any(folder, checkpoint)? {
        None => return Ok(None),
        Some(AnyList::Clear(list)) => list.files.iter().map(OwnFile::content).collect(),
        Some(AnyList::Sealed(list)) => list.contents,
    };
    let sound = |content: &Content| is_content(&format!("{FOLDER}/{}", content.hash));
    match contents.iter().all(sound) {
        true => Ok(Some(contents)),
        false => Err(CopyError::List(list_path(folder, checkpoint))),
    }
}

/// The files that travel with an image; none of an image without a list. Needs the key where the list is encrypted.
pub(super) fn read_list(
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<Option<Vec<OwnFile>>, CopyError> {
    let path = || list_path(folder, checkpoint);
    let list = match read_any(folder, checkpoint)? {
        None => return Ok(None),
        Some(AnyList::Clear(list)) => list,
        Some(AnyList::Sealed(sealed)) => {
            let key = ckpt_store::key_of(folder)?;
            let most = LONGEST_LIST as usize;
            let text = sealed.list.open(key.as_ref(), &context(checkpoint), most);
            let text = text.map_err(|why| CopyError::SealedList { path: path(), source: why })?;
            protocol::json::read(&text).map_err(|_| CopyError::List(path()))?
        }
    };
    let sound = |file: &OwnFile| {
        file.path.starts_with('/') && is_content(&format!("{FOLDER}/{}", file.hash))
    };
    match list.format == FORMAT && list.files.iter().all(sound) {
        true => Ok(Some(list.files)),
        false => Err(CopyError::List(path())),
    }
}

/// The checkpoints of which there is anything in an instance's folder.
pub fn checkpoints(folder: &Path) -> Vec<CheckpointNumber> {
    let listing = fs::read_dir(folder.join("checkpoints")).into_iter().flatten().flatten();
    listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The files of the newest image before that one whose list can be read.
pub(super) fn newest_list(folder: &Path, checkpoint: CheckpointNumber) -> Vec<OwnFile> {
    let mut before = checkpoints(folder);
    before.retain(|number| *number < checkpoint);
    before.sort_unstable();
    let lists = before.iter().rev().filter_map(|number| read_list(folder, *number).ok().flatten());
    lists.into_iter().next().unwrap_or_default()
}
