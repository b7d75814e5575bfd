//! The folder of a job's temporary files ($TMPDIR): whose it is, and its end.
//!
//! Its path is part of the job's images: processes know it. An imported copy of a job has the same one, and must not run
//! beside the job that it was made from. So each job's folder says which one its processes have had on this machine; an image's
//! word is not enough to remove anything.

use crate::sys::standing::acts_for_all;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{SessionError, note, previous};
use crate::sys::file_user::FileUser;

/// How the names of such folders begin.
pub(super) const PREFIX: &str = "ckptd-tmp-";
/// Letters behind that.
const LETTERS: usize = 8;
/// The file in a job's folder.
const FILE: &str = "temporary.json";

#[derive(Debug, Serialize, Deserialize)]
struct Known {
    folder: PathBuf,
}

/// Leaves word of the folder in the job's folder. Without it the folder is left behind when the job is removed.
pub(super) fn remember(job_dir: &Path, folder: &Path) {
    let _ = note::write(job_dir, FILE, &Known { folder: folder.to_owned() });
}

fn recall(job_dir: &Path) -> Option<PathBuf> {
    note::read::<Known>(job_dir, FILE).map(|known| known.folder)
}

/// Folders of other jobs of the same user that say they have this one.
fn others(job_dir: &Path, folder: &Path) -> Vec<PathBuf> {
    let jobs = job_dir.parent().and_then(|jobs| std::fs::read_dir(jobs).ok());
    let paths = jobs.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path != job_dir && recall(path).as_deref() == Some(folder)).collect()
}

/// Refuses a restart in a folder that another job is using.
///
/// # Errors
/// It names that job.
pub(super) fn check_free(job_dir: &Path, folder: &Path) -> Result<(), SessionError> {
    let running = others(job_dir, folder).into_iter().find(|other| previous::runs(other));
    let Some(other) = running else { return Ok(()) };
    let name = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(SessionError::Init(format!(
        "its temporary folder {} is in use by job {name}, which is a copy of it or the other way round; end that one first",
        folder.display()
    )))
}

/// Removes the folder of a job that does not run any more, with its owner's rights. Links are removed, never followed. What another
/// job has, too, stays. The folder's path.
///
/// # Errors
/// The path, and why it could not be removed.
pub fn remove(job_dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    let Some(folder) = recall(job_dir).filter(|folder| is_a_jobs(folder)) else { return Ok(()) };
    if !others(job_dir, &folder).is_empty() {
        return Ok(());
    }
    remove_owned(job_dir, &folder).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err((folder, error)),
    })
}

/// Whether a path is one that ckptd has made up.
fn is_a_jobs(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let letters = name.strip_prefix(PREFIX).unwrap_or_default().as_bytes();
    folder.is_absolute() && letters.len() == LETTERS && letters.iter().all(u8::is_ascii_hexdigit)
}

fn remove_owned(job_dir: &Path, folder: &Path) -> io::Result<()> {
    let job = std::fs::symlink_metadata(job_dir)?;
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != job.uid() {
        let what = "it is not the job's own folder any more";
        return Err(io::Error::new(ErrorKind::PermissionDenied, what));
    }
    let own = nix::unistd::geteuid().as_raw();
    let acting = (acts_for_all() && job.uid() != own)
        .then(|| FileUser::begin(job.uid(), job.gid(), &[]))
        .transpose()
        .map_err(io::Error::other)?;
    // It goes by descriptors of the folders, so that nothing put into its way leads it elsewhere.
    let removed = std::fs::remove_dir_all(folder);
    drop(acting);
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(jobs: &Path, name: &str, folder: &Path) -> PathBuf {
        let path = jobs.join(name);
        std::fs::create_dir(&path).unwrap();
        remember(&path, folder);
        path
    }

    #[test]
    fn a_folder_goes_with_its_job_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("ckptd-tmp-0123abcd");
        let elsewhere = place.path().join("elsewhere");
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.join("inner/link")).unwrap();
        let jobs = place.path().join("jobs");
        std::fs::create_dir(&jobs).unwrap();
        let (one, copy) = (job(&jobs, "one", &folder), job(&jobs, "copy", &folder));
        remove(&one).unwrap();
        assert!(folder.is_dir());
        std::fs::remove_dir_all(&one).unwrap();
        remove(&copy).unwrap();
        assert!(!folder.exists() && elsewhere.join("kept").exists());
        // Again, and where there is nothing.
        remove(&copy).unwrap();
        remove(&elsewhere).unwrap();
    }

    #[test]
    fn nothing_else_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("results");
        std::fs::create_dir(&other).unwrap();
        remove(&job(place.path(), "one", &other)).unwrap();
        assert!(other.exists());
        let link = place.path().join("ckptd-tmp-0123abcd");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        remove(&job(place.path(), "two", &link)).unwrap_err();
        assert!(other.exists());
        assert!(!is_a_jobs(Path::new("/tmp/ckptd-tmp-0123abcd/..")));
        assert!(!is_a_jobs(Path::new("ckptd-tmp-0123abcd")));
    }

    #[test]
    fn a_copy_does_not_run_beside_its_original() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("ckptd-tmp-0123abcd");
        let one = job(place.path(), "one", &folder);
        let copy = job(place.path(), "copy", &folder);
        check_free(&copy, &folder).unwrap();
        previous::remember(&one, std::process::id() as i32, previous::Whose::Inits);
        let told = check_free(&copy, &folder).unwrap_err().to_string();
        assert!(told.contains("in use by job one"), "{told}");
        check_free(&one, &folder).unwrap();
    }
}
