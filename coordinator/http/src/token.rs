//! The secrets by which the page and the metrics are seen.
//!
//! ```text
//! STATE/http.token       for all that is served
//! STATE/metrics.token    for the metrics alone
//! STATE/http.address     where the page is served, and a mark of this serving
//! ```
//!
//! Each is 32 random bytes, in hexadecimal, in a file for its owner alone. They are made once, and stay: a new one is
//! made in the place of a file that was removed, at the next start. No address has them, which would stay in histories: a
//! browser is let in by a [login](crate::login), and given a cookie, which is another secret and ends with the coordinator's
//! process.

use crate::hexadecimal::hexadecimal;
use crate::login::{self, Logins};
use blake3::Hash;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// The file with the secret for all that is served, in the coordinator's folder.
pub const FILE: &str = "http.token";
/// The file with the secret for the metrics alone.
pub const METRICS_FILE: &str = "metrics.token";
/// The file that says where the page is.
const ADDRESS_FILE: &str = "http.address";
/// The longest address of a page with the mark of its serving, in bytes.
const LONGEST_ADDRESS: u64 = 512;

/// Random bytes of a secret.
const LENGTH: usize = 32;

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
}

/// What somebody may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Everything.
    All,
    /// The metrics.
    Metrics,
}

/// The secrets. What is shown is compared by its hash, in a time that does not depend on it.
#[derive(Debug)]
pub struct Tokens {
    secret: String,
    all: Hash,
    metrics: Hash,
    session: String,
    session_hash: Hash,
    /// Tells this serving from all others.
    serving: String,
    logins: Mutex<Logins>,
}

/// The address that lets a browser in, once and soon, of the page that was last served of this folder.
///
/// # Errors
/// Where none was, or the secret can't be read.
pub fn login_address(state: &Path) -> Result<String, TokenError> {
    let path = state.join(ADDRESS_FILE);
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut address = String::new();
    match std::fs::File::open(&path) {
        Ok(file) => file.take(LONGEST_ADDRESS).read_to_string(&mut address).map(drop),
        Err(error) if missing(&error) => return Err(TokenError::NoPage(state.to_owned())),
        Err(error) => Err(error),
    }
    .map_err(|source| TokenError::Io { action: "read", path, source })?;
    let secret = read(&state.join(FILE))?;
    match address.trim_end().split_once(' ') {
        Some((address, serving)) => with_login(address, &secret, serving),
        None => Err(TokenError::NoPage(state.to_owned())),
    }
}

fn with_login(address: &str, secret: &str, serving: &str) -> Result<String, TokenError> {
    let mut nonce = [0; login::NONCE];
    protocol::transport::random(&mut nonce).map_err(|_| TokenError::NoRandomness)?;
    let login = login::make(secret, serving, protocol::clock::boot_ms(), nonce);
    Ok(format!("{address}?login={login}"))
}

impl Tokens {
    /// Those of this folder, made where they are not there.
    ///
    /// # Errors
    /// Where they can't be read or made, or others may know them.
    pub fn open(state: &Path) -> Result<Self, TokenError> {
        let secret = read_or_make(&state.join(FILE))?;
        let metrics = read_or_make(&state.join(METRICS_FILE))?;
        let (session, serving) = (random()?, random()?);
        Ok(Self {
            all: blake3::hash(secret.as_bytes()),
            metrics: blake3::hash(metrics.as_bytes()),
            session_hash: blake3::hash(session.as_bytes()),
            logins: Mutex::new(Logins::new(&secret, &serving)),
            secret,
            session,
            serving,
        })
    }

    /// The secret for all that is served.
    #[cfg(test)]
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// An address with a login, of a page that is served there.
    pub(crate) fn login_address(&self, address: &str) -> Result<String, TokenError> {
        with_login(address, &self.secret, &self.serving)
    }

    /// Says in the folder where the page is.
    pub(crate) fn note_address(&self, state: &Path, address: &str) -> Result<(), TokenError> {
        let path = state.join(ADDRESS_FILE);
        protocol::durable::replace(&path, format!("{address} {}\n", self.serving).as_bytes())
            .map_err(|source| TokenError::Io { action: "write", path, source })
    }

    /// Takes a login, if it is good.
    pub(crate) fn let_in(&self, login: &str) -> bool {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.spend(login, protocol::clock::boot_ms())
    }

    /// The name of the cookie, which is this coordinator's alone: browsers keep one set of cookies for all ports of a host, and a
    /// tunnel may give it another port.
    pub(crate) fn cookie_name(&self) -> String {
        let key =
            blake3::derive_key("ckptd 2026 name of the page's cookie", self.secret.as_bytes());
        format!("ckptd-{}", hexadecimal(&key[..8]))
    }

    /// The content of the cookie.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// What the bearer of a secret may see.
    pub(crate) fn sight(&self, shown: &str) -> Option<Sight> {
        // blake3's hashes are compared in constant time.
        let shown = blake3::hash(shown.as_bytes());
        match () {
            () if shown == self.all => Some(Sight::All),
            () if shown == self.metrics => Some(Sight::Metrics),
            () => None,
        }
    }

    /// Whether that is the content of the cookie.
    pub(crate) fn is_session(&self, shown: &str) -> bool {
        blake3::hash(shown.as_bytes()) == self.session_hash
    }
}

fn random() -> Result<String, TokenError> {
    let mut bytes = [0; LENGTH];
    protocol::transport::random(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(hexadecimal(&bytes))
}

fn read_or_make(path: &Path) -> Result<String, TokenError> {
    let failed = |action| move |source| TokenError::Io { action, path: path.to_owned(), source };
    match read(path) {
        Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let secret = random()?;
    protocol::durable::replace(path, format!("{secret}\n").as_bytes()).map_err(failed("make"))?;
    Ok(secret)
}

fn read(path: &Path) -> Result<String, TokenError> {
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
    file.take(2 * LENGTH as u64 + 2).read_to_string(&mut text).map_err(failed)?;
    let secret = text.trim_end();
    let is_secret = secret.len() == 2 * LENGTH && secret.bytes().all(|c| c.is_ascii_hexdigit());
    is_secret.then(|| secret.to_owned()).ok_or_else(|| TokenError::NoToken(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_stay_and_are_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Tokens::open(dir.path()).unwrap();
        let second = Tokens::open(dir.path()).unwrap();
        assert_eq!(first.secret(), second.secret());
        assert_ne!(first.session(), second.session());
        for name in [FILE, METRICS_FILE] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        let metrics = fs::read_to_string(dir.path().join(METRICS_FILE)).unwrap();
        assert_eq!(first.sight(first.secret()), Some(Sight::All));
        assert_eq!(first.sight(metrics.trim_end()), Some(Sight::Metrics));
        assert!(first.is_session(first.session()) && !first.is_session(first.secret()));
        for wrong in ["", "0", &first.secret()[1..], &format!("{}0", first.secret())] {
            assert_eq!(first.sight(wrong), None);
            assert!(!first.is_session(wrong));
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_secret_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Tokens::open(dir.path()).unwrap();
        let path = dir.path().join(FILE);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Tokens::open(dir.path()), Err(TokenError::Open(_))));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for text in ["", "abc\n", &"g".repeat(64), &"a".repeat(4096)] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Tokens::open(dir.path()), Err(TokenError::NoToken(_))), "{text}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join(METRICS_FILE), &path).unwrap();
        assert!(Tokens::open(dir.path()).is_err());
        fs::remove_file(&path).unwrap();
        assert!(Tokens::open(dir.path()).is_ok());
    }
}
