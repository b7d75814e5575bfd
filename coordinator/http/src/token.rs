//! The secrets by which the page and the metrics are seen.
//!
//! ```text
//! STATE/http.token       for all that is served, but no orders
//! STATE/metrics.token    for the metrics alone
//! STATE/http.address     where the page is served, and a mark of this serving
//! ```
//!
//! Those are the coordinator's own user's, and good at this machine alone. Others are given [tokens](crate::grants).
//!
//! Each is 32 random bytes, in hexadecimal, in a file for its owner alone. They are made once, and stay: a new one is
//! made in the place of a file that was removed, at the next start. No address has them, which would stay in histories: a
//! browser is let in by a [login](crate::login), and given a cookie, which is another secret and ends with the coordinator's
//! process.

use crate::grants::Grants;
use crate::hexadecimal::hexadecimal;
use crate::login::{self, Logins};
pub use crate::own_file::TokenError;
use crate::own_file::{SECRET, random_secret, read_own};
use crate::role::{Role, Sight};
use crate::sessions::{LetIn, Sessions, hash_of, order_secret};
use blake3::Hash;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The file with the secret for all that is served, in the coordinator's folder.
pub const FILE: &str = "http.token";
/// The file with the secret for the metrics alone.
pub const METRICS_FILE: &str = "metrics.token";
/// The file that says where the page is.
const ADDRESS_FILE: &str = "http.address";
/// The longest address of a page with the mark of its serving, in bytes.
const LONGEST_ADDRESS: u64 = 512;

/// By what somebody is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// One of the folder's own secrets.
    Own,
    /// The token of that hash.
    Grant(Hash),
    /// The cookie of that hash.
    Session(Hash),
}

/// Somebody who may look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// What it may see.
    pub sight: Sight,
    proof: Proof,
    /// What its orders must show, where a browser sends its cookie by itself.
    order_secret: Option<String>,
}

impl Visitor {
    /// What its orders must show; None: it has shown a token, which no browser does by itself.
    pub(crate) fn order_secret(&self) -> Option<&str> {
        self.order_secret.as_deref()
    }

    /// Whether it is a browser that was let in.
    pub(crate) fn is_browser(&self) -> bool {
        matches!(self.proof, Proof::Session(_))
    }
}

/// The secrets. What is shown is compared by its hash, in a time that does not depend on it.
#[derive(Debug)]
pub struct Tokens {
    secret: String,
    all: Hash,
    metrics: Hash,
    grants: Grants,
    sessions: Sessions,
    /// Tells this serving from all others.
    serving: String,
    logins: Mutex<Logins>,
    /// Whether other machines can connect. The folder's own secrets are never sent over a network.
    is_remote: bool,
}

/// The address that lets a browser in, once and soon, of the page that was last served of this folder.
///
/// # Errors
/// Where none was, or the secret can't be read.
pub fn login_address(state: &Path, role: Role) -> Result<String, TokenError> {
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
        Some((address, serving)) => with_login(address, &secret, serving, role),
        None => Err(TokenError::NoPage(state.to_owned())),
    }
}

