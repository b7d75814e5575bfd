use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use protocol::cluster::replica::{Prefix, ReplicaNote, ReplicaOrder, ReplicaReport, SmallFile};
use protocol::log_times::{Origin, Piece};

use super::*;

struct Rig {
    dir: tempfile::TempDir,
    replica: Replica,
    reports: std::sync::mpsc::Receiver<ReplicaReport>,
    number: u64,
}

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let (sender, reports) = channel();
    let folder = dir.path().join("replica");
    let replica = Replica::start(&folder, move |report| drop(sender.send(report))).unwrap();
    Rig { dir, replica, reports, number: 0 }
}

impl Rig {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn report(&self) -> ReplicaReport {
        self.reports.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// Waits until all orders so far are durable.
    fn durable(&self) {
        loop {
            match self.report() {
                ReplicaReport::Durable { number } if number == self.number => return,
                ReplicaReport::Durable { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn hold(&self) -> (Prefix, BTreeMap<String, Prefix>) {
        self.replica.order(ReplicaOrder::Hold, Vec::new());
        match self.report() {
            ReplicaReport::Held { log, jobs } => (log, jobs),
            other => panic!("{other:?}"),
        }
    }

    fn log(&mut self, offset: u64, body: &[u8]) {
        let number = self.next();
        self.replica.order(ReplicaOrder::Log { number, offset }, body.to_vec());
    }

    fn output(&mut self, offset: u64, body: &[u8]) {
        let (number, job) = (self.next(), "j-1".to_owned());
        let (end, at_ms) = (offset + body.len() as u64, 1000 * offset);
        let piece = Piece { start: offset, end, at_ms, span_ms: 0, origin: Origin::Output };
        let order = ReplicaOrder::JobLog { number, job, offset, times: vec![piece] };
        self.replica.order(order, body.to_vec());
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join("replica").join(name)).unwrap()
    }
}

#[test]
fn a_copy_is_whole_when_it_is_said_to_be_and_open_to_nobody_else() {
    let mut rig = rig();
    assert_eq!(rig.hold(), (Prefix::of(0, &[]), BTreeMap::new()));
    let number = rig.next();
    let order = ReplicaOrder::File { number, file: SmallFile::AuthorityKey };
    rig.replica.order(order, b"key".to_vec());
    let number = rig.next();
    rig.replica.order(ReplicaOrder::Anew { number, length: 4 }, Vec::new());
    rig.log(0, b"on");
    rig.log(2, b"e ");
    rig.log(4, b"two");
    rig.output(0, b"hello");
    rig.durable();
    assert!(rig.replica.copy().is_none());
    let number = rig.next();
    let note = ReplicaNote { term: 2, addresses: vec!["10.0.0.1:7070".into()], grace_s: 3.0 };
    rig.replica.order(ReplicaOrder::Whole { number, note: note.clone() }, Vec::new());
    rig.durable();
    let copy = rig.replica.copy().unwrap();
    assert_eq!((copy.note, copy.length), (note, 7));
    assert_eq!(
        (rig.read("cluster.log"), rig.read("jobs/j-1/log")),
        (b"one two".into(), b"hello".into())
    );
    let mode = |name: &str| {
        let found = fs::metadata(rig.dir.path().join("replica").join(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("."), mode("authority-key.pem"), mode("cluster.log")), (0o700, 0o600, 0o600));
    rig.output(2, b"");
    rig.durable();
    assert_eq!(rig.read("jobs/j-1/log"), b"he");
    let jobs = BTreeMap::from([("j-1".to_owned(), Prefix::of(2, b"he"))]);
    assert_eq!(rig.hold(), (Prefix::of(7, b"one two"), jobs));
    rig.replica.order(ReplicaOrder::Drop, Vec::new());
    rig.replica.wait_until_done();
    assert!(!rig.dir.path().join("replica").exists());
    rig.hold();
    assert!(rig.replica.copy().is_none());
}

#[test]
fn a_log_that_is_not_whole_takes_no_other_ones_place() {
    let mut rig = rig();
    rig.hold();
    rig.log(0, b"old");
    let number = rig.next();
    rig.replica.order(ReplicaOrder::Anew { number, length: 10 }, Vec::new());
    rig.log(0, b"new");
    rig.durable();
    assert_eq!(rig.read("cluster.log"), b"old");
    assert_eq!(rig.hold().0, Prefix::of(3, b"old"));
}

#[test]
fn an_order_out_of_step_is_told_and_ends_it_until_it_is_asked_again() {
    let mut rig = rig();
    rig.hold();
    rig.log(5, b"x");
    let ReplicaReport::Failed { reason } = rig.report() else { panic!("it was taken") };
    assert!(reason.contains("has 0 bytes"), "{reason}");
    rig.log(0, b"x");
    assert_eq!(rig.hold().0, Prefix::of(0, &[]));
    rig.log(0, b"x");
    rig.durable();
    let number = rig.next();
    let order =
        ReplicaOrder::JobLog { number, job: "../j".to_owned(), offset: 0, times: Vec::new() };
    rig.replica.order(order, Vec::new());
    assert!(matches!(rig.report(), ReplicaReport::Failed { .. }));
}
