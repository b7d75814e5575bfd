//! Sockets bound to their names again, and reached whatever their paths lead to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::names;
use super::super::super::sys::network;
use super::super::aside::Aside;
use super::super::reopen;
use super::{Name, system};

/// An abstract name is free once the last process of the generation before has ended.
const NAME_LIMIT: Duration = Duration::from_secs(2);

/// The files of sockets bound here (O_PATH), by which they are reached: of those that were bound to one path one after the
/// other, only the last one has it.
#[derive(Debug, Default)]
pub(super) struct Bound {
    files: BTreeMap<Name, File>,
    /// Folders that are to be gone again, an outer one before those in it.
    folders: Vec<PathBuf>,
}

impl Bound {
    /// Binds to a name: over the file that a dead socket has left there; one that had lost its path to something else
    /// loses it again.
    pub(super) fn bind(&mut self, socket: &Socket, name: &Name) -> Result<()> {
        let Some(path) = path_of(name) else { return bind_now(socket, name) };
        if name.folder_gone && name.moved.is_none() && name.directory.is_some() {
            // Nobody reaches it by this name, and the folder may be one in which the user makes none.
            if let Ok(file) = bind_anywhere(socket, name) {
                self.files.insert(name.clone(), file);
                return Ok(());
            }
        }
        let made = make_parent(&path)?;
        if name.folder_gone {
            self.folders.extend(made);
        }
        let file = if name.exists {
            make_room(socket, name, &path)?;
            bind_now(socket, name)?;
            file_of(&path)?
        } else {
            let aside = Aside::of(&path)?;
            let file = match &name.moved {
                Some(to) => {
                    make_parent(&names::path(to))?;
                    bind_moved(socket, name, &path, &names::path(to))
                }
                None => bind_unlinked(socket, name, &path),
            };
            aside.back()?;
            match file {
                // Where it was is not known for sure, and means nothing without a file.
                Err(_) if name.directory.is_some() => bind_anywhere(socket, name)?,
                file => file?,
            }
        };
        self.files.insert(name.clone(), file);
        Ok(())
    }

    /// Does something with the address of a socket.
    pub(super) fn reach<T>(&self, name: &Name, act: impl FnOnce(&SockAddr) -> T) -> Result<T> {
        let Some(file) = self.files.get(name) else { return in_directory(name, act) };
        let address = SockAddr::unix(reopen::magic_link(file)).map_err(|e| system("name", e))?;
        Ok(act(&address))
    }

    /// Removes the folders that the job had removed, as far as nothing is in them.
    pub(super) fn remove_folders(&mut self) {
        for folder in std::mem::take(&mut self.folders).iter().rev() {
            // One that is not empty stays.
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Who may connect to a name; those whose owner and mode could not be set, and why.
    pub(super) fn put_owners(&self) -> Vec<(&Name, std::io::Error)> {
        let owned = self.files.iter().filter_map(|(name, file)| Some((name, file, name.owner?)));
        owned
            .filter_map(|(name, file, owner)| Some((name, put_owner(file, owner).err()?)))
            .collect()
    }
}

fn path_of(name: &Name) -> Option<PathBuf> {
    if name.bytes.first() == Some(&0) {
        return None;
    }
    let path = Path::new(OsStr::from_bytes(&name.bytes));
    Some(name.directory.as_ref().map_or_else(|| path.to_owned(), |at| names::path(at).join(path)))
}

/// Does something with a name as it was given, from the directory that it is relative to.
pub(super) fn in_directory<T>(name: &Name, act: impl FnOnce(&SockAddr) -> T) -> Result<T> {
    let address = network::unix_address(&name.bytes).map_err(|error| system("name", error))?;
    let Some(directory) = &name.directory else { return Ok(act(&address)) };
    let here = std::env::current_dir().map_err(|error| system("getcwd for", error))?;
    std::env::set_current_dir(names::path(directory))
        .map_err(|error| EngineError::system("chdir to", directory.clone(), error))?;
    let done = act(&address);
    std::env::set_current_dir(&here)
        .map_err(|error| EngineError::system("chdir to", here.display().to_string(), error))?;
    Ok(done)
}

/// Binds to a relative name in a folder of our own, and does something with the file there, which is gone then. Also how
/// that went.
///
/// # Errors
/// The name leads out of its folder; failed calls; what `act` returns.
pub(super) fn in_any_folder<T>(
    path: &Path,
    socket: &Socket,
    act: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<(T, std::io::Result<()>)> {
    let leaves = |part: std::path::Component<'_>| part == std::path::Component::ParentDir;
    if path.components().any(leaves) {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it leads out of its folder"));
    }
    // Two restores at once may have one process number, each in its own namespace.
    let folder = nix::unistd::mkdtemp(&std::env::temp_dir().join(".ckptd-sender-XXXXXX"))?;
    let done = bind_in(&folder, path, socket).and_then(|()| act(&folder.join(path)));
    let cleaned = std::fs::remove_dir_all(&folder);
    done.map(|done| (done, cleaned))
}

/// Binds to a relative name that leads to no file, wherever that was.
fn bind_anywhere(socket: &Socket, name: &Name) -> Result<File> {
    let path = Path::new(OsStr::from_bytes(&name.bytes));
    let open = |there: &Path| file_of(there).map_err(std::io::Error::other);
    let (file, _) = in_any_folder(path, socket, open).map_err(|error| system("bind", error))?;
    Ok(file)
}

fn bind_in(folder: &Path, path: &Path, socket: &Socket) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(folder.join(parent))?;
    }
    let directory = Some(names::text(folder));
    let bytes = path.as_os_str().as_bytes().to_vec();
    let name = Name { bytes, directory, ..Name::default() };
    in_directory(&name, |address| socket.bind(address)).map_err(std::io::Error::other)?
}

/// Binds to a free name.
fn bind_now(socket: &Socket, name: &Name) -> Result<()> {
    let began = Instant::now();
    let in_use = |done: &std::io::Result<()>| {
        done.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    let mut done = in_directory(name, |address| socket.bind(address))?;
    while in_use(&done) && began.elapsed() < NAME_LIMIT {
        std::thread::sleep(Duration::from_millis(5));
        done = in_directory(name, |address| socket.bind(address))?;
    }
    done.map_err(|error| {
        let name = String::from_utf8_lossy(&name.bytes).replace('\0', "@");
        EngineError::system("bind", name, error)
    })
}

/// Binds to a free path, and removes the file again.
fn bind_unlinked(socket: &Socket, name: &Name, path: &Path) -> Result<File> {
    bind_now(socket, name)?;
    let file = file_of(path);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(EngineError::system("remove", path.display().to_string(), error))
        }
        _ => file,
    }
}

