//! The namespaces of a job (namespaces(7)), made and used as a job's init does.

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use serde::{Deserialize, Serialize};

use super::super::job_init::namespaces;
use super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_exact};
use super::child::in_child;
use super::error::ProbeError;

/// What could be done inside of fresh namespaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inside {
    /// Making user (without privilege), PID, mount, UTS and IPC namespaces.
    pub made: Result<(), ProbeError>,
    /// Mounting /proc in them.
    pub proc: Result<(), ProbeError>,
    /// Mounting pseudo-terminals in them.
    pub terminals: Result<(), ProbeError>,
    /// clone3(2) with set_tid.
    pub exact_pid: Result<(), ProbeError>,
}

/// A PID that no fresh namespace has given out.
const WANTED: i32 = 4321;

/// Makes namespaces and tries in them what a job's init does.
pub fn inside_namespaces() -> Inside {
    in_child(|| {
        if let Err(error) = namespaces::enter_user().and_then(|()| namespaces::enter(None, false)) {
            return Ok(nothing(error.into()));
        }
        // The first child is process 1 of the PID namespace: only there can /proc be mounted.
        in_child(|| {
            let mounted = namespaces::mount_own();
            let terminals = match &mounted {
                Ok(warnings) => warnings
                    .first()
                    .map_or(Ok(()), |warning| Err(ProbeError::Engine(warning.clone()))),
                Err(_) => Err(ProbeError::NotTried),
            };
            Ok(Inside {
                made: Ok(()),
                proc: mounted.map(drop).map_err(ProbeError::from),
                terminals,
                exact_pid: exact_pid(),
            })
        })
    })
    .unwrap_or_else(nothing)
}

fn nothing(error: ProbeError) -> Inside {
    let not_tried = || Err(ProbeError::NoNamespaces);
    Inside { made: Err(error), proc: not_tried(), terminals: not_tried(), exact_pid: not_tried() }
}

fn exact_pid() -> Result<(), ProbeError> {
    let proof = SingleThreaded::check()?;
    match fork_exact(&proof, WANTED, libc::SIGCHLD, Shared::default())? {
        // SAFETY: ends this process without running anything of its parent's.
        Side::Child => unsafe { libc::_exit(0) },
        Side::Parent(pid) => {
            let _ = waitpid(nix::unistd::Pid::from_raw(pid), None);
            if pid == WANTED {
                Ok(())
            } else {
                Err(ProbeError::OtherNumber { found: pid, wanted: WANTED })
            }
        }
    }
}

/// Whether a job's clocks can be set to what they were (time_namespaces(7)).
///
/// # Errors
/// Why not.
pub fn time_namespace() -> Result<(), ProbeError> {
    if !std::path::Path::new("/proc/self/timens_offsets").exists() {
        return Err(ProbeError::Absent);
    }
    in_child(|| {
        namespaces::enter_user()?;
        namespaces::enter(Some((1_000_000_000, 0)), false)?;
        // Only children are inside.
        // SAFETY: this child has one thread.
        match unsafe { fork() }? {
            // SAFETY: ends this process without running anything of its parent's.
            ForkResult::Child => unsafe { libc::_exit(0) },
            ForkResult::Parent { child } => {
                waitpid(child, None)?;
                Ok(())
            }
        }
    })
}
