//! Files that are shared by being mapped, whose folders may not be searched: nobody knows whether their names lead to them.
//! Taken for deleted, each would be private memory after a restart.

use std::collections::HashSet;
use std::io::ErrorKind;

use super::super::error::Result;
use super::super::names;
use super::super::objects::{DumpContext, paths};
use super::super::proc::Mapping;

/// Refuses what has a name at which neither this process nor the job's user may look.
///
/// # Errors
/// The refusal; the user's rights can't be taken on.
pub fn check(host_pid: i32, mappings: &[Mapping], context: &DumpContext) -> Result<()> {
    let mut looked_at = HashSet::new();
    let root = context.root_of(host_pid);
    for mapping in mappings.iter().filter(|mapping| mapping.shared && mapping.inode != 0) {
        let (path, deleted) = mapping.path();
        let has_name = path.starts_with('/') && !deleted && !path.starts_with("/memfd:");
        // One that is open has been looked at as such.
        let key = (mapping.device, mapping.inode);
        if !has_name || context.inode_index.contains_key(&key) || !looked_at.insert(key) {
            continue;
        }
        let reached = format!("{root}{path}");
        let (_, found) = context.for_user(|| std::fs::symlink_metadata(names::path(&reached)))?;
        if found.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            return Err(paths::hidden(path));
        }
    }
    Ok(())
}
