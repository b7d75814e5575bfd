//! Makes whole folders of an image again, with the rights of the job's user.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mknod, utimensat};
use nix::unistd::mkfifo;

use super::super::error::{EngineError, Result};
use super::super::graph::{BlobId, EntryKind, FolderEntry, WholeFolder};
use super::super::inodes::ahead::keeps_true_times;
use super::super::inodes::{make_parents, put_attributes};
use super::super::names;
use super::super::objects::RestoreContext;
use super::super::sys::stat::{changed_ns_of, modified_ns_of, time};
use super::place;

/// Permission bits that a file made from an image may have: no set-user-ID.
const FILE_MODE: u32 = 0o777;

fn failed<'p>(call: &'static str, path: &'p Path) -> impl Fn(std::io::Error) -> EngineError + 'p {
    move |error| EngineError::system(call, path.display().to_string(), error)
}

/// Brings the folders to what they were, but for files that are open or mapped, sockets, second names and rights:
/// these come by the inodes, the handlers of objects, and [`finish`]. What has been made since the checkpoint is
/// removed.
///
/// # Errors
/// A folder that is another user's; failed system calls.
pub fn begin(context: &mut RestoreContext<'_>) -> Result<()> {
    let graph = context.graph;
    for folder in &graph.folders {
        let (stuck, missing) = begin_one(folder, context)?;
        warn_of_missing(&missing, context);
        if let Some(first) = stuck.first() {
            let others = match stuck.len() {
                1 => String::new(),
                more => format!(", nor {} others", more - 1),
            };
            context.warn(format!("{first}{others}: it was made since the checkpoint, and stays"));
        }
    }
    Ok(())
}

/// Which attributes of files and folders could not be set.
fn warn_of_missing(missing: &[String], context: &mut RestoreContext<'_>) {
    if let Some(first) = missing.first() {
        let others = match missing.len() {
            1 => String::new(),
            more => format!(", and so it is with {} others", more - 1),
        };
        context.warn(format!("{first}{others}"));
    }
}

/// What cannot be removed, and which attributes are missing, a line each.
fn begin_one(
    folder: &WholeFolder,
    context: &RestoreContext<'_>,
) -> Result<(Vec<String>, Vec<String>)> {
    let root = &*names::path(&folder.path);
    let mut wanted = BTreeMap::new();
    for entry in &folder.entries {
        wanted.insert(place(&folder.path, &entry.name)?, entry);
    }
    // It says so of a damaged image before anything is touched, too.
    place(&folder.path, "name")?;
    match fs::symlink_metadata(root) {
        Ok(found) => check_owner(root, &found, context)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_parents(&folder.path)?;
            fs::DirBuilder::new().mode(0o700).create(root).map_err(failed("mkdir", root))?;
        }
        Err(error) => return Err(failed("stat", root)(error)),
    }
    // Parts of one instance on one machine share it: what one has made is no other's to remove.
    let mut stuck = Vec::new();
    if !context.crowded {
        clear(root, &wanted, &mut stuck)?;
    }
    let mut missing = Vec::new();
    for entry in &folder.entries {
        make(&place(&folder.path, &entry.name)?, entry, &mut missing, context)?;
    }
    Ok((stuck, missing))
}

/// Somebody else may have made a folder of that name while there was none.
fn check_owner(root: &Path, found: &Metadata, context: &RestoreContext<'_>) -> Result<()> {
    let user = context.user.as_ref().map_or(nix::unistd::geteuid().as_raw(), |user| user.uid);
    if found.is_dir() && (user == 0 || found.uid() == user) {
        return Ok(());
    }
    Err(EngineError::Unfit {
        what: format!("{} is not the job's own folder any more", root.display()),
        way_out: "move away what is there now".to_owned(),
    })
}

/// Removes what is not wanted, and what is of another kind than wanted. What somebody else has put there may be
/// impossible to remove.
fn clear(
    folder: &Path,
    wanted: &BTreeMap<PathBuf, &FolderEntry>,
    stuck: &mut Vec<String>,
) -> Result<()> {
    open_up(folder);
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        let path = entry.path();
        // Names that are no UTF-8 are not in older images.
        if entry.file_name().to_str().is_none() && !wanted.contains_key(&path) {
            continue;
        }
        let found = entry.file_type().map_err(failed("stat", &path))?;
        match wanted.get(&path).map(|entry| (&entry.kind, fits(&entry.kind, found))) {
            Some((EntryKind::Folder, true)) => clear(&path, wanted, stuck)?,
            Some((_, true)) => {}
            _ => {
                let removed = match found.is_dir() {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
                if let Err(error) = removed {
                    stuck.push(format!("{} cannot be removed ({error})", path.display()));
                }
            }
        }
    }
    Ok(())
}

fn fits(kind: &EntryKind, found: fs::FileType) -> bool {
    match kind {
        EntryKind::Folder => found.is_dir(),
        EntryKind::File { .. } | EntryKind::Held { .. } | EntryKind::Again { .. } => {
            found.is_file()
        }
        EntryKind::Link { .. } => found.is_symlink(),
        EntryKind::Fifo => found.is_fifo(),
        EntryKind::Socket => found.is_socket(),
        EntryKind::Left => true,
    }
}

/// A folder must be writable while its content is made; its own rights come last.
fn open_up(folder: &Path) {
    // Where this fails, what is done in it fails with a better reason.
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
}

