//! The namespaces around the demonstration. Everything that it starts and writes is in them, so that nothing is left when they
//! end, however that comes about.

use super::error::DemoError;
use super::{PART, account_option};
use crate::INNER_CALL;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};
use protocol::agent::ExitKind;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where numbers of users have names. An agent asks for that of its own user, which may be known to a directory service alone.
const USERS: &str = "/etc/passwd";
/// The same for groups.
const GROUPS: &str = "/etc/group";
/// What the user and the group are called there.
const NAME: &str = "demo";

/// Folders of which one is there on every machine, and in which nothing lies that the demonstration needs. What is below /tmp
/// would travel with the images of the job, its program included.
const PLACES: [&str; 4] = ["/mnt", "/srv", "/media", "/run"];
/// This executable there, wherever it lies outside.
const PROGRAM: &str = "ckptd";
/// The folder for temporary files there.
const TEMPORARY: &str = "tmp";

/// Enters the namespaces, has everything done in them, and waits for its end: the exit status.
pub fn perform() -> Result<u8, DemoError> {
    let (user, group) = (Uid::effective(), Gid::effective());
    enter(user, group)?;
    let place = PLACES.iter().map(Path::new).find(|place| place.is_dir());
    let folder = place.ok_or(DemoError::NoPlace)?;
    let program = files(folder)?;
    let mut command = Command::new(program);
    command.args([PART, "play"]).arg(folder).stdin(Stdio::inherit());
    command.env(INNER_CALL, "1").env("TMPDIR", folder.join(TEMPORARY));
    if !user.is_root() {
        name_user(folder, user, group)?;
        command.args(account_option(Some((user.as_raw(), group.as_raw()))));
    }
    let mut play = command.spawn().map_err(DemoError::system("start a part of it"))?;
    let status = play.wait().map_err(DemoError::system("wait for it"))?;
    Ok(ExitKind::from(status).shell_status())
}

/// Leaves the machine's namespaces. Children are in a new PID namespace from then on.
fn enter(user: Uid, group: Gid) -> Result<(), DemoError> {
    let flags = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWPID;
    if user.is_root() {
        return unshare(flags).map_err(|errno| DemoError::PowerlessRoot(errno.into()));
    }
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| DemoError::NoUserNamespaces(errno.into()))?;
    // A group can be mapped only once setgroups is forbidden (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")))
        .map_err(powerless("become root of a user namespace"))?;
    unshare(flags).map_err(powerless("make namespaces in a user namespace"))
}

fn powerless<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> DemoError {
    move |cause| DemoError::Powerless { what, cause: cause.into() }
}

/// Files of the demonstration are in memory that only these namespaces have; the executable there.
fn files(folder: &Path) -> Result<PathBuf, DemoError> {
    let own = std::env::current_exe().map_err(DemoError::system("find ckptd"))?;
    let own = File::options().read(true).custom_flags(nix::libc::O_PATH).open(own);
    let own = own.map_err(DemoError::system("open ckptd"))?;
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).map_err(powerless("mount something of its own"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some("mode=0755"))
        .map_err(powerless("mount memory for its files"))?;
    let program = folder.join(PROGRAM);
    fs::create_dir(folder.join(TEMPORARY))
        .and_then(|()| File::create(&program).map(drop))
        .map_err(DemoError::system("write a file of its own"))?;
    let from = format!("/proc/self/fd/{}", own.as_raw_fd());
    mount(Some(from.as_str()), &program, none, MsFlags::MS_BIND, none)
        .map_err(powerless("mount ckptd among its files"))?;
    Ok(program)
}

/// Gives the user a name inside.
fn name_user(folder: &Path, user: Uid, group: Gid) -> Result<(), DemoError> {
    let place = folder.display();
    let users = format!("root:x:0:0::/:/bin/sh\n{NAME}:x:{user}:{group}::{place}:/bin/sh\n");
    let groups = format!("root:x:0:\n{NAME}:x:{group}:\n");
    for (path, text) in [(USERS, users), (GROUPS, groups)] {
        let name = Path::new(path).file_name().unwrap_or_default();
        let own = folder.join(name);
        fs::write(&own, text).map_err(DemoError::system("write a file of its own"))?;
        let none = None::<&str>;
        mount(Some(&own), path, none, MsFlags::MS_BIND, none)
            .map_err(DemoError::system("give its user a name, in /etc/passwd and /etc/group"))?;
    }
    Ok(())
}
