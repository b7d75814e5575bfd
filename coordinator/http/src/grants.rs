//! Tokens that were given to people and programs, each with a name and a role: made, listed and taken back by `ckptd page`.
//!
//! ```text
//! STATE/page-tokens.json     of each: name, role, whose jobs alone, when it was made, until when it is good, its hash
//! ```
//!
//! A token is 32 random bytes. The file has hashes alone, so whoever reads it has no token; since nobody guesses one, the hash
//! is a fast one. The page looks whether the file is another one at each request: what is taken back counts at once, also for the
//! browsers that were let in by it.

use crate::limits::{LONGEST_NAME, TOKENS as MOST};
use crate::own_file::{TokenError, random_secret, read_own};
use crate::role::{Role, Sight};
use blake3::Hash;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file, in the coordinator's folder.
pub const FILE: &str = "page-tokens.json";
/// What a token begins with: those who look for secrets in the wrong places know it by that.
pub const PREFIX: &str = "ckptdp1_";
/// The longest file, in bytes: [`MOST`] of the longest ones.
const LONGEST: u64 = 256 * 1024;
/// The form of the file.
const VERSION: u32 = 1;
/// What hashes are for.
const PURPOSE: &str = "ckptd 2026 token of the page";

/// A token, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// Whose jobs alone are seen; None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was made, in milliseconds since 1970 UTC.
    pub made_ms: u64,
    /// Until when it is good; None: until it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The hash, in hexadecimal.
    hash: String,
}

impl Grant {
    /// Whether it is good at that time.
    #[must_use]
    pub fn is_good(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| now_ms < until)
    }

    fn sight(&self) -> Sight {
        Sight { role: self.role, user: self.user.clone(), name: self.name.clone() }
    }
}

/// What a new one is to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whose jobs alone.
    pub user: Option<String>,
    /// For how many milliseconds it is good; None: until it is taken back.
    pub valid_ms: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    version: u32,
    tokens: Vec<Grant>,
}

/// Makes a token; what is returned is told once and kept nowhere.
///
/// # Errors
/// Where the name makes no sense or is taken, there are too many, or the file can't be read or written.
pub fn add(state: &Path, wanted: Wanted) -> Result<String, TokenError> {
    check_name(&wanted.name)?;
    let _lock = lock(state)?;
    let mut tokens = list(state)?;
    if tokens.iter().any(|other| other.name == wanted.name) {
        return Err(TokenError::Taken(wanted.name));
    }
    if tokens.len() >= MOST {
        return Err(TokenError::TooMany);
    }
    let token = format!("{PREFIX}{}", random_secret()?);
    let Wanted { name, role, user, valid_ms } = wanted;
    let made_ms = protocol::clock::wall_ms();
    let until_ms = valid_ms.map(|valid| made_ms.saturating_add(valid));
    let hash = hash_of(&token).to_hex().to_string();
    tokens.push(Grant { name, role, user, made_ms, until_ms, hash });
    write(state, tokens)?;
    Ok(token)
}

/// Takes a token back.
///
/// # Errors
/// Where there is none of that name, or the file can't be read or written.
pub fn remove(state: &Path, name: &str) -> Result<(), TokenError> {
    let _lock = lock(state)?;
    let mut tokens = list(state)?;
    let before = tokens.len();
    tokens.retain(|token| token.name != name);
    if tokens.len() == before {
        return Err(TokenError::Unknown(name.to_owned()));
    }
    write(state, tokens)
}

/// All tokens, in the order in which they were made.
///
/// # Errors
/// Where the file can't be read, or others may have written it.
pub fn list(state: &Path) -> Result<Vec<Grant>, TokenError> {
    let path = state.join(FILE);
    let text = match read_own(&path, LONGEST) {
        Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let damaged = |reason: String| TokenError::Damaged { path: path.clone(), reason };
    let listed: Listed =
        protocol::json::read(text.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    match listed {
        Listed { version: VERSION, tokens } if tokens.len() <= MOST => Ok(tokens),
        Listed { version: VERSION, .. } => Err(damaged(format!("it has more than {MOST} tokens"))),
        Listed { version, .. } => {
            Err(damaged(format!("it is of version {version}, and this ckptd reads {VERSION}")))
        }
    }
}

/// Holds others off that would change the file.
fn lock(state: &Path) -> Result<Flock<File>, TokenError> {
    let failed = |source| TokenError::Io { action: "lock", path: state.to_owned(), source };
    let folder = File::open(state).map_err(failed)?;
    // A file of somebody else's in it could not be read by the coordinator, nor replaced by its user.
    let owner = folder.metadata().map_err(failed)?.uid();
    if owner != nix::unistd::geteuid().as_raw() {
        return Err(TokenError::NotYours { path: state.to_owned(), owner });
    }
    Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))
}

fn write(state: &Path, tokens: Vec<Grant>) -> Result<(), TokenError> {
    let path = state.join(FILE);
    let listed = Listed { version: VERSION, tokens };
    let mut text = serde_json::to_vec_pretty(&listed)
        .map_err(|error| TokenError::Damaged { path: path.clone(), reason: error.to_string() })?;
    text.push(b'\n');
    protocol::durable::replace(&path, &text).map_err(|source| TokenError::Io {
        action: "write",
        path,
        source,
    })
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    let is_name = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits);
    if is_name { Ok(()) } else { Err(TokenError::Name(name.chars().take(LONGEST_NAME).collect())) }
}

fn hash_of(token: &str) -> Hash {
    Hash::from_bytes(blake3::derive_key(PURPOSE, token.as_bytes()))
}

/// What tells one content of the file from another.
type Mark = (u64, u64, i64, i64);

