use super::*;
use protocol::cluster::replica::{Prefix, SmallFile, TAIL};
use std::fs;
use std::path::PathBuf;

/// The folder of a coordinator, the copies of agents in memory, and what is on its way to them.
struct World {
    dir: tempfile::TempDir,
    extent: Extent,
    replication: Replication,
    sent: Vec<(NodeName, ReplicaOrder, Vec<u8>)>,
    /// Who may have the cluster's key.
    keyed: BTreeSet<NodeName>,
}

/// What an agent makes of its orders.
#[derive(Debug, Default, Clone, PartialEq)]
struct Agent {
    log: Vec<u8>,
    anew: Option<(Vec<u8>, u64)>,
    jobs: BTreeMap<String, Vec<u8>>,
    small: BTreeMap<SmallFile, Vec<u8>>,
    whole: bool,
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

impl Agent {
    fn held(&self) -> ReplicaReport {
        let prefix = |bytes: &Vec<u8>| {
            let tail = bytes.len().saturating_sub(TAIL as usize);
            Prefix::of(bytes.len() as u64, &bytes[tail..])
        };
        let jobs = self.jobs.iter().map(|(job, log)| (job.clone(), prefix(log))).collect();
        ReplicaReport::Held { log: prefix(&self.log), jobs }
    }

    fn obey(&mut self, order: ReplicaOrder, body: &[u8]) -> Option<ReplicaReport> {
        let number = match order {
            ReplicaOrder::Hold => {
                self.anew = None;
                return Some(self.held());
            }
            ReplicaOrder::File { number, file } => {
                self.small.insert(file, body.to_vec());
                number
            }
            ReplicaOrder::Withdraw { number, file } => {
                self.small.remove(&file);
                number
            }
            ReplicaOrder::Anew { number, length } => {
                self.anew = Some((Vec::new(), length));
                number
            }
            ReplicaOrder::Log { number, offset } => {
                if let Some((bytes, length)) = &mut self.anew {
                    assert_eq!(bytes.len() as u64, offset);
                    bytes.extend(body);
                    if bytes.len() as u64 >= *length {
                        self.log = self.anew.take().unwrap().0;
                    }
                } else {
                    assert_eq!(self.log.len() as u64, offset);
                    self.log.extend(body);
                }
                number
            }
            ReplicaOrder::JobLog { number, job, offset, .. } => {
                let log = self.jobs.entry(job).or_default();
                assert!(log.len() as u64 >= offset);
                log.truncate(offset as usize);
                log.extend(body);
                number
            }
            ReplicaOrder::ForgetJob { number, job } => {
                self.jobs.remove(&job);
                number
            }
            ReplicaOrder::Whole { number, .. } => {
                self.whole = true;
                number
            }
            ReplicaOrder::Drop => return None,
        };
        Some(ReplicaReport::Durable { number })
    }
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for file in SmallFile::ALL {
            fs::write(dir.path().join(file.name()), file.name()).unwrap();
        }
        let note = ReplicaNote { term: 1, addresses: Vec::new(), grace_s: 3.0 };
        let replication = Replication::new(Source::new(dir.path()), note);
        let keyed = ["a", "b", "c"].map(node).into_iter().collect();
        Self { dir, extent: Extent::default(), replication, sent: Vec::new(), keyed }
    }

    fn append(&mut self, path: PathBuf, bytes: &[u8]) -> u64 {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut whole = fs::read(&path).unwrap_or_default();
        whole.extend(bytes);
        fs::write(&path, &whole).unwrap();
        whole.len() as u64
    }

    fn log(&mut self, bytes: &[u8]) {
        self.extent.log = self.append("cluster.log".into(), bytes);
    }

    fn output(&mut self, job: &str, bytes: &[u8]) {
        let length = self.append(PathBuf::from("jobs").join(job).join("log"), bytes);
        self.extent.jobs.insert(job.to_owned(), length);
    }

