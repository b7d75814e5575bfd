//! Directories that were removed at the checkpoint: several descriptions and processes may have the same one.

use std::collections::BTreeMap;

use super::super::error::Result;
use super::super::graph::{FileId, ProcessImage};
use super::context::{Remade, Removed};
use super::directory::{Directory, give_mode, removed};
use super::{Object, PathOnly, RestoreContext};

/// Makes the removed directories of these processes and of all descriptions, each once.
///
/// # Errors
/// As [`removed`].
pub fn make_removed<'p>(
    processes: impl Iterator<Item = &'p ProcessImage>,
    context: &mut RestoreContext,
) -> Result<()> {
    let entered = processes.flat_map(|process| {
        let own = process.removed_directory.zip(process.removed_inode);
        let own = own.map(|(mode, inode)| ((process.working_directory.clone(), inode), mode));
        let threads = process.threads.iter().filter_map(|thread| {
            let own = thread.directories.as_ref()?;
            Some(((own.working_directory.clone(), own.removed_inode?), own.removed_directory?))
        });
        own.into_iter().chain(threads)
    });
    let open = context.graph.files.iter().enumerate().filter_map(|(index, file)| {
        let directory = match &file.object {
            Object::Directory(directory) => directory,
            Object::PathOnly(PathOnly::Directory(directory)) => directory,
            _ => return None,
        };
        let is_here = context.needs(FileId(index as u32));
        directory.removed().filter(|_| is_here).map(|removed| (removed, directory))
    });
    let open: Vec<(Removed, &Directory)> = open.collect();
    let modes = open.iter().map(|(key, directory)| (key.clone(), directory.mode));
    let wanted: BTreeMap<Removed, u32> = entered.chain(modes).collect();
    for (key, mode) in wanted {
        let folder = context.lift(removed(&key.0)?)?;
        let all = open.iter().filter(|(other, _)| *other == key).map(|(_, directory)| *directory);
        // Of one that is only known by its path no attributes are told.
        if let Some(directory) = all.max_by_key(|directory| directory.attributes.is_some()) {
            directory.complete(&folder, context)?;
        }
        context.removed.insert(key, Remade { folder, mode });
    }
    Ok(())
}

/// Gives all of them their modes, once they are open and entered. Some file systems, such as NFS, change nothing of a
/// directory that is removed.
pub fn give_removed_modes(context: &mut RestoreContext) {
    for (key, made) in std::mem::take(&mut context.removed) {
        if let Err(errno) = give_mode(&made.folder, made.mode) {
            let mode = made.mode;
            let line = format!(
                "the deleted directory {}, made again, lost its mode {mode:03o} ({errno})",
                key.0
            );
            context.warn(line);
        }
    }
}
