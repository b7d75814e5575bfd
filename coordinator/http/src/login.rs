//! Addresses that let one browser in, once and soon: what is printed, and so may stay in the histories of shells and browsers and
//! in logs.
//!
//! ```text
//! login = MADE.NONCE.ROLE.SEAL    milliseconds since the machine was started, 16 random bytes, what the browser may do, and
//!                                 BLAKE3 of all of these under a key from the secret and the serving; hexadecimal
//! ```
//!
//! Whoever reads the secret makes one; nobody need be asked. The page takes each once. What was spent is remembered for as
//! long as it would be good, and each time that a page is served has logins of its own, so none becomes good again.

use crate::hexadecimal::hexadecimal;
use crate::role::Role;
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a login is good.
pub const VALID: Duration = Duration::from_secs(600);

/// Logins of one page that are remembered until they would be too old. Who makes more has the secret anyway.
const MOST_SPENT: usize = 4096;
/// Random bytes of a login.
pub(crate) const NONCE: usize = 16;

/// Makes a login to a page that is served under that mark.
pub(crate) fn make(
    secret: &str,
    serving: &str,
    now_ms: u64,
    nonce: [u8; NONCE],
    role: Role,
) -> String {
    let text = format!("{now_ms:x}.{}.{}", hexadecimal(&nonce), role.name());
    let seal = blake3::keyed_hash(&key(secret, serving), text.as_bytes());
    format!("{text}.{seal}")
}

fn key(secret: &str, serving: &str) -> [u8; 32] {
    blake3::derive_key("ckptd 2026 login to the page", format!("{secret} {serving}").as_bytes())
}

/// What logins a page takes.
#[derive(Debug)]
pub(crate) struct Logins {
    key: [u8; 32],
    /// What was made when, of those that were taken and are not too old yet.
    spent: BTreeMap<String, u64>,
}

impl Logins {
    /// Of a page that is served under that mark.
    pub fn new(secret: &str, serving: &str) -> Self {
        Self { key: key(secret, serving), spent: BTreeMap::new() }
    }

    /// Takes a login, if it is one, not too old and not taken before: for which role. `now_ms`: by a clock that never goes
    /// back.
    pub fn spend(&mut self, shown: &str, now_ms: u64) -> Option<Role> {
        let is_good = |made: u64| made <= now_ms && now_ms - made < millis(VALID);
        self.spent.retain(|_, made| is_good(*made));
        let (text, seal) = shown.rsplit_once('.')?;
        let seal = blake3::Hash::from_hex(seal).ok()?;
        // blake3's hashes are compared in constant time.
        if blake3::keyed_hash(&self.key, text.as_bytes()) != seal {
            return None;
        }
        let (made, rest) = text.split_once('.')?;
        let made = u64::from_str_radix(made, 16).ok().filter(|made| is_good(*made))?;
        let (_, role) = rest.split_once('.')?;
        let role = [Role::Viewer, Role::Operator].into_iter().find(|of| of.name() == role)?;
        if self.spent.len() >= MOST_SPENT {
            return None;
        }
        self.spent.insert(text.to_owned(), made).is_none().then_some(role)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a secret";
    const SERVING: &str = "01";
    const NOW: u64 = 1_800_000_000;

    fn login(at: u64) -> String {
        make(SECRET, SERVING, at, [7; NONCE], Role::Viewer)
    }

    fn logins() -> Logins {
        Logins::new(SECRET, SERVING)
    }

    #[test]
    fn a_login_is_good_once() {
        let mut logins = logins();
        let (one, other) = (login(NOW), make(SECRET, SERVING, NOW, [8; NONCE], Role::Operator));
        assert_eq!(logins.spend(&one, NOW + 5), Some(Role::Viewer));
        assert_eq!(logins.spend(&one, NOW + 6), None);
        assert_eq!(logins.spend(&other, NOW + 7), Some(Role::Operator));
        // Nor when it has been forgotten.
        assert_eq!(logins.spend(&one, NOW + millis(VALID)), None);
        assert!(logins.spent.is_empty());
        // The page that is served next does not know that it was spent, and takes none of before.
        assert!(Logins::new(SECRET, "02").spend(&one, NOW + 9).is_none());
    }

    #[test]
    fn a_login_is_good_for_ten_minutes() {
        let soon = NOW + millis(VALID) - 1;
        assert!(logins().spend(&login(NOW), soon).is_some());
        assert!(logins().spend(&login(NOW), soon + 1).is_none());
        assert!(logins().spend(&login(NOW + 1), NOW).is_none());
    }

    #[test]
    fn what_somebody_else_has_made_is_no_login() {
        let right = login(NOW);
        let (text, seal) = right.rsplit_once('.').unwrap();
        let later = format!("{:x}.{}.viewer.{seal}", NOW + 1, "07".repeat(NONCE));
        let of_another = make("another secret", SERVING, NOW, [7; NONCE], Role::Viewer);
        let raised = right.replace("viewer", "operator");
        let wrong = [text, seal, "", ".", "..", &right[1..], &later, &raised, &of_another, SECRET];
        for shown in wrong {
            let mut logins = logins();
            assert!(logins.spend(shown, NOW + 2).is_none(), "{shown}");
            assert!(logins.spent.is_empty());
        }
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let mut logins = logins();
        let made = |number: usize| {
            let mut nonce = [0; NONCE];
            nonce[..8].copy_from_slice(&number.to_le_bytes());
            make(SECRET, SERVING, NOW, nonce, Role::Viewer)
        };
        for number in 0..MOST_SPENT {
            assert!(logins.spend(&made(number), NOW).is_some());
        }
        assert!(logins.spend(&made(MOST_SPENT), NOW).is_none());
        // Those are too old by then.
        let later = NOW + millis(VALID);
        assert!(logins.spend(&login(later), later).is_some());
    }
}
