//! The users that a job is run as.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// The ordinary user's ids when the suite itself runs as root. The user need not exist.
const ORDINARY: u32 = 1000;
/// Its groups: its own, and supplementary ones, as nearly every user has. They need not exist either.
const GROUPS: &str = "--groups=27,1000,54321";

/// Whose job it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The super-user.
    Root,
    /// A user without any privilege.
    User,
}

impl Account {
    /// The accounts that this run of the suite can use: an ordinary user cannot become root.
    pub fn available() -> Vec<Account> {
        if running_as_root() { vec![Account::Root, Account::User] } else { vec![Account::User] }
    }

    /// A short name, for listings and folders.
    pub fn name(self) -> &'static str {
        match self {
            Account::Root => "root",
            Account::User => "user",
        }
    }

    /// A command that runs `program` as this account with its own `home`, and with nothing else
    /// of the suite's environment that would tell the two apart.
    pub fn command(self, program: &Path, home: &Path) -> Command {
        let mut command = if self == Account::User && running_as_root() {
            let mut command = Command::new("setpriv");
            let ids = [format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")];
            command.args(ids).arg(GROUPS).arg("--inh-caps=-all").arg("--").arg(program);
            // Root's own path may lead through folders that are closed to others.
            command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
            command
        } else {
            Command::new(program)
        };
        let user: OsString = if self == Account::Root { "root".into() } else { "user".into() };
        command.env("HOME", home).env("USER", &user).env("LOGNAME", user).current_dir(home);
        command
    }

    /// Makes `path` this account's own.
    pub fn give(self, path: &Path) -> std::io::Result<()> {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        if self == Account::User && running_as_root() {
            chown(path, Some(ORDINARY), Some(ORDINARY))?;
        }
        Ok(())
    }
}

/// Whether the suite itself has root's powers.
pub fn running_as_root() -> bool {
    nix::unistd::geteuid().is_root()
}
