//! Members that are drained.

use crate::rig::{Rig, name};
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::Cause;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::settings::JobSettings;

fn drain(rig: &mut Rig, node: usize, wait: bool) {
    rig.order(Ask::Drain { node: name(node), wait });
}

fn uncordon(rig: &mut Rig, node: usize) {
    rig.order(Ask::Uncordon { node: name(node) });
}

fn is_said(rig: &Rig, text: &str) -> bool {
    rig.answers.iter().any(|answer| match answer {
        Answer::Done { text: Some(said) } | Answer::Say { text: said } => said.contains(text),
        Answer::Failed { reason, .. } => reason.contains(text),
        _ => false,
    })
}

/// Where the job's instances were placed, the last time that any was.
fn placed(rig: &Rig) -> Vec<String> {
    let last = rig.log.iter().rev().find_map(|entry| match entry {
        ClusterEntry::Instances { instances, .. } => Some(instances),
        _ => None,
    });
    last.unwrap().values().map(|record| record.node.to_string()).collect()
}

fn states(rig: &mut Rig) -> Vec<String> {
    rig.answers.clear();
    rig.ask(Ask::Nodes);
    let Some(Answer::Listing { value }) = rig.answers.pop() else { panic!("no listing") };
    let nodes = value.as_array().unwrap().iter();
    nodes.map(|node| node["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_runs_on_a_drained_node_moves_away_and_nothing_comes_back() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    drain(&mut rig, 2, true);
    rig.wait(3000);
    assert_eq!(rig.rollbacks(), [Cause::Drain { node: name(2), with: Vec::new() }]);
    assert!(is_said(&rig, "node2 is drained: nothing runs there"), "{:?}", rig.answers);
    assert!(!placed(&rig).contains(&"node2".to_owned()), "{:?}", placed(&rig));
    assert_eq!(states(&mut rig), ["alive", "drained", "alive"]);
    // Also not after a loss, nor by a new coordinator.
    rig.restart_coordinator();
    rig.reboot(3);
    rig.wait(3000);
    assert_eq!(rig.rollbacks().len(), 2);
    assert!(!placed(&rig).contains(&"node2".to_owned()), "{:?}", placed(&rig));
    assert_eq!(states(&mut rig)[1], "drained");
    uncordon(&mut rig, 2);
    assert!(is_said(&rig, "node2 takes processes again"));
    assert_eq!(states(&mut rig)[1], "alive");
}

#[test]
fn several_that_are_drained_are_one_move() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    drain(&mut rig, 3, false);
    assert!(is_said(&rig, "node3 takes no new processes"));
    drain(&mut rig, 2, false);
    rig.wait(3000);
    assert_eq!(rig.rollbacks(), [Cause::Drain { node: name(2), with: vec![name(3)] }]);
}

#[test]
fn without_another_place_it_is_said_and_done_once_there_is_one() {
    let mut rig = Rig::with_job(2, Rig::on_demand());
    drain(&mut rig, 2, false);
    rig.wait(3000);
    drain(&mut rig, 1, true);
    rig.wait(5000);
    assert!(is_said(&rig, "node1 can't be emptied yet: no other machine is there"));
    assert_eq!(rig.rollbacks().len(), 1, "it runs on where it is");
    uncordon(&mut rig, 2);
    rig.wait(5000);
    assert!(is_said(&rig, "node1 is drained: nothing runs there"), "{:?}", rig.answers);
    assert!(placed(&rig).iter().all(|node| node == "node2"), "{:?}", placed(&rig));
}

#[test]
fn a_job_that_begins_waits_where_all_are_drained() {
    let mut rig = Rig::new(1);
    drain(&mut rig, 1, true);
    assert!(is_said(&rig, "nothing runs there"));
    let launch = crate::common::launch_spec("rank");
    let settings = JobSettings::default();
    let request = protocol::cluster::client::RunRequest {
        name: None,
        launch,
        settings,
        detach: false,
        anywhere: false,
    };
    rig.ask(Ask::Run(Box::new(request)));
    rig.wait(1000);
    assert!(is_said(&rig, "node1 is drained; see 'ckptd uncordon'"), "{:?}", rig.answers);
    uncordon(&mut rig, 1);
    assert_eq!(placed(&rig), ["node1"]);
}

#[test]
fn a_job_waits_for_a_drained_node_as_long_as_that_is_there() {
    let settings = JobSettings { copies: 2, ..Rig::on_demand() };
    let mut rig = Rig::with_job(2, settings);
    drain(&mut rig, 2, false);
    rig.wait(5000);
    rig.disconnect(1);
    // Longer than a job waits for machines.
    rig.wait(1_500_000);
    assert_eq!(rig.end(), None, "{:?}", rig.answers);
    uncordon(&mut rig, 2);
    rig.wait(3000);
    assert!(placed(&rig).iter().all(|node| node == "node2"), "{:?}", placed(&rig));
    assert_eq!(rig.end(), None);
}

#[test]
fn a_remote_shell_to_a_drained_node_runs_elsewhere() {
    let mut rig = Rig::alone(3, Rig::on_demand());
    drain(&mut rig, 2, false);
    rig.call(2, 2);
    assert_ne!(placed(&rig), ["node2"]);
    drain(&mut rig, 1, false);
    drain(&mut rig, 3, false);
    rig.call(3, 3);
    assert!(
        rig.sent
            .iter()
            .any(|(_, message)| format!("{message:?}").contains("is drained, and no other"))
    );
}

#[test]
fn only_operators_drain_and_only_members_are_drained() {
    let mut rig = Rig::new(1);
    rig.ask(Ask::Drain { node: name(1), wait: false });
    rig.ask(Ask::Uncordon { node: name(1) });
    assert!(is_said(&rig, "drain node1: only an operator may"));
    assert!(is_said(&rig, "uncordon node1: only an operator may"));
    drain(&mut rig, 9, true);
    assert!(is_said(&rig, "there is no such node"));
    uncordon(&mut rig, 1);
    assert!(is_said(&rig, "was not drained"));
    let told = rig.audited.iter().map(|event| format!("{event:?}")).collect::<String>();
    assert!(told.contains("drain --no-wait") && told.contains("uncordon"), "{told}");
}
