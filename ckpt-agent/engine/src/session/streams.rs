//! What an agent keeps of a job's streams and relays.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use protocol::launch::Console;

use super::SessionError;
use crate::graph::{OuterEnd, RelayKind};
use crate::objects::StdioRole;

/// The launcher's ends, by stream.
pub fn console(ends: Vec<(StdioRole, OwnedFd)>) -> Console {
    let mut console = Console::default();
    for (role, end) in ends {
        let place = match role {
            StdioRole::Terminal => &mut console.terminal,
            StdioRole::Stdin => &mut console.stdin,
            StdioRole::Stdout => &mut console.stdout,
            StdioRole::Stderr => &mut console.stderr,
        };
        *place = Some(end);
    }
    console
}

/// Of pipes only the identity is kept: an end of ours would hold back the end of the job's input, or
/// keep the job's output open.
pub(super) fn remember(
    streams: &[(StdioRole, OwnedFd)],
) -> Result<Vec<(StdioRole, OwnedFd)>, SessionError> {
    streams
        .iter()
        .map(|(role, end)| match role {
            StdioRole::Terminal => Ok((*role, end.try_clone().map_err(SessionError::Spawn)?)),
            _ => Ok((*role, identity(end)?)),
        })
        .collect()
}

/// As [`remember`]; of what has two sides of its own a copy is kept.
pub(super) fn remember_outer(
    ends: &[(OuterEnd, OwnedFd)],
) -> Result<Vec<(OuterEnd, OwnedFd)>, SessionError> {
    ends.iter()
        .map(|(end, fd)| {
            let has_ends = matches!(
                end,
                OuterEnd::Relay(relay)
                    if matches!(
                        relay.kind,
                        RelayKind::PipeRead
                            | RelayKind::PipeWrite
                            | RelayKind::Output
                            | RelayKind::Descriptor { .. }
                    )
            );
            let kept = if has_ends {
                identity(fd)?
            } else {
                fd.try_clone().map_err(SessionError::Spawn)?
            };
            Ok((end.clone(), kept))
        })
        .collect()
}

/// An O_PATH descriptor of the same pipe: keeps neither end open.
fn identity(end: &OwnedFd) -> Result<OwnedFd, SessionError> {
    use nix::fcntl::{OFlag, open};
    let path = format!("/proc/self/fd/{}", end.as_fd().as_raw_fd());
    open(path.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
        .map_err(|errno| SessionError::Spawn(errno.into()))
}
