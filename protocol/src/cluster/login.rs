//! How a user proves by a key who they are, on a member that does not speak for them: what the key signs, and what
//! holds for it.

use super::NodeName;
use crate::transport::Fingerprint;
use serde::{Deserialize, Serialize};

/// What keys sign it for, and no other signature of theirs: `ssh-keygen -Y sign -n`.
pub const NAMESPACE: &str = "ckptd-login";

/// The longest time for which a login may hold, in seconds.
pub const MAX_VALID_S: u64 = 7 * 24 * 3600;

/// The longest name of a user, in bytes (useradd(8)).
const MAX_USER: usize = 32;

/// What a user signs. The coordinator has it in its own hand: what comes back is the signature alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// What names the cluster's authority.
    pub cluster: Fingerprint,
    /// The member at whose socket the user is.
    pub member: NodeName,
    /// The key by which it is that member.
    pub member_key: Fingerprint,
    /// The account that is to be admitted there, by its number on that machine.
    pub account: u32,
    /// As which user of the cluster.
    pub user: String,
    /// Until when, in milliseconds since 1970 UTC by the coordinator's clock.
    pub until_ms: u64,
    /// Drawn at random, for this one login.
    pub nonce: String,
}

impl Statement {
    /// The bytes that are signed: one line for each part, in this order. No part can hold a newline where the statement
    /// is the coordinator's own; a client signs none that has others.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { cluster, member, member_key, account, user, until_ms, nonce } = self;
        format!(
            "ckptd login 1\ncluster {cluster}\nmember {member}\nmember-key {member_key}\naccount {account}\n\
             user {user}\nuntil {until_ms}\nnonce {nonce}\n"
        )
    }

    /// Whether each part is in its own line, so that one text means one statement.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_word = |text: &str| !text.chars().any(|c| c.is_control() || c.is_whitespace());
        let words = [&self.cluster.to_string(), &self.member_key.to_string(), &self.nonce];
        words.into_iter().all(|word| is_word(word)) && is_user_name(&self.user)
    }
}

/// Whether keys may be known for a user of that name. A number is what a machine calls somebody for whom it has no name:
/// on another it is somebody else.
#[must_use]
pub fn is_user_name(name: &str) -> bool {
    let fits = |c: char| !c.is_control() && !c.is_whitespace() && !":,/".contains(c);
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    !is_number && name.len() <= MAX_USER && name.chars().all(fits)
}

/// A login, as listings show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownLogin {
    /// As which user of the cluster.
    pub user: String,
    /// At which member.
    pub member: NodeName,
    /// From which account there.
    pub account: String,
    /// The key that has proven it, by its fingerprint.
    pub key: String,
    /// Until when, in milliseconds since 1970 UTC.
    pub until_ms: u64,
    /// Whether it is that of who asks: this account, on this machine.
    pub here: bool,
}

/// A key, as listings show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownKey {
    /// Whose it is.
    pub user: String,
    /// Its kind, as `ssh-ed25519`.
    pub kind: String,
    /// Its fingerprint.
    pub fingerprint: String,
    /// What its file says of it.
    pub comment: String,
    /// The member by which it came; None: the coordinator's own socket.
    pub through: Option<NodeName>,
    /// When, in milliseconds since 1970 UTC.
    pub added_ms: u64,
    /// Whether it counts: the member by which it came may speak for its user.
    pub counts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(user: &str) -> Statement {
        Statement {
            cluster: Fingerprint::default(),
            member: "desk".parse().unwrap(),
            member_key: Fingerprint::default(),
            account: 1000,
            user: user.to_owned(),
            until_ms: 5,
            nonce: "00ff".to_owned(),
        }
    }

    #[test]
    fn a_text_means_one_statement() {
        let text = statement("alice").text();
        assert!(text.starts_with("ckptd login 1\ncluster \nmember desk\n"), "{text}");
        assert!(text.ends_with("account 1000\nuser alice\nuntil 5\nnonce 00ff\n"), "{text}");
        assert!(statement("alice").is_plain());
        assert!(!statement("alice\nuntil 9").is_plain());
        let spaced = Statement { nonce: "1 2".to_owned(), ..statement("alice") };
        assert!(!spaced.is_plain());
    }

    #[test]
    fn keys_are_for_names() {
        assert!(is_user_name("alice") && is_user_name("0x") && is_user_name("root"));
        for name in ["", "0", "1000", "a b", "a\n", "a:b", "a/b", &"a".repeat(33)] {
            assert!(!is_user_name(name), "{name:?}");
        }
    }
}
