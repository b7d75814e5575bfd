//! A path kept free for a moment, for what had its name before something else took it: that is renamed within its folder,
//! and renamed back.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, renameat};

use super::super::error::{EngineError, Result};
use super::super::names;
use super::super::sys::rename::rename_to_free;
use super::paths;

/// What stood at a path, if anything did. Goes back when it is dropped, too.
#[derive(Debug)]
pub struct Aside {
    path: PathBuf,
    moved: Option<PathBuf>,
}

impl Aside {
    /// Frees a path.
    ///
    /// # Errors
    /// As rename(2).
    pub fn of(path: &Path) -> Result<Self> {
        let failed = |errno| EngineError::system("move aside", path.display().to_string(), errno);
        let text = names::text(path);
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(Self { path: path.to_owned(), moved: None });
        }
        let moved = paths::first_free(&format!("{text}.ckptd-aside"), |name| {
            rename(path, &names::path(name))
        });
        match moved {
            Ok((name, ())) => {
                Ok(Self { path: path.to_owned(), moved: Some(names::path(&name).into_owned()) })
            }
            // Gone by itself meanwhile.
            Err(Errno::ENOENT) => Ok(Self { path: path.to_owned(), moved: None }),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Gives the path back to what stood there.
    ///
    /// # Errors
    /// Where something else has the path by now: says where it is instead.
    pub fn back(mut self) -> Result<()> {
        let Some(moved) = self.moved.take() else { return Ok(()) };
        rename(&moved, &self.path).map_err(|errno| {
            let what = format!("{}, which is now {},", self.path.display(), moved.display());
            EngineError::system("rename back", what, errno)
        })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(moved) = self.moved.take() {
            // Another error is on its way to be told.
            let _ = rename(&moved, &self.path);
        }
    }
}

/// Never over what is there.
fn rename(from: &Path, to: &Path) -> nix::Result<()> {
    match rename_to_free(from, to) {
        // Not every file system can look and rename in one step.
        Err(Errno::EINVAL | Errno::ENOSYS) => match std::fs::symlink_metadata(to) {
            Ok(_) => Err(Errno::EEXIST),
            Err(_) => renameat(AT_FDCWD, from, AT_FDCWD, to),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name");
        std::fs::write(&path, "theirs").unwrap();
        let aside = Aside::of(&path).unwrap();
        std::fs::write(&path, "ours").unwrap();
        std::fs::remove_file(&path).unwrap();
        aside.back().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
        drop(Aside::of(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
        Aside::of(&folder.path().join("none")).unwrap().back().unwrap();
    }

    #[test]
    fn nothing_is_lost_where_the_path_is_taken_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name");
        std::fs::write(&path, "theirs").unwrap();
        let aside = Aside::of(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        let told = aside.back().unwrap_err().to_string();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
        let moved = folder.path().join("name.ckptd-aside");
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "theirs");
        assert!(told.contains("name.ckptd-aside"), "{told}");
    }
}
