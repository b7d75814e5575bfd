//! Whose a computation is. Processes of this machine are known by the owners of their sockets, those of other machines are
//! not: whoever names a network lets everybody there join, and give orders.

use super::{Machine, Peer};

impl Machine {
    /// Why somebody can't be in the computation, if so; fits after "it is refused: ".
    pub(super) fn stranger(&self, peer: Peer) -> Option<String> {
        let (owner, own) = (peer.owner?, self.settings.user);
        if own != 0 && owner != own {
            return Some(format!("this coordinator is for user {own} alone"));
        }
        match self.owner.filter(|_| !self.workers.is_empty()) {
            Some(known) if known != owner => {
                Some(format!("the computation that runs here is that of user {known}"))
            }
            _ => None,
        }
    }

    /// Whether somebody may give orders: root, the coordinator's own user, and whose the computation is.
    pub(super) fn may_order(&self, peer: Peer) -> bool {
        let Some(owner) = peer.owner else { return true };
        let of_computation = self.owner.filter(|_| !self.workers.is_empty());
        owner == 0 || owner == self.settings.user || Some(owner) == of_computation
    }
}
