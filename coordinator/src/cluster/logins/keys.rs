//! Public keys of users, as the log has them.

use crate::cluster::decisions;
use crate::cluster::entry::ClusterEntry;
use protocol::cluster::NodeName;
use protocol::keys::UserKey;
use std::collections::BTreeMap;

/// Keys of one user.
pub const MOST_OF_USER: usize = 16;

/// Keys of all users.
pub const MOST_KEYS: usize = 16_384;

/// A key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    pub key: UserKey,
    /// The member by which it came; None: the coordinator's own socket.
    pub through: Option<NodeName>,
    /// When, in milliseconds since 1970 UTC.
    pub added_ms: u64,
}

/// All keys, by their users' names and their fingerprints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<String, BTreeMap<String, KnownKey>>);

impl Keys {
    /// Takes in what an entry of the log says of keys.
    pub fn apply(&mut self, entry: &ClusterEntry) {
        match entry {
            ClusterEntry::KeyAdded { user, key, through, at_ms } => {
                let (through, added_ms) = (through.clone(), *at_ms);
                match UserKey::parse(key) {
                    Ok(key) => {
                        let fingerprint = key.fingerprint().to_owned();
                        let known = KnownKey { key, through, added_ms };
                        self.0.entry(user.clone()).or_default().insert(fingerprint, known);
                    }
                    // The ckptd that wrote it takes kinds that this one does not.
                    Err(error) => decisions::key_left_out(user, &error),
                }
            }
            ClusterEntry::KeyRemoved { user, fingerprint } => {
                if let Some(keys) = self.0.get_mut(user) {
                    keys.remove(fingerprint);
                }
                self.0.retain(|_, keys| !keys.is_empty());
            }
            // Another machine may get that name, and this one may have been an enemy's.
            ClusterEntry::NodeRemoved { node } => {
                for keys in self.0.values_mut() {
                    keys.retain(|_, known| known.through.as_ref() != Some(node));
                }
                self.0.retain(|_, keys| !keys.is_empty());
            }
            _ => {}
        }
    }

    /// That user's key of that fingerprint.
    pub fn get(&self, user: &str, fingerprint: &str) -> Option<&KnownKey> {
        self.0.get(user)?.get(fingerprint)
    }

    /// All keys, with their users.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &KnownKey)> {
        let users = self.0.iter();
        users.flat_map(|(user, keys)| keys.values().map(move |known| (user.as_str(), known)))
    }

    /// How many keys a user has.
    pub fn count_of(&self, user: &str) -> usize {
        self.0.get(user).map_or(0, BTreeMap::len)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }
}
