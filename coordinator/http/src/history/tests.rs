use super::*;
use coordinator::cluster::entry::{ImageRecord, InstanceRecord, JobCreated, Move, Origin};
use protocol::agent::{ImageSummary, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::RunRequest;
use protocol::cluster::image::{ImageFacts, ProcessFacts};
use protocol::cluster::settings::JobSettings;
use protocol::launch::LaunchSpec;

const JOB: &str = "fold-1";

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn created() -> ClusterEntry {
    ClusterEntry::JobCreated(Box::new(JobCreated {
        job: JOB.into(),
        name: "fold".into(),
        user: JobUser { uid: 1, name: "alice".into() },
        client_node: None,
        request: RunRequest {
            name: None,
            launch: LaunchSpec::through_pipes(vec!["fold".into()], "/".into()),
            settings: JobSettings::default(),
            detach: true,
            anywhere: false,
        },
        at_ms: 100,
    }))
}

/// Of process 7 on each of the machines, whose logical nodes have their names.
fn committed(checkpoint: u64, at: u64, places: &[(u32, &str, &str)]) -> ClusterEntry {
    let image = |(number, home, machine): &(u32, &str, &str)| {
        let process =
            ProcessFacts { pid: 7, parent: 1, name: "rank".into(), threads: 1, bytes: 4096 };
        let facts = ImageFacts {
            root: None,
            processes: vec![process],
            units: Vec::new(),
            requirements: Default::default(),
            at_stake: Vec::new(),
            digest: String::new(),
            efforts: None,
        };
        let (node, logical_node) = (node(machine), node(home));
        let image =
            ImageRecord { node, logical_node, holders: Vec::new(), speed_permille: 1000, facts };
        (InstanceId(*number), image)
    };
    ClusterEntry::Committed {
        job: JOB.into(),
        record: CommitRecord {
            format: 1,
            job: JOB.into(),
            checkpoint,
            restored_from: None,
            taken_at_ms: at,
            committed_at_ms: at + 10,
            pause_us: 2100,
            log_length: 0,
            copies: 2,
            degraded: false,
            suspended: false,
            summary: ImageSummary { processes: 2, bytes: 8192, ..ImageSummary::default() },
            agents: Vec::new().into(),
        },
        images: places.iter().map(image).collect(),
        parked: None,
    }
}

fn begun(epoch: u64, checkpoint: Option<u64>, cause: Cause, at_ms: u64) -> ClusterEntry {
    ClusterEntry::EpochBegun { job: JOB.into(), epoch, checkpoint, rollbacks: 0, cause, at_ms }
}

/// One instance for each image, on that machine.
fn instances(places: &[(u32, &str, &str)]) -> ClusterEntry {
    let record = |(number, home, machine): &(u32, &str, &str)| {
        let assignment = [(7, 0)].into_iter().collect();
        let origin = Origin::Image { instance: InstanceId(*number), assignment, part: 0 };
        let (node, logical_node) = (node(machine), node(home));
        let record =
            InstanceRecord { node, logical_node, root: false, origin, addresses: Vec::new() };
        (InstanceId(number + 10), record)
    };
    ClusterEntry::Instances { job: JOB.into(), instances: places.iter().map(record).collect() }
}

fn running(epoch: u64, rollback: Option<RollbackRecord>) -> ClusterEntry {
    let (job, rollback, links) = (JOB.into(), rollback.map(Box::new), Default::default());
    ClusterEntry::Running { job, epoch, rollback, links }
}

fn lost() -> RollbackRecord {
    let (process, pid, from, to) = ("rank".into(), 7, node("b"), node("a"));
    RollbackRecord {
        reason: "lost".into(),
        node: Some(node("b")),
        checkpoint: Some(1),
        lost_at_ms: 400,
        running_ms: Some(500),
        moves: vec![Move { process, pid, from, to }],
        ..RollbackRecord::default()
    }
}

/// Logical node, places, end.
type Way = (String, Vec<(u64, String)>, Option<u64>);

fn places(history: &History) -> Vec<Way> {
    let paths = history.job(JOB).unwrap().paths.shown();
    paths.map(|path| (path.home.clone(), path.places.clone(), path.end)).collect()
}

/// A job on two machines, one of which is lost.
fn story() -> (History, Vec<Fact>) {
    let mut history = History::default();
    let entries = [
        created(),
        begun(1, None, Cause::Run, 110),
        running(1, None),
        committed(1, 200, &[(1, "a", "a"), (2, "b", "b")]),
        committed(2, 300, &[(1, "a", "a"), (2, "b", "b")]),
        ClusterEntry::NodeGone { node: node("b"), at_ms: 450 },
        begun(2, Some(1), Cause::Lost { node: node("b") }, 450),
        instances(&[(1, "a", "a"), (2, "b", "a")]),
        running(2, Some(lost())),
    ];
    let facts = entries.iter().flat_map(|entry| history.apply(entry)).collect();
    (history, facts)
}

#[test]
fn an_announced_departure_is_no_loss() {
    let mut history = History::default();
    let gone = ClusterEntry::NodeGone { node: node("b"), at_ms: 7 };
    for (leaves, is_lost) in [(true, false), (false, true)] {
        history.apply(&ClusterEntry::NodeLeaves { node: node("b"), leaves });
        assert_eq!(history.apply(&gone).len(), usize::from(is_lost));
    }
    assert_eq!(history.apply(&gone).len(), 1);
}

#[test]
fn processes_are_followed_from_machine_to_machine() {
    let (mut history, facts) = story();
    let at = |ms, node: &str| (ms, node.to_owned());
    let expected = vec![
        ("a".to_owned(), vec![at(100, "a")], None),
        ("b".to_owned(), vec![at(100, "b"), at(500, "a")], None),
    ];
    assert_eq!(places(&history), expected);
    assert_eq!(history.gone("b").collect::<Vec<_>>(), [450]);
    let [Fact::Committed(_), Fact::Committed(_), Fact::Lost, Fact::Rollback(record)] = &facts[..]
    else {
        panic!("{facts:?}")
    };
    assert_eq!(*record, lost());
    // One is gone when the next checkpoint is taken; all are when the job is over.
    history.apply(&committed(3, 600, &[(12, "b", "a")]));
    assert_eq!(places(&history)[0].2, Some(600));
    let (job, at_ms) = (JOB.to_owned(), 700);
    history.apply(&ClusterEntry::JobOver {
        job,
        epoch: 2,
        status: None,
        reason: None,
        length: None,
        at_ms,
    });
    assert_eq!(places(&history)[1].2, Some(700));
    assert_eq!(history.job(JOB).unwrap().over, Some(700));
    history.apply(&ClusterEntry::JobRemoved { job: JOB.into() });
    assert_eq!(history.jobs().count(), 0);
}

#[test]
fn a_job_that_begins_anew_has_new_processes() {
    let (mut history, _) = story();
    history.apply(&begun(3, None, Cause::Lost { node: node("a") }, 900));
    assert!(places(&history).iter().all(|(.., end)| *end == Some(900)));
    history.apply(&committed(3, 1000, &[(1, "c", "c")]));
    let last = places(&history).pop().unwrap();
    assert_eq!(last, ("c".to_owned(), vec![(900, "c".to_owned())], None));
}

#[test]
fn nothing_grows_without_limit() {
    let (mut history, _) = story();
    for number in 3..1000 {
        let to = if number % 2 == 0 { "a" } else { "b" };
        history.apply(&committed(number, number * 1000, &[(1, "a", to), (2, "b", "b")]));
        history.apply(&running(number, Some(lost())));
    }
    let job = history.job(JOB).unwrap();
    assert!(job.checkpoints.len() < 300 && job.stops.len() < 100);
    assert!(job.paths.shown().all(|path| path.places.len() < 100));
    let text = serde_json::to_string(&job.paths.shown().collect::<Vec<_>>()).unwrap();
    assert!(text.len() < 10_000, "{}", text.len());
    for number in 0..100 {
        let mut other = created();
        if let ClusterEntry::JobCreated(created) = &mut other {
            created.job = format!("fold-{number}x");
        }
        history.apply(&other);
        let (job, at_ms) = (format!("fold-{number}x"), number);
        let (epoch, status, reason, length) = (1, None, None, None);
        history.apply(&ClusterEntry::JobOver { job, epoch, status, reason, length, at_ms });
    }
    assert!(history.jobs().count() < 50);
}