    fn with(&mut self, act: impl FnOnce(&mut Replication, &Extent, &mut Send<'_>)) {
        let sent = &mut self.sent;
        act(&mut self.replication, &self.extent, &mut |node, order, body| {
            sent.push((node.clone(), order, body.to_vec()));
        });
    }

    fn want(&mut self, connections: &[(&str, u64)]) {
        let wanted: BTreeMap<NodeName, u64> =
            connections.iter().map(|(name, number)| (node(name), *number)).collect();
        let there = wanted.clone();
        self.with(|replication, _, send| {
            let is_there = |node: &NodeName, number| there.get(node) == Some(&number);
            replication.want(&wanted, &BTreeSet::new(), is_there, send);
        });
    }

    /// Everything arrives, and is answered, until nothing is on its way.
    fn deliver_all(&mut self, agents: &mut BTreeMap<NodeName, Agent>) {
        loop {
            let keyed = self.keyed.clone();
            let may = move |node: &NodeName| keyed.contains(node);
            self.with(|replication, extent, send| replication.pump(extent, &may, send));
            if self.sent.is_empty() {
                return;
            }
            for (node, order, body) in std::mem::take(&mut self.sent) {
                let Some(agent) = agents.get_mut(&node) else { continue };
                if let Some(report) = agent.obey(order, &body) {
                    self.with(|replication, _, send| replication.reported(&node, report, send));
                }
            }
        }
    }

    fn need(&self) -> Need {
        let Extent { log, register, jobs } = self.extent.clone();
        Need { log, register, jobs }
    }

    fn judge(&self, agent: &Agent) {
        assert!(agent.whole);
        assert_eq!(agent.log, fs::read(self.dir.path().join("cluster.log")).unwrap());
        for job in self.extent.jobs.keys() {
            let path = self.dir.path().join("jobs").join(job).join("log");
            assert_eq!(agent.jobs[job], fs::read(path).unwrap());
        }
        assert_eq!(agent.small.len(), SmallFile::ALL.len());
    }
}

#[test]
fn a_copy_becomes_whole_and_follows() {
    let mut world = World::new();
    let mut agents = BTreeMap::from([(node("a"), Agent::default())]);
    // More than what may be on its way at one time.
    world.log(&vec![b'x'; 9 * 1024 * 1024]);
    world.output("j", &vec![b'o'; 300 * 1024]);
    assert!(world.replication.has(&world.need()), "nobody is there to wait for");
    world.want(&[("a", 1)]);
    assert!(!world.replication.has(&world.need()));
    world.deliver_all(&mut agents);
    assert!(world.replication.has(&world.need()));
    world.judge(&agents[&node("a")]);
    world.log(b"more");
    assert!(!world.replication.has(&world.need()));
    world.deliver_all(&mut agents);
    assert!(world.replication.has(&world.need()));
    world.extent.register = 1;
    assert!(!world.replication.has(&world.need()));
    world.deliver_all(&mut agents);
    assert!(world.replication.has(&world.need()));
    world.judge(&agents[&node("a")]);
}

#[test]
fn what_is_cut_off_counts_no_more_even_if_it_was_on_its_way() {
    let mut world = World::new();
    let mut agents = BTreeMap::from([(node("a"), Agent::default())]);
    world.log(b"log");
    world.output("j", b"0123456789");
    world.want(&[("a", 1)]);
    world.deliver_all(&mut agents);
    world.output("j", b"abcdef");
    world.with(|replication, extent, send| replication.pump(extent, &|_| true, send));
    // Cut while the last piece is on its way.
    fs::write(world.dir.path().join("jobs/j/log"), b"0123").unwrap();
    world.extent.jobs.insert("j".to_owned(), 4);
    world.with(|replication, _, send| replication.cut("j", 4, send));
    world.output("j", b"NEW");
    assert!(!world.replication.has(&world.need()));
    world.deliver_all(&mut agents);
    assert!(world.replication.has(&world.need()));
    world.judge(&agents[&node("a")]);
    world.with(|replication, _, send| replication.forget("j", send));
    world.extent.jobs.clear();
    world.deliver_all(&mut agents);
    assert!(agents[&node("a")].jobs.is_empty());
}

#[test]
fn one_that_comes_back_is_sent_what_it_lacks_or_everything_if_it_has_something_else() {
    let mut world = World::new();
    let mut agents = BTreeMap::from([(node("a"), Agent::default())]);
    world.log(b"one two ");
    world.output("j", b"out");
    world.want(&[("a", 1)]);
    world.deliver_all(&mut agents);
    world.log(b"three");
    world.output("j", b"put");
    world.want(&[("a", 2)]);
    world.deliver_all(&mut agents);
    world.judge(&agents[&node("a")]);
    // Written by a coordinator that is no more.
    let agent = agents.get_mut(&node("a")).unwrap();
    agent.log = b"one two other".to_vec();
    agent.jobs.insert("j".to_owned(), b"output of another epoch".to_vec());
    agent.jobs.insert("gone".to_owned(), b"x".to_vec());
    world.want(&[("a", 3)]);
    world.deliver_all(&mut agents);
    world.judge(&agents[&node("a")]);
    assert_eq!(agents[&node("a")].jobs.len(), 1);
}

#[test]
fn nobody_waits_for_ever_for_one_that_is_slow_or_can_not() {
    let mut world = World::new();
    let mut agents = BTreeMap::from([(node("a"), Agent::default()), (node("b"), Agent::default())]);
    world.log(b"log");
    world.want(&[("a", 1), ("b", 1)]);
    world.deliver_all(&mut agents);
    world.log(b"more");
    let need = world.need();
    assert_eq!(world.replication.give_up(&need), [node("a"), node("b")]);
    assert!(world.replication.has(&need), "both are given up");
    // Heard again: it counts again.
    world.deliver_all(&mut agents);
    world.log(b"and more");
    assert!(!world.replication.has(&world.need()));
    for name in ["a", "b"] {
        let report = ReplicaReport::Failed { reason: "write: no room".to_owned() };
        world.with(|replication, _, send| replication.reported(&node(name), report, send));
    }
    assert!(world.replication.has(&world.need()));
    world.replication.gone(&node("a"));
    world.want(&[("a", 2), ("b", 1)]);
    assert!(!world.replication.has(&world.need()));
    world.deliver_all(&mut agents);
    world.judge(&agents[&node("a")]);
}

#[test]
fn the_key_goes_to_those_alone_who_may_have_it_and_is_taken_back() {
    let mut world = World::new();
    let mut agents = BTreeMap::from([(node("a"), Agent::default()), (node("b"), Agent::default())]);
    world.keyed = BTreeSet::from([node("a")]);
    world.log(b"log");
    world.want(&[("a", 1), ("b", 1)]);
    world.deliver_all(&mut agents);
    let has_key = |agents: &BTreeMap<NodeName, Agent>, name: &str| {
        agents[&node(name)].small.contains_key(&SmallFile::AuthorityKey)
    };
    assert!(has_key(&agents, "a") && !has_key(&agents, "b"));
    // Without it a copy is none the less one of the log.
    assert!(world.replication.all_have(&world.need()));
    world.keyed = BTreeSet::from([node("b")]);
    world.deliver_all(&mut agents);
    assert!(!has_key(&agents, "a") && has_key(&agents, "b"));
}
