//! What can go wrong, each with a way out where there is one.

use crate::failure::Failure;
use std::io;
use thiserror::Error;

/// Why the demonstration could not be shown, or showed something wrong.
#[derive(Debug, Error)]
pub enum DemoError {
    /// User namespaces are forbidden, or there are none.
    #[error(
        "user namespaces can't be made ({0}): run it as root, or allow them (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone); 'ckptd doctor' tells more"
    )]
    NoUserNamespaces(io::Error),
    /// They can be made, and give no rights.
    #[error(
        "{what}: {cause}; run it as root of a machine, or allow user namespaces their rights (sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Powerless {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// It is root's, who may do nothing.
    #[error(
        "root may make no namespaces here ({0}), as in a container: run it on the machine, or in a container that may \
         (--privileged)"
    )]
    PowerlessRoot(io::Error),
    /// The kernel has no such network device.
    #[error(
        "make a network for the machines: {0}; it takes the kernel's bridge and veth ('modprobe -a bridge veth')"
    )]
    Network(io::Error),
    /// A call was refused.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        cause: io::Error,
    },
    /// There is no folder over which its files could lie.
    #[error("find a place for its files: there is none of /mnt, /srv, /media and /run")]
    NoPlace,
    /// What it shows can't be written.
    #[error("write to standard output: {0}")]
    Output(io::Error),
    /// Signals can't be held up; what is said of that.
    #[error("{0}")]
    Held(String),
    /// A command of ckptd's failed.
    #[error("{what}: {said}")]
    Command {
        /// What was tried.
        what: String,
        /// What it said.
        said: String,
    },
    /// Something did not come to be in time.
    #[error("{what} within {limit_s} s: this machine may be too busy")]
    Late {
        /// What was waited for, as a sentence.
        what: &'static str,
        /// How long.
        limit_s: u64,
    },
    /// The job has ended before something else.
    #[error("the job ended with status {status} before {what}{said}")]
    Ended {
        /// Its status.
        status: u8,
        /// What was waited for.
        what: &'static str,
        /// What was said last.
        said: String,
    },
    /// The job's answer is not the right one.
    #[error("the job said {said:?} and ended with status {status}; right were {right:?} and 0")]
    Wrong {
        /// What it said last.
        said: String,
        /// How it ended.
        status: u8,
        /// What it should have said.
        right: String,
    },
}

impl DemoError {
    /// For `map_err`: what was tried.
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self::System { what, cause: cause.into() }
    }
}

impl From<DemoError> for Failure {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::Output(error) => error.into(),
            error => Self::of("show the demonstration", error),
        }
    }
}
