//! Names of senders whose sockets are gone, for the datagrams of theirs that are still queued: recvfrom(2) tells the name
//! that the sender had when it sent. So one of our own bears it for a moment.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use socket2::{SockAddr, Socket, Type};

use super::super::aside::Aside;
use super::Name;
use super::bound::{in_any_folder, is_dead};

/// What became of the name after the datagram was sent. Only what fails before that is an error: whoever is given one may
/// send the datagram in another way.
#[derive(Debug)]
pub(super) enum Sent {
    /// The name is as it was.
    Clean,
    /// The datagram is queued, but the file that the name needed could not be removed, or the one aside not put back.
    LeftBehind(Error),
}

impl Sent {
    fn and(cleaned: Result<()>) -> Self {
        cleaned.map_or_else(Self::LeftBehind, |()| Self::Clean)
    }
}

/// Binds a socket to a name and lets `send` do its part; then the name is as it was.
///
/// # Errors
/// The name is somebody's; its folder can't be written; what `send` returns. Nothing is sent then.
pub(super) fn send_as(
    name: &[u8],
    socket: &Socket,
    send: impl FnOnce(&Socket) -> Result<()>,
) -> Result<Sent> {
    let path = Path::new(OsStr::from_bytes(name));
    if name.first() == Some(&0) {
        socket.bind(&SockAddr::unix(path)?)?;
        return send(socket).map(|()| Sent::Clean);
    }
    if path.is_relative() {
        return in_a_folder(path, socket, send);
    }
    must_be_free_or_dead(path)?;
    let aside = Aside::of(path).map_err(Error::other)?;
    let _folders = Folders::make(path)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let sent = send(socket);
    let cleaned = std::fs::remove_file(path).and_then(|()| aside.back().map_err(Error::other));
    sent.map(|()| Sent::and(cleaned))
}

/// Where the sender was is not known, and means nothing: a relative name is one in any folder.
fn in_a_folder(
    path: &Path,
    socket: &Socket,
    send: impl FnOnce(&Socket) -> Result<()>,
) -> Result<Sent> {
    in_any_folder(path, socket, |_| send(socket)).map(|((), cleaned)| Sent::and(cleaned))
}

/// Whoever misses the file of a dead socket for a moment finds what connects to it refused either way; all else stays.
fn must_be_free_or_dead(path: &Path) -> Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let bytes = path.as_os_str().as_bytes().to_vec();
    let name = Name { bytes, exists: true, ..Name::default() };
    match meta.file_type().is_socket() && is_dead(Type::DGRAM, &name).unwrap_or(false) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::AddrInUse, "it is somebody else's now")),
    }
}

/// Folders that were missing, there while this lives; the innermost first.
struct Folders(Vec<PathBuf>);

impl Folders {
    fn make(path: &Path) -> Result<Self> {
        let missing = path.ancestors().skip(1).take_while(|folder| !folder.exists());
        let missing = Self(missing.map(Path::to_owned).collect());
        for folder in missing.0.iter().rev() {
            std::fs::create_dir(folder)?;
        }
        Ok(missing)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // One that somebody has used meanwhile stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use socket2::Domain;

    use super::*;

    #[test]
    fn a_name_is_borne_and_the_file_at_it_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let receiver = UnixDatagram::bind(folder.path().join("r")).unwrap();
        let target = SockAddr::unix(folder.path().join("r")).unwrap();
        let left = folder.path().join("left");
        drop(UnixDatagram::bind(&left).unwrap());
        let deep = folder.path().join("no/such/folder");
        for name in [left.clone(), deep.clone(), "relative/name".into()] {
            let socket = datagram_socket();
            let send = |socket: &Socket| socket.send_to(b"x", &target).map(|_| ());
            let sent = send_as(name.as_os_str().as_bytes(), &socket, send).unwrap();
            assert!(matches!(sent, Sent::Clean), "{sent:?}");
            let (_, from) = receiver.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(from.as_pathname(), Some(name.as_path()));
        }
        assert!(left.exists() && !folder.path().join("no").exists());
        // Two restores at once.
        let bear = |socket: &Socket| send_as(b"relative", socket, |_| Ok(())).map(drop);
        send_as(b"relative", &datagram_socket(), |_| bear(&datagram_socket())).unwrap();
        let held = UnixDatagram::bind(folder.path().join("h")).unwrap();
        let socket = datagram_socket();
        let name = folder.path().join("h");
        let refused = send_as(name.as_os_str().as_bytes(), &socket, |_| Ok(()));
        assert!(refused.is_err() && name.exists());
        drop(held);
    }

    fn datagram_socket() -> Socket {
        Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap()
    }

    #[test]
    fn what_cannot_be_cleaned_up_was_sent_nevertheless() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("n");
        let taken = |_: &Socket| std::fs::remove_file(&name);
        let sent = send_as(name.as_os_str().as_bytes(), &datagram_socket(), taken);
        assert!(matches!(sent, Ok(Sent::LeftBehind(_))), "{sent:?}");
    }
}