fn make(
    path: &Path,
    entry: &FolderEntry,
    missing: &mut Vec<String>,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let there = fs::symlink_metadata(path).ok();
    match &entry.kind {
        EntryKind::Folder if there.is_some() => open_up(path),
        EntryKind::Folder => {
            fs::DirBuilder::new().mode(0o700).create(path).map_err(failed("mkdir", path))?;
        }
        EntryKind::File { content, .. } => {
            make_file(path, entry, *content, there, missing, context)?;
        }
        EntryKind::Link { target } => {
            if fs::read_link(path).is_ok_and(|known| known == names::path(target)) {
                return Ok(());
            }
            if there.is_some() {
                fs::remove_file(path).map_err(failed("unlink", path))?;
            }
            symlink(names::path(target), path).map_err(failed("symlink", path))?;
            give(path, entry);
        }
        EntryKind::Fifo if there.is_none() => {
            mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
                .map_err(|errno| failed("mkfifo", path)(errno.into()))?;
            give(path, entry);
            let mode = Permissions::from_mode(entry.mode & FILE_MODE);
            fs::set_permissions(path, mode).map_err(failed("chmod", path))?;
        }
        EntryKind::Fifo
        | EntryKind::Held { .. }
        | EntryKind::Again { .. }
        | EntryKind::Socket
        | EntryKind::Left => {}
    }
    Ok(())
}

/// An ordinary user can't give files away, and need not: they are his own.
fn give(path: &Path, entry: &FolderEntry) {
    let _ = lchown(path, Some(entry.owner.0), Some(entry.owner.1));
}

fn make_file(
    path: &Path,
    entry: &FolderEntry,
    content: BlobId,
    there: Option<Metadata>,
    missing: &mut Vec<String>,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let EntryKind::File { size, number, changed_ns, .. } = entry.kind else { return Ok(()) };
    let there = there.filter(|found| found.ino() == number);
    let untouched = |found: &Metadata| {
        found.len() == size
            && modified_ns_of(found) == entry.modified_ns
            && changed_ns_of(found) == changed_ns
            && has_true_times(path)
    };
    if there.as_ref().is_some_and(untouched) {
        return Ok(());
    }
    // In place where it is the same file: programs may know it by its number.
    let open = |new: bool| {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut options = File::options();
        options.read(true).write(true).create_new(new).mode(0o600).custom_flags(flags).open(path)
    };
    let old = there.and_then(|_| {
        let _ = fs::set_permissions(path, Permissions::from_mode(0o600));
        open(false).ok()
    });
    let file = match old {
        Some(file) => file,
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("unlink", path)(error));
            }
            _ => open(true).map_err(failed("make", path))?,
        },
    };
    file.set_len(0).map_err(failed("truncate", path))?;
    context.copy_blob(content, file.as_fd())?;
    give(path, entry);
    put_on(&file, path, entry, missing, context)?;
    let mode = Permissions::from_mode(entry.mode & FILE_MODE);
    file.set_permissions(mode).map_err(failed("chmod", path))?;
    let time = time(entry.modified_ns);
    nix::sys::stat::futimens(&file, &time, &time)
        .map_err(|errno| failed("futimens", path)(errno.into()))
}

/// Whether the file's times tell that its content is what it was.
fn has_true_times(path: &Path) -> bool {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| keeps_true_times(file.as_fd()))
}

/// Second names, sockets that nobody has, and rights and times of folders: the last act.
///
/// # Errors
/// Failed system calls.
pub fn finish(context: &mut RestoreContext<'_>) -> Result<()> {
    let mut missing = Vec::new();
    for folder in &context.graph.folders {
        for entry in folder.entries.iter().rev() {
            let path = place(&folder.path, &entry.name)?;
            match &entry.kind {
                EntryKind::Again { name } => link(&place(&folder.path, name)?, &path)?,
                EntryKind::Socket => keep_socket(&path, entry),
                EntryKind::Folder => {
                    put_on_folder(&path, entry, &mut missing, context)?;
                    close_folder(&path, entry.mode, Some(entry))?;
                }
                _ => {}
            }
        }
        close_folder(&names::path(&folder.path), folder.mode, None)?;
    }
    warn_of_missing(&missing, context);
    Ok(())
}

fn link(first: &Path, path: &Path) -> Result<()> {
    let Ok(wanted) = fs::symlink_metadata(first) else { return Ok(()) };
    match fs::symlink_metadata(path) {
        Ok(found) if (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()) => return Ok(()),
        Ok(_) => fs::remove_file(path).map_err(failed("unlink", path))?,
        Err(_) => {}
    }
    fs::hard_link(first, path).map_err(failed("link", path))
}

/// The name of a socket that nobody listens at any more. Not having it makes little difference.
fn keep_socket(path: &Path, entry: &FolderEntry) {
    if fs::symlink_metadata(path).is_err() {
        let _ = mknod(path, SFlag::S_IFSOCK, Mode::from_bits_truncate(entry.mode), 0);
    }
}

fn put_on_folder(
    path: &Path,
    entry: &FolderEntry,
    missing: &mut Vec<String>,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY | libc::O_NONBLOCK;
    let folder = File::options().read(true).custom_flags(flags).open(path);
    folder.map_or(Ok(()), |folder| put_on(&folder, path, entry, missing, context))
}

fn put_on(
    file: &File,
    path: &Path,
    entry: &FolderEntry,
    missing: &mut Vec<String>,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let failed = put_attributes(file, &entry.attributes, context)?;
    missing.extend(failed.map(|failed| format!("{}, made again, {failed}", path.display())));
    Ok(())
}

fn close_folder(path: &Path, mode: u32, entry: Option<&FolderEntry>) -> Result<()> {
    if let Some(entry) = entry {
        give(path, entry);
    }
    let time = entry.map(|entry| time(entry.modified_ns));
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("chmod", path))?;
    if let Some(time) = time {
        utimensat(nix::fcntl::AT_FDCWD, path, &time, &time, UtimensatFlags::NoFollowSymlink)
            .map_err(|errno| failed("utimensat", path)(errno.into()))?;
    }
    Ok(())
}
