//! Browsers that were let in: each has a cookie of its own, which ends with the coordinator's process, when its bearer logs out,
//! and when the token is taken back by which it was let in.

use crate::hexadecimal::hexadecimal;
use crate::own_file::{TokenError, random_secret};
use crate::role::Role;
use blake3::Hash;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Browsers that are remembered; where there are more, the one goes that came first.
const MOST: usize = 256;
/// Those of one token: its bearer can't make the others go.
const MOST_OF_A_TOKEN: usize = 16;

/// By what a browser was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetIn {
    /// An address of `ckptd page`, made for that role.
    Login(Role),
    /// The token of that hash.
    Grant(Hash),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<VecDeque<(Hash, LetIn)>>);

impl Sessions {
    /// Lets a browser in: the content of its cookie.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn begin(&self, by: LetIn) -> Result<String, TokenError> {
        let cookie = random_secret()?;
        let mut all = self.all();
        let is_same = |(_, other): &(Hash, LetIn)| matches!(by, LetIn::Grant(_)) && *other == by;
        if all.iter().filter(|session| is_same(session)).count() >= MOST_OF_A_TOKEN {
            if let Some(oldest) = all.iter().position(is_same) {
                all.remove(oldest);
            }
        }
        while all.len() >= MOST {
            all.pop_front();
        }
        all.push_back((hash_of(&cookie), by));
        Ok(cookie)
    }

    /// By what the browser with this cookie was let in.
    pub fn find(&self, hash: &Hash) -> Option<LetIn> {
        let mut found = None;
        for (other, by) in self.all().iter() {
            // blake3's hashes are compared in constant time.
            if other == hash {
                found = Some(*by);
            }
        }
        found
    }

    /// It logs out.
    pub fn end(&self, hash: &Hash) {
        self.all().retain(|(other, _)| other != hash);
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<(Hash, LetIn)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a cookie is known by.
pub(crate) fn hash_of(cookie: &str) -> Hash {
    blake3::hash(cookie.as_bytes())
}

/// What the page's own scripts show with each order, and no other site knows: it follows from the cookie, which no script reads.
pub(crate) fn order_secret(cookie: &str) -> String {
    hexadecimal(&blake3::derive_key("ckptd 2026 orders of the page", cookie.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browsers_of_one_token_do_not_push_others_out() {
        let sessions = Sessions::default();
        let operator = sessions.begin(LetIn::Login(Role::Operator)).unwrap();
        let by = LetIn::Grant(hash_of("token"));
        let first = sessions.begin(by).unwrap();
        for _ in 0..2 * MOST {
            sessions.begin(by).unwrap();
        }
        assert!(sessions.find(&hash_of(&operator)).is_some());
        assert!(sessions.find(&hash_of(&first)).is_none());
        assert_eq!(sessions.all().len(), 1 + MOST_OF_A_TOKEN);
    }

    #[test]
    fn cookies_are_each_browsers_own_and_end() {
        let sessions = Sessions::default();
        let one = sessions.begin(LetIn::Login(Role::Viewer)).unwrap();
        let other = sessions.begin(LetIn::Login(Role::Operator)).unwrap();
        assert_ne!(order_secret(&one), order_secret(&other));
        let found = |cookie: &str| sessions.find(&hash_of(cookie));
        assert_eq!(found(&one), Some(LetIn::Login(Role::Viewer)));
        assert_eq!(found(&one[1..]), None);
        sessions.end(&hash_of(&one));
        assert_eq!((found(&one), found(&other)), (None, Some(LetIn::Login(Role::Operator))));
        for _ in 0..MOST {
            sessions.begin(LetIn::Login(Role::Viewer)).unwrap();
        }
        assert_eq!(found(&other), None);
    }
}
