//! What only calls inside a process tell, or how they fail.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{Descriptor, OpenFile};
use super::super::objects::{Object, UnixLink};
use super::super::sys::trial::Call;
use super::super::trace::{Batch, Remote};

/// Sockets that are asked about at once, and the bytes of each answer: struct ucred, its length.
const AT_ONCE: usize = 512;
const ANSWER: u64 = 16;
/// sizeof(struct ucred)
const CREDENTIALS: u32 = 12;

/// Whom connected Unix sockets have for a peer, where that process has ended: outside of the job's namespace nobody can tell
/// its number in there.
///
/// # Errors
/// The process's end.
pub(super) fn unix_peers(
    remote: &mut Remote<'_>,
    descriptors: &[Descriptor],
    files: &mut [OpenFile],
) -> Result<()> {
    let unknown: Vec<&Descriptor> = descriptors
        .iter()
        .filter(|own| match files.get(own.file.0 as usize).map(|file| &file.object) {
            Some(Object::UnixSocket(socket)) => {
                let alone = matches!(socket.link, UnixLink::None | UnixLink::Listening { .. });
                !alone && socket.peer_process.is_none()
            }
            _ => false,
        })
        .collect();
    for some in unknown.chunks(AT_ONCE) {
        let at = remote.scratch_data()?;
        let mut blank = [0; ANSWER as usize];
        blank[CREDENTIALS as usize..].copy_from_slice(&CREDENTIALS.to_ne_bytes());
        remote.memory().write(at, &blank.repeat(some.len()))?;
        let mut batch = Batch::new();
        for (place, own) in (0u64..).zip(some) {
            let to = at + place * ANSWER;
            let (level, name) = (libc::SOL_SOCKET as u64, libc::SO_PEERCRED as u64);
            let arguments = [own.fd as u64, level, name, to, to + u64::from(CREDENTIALS)];
            batch.add(libc::SYS_getsockopt, &arguments);
        }
        let answers = remote.run(&batch)?;
        let mut told = vec![0; some.len() * ANSWER as usize];
        remote.memory().read(at, &mut told)?;
        for ((own, answer), bytes) in some.iter().zip(answers).zip(told.chunks(ANSWER as usize)) {
            let pid = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let file = files.get_mut(own.file.0 as usize).map(|file| &mut file.object);
            // The init's number is everybody's who is not known.
            if let (Some(Object::UnixSocket(socket)), 0, 2..) = (file, answer, pid) {
                socket.peer_process = Some(pid);
            }
        }
    }
    Ok(())
}

/// Refuses a process that has restricted itself by Landlock, which no call tells of, and whose restrictions could not be
/// read. But a folder linked into itself fails with EXDEV where files are restricted, since that would give it another
/// parent, or with EACCES, where folders may not be made (security/landlock/fs.c, current_check_refer_path), and else with
/// EPERM, since it is a folder (fs/namei.c, vfs_link). Restrictions of ports and scopes alone do not show, nor does one whose
/// rules allow just that. A profile of AppArmor may deny it as well.
///
/// # Errors
/// The refusal; the process's end.
pub(super) fn refuse_restricted(remote: &mut Remote<'_>, folders: &[&Path]) -> Result<()> {
    // A sandbox that forbids these forbids them the job, too.
    if ![Call::Landlock, Call::Linkat, Call::Faccessat2].into_iter().all(Call::may_be_made) {
        return Ok(());
    }
    let at = remote.scratch_data()?;
    let mut batch = Batch::new();
    let mut bytes = Vec::new();
    for folder in folders.iter().chain([&Path::new(".")]) {
        let new = folder.join(PROBED);
        let (Ok(old), Ok(new)) = (name(folder), name(&new)) else { continue };
        let from = at + bytes.len() as u64;
        bytes.extend(old.as_bytes_with_nul());
        let to = at + bytes.len() as u64;
        bytes.extend(new.as_bytes_with_nul());
        let here = libc::AT_FDCWD as u64;
        batch.add(libc::SYS_linkat, &[here, from, here, to, 0]);
        let (may, as_itself) = ((libc::W_OK | libc::X_OK) as u64, libc::AT_EACCESS as u64);
        batch.add(libc::SYS_faccessat2, &[here, from, may, as_itself]);
    }
    if bytes.len() > MOST_BYTES {
        return Ok(());
    }
    remote.memory().write(at, &bytes)?;
    let linked = remote.run(&batch)?;
    let profile = format!("/proc/{}/attr/apparmor/current", remote.thread().tid());
    let is_confined = || {
        std::fs::read_to_string(&profile).is_ok_and(|profile| !profile.starts_with("unconfined"))
    };
    let restricted = linked.chunks_exact(2).any(|pair| {
        let [other_parent, denied] = [libc::EXDEV, libc::EACCES].map(|errno| -i64::from(errno));
        pair[0] == other_parent || pair == [denied, 0] && !is_confined()
    });
    if restricted {
        let what =
            "has restricted itself by Landlock (landlock_restrict_self), which can't be read";
        return Err(EngineError::from(Refusal::new(what, "run it without")));
    }
    Ok(())
}

/// A name that nothing has.
const PROBED: &str = ".ckptd-is-there-landlock";
/// Room for paths.
const MOST_BYTES: usize = 64 * 1024;

fn name(path: &Path) -> std::result::Result<CString, std::ffi::NulError> {
    CString::new(path.as_os_str().as_bytes())
}

/// KEYCTL_GET_KEYRING_ID, and the keyrings of a thread and of a process (include/uapi/linux/keyctl.h).
const GET_KEYRING_ID: u64 = 0;
const KEYRINGS: [(i64, &str); 2] = [(-1, "a thread"), (-2, "a process")];

/// Refuses a thread with keyrings of its own: what keys hold can't be read in all cases.
///
/// # Errors
/// The refusal; the process's end.
pub(super) fn refuse_keyrings(remote: &mut Remote<'_>) -> Result<()> {
    if !Call::Keyctl.may_be_made() {
        return Ok(());
    }
    let mut batch = Batch::new();
    for (keyring, _) in KEYRINGS {
        batch.add(libc::SYS_keyctl, &[GET_KEYRING_ID, keyring as u64, 0]);
    }
    for (answer, (_, whose)) in remote.run(&batch)?.into_iter().zip(KEYRINGS) {
        if answer > 0 {
            let what =
                format!("has a keyring of {whose} (keyrings(7)), whose keys can't all be read");
            return Err(EngineError::from(Refusal::new(
                what,
                "keep its keys in the user's keyring",
            )));
        }
    }
    Ok(())
}