#[derive(Debug, Default)]
struct Read {
    mark: Option<Mark>,
    tokens: Vec<(Hash, Grant)>,
}

/// The tokens that the page takes, as the file has them at the moment.
#[derive(Debug)]
pub(crate) struct Grants {
    state: PathBuf,
    read: Mutex<Read>,
}

impl Grants {
    /// Those of a folder.
    pub fn of(state: &Path) -> Self {
        Self { state: state.to_owned(), read: Mutex::default() }
    }

    /// What the bearer of a token may see, and what the token is known by from then on.
    pub fn sight(&self, shown: &str, now_ms: u64) -> Option<(Hash, Sight)> {
        if !shown.starts_with(PREFIX) {
            return None;
        }
        let shown = hash_of(shown);
        Some((shown, self.sight_of(&shown, now_ms)?))
    }

    /// The same of a token that was shown before.
    pub fn sight_of(&self, hash: &Hash, now_ms: u64) -> Option<Sight> {
        let read = self.newest();
        let mut found = None;
        for (other, grant) in &read.tokens {
            // blake3's hashes are compared in constant time, and all of them are.
            if other == hash && grant.is_good(now_ms) {
                found = Some(grant.sight());
            }
        }
        found
    }

    fn newest(&self) -> std::sync::MutexGuard<'_, Read> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let about = std::fs::symlink_metadata(self.state.join(FILE)).ok();
        let mark =
            about.map(|about| (about.ino(), about.size(), about.ctime(), about.ctime_nsec()));
        if read.mark == mark {
            return read;
        }
        // What can't be read lets nobody in.
        let tokens = list(&self.state).unwrap_or_else(|error| {
            tracing::error!("nobody is let in to the page by a token: failed to {error}");
            Vec::new()
        });
        let known = |token: Grant| Some((Hash::from_hex(&token.hash).ok()?, token));
        *read = Read { mark, tokens: tokens.into_iter().filter_map(known).collect() };
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, role: Role) -> Wanted {
        Wanted { name: name.into(), role, user: None, valid_ms: None }
    }

    #[test]
    fn a_token_of_the_page_is_good_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let grants = Grants::of(dir.path());
        assert!(list(dir.path()).unwrap().is_empty());
        let alice = Wanted { user: Some("alice".into()), ..wanted("alice@laptop", Role::Viewer) };
        let token = add(dir.path(), alice).unwrap();
        let other = add(dir.path(), wanted("head", Role::Operator)).unwrap();
        let (hash, sight) = grants.sight(&token, 5).unwrap();
        assert_eq!((sight.role, sight.user.as_deref()), (Role::Viewer, Some("alice")));
        assert!(sight.may_see("alice") && !sight.may_see("bob") && !sight.may_act());
        assert!(grants.sight(&other, 5).unwrap().1.may_act());
        for wrong in ["", PREFIX, &token[1..], &token[..token.len() - 1], &format!("{token}0")] {
            assert!(grants.sight(wrong, 5).is_none(), "{wrong}");
        }
        // Nothing of the token is in the file.
        let kept = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(
            !kept.contains(&token[PREFIX.len()..])
                && !kept.contains(hash_of(&other).as_bytes().escape_ascii().to_string().as_str())
        );
        remove(dir.path(), "alice@laptop").unwrap();
        assert!(grants.sight(&token, 5).is_none() && grants.sight_of(&hash, 5).is_none());
        assert!(grants.sight(&other, 5).is_some());
        assert!(matches!(remove(dir.path(), "alice@laptop"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn a_token_of_the_page_may_run_out() {
        let dir = tempfile::tempdir().unwrap();
        let short = Wanted { valid_ms: Some(1000), ..wanted("a", Role::Metrics) };
        let token = add(dir.path(), short).unwrap();
        let until = list(dir.path()).unwrap()[0].until_ms.unwrap();
        let grants = Grants::of(dir.path());
        assert!(grants.sight(&token, until - 1).is_some() && grants.sight(&token, until).is_none());
    }

    #[test]
    fn names_are_plain_and_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["", "a b", "a\n", "ä", &"a".repeat(LONGEST_NAME + 1)] {
            let added = add(dir.path(), wanted(wrong, Role::Viewer));
            assert!(matches!(added, Err(TokenError::Name(_))), "{wrong}");
        }
        add(dir.path(), wanted("a", Role::Viewer)).unwrap();
        assert!(matches!(add(dir.path(), wanted("a", Role::Viewer)), Err(TokenError::Taken(_))));
        for number in 1..MOST {
            add(dir.path(), wanted(&format!("n{number}"), Role::Viewer)).unwrap();
        }
        assert!(matches!(add(dir.path(), wanted("more", Role::Viewer)), Err(TokenError::TooMany)));
    }

    #[test]
    fn a_damaged_file_of_tokens_lets_nobody_in() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let token = add(dir.path(), wanted("a", Role::Viewer)).unwrap();
        let path = dir.path().join(FILE);
        let good = std::fs::read(&path).unwrap();
        let grants = Grants::of(dir.path());
        assert!(grants.sight(&token, 5).is_some());
        for text in ["", "{", "{\"version\":2,\"tokens\":[]}", "[]"] {
            std::fs::write(&path, text).unwrap();
            assert!(grants.sight(&token, 5).is_none(), "{text}");
            assert!(matches!(list(dir.path()), Err(TokenError::Damaged { .. })), "{text}");
        }
        std::fs::write(&path, &good).unwrap();
        assert!(grants.sight(&token, 5).is_some());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(grants.sight(&token, 5).is_none());
    }
}
