//! Browsers that were let in: each has a cookie of its own, which ends with the coordinator's process, when its bearer logs out,
//! and when the token is taken back by which it was let in.

use crate::hexadecimal::hexadecimal;
use crate::own_file::TokenError;
use crate::role::Role;
use blake3::Hash;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Browsers that are remembered; where there are more, the one goes that came first.
const MOST: usize = 256;
/// Random bytes of a cookie.
const LENGTH: usize = 32;

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
        let mut bytes = [0; LENGTH];
        protocol::transport::random(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        let cookie = hexadecimal(&bytes);
        let mut all = self.all();
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
