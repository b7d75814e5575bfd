//! Users who prove by a key of their own who they are, on a member that does not speak for them.
//!
//! A login belongs to a member, to the key by which it is that, and to an account there: commands of that account
//! count as the user's, until it runs out, somebody ends it, or the key or the member goes. It gives what the user may,
//! and less: no operator's rights, whoever the user is, and no say in which keys there are, or it could outlive itself.
//!
//! Keys and logins are in the log, so that another coordinator that carries on has both: the command of a job in the
//! foreground asks for it again there, and must be believed. Statements that are being signed are not: the connection over
//! which the signature would come is gone with the coordinator.
//!
//! - `keys`: the keys.
//! - `standing`: whether a login holds, and a key counts.
//! - `asks`: what commands ask about both.

mod asks;
mod keys;
mod standing;

use keys::Keys;

use super::entry::{ClusterEntry, Login};
use super::event::ClientId;
use crate::settings::SECOND;
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::login::Statement;
use std::collections::BTreeMap;

/// Logins of one user at a time.
const MOST_OF_ONE: usize = 64;

/// Logins of all users.
const MOST_LOGINS: usize = 16_384;

/// Statements that one member's users may be signing at a time.
const MOST_AT_MEMBER: usize = 64;

/// Those of one account.
const MOST_OF_ACCOUNT: usize = 8;

/// How long a signature is waited for: a passphrase has to be typed, or a security key found. In nanoseconds.
const PATIENCE: u64 = 180 * SECOND;

/// The number of a user who is known by name alone: no machine has given it to anybody (chown(2) takes it for none).
const NO_NUMBER: u32 = u32::MAX;

impl Login {
    /// The user, as commands of this login count.
    pub(super) fn job_user(&self) -> JobUser {
        JobUser { uid: NO_NUMBER, name: self.user.clone() }
    }
}

/// An account of a member.
pub(super) type Place = (NodeName, u32);

/// What is being signed.
#[derive(Debug)]
struct Challenge {
    statement: Statement,
    /// The account's name.
    account: String,
    /// Until when a signature counts, on the clock of [`crate::Time::nanos`].
    until: u64,
}

/// All keys and logins.
#[derive(Debug, Default)]
pub(super) struct Logins {
    keys: Keys,
    held: BTreeMap<Place, Login>,
    /// When the first may run out, in milliseconds since 1970 UTC.
    next_end_ms: Option<u64>,
    /// By the connection over which the signature is to come: it is asked for once.
    challenges: BTreeMap<ClientId, Challenge>,
}

impl Logins {
    /// Takes in what an entry of the log says of keys and logins: which logins have ended by it.
    pub(super) fn apply(&mut self, entry: &ClusterEntry) -> Vec<Place> {
        self.keys.apply(entry);
        match entry {
            ClusterEntry::LoggedIn(login) => self.begin(login),
            ClusterEntry::LoggedOut { member, account } => {
                self.end_those(|_, login| login.member == *member && login.account.uid == *account)
            }
            ClusterEntry::KeyRemoved { .. } => self.end_those(Self::has_lost_its_key),
            ClusterEntry::NodeRemoved { node } => {
                // Keys that came by it have gone with it.
                self.end_those(|keys, login| {
                    login.member == *node || Self::has_lost_its_key(keys, login)
                })
            }
            _ => Vec::new(),
        }
    }

    /// Whether the log that others come from says the same.
    pub(super) fn are_as(&self, others: &Self) -> bool {
        (&self.keys, &self.held) == (&others.keys, &others.held)
    }

    fn begin(&mut self, login: &Login) -> Vec<Place> {
        let place = (login.member.clone(), login.account.uid);
        let first = self.next_end_ms.unwrap_or(u64::MAX).min(login.until_ms);
        self.next_end_ms = Some(first);
        let before = self.held.insert(place.clone(), login.clone());
        // Of the same user: what goes on goes on.
        let another = before.is_some_and(|before| before.user != login.user);
        another.then_some(place).into_iter().collect()
    }

    fn has_lost_its_key(keys: &Keys, login: &Login) -> bool {
        keys.get(&login.user, &login.key).is_none()
    }

    fn end_those(&mut self, ends: impl Fn(&Keys, &Login) -> bool) -> Vec<Place> {
        let Self { keys, held, .. } = self;
        let ended = held.iter().filter(|(_, login)| ends(keys, login));
        let ended: Vec<Place> = ended.map(|(place, _)| place.clone()).collect();
        for place in &ended {
            held.remove(place);
        }
        ended
    }

    /// Ends those whose time is over.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<Place> {
        if self.next_end_ms.is_none_or(|first| now_ms < first) {
            return Vec::new();
        }
        let ended = self.end_those(|_, login| login.until_ms <= now_ms);
        self.next_end_ms = self.held.values().map(|login| login.until_ms).min();
        ended
    }

    /// How many keys came by a member.
    pub(super) fn keys_by(&self, member: &NodeName) -> usize {
        self.keys.iter().filter(|(_, known)| known.through.as_ref() == Some(member)).count()
    }

    /// No signature comes over that connection any more.
    pub(super) fn client_gone(&mut self, client: &ClientId) {
        self.challenges.remove(client);
    }
}
