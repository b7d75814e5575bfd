//! What a job's init shows of its agent to the processes of the job: they may not look into it, but its arguments, which
//! proc_pid_cmdline(5) has, are for everybody.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::super::graph::Pid;
use super::super::proc::ancestors;

/// The name (argv[0]) under which this program acts as a job's init. Its socket is descriptor 3.
pub const INIT_NAME: &str = "ckptd-init";
/// More bytes than an init's arguments have: a path (PATH_MAX), and little more.
const LONGEST: u64 = 8192;

/// The arguments of an init that shows where its agent is called.
pub fn arguments(calls: Option<&Path>) -> Vec<OsString> {
    calls.map(|path| path.as_os_str().to_owned()).into_iter().collect()
}

/// Where the agent is called that runs a process now, as its job's init shows it; `None`: it is in no job that has an agent.
#[must_use]
pub fn shown_by_init(pid: Pid) -> Option<PathBuf> {
    let mut inits =
        ancestors(pid).filter_map(|pid| arguments_of_init(pid).filter(|_| is_trusted(pid)));
    path_in(&inits.next()?)
}

fn arguments_of_init(pid: Pid) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let name = bytes.split(|byte| *byte == 0).next()?;
    (name == INIT_NAME.as_bytes()).then_some(bytes)
}

/// Anybody can call a program so. An init is root's, or its user's own.
fn is_trusted(pid: Pid) -> bool {
    let user = procfs::process::Process::new(pid).and_then(|process| process.status());
    user.is_ok_and(|status| status.ruid == 0 || status.ruid == geteuid().as_raw())
}

fn path_in(arguments: &[u8]) -> Option<PathBuf> {
    let mut words = arguments.split(|byte| *byte == 0);
    words.find(|word| word.starts_with(b"/")).map(|word| PathBuf::from(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_found_beside_a_number() {
        let found = path_in(b"ckptd-init\x0017\0/run/ckptd/rsh.sock\0");
        assert_eq!(found, Some("/run/ckptd/rsh.sock".into()));
        assert_eq!(path_in(b"ckptd-init\x0017\0"), None);
        assert_eq!(arguments(Some(Path::new("/a"))), [OsStr::new("/a")]);
    }

    #[test]
    fn no_job_shows_nothing() {
        assert_eq!(shown_by_init(std::process::id() as Pid), None);
    }
}
