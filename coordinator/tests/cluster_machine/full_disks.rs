//! Members whose disks are full: a partner alone has the images of what runs there.

use crate::rig::{Rig, name};
use coordinator::Entry;
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::Cause;
use protocol::cluster::NodeName;
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::room::Room;

const FULL: Option<Room> = Some(Room { free: 1 << 20, size: 1 << 40 });
const FREE: Option<Room> = Some(Room { free: 1 << 39, size: 1 << 40 });
/// Less than a job needs to be moved there.
const LITTLE: Option<Room> = Some(Room { free: 300 << 20, size: 1 << 30 });

/// A job on as many nodes, each image in two places; the disk of node2 is full.
fn rig(count: usize, others: Option<Room>) -> Rig {
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let mut rig = Rig::with_job(count, settings);
    (1..=count).for_each(|node| rig.node(node).room = if node == 2 { FULL } else { others });
    rig.wait(1000);
    rig
}

/// Who holds the image of what ran on that node, by the last commit.
fn holders(rig: &Rig, node: usize) -> Vec<NodeName> {
    let last = rig.log.iter().rev().find_map(|entry| match entry {
        ClusterEntry::Committed { images, .. } => Some(images),
        _ => None,
    });
    let image = last.unwrap().values().find(|image| image.node == name(node));
    image.unwrap().holders.to_vec()
}

fn placed_on(rig: &Rig, node: usize) -> bool {
    let last = rig.log.iter().rev().find_map(|entry| match entry {
        ClusterEntry::Instances { instances, .. } => Some(instances),
        _ => None,
    });
    last.unwrap().values().any(|record| record.node == name(node))
}

#[test]
fn a_partner_alone_holds_what_a_full_disk_does_not_take_and_a_loss_leads_elsewhere() {
    let mut rig = rig(4, FREE);
    rig.checkpoint();
    rig.wait(1000);
    assert_eq!(holders(&rig, 2), [name(3)]);
    assert_eq!(holders(&rig, 1).len(), 2);
    rig.reboot(4);
    rig.wait(3000);
    assert_eq!(rig.rollbacks().len(), 1);
    assert!(!placed_on(&rig, 2), "its image can't come there");
}

#[test]
fn what_runs_where_the_disk_stays_full_moves_to_members_with_room() {
    let mut rig = rig(3, FREE);
    rig.checkpoint();
    rig.wait(50_000);
    assert_eq!(rig.rollbacks(), []);
    rig.wait(15_000);
    assert_eq!(rig.rollbacks(), [Cause::Full { node: name(2), with: Vec::new() }]);
    assert!(!placed_on(&rig, 2));
    assert_eq!(rig.end(), None);
    // Nothing moves for it any more, nor back.
    rig.wait(400_000);
    assert_eq!(rig.rollbacks().len(), 1);
}

#[test]
fn without_room_elsewhere_or_an_image_that_is_elsewhere_it_stays() {
    let mut little = rig(3, LITTLE);
    little.checkpoint();
    let mut untaken = rig(3, FREE);
    for rig in [&mut little, &mut untaken] {
        rig.wait(70_000);
        assert_eq!(rig.rollbacks(), []);
    }
    // With room it moves.
    little.node(1).room = FREE;
    little.node(3).room = FREE;
    little.wait(2000);
    assert_eq!(little.rollbacks().len(), 1);
    // Before a disk has been full for long, it need not.
    untaken.node(2).room = FREE;
    untaken.checkpoint();
    untaken.wait(2000);
    assert_eq!(holders(&untaken, 2).len(), 2);
    assert_eq!(untaken.rollbacks(), []);
}

#[test]
fn a_checkpoint_of_which_the_only_holder_of_an_image_is_gone_is_given_up() {
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let mut rig = Rig::alone(4, settings);
    rig.call(2, 2);
    rig.node(2).room = FULL;
    rig.node(1).writes_slowly = true;
    rig.wait(1000);
    rig.checkpoint();
    let given_up = |rig: &Rig| {
        rig.log.iter().find_map(|entry| match entry {
            ClusterEntry::Job { entry: Entry::Abandoned { reason, .. }, .. } => {
                Some(reason.clone())
            }
            _ => None,
        })
    };
    rig.wait(1000);
    assert_eq!(given_up(&rig), None);
    // One that holds a second copy of what node1 writes, at most.
    rig.disconnect(4);
    rig.wait(5000);
    assert_eq!(given_up(&rig), None);
    rig.disconnect(3);
    rig.wait(5000);
    assert_eq!(given_up(&rig).unwrap(), "node3 alone had an image, and is gone");
    assert_eq!((rig.end(), rig.rollbacks()), (None, Vec::new()));
}
