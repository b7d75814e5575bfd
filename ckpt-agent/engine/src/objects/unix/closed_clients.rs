//! Connections that nobody has accepted yet, and whose client has closed its end already: no descriptor leads to them. What was
//! sent is read by accepting them; then a child of ours, as the client's user, connects again, sends the same bytes, and ends.
//! All of a queue are such, or none is touched: an open client would lose its connection.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef, Socket};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{BlobId, Pid};
use super::super::super::sys::message::receive_rights;
use super::super::super::sys::network;
use super::super::super::sys::poll::poll_one;
use super::own::{grow, new_socket, send_now};
use super::{DumpContext, Found, UnixKind, UnixSocket, path_bytes, seen, soon, system};
use crate::objects::reopen;

/// Read at once.
const PIECE: usize = 256 * 1024;
/// More than this from one client is not believed.
const MOST_BYTES: usize = 1 << 30;

/// A connection whose client has closed, in the queue of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedClient {
    /// What it has sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<BlobId>,
    /// The process that had connected, if that is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Pid>,
}

/// What was taken out of the queue.
struct Taken {
    sent: Vec<u8>,
    rights: Vec<OwnedFd>,
    named: bool,
    client: UnixCredentials,
}

/// Where a listener is found again.
enum Address {
    Abstract(SockAddr),
    /// Its folder, and its address there.
    Path(OwnedFd, SockAddr),
}

/// Reads the whole queue of a listener, and puts it back.
///
/// # Errors
/// A refusal of what can't be put back, before anything is touched; failed system calls.
pub(super) fn read(
    found: &Found<'_, UnixSocket>,
    count: usize,
    context: &mut DumpContext,
) -> Result<Vec<ClosedClient>> {
    let address = address_of(found)?;
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let waits = poll_one(&found.probe.copy, libc::POLLIN, Duration::ZERO);
        if waits.map_err(|error| system("poll", error))? == 0 {
            break;
        }
        taken.push(take(found));
    }
    // Whatever became of one, all others go back.
    let mut first = None;
    let mut closed = Vec::with_capacity(taken.len());
    for one in taken {
        let put = one.and_then(|one| put_back(found, &address, &one).map(|()| one));
        match put {
            Ok(one) if one.rights.is_empty() => {
                if one.named {
                    context.warn(format!(
                        "process {} ({}), descriptor {}: a client that has closed is not named any more",
                        found.probe.pid, found.probe.comm, found.probe.fd
                    ));
                }
                let by = context.pids.get(&one.client.pid()).copied();
                let sent = (!one.sent.is_empty()).then(|| context.keep(one.sent));
                closed.push(ClosedClient { sent, by });
            }
            Ok(_) => {
                let what = "a connection with descriptors in it that has not been accepted yet";
                first.get_or_insert(soon(found.probe, what, "it will be accepted soon: try again"));
            }
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    first.map_or(Ok(closed), Err)
}

/// What a connection can be made to again: its process may be among other mounts than ours.
fn address_of(found: &Found<'_, UnixSocket>) -> Result<Address> {
    let none = || {
        let what = "a listening socket without a name, with connections whose clients have closed";
        soon(found.probe, what, "they will be accepted soon: try again")
    };
    let name = found.object.name.as_ref().ok_or_else(none)?;
    if name.bytes.first() == Some(&0) {
        let address = network::unix_address(&name.bytes).map_err(|error| system("name", error))?;
        return Ok(Address::Abstract(address));
    }
    let path = seen(name, found.probe);
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else { return Err(none()) };
    if !name.exists {
        return Err(none());
    }
    let folder = reopen::open(&crate::names::text(folder), libc::O_PATH | libc::O_DIRECTORY);
    let folder = folder.map_err(|_| none())?;
    // No link of the same name is meant.
    let here = Path::new(OsStr::from_bytes(b".")).join(file);
    let address = SockAddr::unix(here).or_else(|_| SockAddr::unix(Path::new(file)));
    Ok(Address::Path(folder, address.map_err(|_| none())?))
}

fn take(found: &Found<'_, UnixSocket>) -> Result<Taken> {
    let accepted = SockRef::from(&found.probe.copy).accept_raw();
    let (socket, from) = accepted.map_err(|error| system("accept", error))?;
    let client = getsockopt(&socket, PeerCredentials).map_err(|errno| system("ask", errno))?;
    let named = path_bytes(&from).is_some_and(|name| !name.is_empty());
    let mut taken = Taken { sent: Vec::new(), rights: Vec::new(), named, client };
    let mut piece = vec![0; PIECE];
    while taken.sent.len() < MOST_BYTES {
        match receive_rights(&socket, &mut piece, libc::MSG_DONTWAIT) {
            Ok((got, rights)) if got.length > 0 => {
                taken.sent.extend_from_slice(&piece[..got.length]);
                taken.rights.extend(rights);
            }
            Ok(_) => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(system("read", error)),
        }
    }
    Ok(taken)
}

/// Connects and sends as the client's user: whoever accepts asks for that (SO_PEERCRED).
fn put_back(found: &Found<'_, UnixSocket>, address: &Address, taken: &Taken) -> Result<()> {
    let socket = new_socket(UnixKind::Stream, found.network)?;
    socket.set_nonblocking(true).map_err(|error| system("fcntl", error))?;
    let room = i32::try_from(taken.sent.len().saturating_mul(4)).unwrap_or(i32::MAX / 2);
    let socket = OwnedFd::from(socket);
    grow(&socket, room.saturating_add(1 << 20));
    let rights: Vec<i32> = taken.rights.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: the child makes nothing but system calls, and leaves by _exit.
    match unsafe { fork() }.map_err(|errno| system("fork", errno))? {
        ForkResult::Child => {
            let done = connect_as(&taken.client, address, &socket).and_then(|()| {
                match taken.sent.is_empty() {
                    true => Ok(()),
                    false => send_now(&socket, &taken.sent, &rights).map_err(|_| libc::EAGAIN),
                }
            });
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(done.err().unwrap_or(0)) }
        }
        ForkResult::Parent { child } => loop {
            match waitpid(child, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => {}
                Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
                Ok(WaitStatus::Exited(_, errno)) => {
                    return Err(system("connect a closed client again to", Errno::from_raw(errno)));
                }
                _ => return Err(EngineError::odd("a child that connects again", "it was killed")),
            }
        },
    }
}

