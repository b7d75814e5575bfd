//! Grants of instances that run for long.

use super::rig::Rig;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::grant::LIFETIME_MS;
use protocol::cluster::settings::{Interval, JobSettings};

/// How often a node's partners were named to it, of whom there is one.
fn named(rig: &Rig, node: usize) -> usize {
    let is_it = |(to, message): &&(usize, ToAgent)| {
        *to == node && matches!(message, ToAgent::Partners { nodes, .. } if nodes.len() == 1)
    };
    rig.sent.iter().filter(is_it).count()
}

#[test]
fn partners_are_named_again_before_grants_run_out() {
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let mut rig = Rig::alone(2, settings);
    rig.wait(500);
    rig.sent.clear();
    rig.skip(LIFETIME_MS / 5);
    rig.wait(500);
    assert_eq!(named(&rig, 1), 0, "it is not yet time");
    rig.skip(LIFETIME_MS / 5);
    rig.wait(500);
    assert_eq!(named(&rig, 1), 1);
    rig.wait(500);
    assert_eq!(named(&rig, 1), 1);
    // Well within their time, they come again and again.
    rig.skip(LIFETIME_MS / 2);
    rig.wait(500);
    assert_eq!(named(&rig, 1), 2);
}
