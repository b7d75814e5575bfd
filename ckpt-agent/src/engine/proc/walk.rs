//! Which processes and threads there are.

use std::fs::File;
use std::io::{self, Read};

use super::super::error::{EngineError, Result};

/// Most processes that one job may have: a limit against a fork bomb under our feet.
const MOST_PROCESSES: usize = 100_000;

/// Most files of /proc are shorter, bytes.
const ROOM: usize = 8192;

/// Thread numbers of a process, the leader first.
pub type Threads = Vec<i32>;

/// A file of /proc as text. `None`: the process or thread has ended.
///
/// # Errors
/// Any other failure to read.
pub fn read_text(path: &str) -> Result<Option<String>> {
    match read_whole(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if ended(&error) => Ok(None),
        Err(error) => Err(EngineError::system("read", path, error)),
    }
}

/// Files of /proc tell no size: with room from the start, one read gets what would take ten.
fn read_whole(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ROOM);
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn ended(error: &io::Error) -> bool {
    // ESRCH comes from files that were open when the task ended.
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Numbers of a process's threads, the leader first, the others ascending. Empty: it has ended.
///
/// # Errors
/// Where /proc cannot be read.
pub fn thread_numbers(pid: i32) -> Result<Threads> {
    let path = format!("/proc/{pid}/task");
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if ended(&error) => return Ok(Vec::new()),
        Err(error) => return Err(EngineError::system("read", path, error)),
    };
    let mut threads: Threads =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    Ok(threads)
}

/// All living or dead descendants of a process, parents before their children, as this machine
/// numbers them. With the init of a PID namespace: everything in it.
///
/// # Errors
/// Where /proc cannot be read or there are too many.
pub fn descendants(root: i32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut parents = vec![root];
    while next < parents.len() {
        let parent = parents[next];
        next += 1;
        for thread in thread_numbers(parent)? {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let Some(text) = read_text(&path)? else { continue };
            for child in text.split_ascii_whitespace() {
                let child: i32 = child.parse().map_err(|_| EngineError::odd(&path, child))?;
                found.push(child);
                parents.push(child);
            }
        }
        if found.len() > MOST_PROCESSES {
            return Err(EngineError::odd(
                "the job",
                format!("more than {MOST_PROCESSES} processes"),
            ));
        }
    }
    Ok(found)
}
