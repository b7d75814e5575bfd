//! SysV objects with numbers that are wanted.

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::super::graph::IpcIdentity;
use super::super::sys::prctl;
use super::super::sys::restrained::Restrained;

/// Objects that are made and thrown away on the way to a number.
const MOST_TRIES: u32 = 1 << 20;

/// A kind of them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// In words, for messages.
    pub name: &'static str,
    /// The call that makes one.
    pub call: &'static str,
    /// The number of the next one of this IPC namespace, for one call (Documentation/admin-guide/sysctl/kernel.rst); only in
    /// kernels with CONFIG_CHECKPOINT_RESTORE.
    pub next: &'static str,
}

/// Asks the kernel for the number, else makes objects until it comes: the kernel counts up.
///
/// # Errors
/// A number that cannot be had; failed calls.
pub fn create(
    kind: Kind,
    identity: &IpcIdentity,
    make: impl Fn() -> nix::Result<i32>,
    remove: impl Fn(i32) -> nix::Result<()>,
) -> Result<()> {
    let number = identity.number;
    // Another effective user and back gives this thread all capabilities that it may have (capabilities(7)), of which the caller
    // may do without some: they go again with this.
    let _as_before = Restrained::begin(&[])?;
    let unfit = |what: &str| EngineError::Unfit {
        what: format!("{} {number} {what}", kind.name),
        way_out: "use a kernel with CONFIG_CHECKPOINT_RESTORE".into(),
    };
    let failed =
        |errno: Errno| EngineError::system(kind.call, format!("{} {number}", kind.name), errno);
    let make = || as_creator(identity.creator, &make);
    if std::fs::write(kind.next, number.to_string()).is_ok() {
        let made = make().map_err(failed)?;
        return if made == number { Ok(()) } else { Err(unfit("is in use already")) };
    }
    for _ in 0..MOST_TRIES {
        let made = make().map_err(failed)?;
        if made == number {
            return Ok(());
        }
        // What stays is in nobody's way but its number's.
        let _ = remove(made);
    }
    Err(unfit("cannot have its number again"))
}

/// An object tells for ever who made it.
fn as_creator<T>(creator: (u32, u32), make: impl FnOnce() -> T) -> T {
    use nix::unistd::{Gid, Uid, getegid, geteuid, setegid, seteuid, setfsgid, setfsuid};
    let (user, group) = (geteuid(), getegid());
    if creator == (user.as_raw(), group.as_raw()) {
        return make();
    }
    // An impossible number changes nothing and tells what is: whose files are made meanwhile.
    let (file_user, file_group) =
        (setfsuid(Uid::from_raw(u32::MAX)), setfsgid(Gid::from_raw(u32::MAX)));
    // Each change makes whoever was not traceable what fs.suid_dumpable says (kernel/cred.c, commit_creds).
    let may_be_traced = prctl::is_dumpable().unwrap_or(false);
    let as_before = || {
        if !may_be_traced {
            let _ = prctl::set_dumpable(false);
        }
    };
    // Whoever may not be this user makes it as himself.
    let _ = setegid(Gid::from_raw(creator.1));
    let _ = seteuid(Uid::from_raw(creator.0));
    as_before();
    let made = make();
    let _ = seteuid(user);
    let _ = setegid(group);
    as_before();
    setfsgid(file_group);
    setfsuid(file_user);
    made
}
