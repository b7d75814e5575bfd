//! Files of secrets, which are their owner's alone, and what is wrong with them.

use crate::hexadecimal::hexadecimal;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there are no secrets.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file can't be read or made.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The coordinator's folder is another user's.
    #[error("change the tokens in {}: that is for the coordinator's own user, number {owner}", path.display())]
    NotYours {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others may have read it, or made it.
    #[error("use {}: others may have read or written it (it must be its owner's alone, mode 600): remove it, and a new one is made", .0.display())]
    Open(PathBuf),
    /// It holds none.
    #[error("use {}: it holds no token: remove it, and a new one is made", .0.display())]
    NoToken(PathBuf),
    /// No page was ever served.
    #[error("find the page of {}: none is served there; see ckptd coordinator --http", .0.display())]
    NoPage(PathBuf),
    /// No randomness.
    #[error("make a token: the system has no randomness")]
    NoRandomness,
    /// The file of tokens is none.
    #[error("use {}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A token can't be called so.
    #[error(
        "call a token {0:?}: a name has 1 to {longest} of the characters a-z, A-Z, 0-9, '.', '_', '-' and '@'",
        longest = crate::limits::LONGEST_NAME
    )]
    Name(String),
    /// Another token is called so.
    #[error("call a token {0}: there is one of that name; 'ckptd page --remove {0}' takes it back")]
    Taken(String),
    /// No token is called so.
    #[error("take back {0}: there is no token of that name; 'ckptd page --list' shows them")]
    Unknown(String),
    /// There are as many as there may be.
    #[error("make a token: there are {most} already; 'ckptd page --remove NAME' takes one back", most = crate::limits::TOKENS)]
    TooMany,
}

/// Random bytes of a secret.
pub(crate) const SECRET: usize = 32;

/// A new secret, in hexadecimal.
pub(crate) fn random_secret() -> Result<String, TokenError> {
    let mut bytes = [0; SECRET];
    protocol::transport::random(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(hexadecimal(&bytes))
}

/// The first bytes of a file, if it is its owner's alone.
pub(crate) fn read_own(path: &Path, most: u64) -> Result<String, TokenError> {
    let failed = |source| TokenError::Io { action: "read", path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let flags = (nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits();
    let file = options.read(true).custom_flags(flags).open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let own = nix::unistd::geteuid().as_raw();
    if !about.is_file() || about.mode() & 0o077 != 0 || about.uid() != own {
        return Err(TokenError::Open(path.to_owned()));
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
