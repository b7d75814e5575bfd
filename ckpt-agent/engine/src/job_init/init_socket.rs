//! The socket at which the next agent finds an init.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, socket,
};
use nix::sys::stat::{Mode, umask};

/// Agents that may wait at the socket.
const WAITING: i32 = 4;
/// How long an agent may take for a message once it has begun: the init reaps meanwhile for nobody.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who is at the other end of a socket, as this process numbers users and processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 where it is outside of this PID namespace.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// The credentials of whoever connected, or, to the one who connected, of whoever listened
/// (SO_PEERCRED, unix(7)).
///
/// # Errors
/// As getsockopt(2).
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    let credentials = getsockopt(socket, PeerCredentials)?;
    Ok(Peer { pid: credentials.pid(), uid: credentials.uid() })
}

/// A short name for a path: the folder by descriptor, since a socket's address holds 107 bytes only.
fn short(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let folder = File::open(folder)?;
    let by_descriptor = format!("/proc/self/fd/{}/", folder.as_raw_fd());
    let mut short = OsString::from(by_descriptor);
    short.push(name);
    Ok((folder, short.into()))
}

/// Makes the socket, in the place of one that a dead init has left. Only its owner, and root, may connect.
/// For a single-threaded process.
///
/// # Errors
/// As bind(2).
pub fn make(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_folder, short) = short(path)?;
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let before = umask(Mode::S_IRWXG | Mode::S_IRWXO | Mode::S_IXUSR);
    let bound = UnixAddr::new(&short).and_then(|address| bind(listener.as_raw_fd(), &address));
    umask(before);
    bound?;
    Ok(listener.into())
}

/// Opens it. To be called by the init itself: who connects learns who listened.
///
/// # Errors
/// As listen(2).
pub fn open(listener: &UnixListener) -> io::Result<()> {
    listen(listener, Backlog::new(WAITING)?)?;
    Ok(())
}

/// Lets one in, if it is of this process's user or root, as user namespaces show them (a user that is
/// not mapped is neither).
///
/// # Errors
/// PermissionDenied; as accept(2).
pub fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    // Without asking for the address, which is nobody's: that call would be watched as the job's are.
    let socket = accept_one(listener)?;
    let uid = peer(&socket)?.uid;
    if uid != 0 && uid != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    be_patient(&socket)?;
    Ok(socket)
}

fn accept_one(listener: &UnixListener) -> io::Result<UnixStream> {
    // SAFETY: null pointers ask for no address.
    let made = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(made) }.into())
}

/// Limits how long messages of a peer that hangs may take.
///
/// # Errors
/// As setsockopt(2).
pub fn be_patient(socket: &UnixStream) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

/// Knocks.
///
/// # Errors
/// As connect(2): ECONNREFUSED or ENOENT where no init lives there any more.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_folder, short) = short(path)?;
    UnixStream::connect(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_be_long() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("socket");
        for _ in 0..2 {
            let listener = make(&path).unwrap();
            assert!(connect(&path).is_err());
            open(&listener).unwrap();
            let client = connect(&path).unwrap();
            let server = accept(&listener).unwrap();
            let own = std::process::id() as i32;
            assert_eq!((peer(&client).unwrap().pid, peer(&server).unwrap().pid), (own, own));
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
