//! Which machines get copies of an instance's images.

use crate::cluster::members::Members;
use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// As many as `copies` asks for besides the instance's own machine, or as there are: those that
/// are partners least often so far (`load`), then those that come after the own machine in the
/// order of names. A machine that can't be reached is no partner.
pub(in crate::cluster) fn choose(
    node: &NodeName,
    copies: u32,
    members: &Members,
    load: &mut BTreeMap<NodeName, u32>,
) -> Vec<NodeName> {
    let mut others: Vec<&NodeName> = members
        .iter()
        .filter(|(name, member)| *name != node && member.is_connected())
        .filter(|(_, member)| member.presence == crate::cluster::members::Presence::There)
        .map(|(name, _)| name)
        .collect();
    others.sort_by_key(|name| (load.get(*name).copied().unwrap_or(0), *name < node, *name));
    let wanted = usize::try_from(copies.saturating_sub(1)).unwrap_or(usize::MAX);
    let chosen: Vec<NodeName> = others.into_iter().take(wanted).cloned().collect();
    for name in &chosen {
        *load.entry(name.clone()).or_default() += 1;
    }
    chosen
}
