//! Working directory, root directory and file mode creation mask of a process, or of a thread that has some of its own.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use procfs::process::Status;

use super::super::error::{EngineError, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::{Directories, Pid, ThreadImage};
use super::super::names;
use super::super::objects::paths;
use super::super::proc::root_directory;
use super::sharing::OwnDirectories;

/// The working directory of a process by the link that /proc shows; where it is removed, its permission bits and the number of
/// its inode.
///
/// # Errors
/// Failed stat(2).
pub fn working(host_pid: i32, link: String) -> Result<(String, Option<(u32, u64)>)> {
    let path = format!("/proc/{host_pid}/cwd");
    let found =
        std::fs::metadata(&path).map_err(|error| EngineError::system("stat", &path, error))?;
    let path = paths::without_mark(&link);
    // That of an ended process in /proc keeps its links. Some file systems count no links of a directory, but none is at 0
    // before it is removed.
    let is_ended = path.len() < link.len() && is_of_process(Path::new(path));
    if found.nlink() == 0 || is_ended {
        return Ok((path.to_owned(), Some((found.mode() & 0o7777, found.ino()))));
    }
    Ok((link, None))
}

/// What no part of the image could say of a process's, or a thread's, directories, and the way out.
pub(super) fn odd(tid: i32) -> Result<Option<(String, &'static str)>> {
    if let Some(root) = root_directory(tid)? {
        let there = std::fs::metadata(format!("/proc/{tid}/root"));
        let removed = there.is_ok_and(|found| found.nlink() == 0);
        if removed || is_of_process(Path::new(&root)) {
            return Ok(Some((format!("has the root directory {root}"), "run it with another one")));
        }
    }
    let directory = std::fs::read_link(format!("/proc/{tid}/cwd"))
        .map_err(|error| EngineError::system("read", format!("/proc/{tid}/cwd"), error))?;
    let is_odd = is_of_process(&directory);
    Ok(is_odd.then(|| {
        let what = format!("works in the folder {} of a process", directory.display());
        (what, "have it work in another one")
    }))
}

/// Directories of a thread that has its own.
///
/// # Errors
/// What /proc does not tell.
pub fn of_thread(tid: i32, status: &Status) -> Result<Directories> {
    let path = format!("/proc/{tid}/cwd");
    let link = std::fs::read_link(&path).map(names::text);
    let link = link.map_err(|error| EngineError::system("readlink", path, error))?;
    let (working_directory, removed) = working(tid, link)?;
    Ok(Directories {
        working_directory,
        removed_directory: removed.map(|(mode, _)| mode),
        removed_inode: removed.map(|(_, inode)| inode),
        root_directory: root_directory(tid)?,
        umask: status.umask.unwrap_or(0o022),
    })
}

/// Whether a folder is one of those in which /proc shows a process: at a restart that is not there yet.
fn is_of_process(folder: &Path) -> bool {
    let first = folder.strip_prefix("/proc").ok().and_then(|below| below.components().next());
    first.is_some_and(|name| name.as_os_str().as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

/// Adds directories to threads that have their own. `numbers`: of each thread, on this machine and in the job.
///
/// # Errors
/// What /proc does not tell.
pub(super) fn add(
    own: &OwnDirectories,
    process: &StoppedProcess,
    statuses: &[Status],
    numbers: &[(i32, Pid)],
    threads: &mut [ThreadImage],
) -> Result<()> {
    for ((image, thread), status) in threads.iter_mut().zip(&process.threads).zip(statuses) {
        let tid = thread.tid();
        match own.get(&tid) {
            None => {}
            Some(first) if *first == tid => {
                image.directories = Some(of_thread(tid, status)?);
            }
            Some(first) => {
                let maker = numbers.iter().find(|(here, _)| here == first);
                image.directories_of = maker.map(|(_, in_job)| *in_job);
            }
        }
    }
    Ok(())
}
