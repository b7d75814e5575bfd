//! Who asks, and how far that is believed. Of a command at the coordinator's own socket the kernel says whose it is; of
//! one at a member's socket the member says so, which counts as far as its [powers](protocol::cluster::powers) go.

use super::event::{ClientId, Now};
use super::shared::Shared;
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::Ask;
use protocol::cluster::powers::Powers;

/// How far a user's word counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// As that of the cluster's owner.
    Operator,
    /// As that of the user.
    User,
    /// Not at all: the member that says who it is speaks for nobody of that name.
    Unproven(NodeName),
}

/// A user who asks.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// Who it is, or is said to be: the user of the cluster.
    pub(super) user: JobUser,
    /// The account on the machine where the order was given. Another one than the user's where a key has said who it is.
    pub(super) account: JobUser,
    standing: Standing,
    /// Whether a key has said who it is.
    pub(super) by_login: bool,
}

impl Caller {
    /// Whether it may do what the coordinator's own user may.
    pub(super) fn is_operator(&self) -> bool {
        self.standing == Standing::Operator
    }

    /// The member that says who it is and does not speak for that user; None: the word counts.
    pub(super) fn unproven(&self) -> Option<&NodeName> {
        match &self.standing {
            Standing::Unproven(node) => Some(node),
            Standing::Operator | Standing::User => None,
        }
    }

    /// Whether jobs of that user are its own, or open to it. Users are known by their names: machines may number them
    /// differently.
    pub(super) fn may_see(&self, owner: &JobUser) -> bool {
        self.may_see_of(&owner.name)
    }

    /// The same of what belongs to the user of that name.
    pub(super) fn may_see_of(&self, owner: &str) -> bool {
        match self.standing {
            Standing::Operator => true,
            Standing::User => self.user.name == owner,
            Standing::Unproven(_) => false,
        }
    }

    /// Why it may not ask this at all; None: that depends on what it asks for.
    pub(super) fn refusal(&self, ask: &Ask) -> Option<String> {
        if let (true, Ask::AddKey { .. } | Ask::RemoveKey { .. }) = (self.by_login, ask) {
            return Some(
                "change keys: who has logged in by one may not; do it on a member that speaks for you, or ask an \
                 operator"
                    .to_owned(),
            );
        }
        let Standing::Unproven(node) = &self.standing else { return None };
        match ask {
            // Who is a member is no secret among members, and whoever owns a machine can end its agent anyway.
            Ask::Hello { .. } | Ask::Nodes | Ask::Attention | Ask::Leave { .. } => None,
            // Of who asks nothing is believed for these but the account.
            Ask::Login { .. } | Ask::Prove { .. } | Ask::Logins | Ask::Logout { all: false } => {
                None
            }
            _ => Some(format!(
                "obey {}: {node} does not speak for users of that name, by the token with which it joined; give the \
                 command on the coordinator's machine, or on a member that does (ckptd token --users {}, or --role login), \
                 or log in with a key (ckptd login)",
                self.user.name, self.user.name
            )),
        }
    }
}

impl Shared {
    /// How far a client's word counts that this user's is.
    pub(super) fn caller(&self, now: Now, client: &ClientId, user: JobUser) -> Caller {
        if let Some(login) = self.login_of(now, client, &user) {
            let (account, user) = (user, login.job_user());
            return Caller { user, account, standing: Standing::User, by_login: true };
        }
        let owns = user.uid == 0 || user.uid == self.settings.operator;
        let standing = match &client.node {
            None if owns => Standing::Operator,
            None => Standing::User,
            Some(node) => match self.powers.get(node) {
                Some(powers) if powers.operates && self.owns(&user, node) => Standing::Operator,
                Some(powers) if powers.speak_for(&user.name, &self.named) => Standing::User,
                _ => Standing::Unproven(node.clone()),
            },
        };
        Caller { account: user.clone(), user, standing, by_login: false }
    }

    /// Whether a user of that machine is root there, or the one under whose account its agent runs.
    pub(super) fn owns(&self, user: &JobUser, node: &NodeName) -> bool {
        let member = self.members.get(node);
        let owner = member.and_then(|member| member.profile.owner.as_ref());
        user.uid == 0 || owner.is_some_and(|owner| owner.uid == user.uid)
    }