fn with_login(
    address: &str,
    secret: &str,
    serving: &str,
    role: Role,
) -> Result<String, TokenError> {
    let mut nonce = [0; login::NONCE];
    protocol::transport::random(&mut nonce).map_err(|_| TokenError::NoRandomness)?;
    let login = login::make(secret, serving, protocol::clock::boot_ms(), nonce, role);
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
        let serving = random_secret()?;
        Ok(Self {
            all: blake3::hash(secret.as_bytes()),
            metrics: blake3::hash(metrics.as_bytes()),
            grants: Grants::of(state),
            sessions: Sessions::default(),
            logins: Mutex::new(Logins::new(&secret, &serving)),
            secret,
            serving,
            is_remote: false,
        })
    }

    /// The same for a page to which other machines can connect.
    #[must_use]
    pub(crate) fn remote(self) -> Self {
        Self { is_remote: true, ..self }
    }

    /// Whether other machines can connect.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// The secret for all that is served.
    #[cfg(test)]
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// An address with a login, of a page that is served there.
    pub(crate) fn login_address(&self, address: &str) -> Result<String, TokenError> {
        with_login(address, &self.secret, &self.serving, Role::Viewer)
    }

    /// Says in the folder where the page is.
    pub(crate) fn note_address(&self, state: &Path, address: &str) -> Result<(), TokenError> {
        let path = state.join(ADDRESS_FILE);
        protocol::durable::replace(&path, format!("{address} {}\n", self.serving).as_bytes())
            .map_err(|source| TokenError::Io { action: "write", path, source })
    }

    /// Takes a login, if it is good: the content of a cookie.
    pub(crate) fn let_in(&self, login: &str) -> Option<String> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let role = logins.spend(login, protocol::clock::boot_ms())?;
        self.begin(LetIn::Login(role))
    }

    /// Takes a token that somebody has typed, if it is good and lets its bearer look: the content of a cookie.
    pub(crate) fn log_in(&self, token: &str) -> Option<String> {
        let (hash, sight) = self.grants.sight(token, protocol::clock::wall_ms())?;
        if sight.may_look() { self.begin(LetIn::Grant(hash)) } else { None }
    }

    fn begin(&self, by: LetIn) -> Option<String> {
        let begun = self.sessions.begin(by);
        begun.inspect_err(|error| tracing::error!("failed to let a browser in: {error}")).ok()
    }

    /// Ends a browser's cookie.
    pub(crate) fn log_out(&self, visitor: &Visitor) {
        if let Proof::Session(hash) = &visitor.proof {
            self.sessions.end(hash);
        }
    }

    /// The name of the cookie, which is this coordinator's alone: browsers keep one set of cookies for all ports of a host, and a
    /// tunnel may give it another port. By its prefix browsers take it over TLS alone (RFC 6265bis, 4.1.3.2).
    pub(crate) fn cookie_name(&self) -> String {
        let key =
            blake3::derive_key("ckptd 2026 name of the page's cookie", self.secret.as_bytes());
        let prefix = if self.is_remote { "__Host-" } else { "" };
        format!("{prefix}ckptd-{}", hexadecimal(&key[..8]))
    }

    /// What the bearer of a secret may see.
    pub(crate) fn bearer(&self, shown: &str) -> Option<Visitor> {
        let of = |sight, proof| Some(Visitor { sight, proof, order_secret: None });
        // blake3's hashes are compared in constant time.
        let hash = blake3::hash(shown.as_bytes());
        let (is_all, is_metrics) = (hash == self.all, hash == self.metrics);
        if is_all && !self.is_remote {
            return of(Sight::own(Role::Viewer), Proof::Own);
        }
        if is_metrics && !self.is_remote {
            return of(Sight::own(Role::Metrics), Proof::Own);
        }
        let (hash, sight) = self.grants.sight(shown, protocol::clock::wall_ms())?;
        of(sight, Proof::Grant(hash))
    }

    /// What a browser with this cookie may see.
    pub(crate) fn browser(&self, cookie: &str) -> Option<Visitor> {
        let hash = hash_of(cookie);
        let sight = self.sight_of(&Proof::Session(hash))?;
        let (proof, order_secret) = (Proof::Session(hash), Some(order_secret(cookie)));
        Some(Visitor { sight, proof, order_secret })
    }

    /// Whether somebody who was let in still is.
    pub(crate) fn still(&self, visitor: &Visitor) -> bool {
        self.sight_of(&visitor.proof).is_some_and(|sight| sight == visitor.sight)
            || visitor.proof == Proof::Own
    }

    fn sight_of(&self, proof: &Proof) -> Option<Sight> {
        let now = protocol::clock::wall_ms();
        match proof {
            Proof::Own => None,
            Proof::Grant(hash) => self.grants.sight_of(hash, now),
            Proof::Session(hash) => match self.sessions.find(hash)? {
                LetIn::Login(role) => Some(Sight::own(role)),
                LetIn::Grant(hash) => self.grants.sight_of(&hash, now),
            },
        }
    }
}

fn read_or_make(path: &Path) -> Result<String, TokenError> {
    let failed = |action| move |source| TokenError::Io { action, path: path.to_owned(), source };
    match read(path) {
        Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let secret = random_secret()?;
    protocol::durable::replace(path, format!("{secret}\n").as_bytes()).map_err(failed("make"))?;
    Ok(secret)
}

fn read(path: &Path) -> Result<String, TokenError> {
    let text = read_own(path, 2 * SECRET as u64 + 2)?;
    let secret = text.trim_end();
    let is_secret = secret.len() == 2 * SECRET && secret.bytes().all(|c| c.is_ascii_hexdigit());
    is_secret.then(|| secret.to_owned()).ok_or_else(|| TokenError::NoToken(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn secrets_stay_and_are_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Tokens::open(dir.path()).unwrap();
        let second = Tokens::open(dir.path()).unwrap();
        assert_eq!(first.secret(), second.secret());
        for name in [FILE, METRICS_FILE] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        let metrics = fs::read_to_string(dir.path().join(METRICS_FILE)).unwrap();
        let role = |tokens: &Tokens, shown: &str| tokens.bearer(shown).map(|of| of.sight.role);
        assert_eq!(role(&first, first.secret()), Some(Role::Viewer));
        assert_eq!(role(&first, metrics.trim_end()), Some(Role::Metrics));
        for wrong in ["", "0", &first.secret()[1..], &format!("{}0", first.secret())] {
            assert_eq!(role(&first, wrong), None);
            assert!(first.browser(wrong).is_none());
        }
        // They are not sent over a network.
        let remote = second.remote();
        assert_eq!(role(&remote, first.secret()), None);
        assert_eq!(role(&remote, metrics.trim_end()), None);
    }

    #[test]
    fn whoever_was_let_in_by_a_token_goes_with_it() {
        use crate::grants::{Wanted, add, remove};
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap().remote();
        let wanted =
            |name: &str, role| Wanted { name: name.into(), role, user: None, valid_ms: None };
        let token = add(dir.path(), wanted("a", Role::Operator)).unwrap();
        let metrics = add(dir.path(), wanted("m", Role::Metrics)).unwrap();
        assert!(tokens.log_in(&metrics).is_none() && tokens.log_in(tokens.secret()).is_none());
        let cookie = tokens.log_in(&token).unwrap();
        let browser = tokens.browser(&cookie).unwrap();
        let bearer = tokens.bearer(&token).unwrap();
        assert!(browser.is_browser() && browser.order_secret().is_some());
        assert!(!bearer.is_browser() && bearer.order_secret().is_none());
        assert!(tokens.still(&browser) && tokens.still(&bearer) && browser.sight.may_act());
        remove(dir.path(), "a").unwrap();
        assert!(!tokens.still(&browser) && !tokens.still(&bearer));
        assert!(tokens.browser(&cookie).is_none());
        // One of the same name is another one.
        add(dir.path(), wanted("a", Role::Operator)).unwrap();
        assert!(tokens.browser(&cookie).is_none());
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
