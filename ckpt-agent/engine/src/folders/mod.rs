//! Folders whose whole content belongs to the job: what a process has written there and closed rolls back with it, as
//! if it had been open. [`take_all`] reads them while the job stands, [`restore`] makes them again.

mod restore;
mod take;

pub use restore::{begin, finish};
pub(super) use take::open_folder;
pub use take::take_all;

use std::path::{Component, Path, PathBuf};

use super::error::{EngineError, Result};
use super::names;

/// Most names in all of them together.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// How deep folders may lie in each other: each holds a descriptor while it is read.
pub(super) const DEEPEST: usize = 100;

/// Where an entry of an image lies. Images come from disks that others may have written to.
///
/// # Errors
/// [`EngineError::Damaged`] where the name leads out of the folder.
fn place(folder: &str, name: &str) -> Result<PathBuf> {
    let plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let (folder, name) = (&*names::path(folder), &*names::path(name));
    let inside = folder.strip_prefix("/").is_ok_and(|rest| plain(rest) && rest != Path::new(""));
    if !inside || !plain(name) {
        let what = format!("{} is no name in the folder {}", name.display(), folder.display());
        return Err(EngineError::Damaged(what));
    }
    Ok(folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(place("/tmp/a", "b/c").unwrap(), Path::new("/tmp/a/b/c"));
        for (folder, name) in
            [("/tmp/a", "../b"), ("/tmp/a", "/etc"), ("/tmp/../etc", "b"), ("/", "b"), ("tmp", "b")]
        {
            place(folder, name).unwrap_err();
        }
    }
}
