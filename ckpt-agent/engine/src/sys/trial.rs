//! Whether a system call may be made at all. A filter (seccomp(2)) of a container answers with an error, but the app
//! sandbox of Android kills the caller with SIGSYS. So whatever it is known to forbid is first tried in a forked child, once;
//! the answer holds for the life of this process, since filters are only ever added by ourselves.

use std::sync::OnceLock;

use super::super::error::{EngineError, Result};

/// process_mrelease(2), the same number on every architecture; the libc crate does not have it for all targets.
pub(super) const PROCESS_MRELEASE: libc::c_long = 448;

/// landlock_create_ruleset(2), the same number on every architecture.
const LANDLOCK_CREATE_RULESET: libc::c_long = 444;

// rseq(2), which the libc crate does not have for all targets (arch/*/entry/syscalls of the kernel).
#[cfg(target_arch = "x86_64")]
const RSEQ: libc::c_long = 334;
#[cfg(target_arch = "x86")]
const RSEQ: libc::c_long = 386;
#[cfg(target_arch = "arm")]
const RSEQ: libc::c_long = 398;
#[cfg(target_arch = "aarch64")]
const RSEQ: libc::c_long = 293;

// modify_ldt(2), which only processors of x86 have.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
const MODIFY_LDT: libc::c_long = libc::SYS_modify_ldt;
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
const MODIFY_LDT: libc::c_long = -1;

/// Calls that Android's sandbox forbids in some version, each made so that it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// kcmp(2)
    Kcmp,
    /// pidfd_open(2)
    PidfdOpen,
    /// pidfd_getfd(2)
    PidfdGetfd,
    /// process_vm_readv(2)
    ProcessVmReadv,
    /// clone3(2)
    Clone3,
    /// userfaultfd(2)
    Userfaultfd,
    /// rseq(2)
    Rseq,
    /// set_robust_list(2)
    SetRobustList,
    /// get_robust_list(2)
    GetRobustList,
    /// close_range(2)
    CloseRange,
    /// process_mrelease(2)
    ProcessMrelease,
    /// get_mempolicy(2), and with it set_mempolicy(2)
    GetMempolicy,
    /// ioprio_get(2), and with it ioprio_set(2)
    IoprioGet,
    /// personality(2)
    Personality,
    /// pkey_mprotect(2)
    PkeyMprotect,
    /// keyctl(2)
    Keyctl,
    /// landlock_create_ruleset(2)
    Landlock,
    /// linkat(2)
    Linkat,
    /// faccessat2(2)
    Faccessat2,
    /// modify_ldt(2)
    ModifyLdt,
}

