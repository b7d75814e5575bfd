//! Acting on files as another user.

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, getgroups, setfsgid, setfsuid};

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::prctl;
use super::restrained::{self, OVER_FILES};

/// While this lives, the calling thread opens and makes files, pipes, sockets and terminals with another
/// user's rights and in its name (setfsuid(2)); everything else it does as before. For whoever acts for all users.
/// Other threads are not touched.
#[derive(Debug)]
pub struct FileUser {
    groups: Vec<Gid>,
    /// Rights over files that the change of user has not taken.
    taken: [u32; 2],
    /// Whether its own files in /proc are its user's, which a change of user makes root's: nobody but root minds.
    open: bool,
}

impl FileUser {
    /// Begins.
    ///
    /// # Errors
    /// EPERM where this process may not act as others.
    pub fn begin(uid: u32, gid: u32, groups: &[u32]) -> Result<Self> {
        let failed = |errno| EngineError::system("setgroups", format!("user {uid}"), errno);
        let before = getgroups().map_err(failed)?;
        let wanted: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        set_groups(&wanted).map_err(failed)?;
        let open = !nix::unistd::geteuid().is_root() && prctl::is_dumpable().unwrap_or(false);
        let mut acting = Self { groups: before, taken: [0; 2], open };
        setfsgid(Gid::from_raw(gid));
        setfsuid(Uid::from_raw(uid));
        // It reports no failure: an impossible number changes nothing and tells what is.
        if setfsuid(Uid::from_raw(u32::MAX)).as_raw() != uid {
            return Err(EngineError::system("setfsuid", format!("user {uid}"), nix::Error::EPERM));
        }
        if !nix::unistd::geteuid().is_root() {
            acting.taken = restrained::take_away(OVER_FILES)
                .map_err(|errno| EngineError::system("capset", format!("user {uid}"), errno))?;
        }
        acting.stay_open();
        Ok(acting)
    }
}

impl FileUser {
    fn stay_open(&self) {
        if self.open {
            // What it can't open of itself then says so.
            let _ = prctl::set_dumpable(true);
        }
    }
}

impl Drop for FileUser {
    fn drop(&mut self) {
        setfsuid(nix::unistd::geteuid());
        setfsgid(nix::unistd::getegid());
        // They were this process's a moment ago.
        let _ = restrained::give_back(self.taken);
        let _ = set_groups(&self.groups);
        self.stay_open();
    }
}

/// The calling thread's own groups: the C library's function changes those of all threads.
fn set_groups(groups: &[Gid]) -> nix::Result<()> {
    let numbers: Vec<libc::gid_t> = groups.iter().map(|group| group.as_raw()).collect();
    // SAFETY: the kernel reads as many numbers as the vector holds, which lives across the call.
    let answer = unsafe { libc::syscall(calls::SETGROUPS, numbers.len(), numbers.as_ptr()) };
    Errno::result(answer).map(drop)
}
