//! Which machines get copies.

use std::collections::BTreeMap;

use super::rig::Rig;
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::settings::{Interval, JobSettings};

/// How many machines send their copies to each, by what they were told last.
fn loads(rig: &Rig) -> BTreeMap<NodeName, usize> {
    let told = rig.sent.iter().filter_map(|(to, message)| match message {
        ToAgent::Partners { nodes, .. } => Some((*to, nodes.clone())),
        _ => None,
    });
    let last: BTreeMap<usize, Vec<NodeName>> = told.collect();
    let mut loads = BTreeMap::new();
    for partner in last.into_values().flatten() {
        *loads.entry(partner).or_default() += 1;
    }
    loads
}

#[test]
fn copies_are_spread_when_all_machines_come_back_one_after_the_other() {
    const NODES: usize = 8;
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let mut rig = Rig::with_job(NODES, settings);
    rig.sent.clear();
    rig.restart_coordinator();
    rig.wait(1000);
    let loads = loads(&rig);
    assert_eq!(loads.values().sum::<usize>(), NODES, "{loads:?}");
    assert!(loads.values().all(|load| *load <= 3), "{loads:?}");
}
