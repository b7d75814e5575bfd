//! The members of an archive: their names, and their headers.

use tar::{EntryType, Header};

use super::super::chunk::PackId;
use super::super::layout::MARK;
use super::FOLDER;

/// The folder of an archive's one image.
pub(super) fn only() -> String {
    FOLDER.to_owned()
}

/// The folder of one image of several.
pub(super) fn of_instance(number: u32) -> String {
    format!("{FOLDER}/instances/{number}")
}

pub(super) fn about() -> String {
    format!("{FOLDER}/about.json")
}

pub(super) fn mark(folder: &str) -> String {
    format!("{folder}/{MARK}")
}

pub(super) fn index(folder: &str, name: &str) -> String {
    format!("{folder}/index/{name}")
}

pub(super) fn pack(folder: &str, id: PackId) -> String {
    format!("{folder}/packs/{id}.tar")
}

/// The list of what lies beside an image.
pub(super) fn beside(folder: &str) -> String {
    format!("{folder}/beside.json")
}

pub(super) fn piece(folder: &str, name: &str) -> String {
    format!("{folder}/{name}")
}

pub(super) fn log() -> String {
    format!("{FOLDER}/log")
}

/// The header of a plain file that only its owner may read.
///
/// # Errors
/// Where the name does not fit: ours do, into a ustar header's 255 bytes.
pub(super) fn header(name: &str, length: u64) -> std::io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_size(length);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Ok(header)
}

/// A name as it is shown: not longer than a line.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(120).collect()
}

/// What is wrong with a member that is not the plain file `due`.
pub(super) fn complaint(kind: EntryType, name: &[u8], due: &str, seen: bool) -> String {
    let leads_out = name.split(|byte| *byte == b'/').any(|part| part == b"..");
    match kind {
        EntryType::Symlink | EntryType::Link => "is a link".to_owned(),
        EntryType::Directory => "is a folder".to_owned(),
        EntryType::Regular if name.starts_with(b"/") => "has an absolute path".to_owned(),
        EntryType::Regular if leads_out => "leads out of its folder by '..'".to_owned(),
        EntryType::Regular if seen => "is there twice".to_owned(),
        EntryType::Regular if due.is_empty() => "is more than belongs there".to_owned(),
        EntryType::Regular => format!("is not expected here, where {due} is due"),
        _ => "is no plain file".to_owned(),
    }
}
