//! What agents are told of each other, in pieces: a member more costs one piece, however many there are.

use protocol::cluster::NodeName;
use protocol::cluster::agent::Peer;
use protocol::compact::{Pieces, Shared};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Members of one piece. One that becomes larger is divided.
const MOST: usize = 128;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// By the first name that belongs into each; in the order of names.
    pieces: BTreeMap<NodeName, Shared<Vec<Peer>>>,
    /// Names of which something else may have to be told.
    stale: BTreeSet<NodeName>,
}

impl Peers {
    /// A member has come, gone, or moved.
    pub(super) fn doubt(&mut self, node: &NodeName) {
        self.stale.insert(node.clone());
    }

    /// Takes into account who was doubtful; None: that it is not there.
    pub(super) fn renew(&mut self, peer: impl Fn(&NodeName) -> Option<Peer>) {
        let mut stale = std::mem::take(&mut self.stale).into_iter().peekable();
        while let Some(name) = stale.next() {
            let (first, piece) = self.piece_of(&name);
            let after = (Bound::Excluded(&first), Bound::Unbounded);
            let end = self.pieces.range::<NodeName, _>(after).next().map(|(end, _)| end.clone());
            let mut peers: BTreeMap<NodeName, Peer> =
                piece.iter().map(|peer| (peer.name.clone(), peer.clone())).collect();
            let mut next = Some(name);
            while let Some(name) = next {
                match peer(&name) {
                    Some(peer) => peers.insert(name, peer),
                    None => peers.remove(&name),
                };
                next = stale.next_if(|name| end.as_ref().is_none_or(|end| name < end));
            }
            self.put(&first, peers.into_values().collect());
        }
    }

    /// All, in the order of their names.
    pub(super) fn all(&self) -> Pieces<Peer> {
        self.pieces.values().cloned().collect()
    }

    /// The piece to which a name belongs, with the first name of it.
    fn piece_of(&self, name: &NodeName) -> (NodeName, Shared<Vec<Peer>>) {
        let before = self.pieces.range::<NodeName, _>(..=name).next_back();
        let found = before.or_else(|| self.pieces.first_key_value());
        found.map_or_else(
            || (name.clone(), Shared::default()),
            |(first, piece)| (first.clone(), piece.clone()),
        )
    }

    fn put(&mut self, first: &NodeName, peers: Vec<Peer>) {
        self.pieces.remove(first);
        let size = if peers.len() > MOST { peers.len().div_ceil(2).min(MOST) } else { MOST };
        for piece in peers.chunks(size) {
            if let Some(peer) = piece.first() {
                self.pieces.insert(peer.name.clone(), piece.to_vec().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: usize) -> Peer {
        let name = name(number);
        let address = "10.0.0.1:7000".parse().unwrap();
        let (key, addresses) = (Default::default(), Vec::new());
        Peer { name, address, key, job_traffic: None, addresses }
    }

    fn name(number: usize) -> NodeName {
        format!("node{number:05}").parse().unwrap()
    }

    #[test]
    fn the_list_is_what_it_would_be_if_it_were_made_anew() {
        let mut known = BTreeMap::new();
        let mut peers = Peers::default();
        // All numbers below 2003 once, in no order; then a third of them goes.
        let steps = (0..2003).map(|step| (step * 769 % 2003, true));
        let steps = steps.chain((0..2003).step_by(3).map(|number| (number, false)));
        for (step, (number, comes)) in steps.enumerate() {
            match comes {
                true => known.insert(name(number), peer(number)),
                false => known.remove(&name(number)),
            };
            peers.doubt(&name(number));
            if step % 7 == 0 {
                peers.renew(|name| known.get(name).cloned());
                assert!(peers.all().iter().eq(known.values()));
            }
        }
        peers.renew(|name| known.get(name).cloned());
        assert!(peers.all().iter().eq(known.values()));
        assert!(peers.pieces.values().all(|piece| (1..=MOST).contains(&piece.len())));
        assert!(peers.pieces.len() < 60, "{}", peers.pieces.len());
    }
}
