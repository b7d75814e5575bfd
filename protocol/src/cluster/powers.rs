//! What a member may order in the cluster. A member can say anything of the users of its machine, and of itself, so
//! the coordinator believes it as far as an operator has said, when the token was made with which it joined.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Users that one token may name.
pub const MOST_NAMED: usize = 256;

/// For whom a member speaks: whose commands, given on its machine, the cluster obeys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeaksFor {
    /// Nobody: it runs jobs and keeps images.
    #[default]
    Nobody,
    /// The users of these names.
    Only(BTreeSet<String>),
    /// All users of its machine but those that tokens have named for other members.
    Everybody,
}

/// What a member may order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Powers {
    /// For whom it speaks.
    pub speaks_for: SpeaksFor,
    /// Whether root of its machine may do what the coordinator's own user may: see all jobs, turn members out.
    pub operates: bool,
}

impl Powers {
    /// Those of a machine on which all its users work, or operators, too.
    #[must_use]
    pub fn of_all_users(operates: bool) -> Self {
        Self { speaks_for: SpeaksFor::Everybody, operates }
    }

    /// Whether the cluster obeys a user of that name on its machine. `named`: the users for whom tokens have named the
    /// members that speak for them.
    #[must_use]
    pub fn speak_for(&self, user: &str, named: &BTreeSet<String>) -> bool {
        match &self.speaks_for {
            SpeaksFor::Nobody => false,
            SpeaksFor::Only(users) => users.contains(user),
            SpeaksFor::Everybody => self.operates || !named.contains(user),
        }
    }

    /// One or a few words for listings.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.speaks_for {
            _ if self.operates => "operator".to_owned(),
            SpeaksFor::Nobody => "worker".to_owned(),
            SpeaksFor::Only(users) => {
                format!(
                    "login: {}",
                    users.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                )
            }
            SpeaksFor::Everybody => "login".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_member_speaks_for_those_that_its_token_says() {
        let named = names(&["alice"]);
        let worker = Powers::default();
        assert!(!worker.speak_for("bob", &named) && !worker.operates);
        let login = Powers::of_all_users(false);
        assert!(login.speak_for("bob", &named));
        assert!(!login.speak_for("alice", &named), "another member was named for her");
        let hers = Powers { speaks_for: SpeaksFor::Only(named.clone()), operates: false };
        assert!(hers.speak_for("alice", &named) && !hers.speak_for("bob", &named));
        assert!(Powers::of_all_users(true).speak_for("alice", &named));
    }
}