/// How a trial went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The kernel has it and lets us.
    There,
    /// The kernel has none, or a filter says so.
    Absent,
    /// The caller was killed.
    Forbidden,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Kcmp,
        Self::PidfdOpen,
        Self::PidfdGetfd,
        Self::ProcessVmReadv,
        Self::Clone3,
        Self::Userfaultfd,
        Self::Rseq,
        Self::SetRobustList,
        Self::GetRobustList,
        Self::CloseRange,
        Self::ProcessMrelease,
        Self::GetMempolicy,
        Self::IoprioGet,
        Self::Personality,
        Self::PkeyMprotect,
        Self::Keyctl,
        Self::Landlock,
        Self::Linkat,
        Self::Faccessat2,
        Self::ModifyLdt,
    ];

    /// The system call's name, as syscalls(2) has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kcmp => "kcmp",
            Self::PidfdOpen => "pidfd_open",
            Self::PidfdGetfd => "pidfd_getfd",
            Self::ProcessVmReadv => "process_vm_readv",
            Self::Clone3 => "clone3",
            Self::Userfaultfd => "userfaultfd",
            Self::Rseq => "rseq",
            Self::SetRobustList => "set_robust_list",
            Self::GetRobustList => "get_robust_list",
            Self::CloseRange => "close_range",
            Self::ProcessMrelease => "process_mrelease",
            Self::GetMempolicy => "get_mempolicy",
            Self::IoprioGet => "ioprio_get",
            Self::Personality => "personality",
            Self::PkeyMprotect => "pkey_mprotect",
            Self::Keyctl => "keyctl",
            Self::Landlock => "landlock_create_ruleset",
            Self::Linkat => "linkat",
            Self::Faccessat2 => "faccessat2",
            Self::ModifyLdt => "modify_ldt",
        }
    }

    /// Number and arguments of a call that does nothing, or is refused for its arguments by any kernel that has it; none
    /// of them is an address.
    fn harmless(self) -> (libc::c_long, [libc::c_long; 5]) {
        match self {
            // The calling process compared with a number that no process has: ESRCH.
            Self::Kcmp => (libc::SYS_kcmp, [-1, -1, 0, 0, 0]),
            // EINVAL
            Self::PidfdOpen => (libc::SYS_pidfd_open, [-1, 0, 0, 0, 0]),
            // EBADF
            Self::PidfdGetfd => (libc::SYS_pidfd_getfd, [-1, -1, 0, 0, 0]),
            // No bytes of no process: 0 or ESRCH.
            Self::ProcessVmReadv => (libc::SYS_process_vm_readv, [-1, 0, 0, 0, 0]),
            // A size of 0: EINVAL
            Self::Clone3 => (libc::SYS_clone3, [0, 0, 0, 0, 0]),
            // Flags that nobody knows: EINVAL
            Self::Userfaultfd => (libc::SYS_userfaultfd, [-1, 0, 0, 0, 0]),
            // A length of 0: EINVAL
            Self::Rseq => (RSEQ, [0, 0, 0, 0, 0]),
            // A length of 0: EINVAL
            Self::SetRobustList => (libc::SYS_set_robust_list, [0, 0, 0, 0, 0]),
            // Of a thread that does not exist: ESRCH
            Self::GetRobustList => (libc::SYS_get_robust_list, [-1, 0, 0, 0, 0]),
            // The first above the last: EINVAL
            Self::CloseRange => (libc::SYS_close_range, [1, 0, 0, 0, 0]),
            // EBADF
            Self::ProcessMrelease => (PROCESS_MRELEASE, [-1, 0, 0, 0, 0]),
            // Nothing is asked: 0
            Self::GetMempolicy => (libc::SYS_get_mempolicy, [0, 0, 0, 0, 0]),
            // Of nobody: EINVAL
            Self::IoprioGet => (libc::SYS_ioprio_get, [-1, 0, 0, 0, 0]),
            // Changes nothing.
            Self::Personality => (libc::SYS_personality, [-1, 0, 0, 0, 0]),
            // Of no memory: 0
            Self::PkeyMprotect => (libc::SYS_pkey_mprotect, [0, 0, 0, 0, 0]),
            // No such operation: EOPNOTSUPP
            Self::Keyctl => (libc::SYS_keyctl, [-1, 0, 0, 0, 0]),
            // Its version is asked for.
            Self::Landlock => (LANDLOCK_CREATE_RULESET, [0, 0, 1, 0, 0]),
            // Flags that nobody knows: EINVAL
            Self::Linkat => (libc::SYS_linkat, [-1, 0, -1, 0, -1]),
            Self::Faccessat2 => (libc::SYS_faccessat2, [-1, 0, 0, -1, 0]),
            // No bytes of the table are read: 0. ENOSYS where processors have none.
            Self::ModifyLdt => (MODIFY_LDT, [0, 0, 0, 0, 0]),
        }
    }

    /// Tries it, the first time in a child.
    pub fn trial(self) -> Trial {
        static TRIED: [OnceLock<Trial>; Call::ALL.len()] =
            [const { OnceLock::new() }; Call::ALL.len()];
        *TRIED[self as usize].get_or_init(|| self.attempt())
    }

    /// Whether it may be made.
    pub fn may_be_made(self) -> bool {
        self.trial() == Trial::There
    }

    /// For those that nothing can be done without.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where a sandbox would kill this process for it.
    pub fn must_not_be_forbidden(self) -> Result<()> {
        if self.trial() != Trial::Forbidden {
            return Ok(());
        }
        Err(EngineError::Unfit {
            what: format!("the sandbox of this machine forbids {}", self.name()),
            way_out: "ckptd doctor tells what it forbids; on Android a later version, adb's shell or root has it".into(),
        })
    }

    fn attempt(self) -> Trial {
        let (number, [a, b, c, d, e]) = self.harmless();
        let none: libc::c_long = 0;
        let no_core = [0u64; 2];
        // SAFETY: with no flags it is a fork whose child's end is told by no signal, so that nobody who waits for children
        // of his own sees it. The child makes plain system calls only, which take no lock that another thread may have held,
        // and ends; all arguments but `no_core`, which lives on its copy of this stack, are numbers.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, none, none, none, none, none);
            if child == 0 {
                let core = libc::RLIMIT_CORE as libc::c_long;
                libc::syscall(libc::SYS_prlimit64, none, core, &raw const no_core, none);
                let answer = libc::syscall(number, a, b, c, d, e);
                let absent = answer == -1 && is_absence(nix::errno::Errno::last_raw());
                libc::syscall(libc::SYS_exit_group, libc::c_long::from(absent));
            }
            child
        };
        let Ok(child @ 1..) = i32::try_from(child) else {
            // No process to try it in: what is tried for real will say why.
            return Trial::There;
        };
        let mut status = 0;
        // SAFETY: the kernel writes one int to `status`, which lives across the call.
        while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } < 0 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return Trial::There;
            }
        }
        if !libc::WIFEXITED(status) {
            Trial::Forbidden
        } else if libc::WEXITSTATUS(status) != 0 {
            Trial::Absent
        } else {
            Trial::There
        }
    }
}

/// None of the harmless calls is refused for a lack of rights by the kernel itself: that is a filter's word, or ENOSYS.
fn is_absence(errno: i32) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_has_is_there() {
        // Each of them is a part of every kernel and container that the tests run in, but for kcmp and userfaultfd, which
        // may be left out.
        for call in Call::ALL {
            let trial = call.trial();
            assert_ne!(trial, Trial::Forbidden, "{}", call.name());
            assert_eq!(call.trial(), trial);
        }
        assert!(Call::PidfdOpen.may_be_made() && Call::SetRobustList.may_be_made());
    }

    #[test]
    fn the_order_is_that_of_the_answers() {
        for (index, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, index);
        }
    }
}