/// In a child, whose user nobody else has in common. The error is an errno.
fn connect_as(
    client: &UnixCredentials,
    address: &Address,
    socket: &OwnedFd,
) -> std::result::Result<(), i32> {
    let failed = |_| Errno::last_raw();
    let address = match address {
        Address::Abstract(address) => address,
        Address::Path(folder, address) => {
            nix::unistd::fchdir(folder).map_err(|errno| errno as i32)?;
            address
        }
    };
    let (user, group) = (client.uid(), client.gid());
    // SAFETY: takes numbers only, and changes this process alone.
    let become_it = || unsafe {
        let groups = libc::syscall(libc::SYS_setresgid, group, group, group);
        groups == 0 && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
    };
    if (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()) != (user, group)
        && !become_it()
    {
        return Err(Errno::last_raw());
    }
    SockRef::from(socket).connect(address).map_err(failed)
}

/// At a restore: what a client has left.
pub(super) fn send(client: &Socket, bytes: &[u8]) -> Result<()> {
    let room = i32::try_from(bytes.len().saturating_mul(4)).unwrap_or(i32::MAX / 2);
    let copy = client.try_clone().map_err(|error| system("dup", error))?;
    let copy = OwnedFd::from(copy);
    grow(&copy, room.saturating_add(1 << 20));
    match bytes.is_empty() {
        true => Ok(()),
        false => send_now(&copy, bytes, &[]),
    }
}
