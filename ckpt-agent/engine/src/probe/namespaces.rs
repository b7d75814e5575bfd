//! The namespaces of a job (namespaces(7)), made and used as a job's init does.

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use serde::{Deserialize, Serialize};

use super::super::job_init::namespaces;
use super::super::sys::clone3::{Side, SingleThreaded, fork_exact};
use super::child::in_child;

/// What could be done inside of fresh namespaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inside {
    /// Making user (without privilege), PID, mount, UTS and IPC namespaces.
    pub made: Result<(), String>,
    /// Mounting /proc in them.
    pub proc: Result<(), String>,
    /// Mounting pseudo-terminals in them.
    pub terminals: Result<(), String>,
    /// clone3(2) with set_tid.
    pub exact_pid: Result<(), String>,
}

/// A PID that no fresh namespace has given out.
const WANTED: i32 = 4321;

/// Makes namespaces and tries in them what a job's init does.
pub fn inside_namespaces() -> Inside {
    in_child(|| {
        if let Err(error) = namespaces::enter(None, false) {
            return Ok(nothing(&error.to_string()));
        }
        // The first child is process 1 of the PID namespace: only there can /proc be mounted.
        in_child(|| {
            let mounted = namespaces::mount_own();
            let terminals = match &mounted {
                Ok(warnings) => warnings.first().map_or(Ok(()), |warning| Err(warning.clone())),
                Err(_) => Err("not tried".to_owned()),
            };
            Ok(Inside {
                made: Ok(()),
                proc: mounted.map(drop).map_err(|error| error.to_string()),
                terminals,
                exact_pid: exact_pid(),
            })
        })
    })
    .unwrap_or_else(|error| nothing(&error))
}

fn nothing(error: &str) -> Inside {
    let not_tried = || Err("not tried: no namespaces".to_owned());
    Inside {
        made: Err(error.to_owned()),
        proc: not_tried(),
        terminals: not_tried(),
        exact_pid: not_tried(),
    }
}

fn exact_pid() -> Result<(), String> {
    let proof = SingleThreaded::check().map_err(|error| error.to_string())?;
    match fork_exact(&proof, WANTED, libc::SIGCHLD).map_err(|error| error.to_string())? {
        // SAFETY: ends this process without running anything of its parent's.
        Side::Child => unsafe { libc::_exit(0) },
        Side::Parent(pid) => {
            let _ = waitpid(nix::unistd::Pid::from_raw(pid), None);
            if pid == WANTED { Ok(()) } else { Err(format!("got {pid} for {WANTED}")) }
        }
    }
}

/// Whether a job's clocks can be set to what they were (time_namespaces(7)).
///
/// # Errors
/// Why not.
pub fn time_namespace() -> Result<(), String> {
    if !std::path::Path::new("/proc/self/timens_offsets").exists() {
        return Err("the kernel has none".into());
    }
    in_child(|| {
        namespaces::enter(Some((1_000_000_000, 0)), false).map_err(|error| error.to_string())?;
        // Only children are inside.
        // SAFETY: this child has one thread.
        match unsafe { fork() }.map_err(super::child::text)? {
            // SAFETY: ends this process without running anything of its parent's.
            ForkResult::Child => unsafe { libc::_exit(0) },
            ForkResult::Parent { child } => {
                waitpid(child, None).map(drop).map_err(super::child::text)
            }
        }
    })
}
