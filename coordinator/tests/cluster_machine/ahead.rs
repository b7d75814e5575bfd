//! Images that go ahead of a move. In these tests even the smallest do.

use crate::rig::{Rig, name};
use coordinator::Entry;
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::Cause;
use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::settings::{Interval, JobSettings};

/// A job on three nodes with two checkpoints, from which node3 is to go; nobody hears yet that images are to be fetched.
fn leaving(settings: JobSettings) -> Rig {
    let mut rig = Rig::with_job(3, settings);
    rig.checkpoint();
    rig.checkpoint();
    rig.sent.clear();
    rig.deaf_to = |_, message| matches!(message, ToAgent::Copy { .. });
    rig.order(Ask::Leave { node: Some(name(3)) });
    rig.wait(3000);
    rig
}

/// Orders to fetch an image, since this was asked last.
fn ordered(rig: &mut Rig) -> Vec<(usize, ToAgent)> {
    let sent = std::mem::take(&mut rig.sent);
    sent.into_iter().filter(|(_, message)| matches!(message, ToAgent::Copy { .. })).collect()
}

fn checkpoints(orders: &[(usize, ToAgent)]) -> Vec<CheckpointNumber> {
    let numbers = orders.iter().filter_map(|(_, order)| match order {
        ToAgent::Copy { checkpoint, .. } => Some(*checkpoint),
        _ => None,
    });
    numbers.collect()
}

fn do_all(rig: &mut Rig, orders: Vec<(usize, ToAgent)>) {
    orders.into_iter().for_each(|(node, order)| rig.does(node, order));
}

/// Checkpoints that were committed.
fn committed(rig: &Rig) -> Vec<CheckpointNumber> {
    let numbers = rig.log.iter().filter_map(|entry| match entry {
        ClusterEntry::Committed { record, .. } => Some(record.checkpoint),
        _ => None,
    });
    numbers.collect()
}

fn went_for_node3() -> Vec<Cause> {
    vec![Cause::Leave { node: name(3), with: Vec::new() }]
}

#[test]
fn a_job_runs_on_until_what_it_needs_elsewhere_is_there() {
    let mut rig = leaving(Rig::on_demand());
    assert!(rig.rollbacks().is_empty());
    let orders = ordered(&mut rig);
    // The next checkpoint takes chunks from the one before the last. Its processes go to both of the others.
    assert_eq!(checkpoints(&orders), [1, 1]);
    let says = |answer: &Answer| matches!(answer, Answer::Say { text } if text.contains("goes ahead of it: 1 image to node1, 1 image to node2"));
    assert!(rig.answers.iter().any(says), "{:?}", rig.answers);
    do_all(&mut rig, orders);
    rig.wait(1000);
    assert_eq!(rig.rollbacks(), went_for_node3());
    assert_eq!(committed(&rig), [1, 2, 3]);
    // It must not be collected before the images that refer to it have arrived.
    let begun = rig.log.iter().rposition(|entry| matches!(entry, ClusterEntry::EpochBegun { .. }));
    let collected = rig.log[..begun.unwrap()].iter().filter_map(|entry| match entry {
        ClusterEntry::Job { entry: Entry::Collected { kept }, .. } => Some(kept),
        _ => None,
    });
    assert!(collected.into_iter().all(|kept| kept.contains(&1)));
    rig.deaf_to = |_, _| false;
    rig.checkpoint();
    let kept = rig.log.iter().rev().find_map(|entry| match entry {
        ClusterEntry::Job { entry: Entry::Collected { kept }, .. } => Some(kept.clone()),
        _ => None,
    });
    assert_eq!(kept, Some(vec![3, 4]));
}

#[test]
fn what_was_committed_meanwhile_follows_in_one_more_round() {
    let hourly = JobSettings { interval: Interval::Seconds(3600.0), ..Rig::on_demand() };
    let mut rig = leaving(hourly);
    let first = ordered(&mut rig);
    assert_eq!(checkpoints(&first), [1, 1]);
    rig.checkpoint();
    do_all(&mut rig, first);
    rig.wait(1000);
    // Checkpoint 3 takes chunks from 1, and so does not come as a whole.
    let second = ordered(&mut rig);
    assert_eq!(checkpoints(&second), [3, 3]);
    assert!(rig.rollbacks().is_empty());
    do_all(&mut rig, second);
    rig.wait(1000);
    // An ordinary one between them, which is not waited an hour for; the job is moved at 5, which takes chunks from 3.
    assert_eq!(committed(&rig), [1, 2, 3, 4, 5]);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn a_machine_that_does_not_fetch_it_holds_nothing_up_for_ever() {
    let mut rig = leaving(Rig::on_demand());
    assert_eq!(checkpoints(&ordered(&mut rig)), [1, 1]);
    rig.wait(55_000);
    assert!(rig.rollbacks().is_empty());
    rig.wait(15_000);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn nor_does_one_that_goes_away() {
    let mut rig = leaving(Rig::on_demand());
    let mut orders = ordered(&mut rig);
    let (to, _) = orders.remove(0);
    rig.disconnect(to);
    rig.connect(to);
    rig.wait(3000);
    assert_eq!(checkpoints(&ordered(&mut rig)), [] as [CheckpointNumber; 0]);
    do_all(&mut rig, orders);
    rig.wait(1000);
    // It is back, and is asked once more.
    let again = ordered(&mut rig);
    assert_eq!(checkpoints(&again), [1]);
    assert_eq!(again[0].0, to);
    do_all(&mut rig, again);
    rig.wait(1000);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn where_it_fails_the_job_is_moved_all_the_same() {
    let mut rig = leaving(Rig::on_demand());
    for (node, order) in ordered(&mut rig) {
        let ToAgent::Copy { job, instance, checkpoint, digest, .. } = order else { continue };
        // Nobody has it.
        let holders = Vec::new();
        rig.does(node, ToAgent::Copy { job, instance, checkpoint, holders, digest });
    }
    rig.wait(1000);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn before_there_are_two_checkpoints_nothing_goes_ahead() {
    let mut rig = Rig::with_job(3, Rig::on_demand());
    rig.checkpoint();
    rig.sent.clear();
    rig.deaf_to = |_, message| matches!(message, ToAgent::Copy { .. });
    rig.order(Ask::Leave { node: Some(name(3)) });
    rig.wait(1000);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn the_same_chain_goes_on_however_many_are_committed_meanwhile() {
    let mut rig = leaving(Rig::on_demand());
    let first = ordered(&mut rig);
    rig.checkpoint();
    rig.checkpoint();
    do_all(&mut rig, first);
    rig.wait(1000);
    // Checkpoint 2 is collected by now.
    let second = ordered(&mut rig);
    assert_eq!(checkpoints(&second), [3, 3]);
    do_all(&mut rig, second);
    rig.wait(1000);
    assert_eq!(committed(&rig), [1, 2, 3, 4, 5]);
    assert_eq!(rig.rollbacks(), went_for_node3());
}

#[test]
fn a_job_that_ends_meanwhile_wants_nothing_more() {
    let mut rig = leaving(Rig::on_demand());
    rig.root_ends(0);
    rig.wait(700_000);
    assert!(rig.end().is_some() && rig.rollbacks().is_empty());
    let deadline = rig.machine.deadline();
    assert!(deadline.is_some_and(|at| at > rig.nanos), "{deadline:?} at {}", rig.nanos);
}
