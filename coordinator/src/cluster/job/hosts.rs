//! What names mean inside of a job.

use crate::cluster::changes::Revision;
use crate::cluster::job::ledger::Ledger;
use crate::cluster::members::Members;
use protocol::cluster::NodeName;
use protocol::compact::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

/// Where a logical node is to be reached: on the machine of its name while that is there, and not drained; else where
/// its first instance lives.
pub(super) fn machine_of(
    logical_node: &NodeName,
    ledger: &Ledger,
    members: &Members,
) -> Option<NodeName> {
    let is_there = members.get(logical_node).is_some() && !members.is_gone(logical_node);
    let its_own = || is_there.then(|| logical_node.clone());
    let first = || ledger.instances.first_of(logical_node).map(|record| record.node.clone());
    match members.is_drained(logical_node) {
        true => first().or_else(its_own),
        false => its_own().or_else(first),
    }
}

/// The content of /etc/hosts, which is as long as the cluster is large: kept until a line of it changes.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Hosts {
    lines: BTreeMap<NodeName, IpAddr>,
    text: Option<Shared<String>>,
    /// Names whose lines may have changed.
    stale: BTreeSet<NodeName>,
    /// What was known when members were last looked at, and whether connections find their way.
    seen: Option<(Revision, bool)>,
}

impl Hosts {
    /// An instance of that logical node has come or gone.
    pub(super) fn doubt(&mut self, logical_node: &NodeName) {
        self.stale.insert(logical_node.clone());
    }

    /// The content as things stand.
    pub(in crate::cluster) fn content(
        &mut self,
        ledger: &Ledger,
        members: &Members,
    ) -> Shared<String> {
        let now = (members.revision(), ledger.settings().rewire_connect);
        let before = self.seen.replace(now).filter(|seen| seen.1 == now.1);
        match before.and_then(|seen| members.changed_since(seen.0)) {
            Some(changed) => {
                for machine in changed {
                    self.stale.insert(machine.clone());
                    // Of a logical node that is gone, the address of where its first instance lives.
                    let guests = ledger.instances.on(machine);
                    self.stale.extend(guests.map(|record| record.logical_node.clone()));
                }
            }
            None => {
                self.lines.clear();
                self.stale = members.iter().map(|(name, _)| name.clone()).collect();
            }
        }
        for name in std::mem::take(&mut self.stale) {
            self.renew(name, ledger, members);
        }
        let lines = &self.lines;
        self.text.get_or_insert_with(|| text(lines).into()).clone()
    }

    fn renew(&mut self, name: NodeName, ledger: &Ledger, members: &Members) {
        let address = address_of(&name, ledger, members);
        if self.lines.get(&name).copied() != address {
            self.text = None;
            match address {
                Some(address) => self.lines.insert(name, address),
                None => self.lines.remove(&name),
            };
        }
    }
}

/// The address of a member's name.
fn address_of(name: &NodeName, ledger: &Ledger, members: &Members) -> Option<IpAddr> {
    let member = members.get(name)?;
    // Late connections find their way from the address that everybody knows.
    let known = ledger.addresses.get(name).and_then(|known| known.first());
    if let Some(known) = known.filter(|_| ledger.settings().rewire_connect) {
        return Some(*known);
    }
    let machine = machine_of(name, ledger, members).and_then(|machine| members.get(&machine));
    Some(machine.unwrap_or(member).profile.address.ip().to_canonical())
}

fn text(lines: &BTreeMap<NodeName, IpAddr>) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for (name, address) in lines {
        // Writing to a String never fails.
        let _ = writeln!(text, "{address} {name}");
    }
    text
}

/// The content of /etc/hosts, from the beginning.
pub(in crate::cluster) fn content(ledger: &Ledger, members: &Members) -> Shared<String> {
    Hosts::default().content(ledger, members)
}
