//! What names mean inside of a job.

use crate::cluster::job::ledger::Ledger;
use crate::cluster::members::Members;
use protocol::cluster::NodeName;
use std::fmt::Write;

/// Where a logical node is to be reached: on the machine of its name while that is there; else
/// where its first instance lives.
pub(super) fn machine_of(
    logical_node: &NodeName,
    ledger: &Ledger,
    members: &Members,
) -> Option<NodeName> {
    if members.get(logical_node).is_some() && !members.is_gone(logical_node) {
        return Some(logical_node.clone());
    }
    ledger
        .instances
        .values()
        .find(|record| record.logical_node == *logical_node)
        .map(|record| record.node.clone())
}

/// The content of /etc/hosts.
pub(in crate::cluster) fn content(ledger: &Ledger, members: &Members) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for (name, member) in members.iter() {
        // Late connections find their way from the address that everybody knows.
        let known = ledger.addresses.get(name).and_then(|known| known.first());
        let address = match known.filter(|_| ledger.settings().rewire_connect) {
            Some(known) => *known,
            None => machine_of(name, ledger, members)
                .and_then(|machine| members.get(&machine))
                .map_or(member.profile.address, |member| member.profile.address)
                .ip()
                .to_canonical(),
        };
        // Writing to a String never fails.
        let _ = writeln!(text, "{address} {name}");
    }
    text
}
