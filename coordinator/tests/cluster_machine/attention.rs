//! What status says that somebody should look after.

use crate::rig::{Rig, name};
use coordinator::cluster::{ClusterEvent, PageCertificate};
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::room::Room;

const FULL: Option<Room> = Some(Room { free: 1 << 20, size: 1 << 40 });
const FREE: Option<Room> = Some(Room { free: 1 << 39, size: 1 << 40 });

/// Its lines, as status gives them with a job.
fn lines(rig: &mut Rig) -> Vec<String> {
    rig.answers.clear();
    rig.ask(Ask::Status { job: None });
    let Some(Answer::Listing { value }) = rig.answers.pop() else { panic!("no listing") };
    let all = value[0]["attention"].as_array().unwrap().iter();
    all.map(|one| one["text"].as_str().unwrap().to_owned()).collect()
}

/// A heartbeat of each of two nodes, a second later.
fn beat(rig: &mut Rig, sequence: u64, off_ms: [i64; 2]) {
    rig.skip(1000);
    rig.beats(1, sequence, off_ms[0], None);
    rig.beats(2, sequence, off_ms[1], None);
}

#[test]
fn copies_go_elsewhere_when_a_disk_is_full() {
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let mut rig = Rig::alone(3, settings);
    assert_eq!(lines(&mut rig), [""; 0]);
    let partners = |rig: &Rig| {
        let last = rig.sent.iter().rev().find_map(|(node, message)| match message {
            ToAgent::Partners { nodes, .. } if *node == 1 => Some(nodes.clone()),
            _ => None,
        });
        last.unwrap_or_default()
    };
    rig.beats(2, 1000, 0, FULL);
    assert_eq!(partners(&rig), [name(3)]);
    let told = lines(&mut rig);
    assert!(
        told.len() == 1 && told[0].contains("the disk of node2 is full, 1.0 MiB are free"),
        "{told:?}"
    );
    // Where there is no other, it is tried all the same.
    rig.beats(3, 1000, 0, FULL);
    assert_eq!(partners(&rig).len(), 1);
    assert_eq!(lines(&mut rig).len(), 2);
    rig.beats(2, 1001, 0, FREE);
    rig.beats(3, 1001, 0, FULL);
    assert_eq!(partners(&rig), [name(2)]);
    assert_eq!(lines(&mut rig).len(), 1);
}

#[test]
fn clocks_that_are_wrong_are_named() {
    let mut rig = Rig::alone(2, Rig::on_demand());
    (1000..1003).for_each(|sequence| beat(&mut rig, sequence, [0, 0]));
    assert_eq!(lines(&mut rig), [""; 0]);
    beat(&mut rig, 1003, [0, 60_000]);
    let told = lines(&mut rig);
    let is_told = |text: &str| told.len() == 1 && told[0].contains(text);
    assert!(is_told("the clock of node2 is 60 s ahead of the coordinator's"), "{told:?}");
    (1004..1006).for_each(|sequence| beat(&mut rig, sequence, [0, 0]));
    let told = lines(&mut rig);
    assert!(told.len() == 1 && told[0].contains("the clock of node2 jumped back by 5"), "{told:?}");
    (1006..1008).for_each(|sequence| beat(&mut rig, sequence, [-90_000, -90_000]));
    let told = lines(&mut rig);
    let all = "the clock of the coordinator's machine is 8";
    assert!(told.len() == 1 && told[0].contains(all), "{told:?}");
}

#[test]
fn a_disk_of_the_coordinators_that_fills_up_is_named() {
    let mut rig = Rig::alone(1, Rig::on_demand());
    rig.comes(ClusterEvent::OwnRoom { room: Room { free: 1 << 30, size: 1 << 40 } });
    let told = lines(&mut rig);
    assert!(
        told[0].contains("the coordinator's disk is nearly full, 1.0 GiB are free"),
        "{told:?}"
    );
    rig.comes(ClusterEvent::OwnRoom { room: FREE.unwrap() });
    assert_eq!(lines(&mut rig), [""; 0]);
}

#[test]
fn a_certificate_of_the_page_that_ends_is_named_until_there_is_another() {
    let mut rig = Rig::alone(1, Rig::on_demand());
    let days = |count: u64| count * 24 * 3600 * 1000;
    let now_ms = rig.now().unix_ms;
    let ends = |ends_ms| Some(PageCertificate { ends_ms, is_own: false });
    rig.comes(ClusterEvent::Page { certificate: ends(now_ms + days(31)) });
    assert_eq!(lines(&mut rig), [""; 0]);
    rig.skip(days(2));
    let told = lines(&mut rig);
    let text = "the certificate of the coordinator's page ends in 29 days";
    assert!(told.len() == 1 && told[0].contains(text), "{told:?}");
    rig.comes(ClusterEvent::Page { certificate: ends(now_ms + days(400)) });
    assert_eq!(lines(&mut rig), [""; 0]);
    rig.comes(ClusterEvent::Page { certificate: ends(now_ms) });
    assert!(lines(&mut rig)[0].contains("has ended"));
    rig.comes(ClusterEvent::Page { certificate: None });
    assert_eq!(lines(&mut rig), [""; 0]);
}
