//! How an init comes by its order: from its agent, or from itself, where it has executed this program once more in the
//! user namespace of an ordinary user's job.
//!
//! Who may look into a process that is not dumpable is asked for rights over the user namespace in which its memory began,
//! with the execution of a program (kernel/ptrace.c, __ptrace_may_access). What is brought back begins with the memory of
//! its init. So that is to be one that has been executed in there, over which the job's agent has all rights.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::sys::restrained::{hand_on, hand_on_nothing};
use super::super::sys::{memfd, prctl, standing};
use super::channel::Channel;
use super::namespaces;
use super::shown::{INIT_NAME, arguments as shown_arguments};
use super::world::World;
use super::{Order, Task};

const NAME: &CStr = c"ckptd-order";

/// What an execution leaves to the next one.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    order: Order,
    /// Supplementary groups, which a user namespace has no numbers for.
    groups: Vec<u32>,
}

/// The order of this init, and whether it is in the job's user namespace already.
///
/// # Errors
/// An order that is not understood; where user namespaces are forbidden.
pub(super) fn receive(channel: &Channel) -> Result<(Order, bool)> {
    if let Some(left) = left_by_itself()? {
        namespaces::know_groups(left.groups);
        hand_on_nothing().map_err(system("capset"))?;
        return Ok((left.order, true));
    }
    let (order, _): (Order, _) =
        channel.receive().map_err(|error| EngineError::odd("order", error.to_string()))?;
    let is_brought_back = matches!(order.task, Task::Restore { .. });
    if order.world != World::Own || !is_brought_back || standing::acts_for_all() {
        return Ok((order, false));
    }
    namespaces::enter_user()?;
    // The namespace has changed the credentials, which clears it (prctl(2)).
    die_with_parent()?;
    let groups = namespaces::groups_outside().unwrap_or_default().to_vec();
    let left = Left { order, groups };
    let Err(error) = execute_again(channel, &left);
    // Only what is not dumpable suffers from that.
    tracing::debug!("executing the init in its user namespace: {error}");
    hand_on_nothing().map_err(system("capset"))?;
    Ok((left.order, true))
}

/// From now on this process ends with its parent.
///
/// # Errors
/// Failed prctl(2).
pub(super) fn die_with_parent() -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(system("PR_SET_PDEATHSIG"))
}

fn system(call: &'static str) -> impl Fn(nix::errno::Errno) -> EngineError {
    move |errno| EngineError::system(call, "the job's init", errno)
}

/// What the execution before this one has left in a descriptor, whose number is this one's only argument.
fn left_by_itself() -> Result<Option<Left>> {
    let number = std::env::args().nth(1).and_then(|number| number.parse::<RawFd>().ok());
    let Some(number) = number else { return Ok(None) };
    // SAFETY: the execution before this one has left a descriptor of this number, which nobody else in this fresh program
    // knows.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| EngineError::system("read", "order", error))?;
    let left = protocol::json::read(&bytes);
    left.map(Some).map_err(|error| EngineError::odd("order", error.to_string()))
}

/// Executes this program once more, with all rights that this process has in its user namespace.
fn execute_again(channel: &Channel, left: &Left) -> std::io::Result<Infallible> {
    let file = leave(left)?;
    for fd in [channel.socket().as_fd(), file.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    hand_on()?;
    let number = CString::new(file.as_raw_fd().to_string())?;
    let mut arguments = vec![CString::new(INIT_NAME)?, number];
    let calls = left.order.instance.as_ref().and_then(|instance| instance.calls.as_deref());
    for shown in shown_arguments(calls) {
        arguments.push(CString::new(shown.into_encoded_bytes())?);
    }
    Ok(nix::unistd::execv(c"/proc/self/exe", &arguments)?)
}

fn leave(left: &Left) -> std::io::Result<File> {
    let make = |flags: u32| memfd::make(NAME, flags);
    let mut file = File::from(memfd::made_executable(false, make)?);
    file.write_all(&serde_json::to_vec(left)?)?;
    file.rewind()?;
    Ok(file)
}