/// Binds to a free path, and renames the file.
fn bind_moved(socket: &Socket, name: &Name, path: &Path, to: &Path) -> Result<File> {
    if let (Some(folder), Some(file)) = (to.parent(), to.file_name()) {
        let (bytes, directory) = (file.as_bytes().to_vec(), Some(names::text(folder)));
        make_room(socket, &Name { bytes, directory, ..Name::default() }, to)?;
    }
    bind_now(socket, name)?;
    let file = file_of(path)?;
    std::fs::rename(path, to)
        .map_err(|error| EngineError::system("rename", path.display().to_string(), error))?;
    Ok(file)
}

/// The file of a socket that has just been bound.
fn file_of(path: &Path) -> Result<File> {
    let failed = |error| EngineError::system("open", path.display().to_string(), error);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    match file.metadata().map_err(failed)?.file_type().is_socket() {
        true => Ok(file),
        false => Err(failed(ErrorKind::NotFound.into())),
    }
}

/// By its descriptor: the path may lead elsewhere by now.
fn put_owner(socket: &File, (uid, gid, mode): (u32, u32, u32)) -> std::io::Result<()> {
    let meta = socket.metadata()?;
    let by_descriptor = reopen::magic_link(socket);
    if (meta.uid(), meta.gid()) != (uid, gid) {
        std::os::unix::fs::chown(&by_descriptor, Some(uid), Some(gid))?;
    }
    if meta.mode() & 0o7777 != mode {
        std::fs::set_permissions(&by_descriptor, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// The folder of a socket, where it is missing; the folders that this takes, an outer one before those in it.
fn make_parent(path: &Path) -> Result<Vec<PathBuf>> {
    let Some(parent) = path.parent() else { return Ok(Vec::new()) };
    let missing = parent.ancestors().take_while(|folder| !folder.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    if missing.is_empty() {
        return Ok(missing);
    }
    let shown = path.display().to_string();
    std::fs::create_dir_all(parent)
        .map_err(|error| EngineError::system("make the directory of", shown, error))?;
    Ok(missing)
}

/// Removes what a dead socket has left at a path.
fn make_room(like: &Socket, name: &Name, path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(EngineError::system("stat", shown, error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(EngineError::Unfit {
            what: format!("{shown} is not a socket any more"),
            way_out: "move it away".into(),
        }),
        Ok(_) => {
            let kind = like.r#type().map_err(|error| system("getsockopt", error))?;
            let began = Instant::now();
            while !is_dead(kind, name)? {
                // Whoever ends right now holds it no longer soon.
                if began.elapsed() < NAME_LIMIT {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                return Err(EngineError::Unfit {
                    what: format!("the socket {shown} is in use by another process"),
                    way_out: "end that process".into(),
                });
            }
            std::fs::remove_file(path).map_err(|error| EngineError::system("remove", shown, error))
        }
    }
}

/// Whether nobody has the socket at a name any more.
pub(super) fn is_dead(kind: Type, name: &Name) -> Result<bool> {
    let probe = Socket::new(Domain::UNIX, kind, None).map_err(|error| system("make", error))?;
    probe.set_nonblocking(true).map_err(|error| system("fcntl", error))?;
    Ok(in_directory(name, |address| probe.connect(address))?
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}
