//! Whether a login holds, and a key counts.

use crate::cluster::entry::Login;
use crate::cluster::event::{ClientId, Now};
use crate::cluster::shared::Shared;
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;

impl Shared {
    /// The login by which a command of that account counts as its user's.
    pub(in crate::cluster) fn login_of(
        &self,
        now: Now,
        client: &ClientId,
        account: &JobUser,
    ) -> Option<&Login> {
        let member = client.node.as_ref()?;
        let login = self.logins.held.get(&(member.clone(), account.uid))?;
        let same = login.account.name == account.name
            && self.members.key(member) == Some(&login.member_key);
        (same && self.holds(now, login)).then_some(login)
    }

    pub(super) fn holds(&self, now: Now, login: &Login) -> bool {
        let key = self.logins.keys.get(&login.user, &login.key);
        login.until_ms > now.unix_ms
            && key.is_some_and(|known| self.vouches(known.through.as_ref(), &login.user))
    }

    /// Whether a user's key counts that has come by this member: it must have the say that it had then. None: by the
    /// coordinator's own socket.
    pub(super) fn vouches(&self, through: Option<&NodeName>, user: &str) -> bool {
        let Some(member) = through else { return true };
        let powers = self.powers.get(member);
        powers.is_some_and(|powers| powers.operates || powers.speak_for(user, &self.named))
    }
}
