//! Whether what processes have open is found again at a restart where mounts of the job's own are: files are opened in the
//! job's own mount namespace, before there is any other.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use nix::sys::socket::{UnixAddr, getsockname};

use super::super::super::error::{EngineError, Result};
use super::super::super::objects::FdInfo;
use super::super::super::proc::{descriptor_numbers, namespace_root, read_maps};
use super::super::super::sys::pidfd::PidFd;
use super::places::{DELETED, Places, elsewhere, stat};
use super::refuse;

/// Refuses a process that has open what a restart would not find.
pub(super) fn check(places: &Places, pid: i32) -> Result<()> {
    for fd in descriptor_numbers(pid)? {
        descriptor(places, pid, fd)?;
    }
    if !places.is_inside(pid) {
        return Ok(());
    }
    let works_in = link(&format!("/proc/{pid}/cwd"))?;
    let at = stat(&format!("/proc/{pid}/cwd")).map(|at| (at.dev(), at.ino()));
    let seen =
        stat(&format!("{}{works_in}", namespace_root(pid)?)).map(|seen| (seen.dev(), seen.ino()));
    if at.is_none() || at != seen {
        return Err(refuse(format!("works in {works_in}, which its mounts do not show any more")));
    }
    places.executable(pid, &link(&format!("/proc/{pid}/exe"))?)?;
    places.place_mappings(pid, &mut read_maps(pid)?)
}

fn descriptor(places: &Places, pid: i32, fd: i32) -> Result<()> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let (Ok(link), Some(found)) = (link(&path), stat(&path)) else { return Ok(()) };
    if found.file_type().is_socket() {
        return socket(places, pid, fd);
    }
    if !link.starts_with('/') || link.ends_with(DELETED) {
        return Ok(());
    }
    let info = FdInfo::read(&format!("/proc/{pid}/fdinfo/{fd}"))?;
    let mount = info.get("mnt_id").and_then(|id| id.parse().ok()).unwrap_or(-1);
    let file = (found.dev(), found.ino());
    places.open_file(pid, &link, mount, file, found.is_dir()).map(drop)
}

/// Others must find a socket by the same path.
fn socket(places: &Places, pid: i32, fd: i32) -> Result<()> {
    let copy = PidFd::open(pid)?.descriptor(fd)?;
    let Ok(name) = getsockname::<UnixAddr>(copy.as_raw_fd()) else { return Ok(()) };
    let Some(path) = name.path() else { return Ok(()) };
    let shown = path.display().to_string();
    let seen = std::fs::symlink_metadata(format!("/proc/{pid}/root{shown}")).ok();
    let seen = seen.map(|seen| (seen.dev(), seen.ino()));
    match shown.starts_with('/') && seen.is_some() && seen == places.identity_of(&shown) {
        true => Ok(()),
        false => Err(elsewhere(&shown, "has bound a socket to")),
    }
}

fn link(path: &str) -> Result<String> {
    let link =
        std::fs::read_link(path).map_err(|error| EngineError::system("readlink", path, error))?;
    Ok(link.to_string_lossy().into_owned())
}