    /// Whether somebody may have a node leave: an operator, or who owns the machine and is there.
    pub(super) fn may_dismiss(&self, client: &ClientId, caller: &Caller, node: &NodeName) -> bool {
        let there = client.node.as_ref() == Some(node);
        caller.is_operator() || (there && self.owns(&caller.account, node))
    }

    /// What a member may order, as its token said.
    pub(super) fn powers_of(&self, node: &NodeName) -> Powers {
        self.powers.get(node).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterSettings, SeededSecrets};
    use protocol::cluster::powers::SpeaksFor;
    use std::collections::BTreeSet;

    const NOW: Now = Now { nanos: 0, unix_ms: 0 };

    fn user(uid: u32, name: &str) -> JobUser {
        JobUser { uid, name: name.to_owned() }
    }

    fn at(node: Option<&str>) -> ClientId {
        let node = node.map(|node| node.parse().unwrap());
        ClientId { node, connection: 1, number: 1 }
    }

    fn shared(powers: Powers) -> Shared {
        let settings = ClusterSettings { operator: 50, ..ClusterSettings::default() };
        let mut shared = Shared::new(settings, SeededSecrets::new([0; 32]));
        shared.powers.insert("a".parse().unwrap(), powers);
        shared
    }

    #[test]
    fn a_member_is_believed_as_far_as_its_token_says() {
        let alice = || user(1000, "alice");
        let ask = Ask::Stop { job: "x".to_owned(), checkpoint: false };
        let worker = shared(Powers::default()).caller(NOW, &at(Some("a")), alice());
        assert!(!worker.may_see(&alice()) && worker.refusal(&ask).unwrap().contains("obey alice"));
        assert!(worker.refusal(&Ask::Nodes).is_none());
        let root = shared(Powers::default()).caller(NOW, &at(Some("a")), user(0, "root"));
        assert!(!root.is_operator() && !root.may_see(&user(0, "root")));
        let login = shared(Powers::of_all_users(false));
        let caller = login.caller(NOW, &at(Some("a")), alice());
        assert!(caller.refusal(&ask).is_none() && caller.may_see(&user(77, "alice")));
        assert!(!caller.may_see(&user(1000, "bob")), "numbers tell nothing");
        let root = login.caller(NOW, &at(Some("a")), user(0, "root"));
        assert!(!root.is_operator() && !root.may_see(&alice()));
        let operator = shared(Powers::of_all_users(true));
        assert!(operator.caller(NOW, &at(Some("a")), user(0, "root")).is_operator());
        assert!(!operator.caller(NOW, &at(Some("a")), alice()).is_operator());
        let users = SpeaksFor::Only(BTreeSet::from(["bob".to_owned()]));
        let his = shared(Powers { speaks_for: users, operates: false });
        assert!(his.caller(NOW, &at(Some("a")), alice()).refusal(&ask).is_some());
        // One that nothing is known of.
        assert!(his.caller(NOW, &at(Some("b")), user(1, "bob")).refusal(&ask).is_some());
    }

    #[test]
    fn at_the_own_socket_the_kernel_says_who_it_is() {
        let shared = shared(Powers::default());
        for (uid, operator) in [(0, true), (50, true), (1000, false)] {
            let caller = shared.caller(NOW, &at(None), user(uid, "u"));
            assert_eq!(caller.is_operator(), operator);
            assert!(caller.may_see(&user(9, "u")));
        }
    }

    #[test]
    fn whoever_owns_a_machine_may_take_it_away() {
        let shared = shared(Powers::default());
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let root = shared.caller(NOW, &at(Some("a")), user(0, "root"));
        assert!(shared.may_dismiss(&at(Some("a")), &root, &a));
        assert!(!shared.may_dismiss(&at(Some("a")), &root, &b));
        let other = shared.caller(NOW, &at(Some("a")), user(7, "other"));
        assert!(!shared.may_dismiss(&at(Some("a")), &other, &a));
        let operator = shared.caller(NOW, &at(None), user(50, "ckptd"));
        assert!(shared.may_dismiss(&at(None), &operator, &b));
    }
}
