//! Whatever comes: a decoder gives a value or an error. Some thousand mutations of a valid form of each
//! message, from seeds. `CKPTD_SEEDS=N` tries more.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use protocol::agent::{
    AgentCommand, AgentEvent, AgentId, CommitRecord, ExitKind, ImageSummary, Step,
};
use protocol::cluster::agent::{
    FromAgent, HeldInstance, Holding, InstanceSettings, JobUser, LaunchOrder, NodeProfile,
    OuterSocket, Peer, PrepareOrder, RelayLink, RelaySide, Rewire, ShellCall, Stream, ToAgent,
    Vitals,
};
use protocol::cluster::client::{Answer, Ask, RestartRequest, RunRequest};
use protocol::cluster::image::{ImageFacts, ProcessFacts, Requirements, Unit};
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::settings::JobSettings;
use protocol::cluster::succession::Followed;
use protocol::cluster::tree::{
    Operation, TreeAnswer, TreeCall, TreeCause, TreeFailure, TreeMark, TreeMessage, TreeOrder,
    TreePlace, TreeStep, TreeSum,
};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::{External, LaunchSpec, StreamKind};
use protocol::transport::{Authority, Greeting, Reply, Role, Sealer, Secret, Token, Trust};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Mutations of each message.
const USUAL: u64 = 1500;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }
}

/// What JSON is made of, and what it chokes on.
const WORDS: [&str; 20] = [
    "null",
    "true",
    "-1",
    "0",
    "4294967296",
    "18446744073709551615",
    "1e999",
    "[]",
    "{}",
    "\"\"",
    "\"..\"",
    "\"/\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[[[[[[[[",
    "{\"a\":",
    ",",
    "\u{fffd}",
    "[0,4294967295]",
    "99999999999999999999999999",
];

fn mutate(valid: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        let word = || WORDS[at % WORDS.len()].bytes();
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.below(256) as u8),
            3 => {
                let end = (at + random.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + random.below(60)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            5 => {
                // A value in the place of another one: from one delimiter to the next.
                let is_end = |byte: &u8| b",:[]{}".contains(byte);
                let from = bytes[..at].iter().rposition(is_end).map_or(0, |place| place + 1);
                let to = bytes[at..].iter().position(is_end).map_or(bytes.len(), |more| at + more);
                bytes.splice(from..to, word());
            }
            _ => {
                bytes.splice(at..at, word());
            }
        }
    }
    bytes
}

fn seeds() -> u64 {
    std::env::var("CKPTD_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL)
}

/// What is read can also be written, and read again.
fn attack<T: Serialize + DeserializeOwned + Debug>(messages: &[T]) {
    let mut understood = 0;
    for (number, message) in messages.iter().enumerate() {
        let valid = serde_json::to_vec(message).unwrap();
        assert!(serde_json::from_slice::<T>(&valid).is_ok(), "{message:?}");
        for seed in 0..seeds() {
            let bytes = mutate(&valid, &mut Random(seed ^ (number as u64) << 40));
            if let Ok(read) = serde_json::from_slice::<T>(&bytes) {
                understood += 1;
                let again = serde_json::to_vec(&read).unwrap();
                serde_json::from_slice::<T>(&again).unwrap();
            }
        }
    }
    // Mutations that are always refused would try nothing but the JSON reader.
    assert!(understood > 0);
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn key() -> InstanceKey {
    InstanceKey { job: "job-1".into(), epoch: 3, instance: AgentId(7) }
}

fn user() -> JobUser {
    JobUser { uid: 1000, name: "user".into() }
}

fn launch() -> LaunchSpec {
    LaunchSpec {
        program: vec!["mpirun".into(), "-n".into(), "4".into()],
        environment: vec![("PATH".into(), "/bin".into())],
        working_directory: "/home".into(),
        stdin: StreamKind::Terminal,
        stdout: StreamKind::Pipe,
        stderr: StreamKind::WithStdout,
        window: None,
        termios: Some(vec![0; 36]),
    }
}

fn record() -> CommitRecord {
    CommitRecord {
        format: CommitRecord::FORMAT,
        job: "job-1".into(),
        checkpoint: 4,
        restored_from: Some(2),
        taken_at_ms: 1,
        committed_at_ms: 2,
        pause_us: 3,
        log_length: 4,
        copies: 2,
        degraded: false,
        summary: ImageSummary::default(),
        agents: vec![AgentId(1), AgentId(2), AgentId(9)].into(),
    }
}

fn side() -> RelaySide {
    RelaySide { relay: "job-1/7@4#3-0".into(), side: 1 }
}

fn call() -> ShellCall {
    ShellCall { caller: key(), node: node("node1"), call: 5 }
}

fn profile() -> NodeProfile {
    NodeProfile {
        address: "10.0.0.1:7000".parse().unwrap(),
        wire: "[fd00::1]:7001".parse().unwrap(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        slots: 4,
        cores: 4,
        capacity: None,
        speed: Some(1.5),
        speed_all: None,
        speed_given: false,
        architecture: "x86_64".into(),
        page_size: 4096,
        vdso: "00".into(),
        features: vec!["avx2".into()],
        memory: 1 << 30,
        kernel: "6.12".into(),
        allow_root: false,
        started_ms: 7,
    }
}

fn facts() -> ImageFacts {
    let (pid, bytes) = (2, 1 << 20);
    let process = ProcessFacts { pid, parent: 1, name: "rank".into(), threads: 3, bytes };
    ImageFacts {
        root: Some(2),
        processes: vec![process],
        units: vec![Unit { pids: vec![2], bytes, load: 1, because: String::new() }],
        requirements: Requirements::default(),
        at_stake: vec!["a file".into()],
    }
}

#[test]
fn from_agents() {
    let held = HeldInstance {
        key: key(),
        adopted: true,
        held: false,
        ended: Some(ExitKind::Signalled(9)),
    };
    let held_images =
        Holding { job: "job-1".into(), instance: AgentId(7), checkpoints: vec![3, 4] };
    let failed = AgentEvent::Failed {
        checkpoint: 4,
        step: Step::Quiesce,
        reason: "a connection".into(),
        passing: true,
    };
    let socket = OuterSocket {
        file: 3,
        local: "10.0.0.1:5000".parse().unwrap(),
        peer: "10.0.0.2:5001".parse().unwrap(),
    };
    let lost = TreeFailure::new(node("node3"), TreeCause::Lost, "gone".into());
    attack(&[
        FromAgent::Hello {
            version: 1,
            term: 2,
            profile: profile(),
            instances: vec![held],
            holdings: vec![held_images],
        },
        FromAgent::Heartbeat { sequence: 9, vitals: Vitals::default() },
        FromAgent::Instance { key: key(), event: failed },
        FromAgent::Tree(TreeAnswer {
            operation: Operation { generation: 9, number: 4 },
            failures: vec![lost],
            sum: TreeSum::default(),
        }),
        FromAgent::Image {
            key: key(),
            checkpoint: 4,
            facts: facts(),
            holders: vec![node("node1"), node("node2")],
        },
        FromAgent::Prepared { key: key(), sockets: vec![socket] },
        FromAgent::Console { key: key(), offset: 77, stream: Stream::Output },
        FromAgent::Shell { call: call(), logical_node: node("node2"), launch: launch() },
        FromAgent::ClientLine { client: 3, line: "{\"ask\":\"jobs\"}".into() },
    ]);
}

#[test]
fn to_agents() {
    let settings = InstanceSettings { external: External::Warn, copies: 2, rewire_connect: true };
    let peer = Peer { name: node("node2"), address: "10.0.0.2:1".parse().unwrap() };
    let images = BTreeMap::from([(AgentId(7), vec![3, 4]), (AgentId(8), vec![3, 4])]);
    let link = RelayLink { side: side(), peer: key(), node: node("node2") };
    let rewire = Rewire {
        file: 3,
        secret: "00".repeat(32),
        connect_to: Some("10.0.0.2:7".parse().unwrap()),
    };
    attack(&[
        ToAgent::Welcome {
            coordinator: Followed { term: 2, claim: "c".into(), addresses: Vec::new() },
            heartbeat_ms: 1000,
            lease_ms: 8000,
            epochs: BTreeMap::from([("job-1".into(), 3)]),
        },
        ToAgent::Peers { peers: vec![peer.clone()].into() },
        ToAgent::PeersChanged { there: vec![peer], gone: vec![node("node3")] },
        ToAgent::Keep { job: "job-1".into(), images: images.into() },
        ToAgent::Instance {
            key: key(),
            command: AgentCommand::Commit { checkpoint: 4, record: record() },
        },
        ToAgent::Launch(Box::new(LaunchOrder {
            key: key(),
            logical_node: node("node1"),
            hosts: "127.0.0.1 localhost\n".into(),
            launch: launch(),
            is_root: true,
            user: user(),
            settings,
            partners: vec![node("node2")],
            shell: Some(call()),
            book: Default::default(),
        })),
        ToAgent::Prepare(Box::new(PrepareOrder {
            key: key(),
            image: AgentId(5),
            checkpoint: 4,
            holders: vec![node("node2")],
            assignment: BTreeMap::from([(2, 0), (3, 1)]),
            part: 1,
            logical_node: node("node1"),
            hosts: String::new(),
            is_root: false,
            user: user(),
            settings,
            partners: Vec::new(),
            force: false,
            window: None,
        })),
        ToAgent::Restore { key: key(), connections: vec![rewire], skipped: Vec::new() },
        ToAgent::Go { key: key(), links: vec![link], fallen: None },
    ]);
}

#[test]
fn between_agents() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = Authority::open(folder.path()).unwrap().issue(&Role::Coordinator).unwrap();
    let sealer = Sealer::new(&credentials).unwrap();
    let order = TreeOrder {
        operation: Operation { generation: 9, number: 4 },
        job: "job-1".into(),
        epoch: 3,
        checkpoint: 4,
        step: TreeStep::Freeze,
    };
    let call = TreeMessage::Call(TreeCall {
        seal: Some(sealer.seal(&order).unwrap()),
        order,
        places: vec![TreePlace { node: node("node1"), instances: vec![AgentId(7)] }],
        limit_ms: 7000,
        margin_ms: 700,
    });
    let mark = TreeMark { generation: 9, seal: None }.sealed(&sealer).unwrap();
    let mark = TreeMessage::Mark(mark);
    let trust = Trust::in_authority(credentials.authority().clone());
    // One that was changed in what its seal covers is refused.
    for valid in [&call, &mark] {
        valid.check(&trust).unwrap();
        let text = serde_json::to_vec(valid).unwrap();
        for seed in 0..seeds() {
            let bytes = mutate(&text, &mut Random(seed));
            let Ok(read) = serde_json::from_slice::<TreeMessage>(&bytes) else { continue };
            let same = match (&read, valid) {
                (TreeMessage::Call(read), TreeMessage::Call(valid)) => read.order == valid.order,
                (TreeMessage::Mark(read), TreeMessage::Mark(valid)) => {
                    read.generation == valid.generation || read.generation == 0
                }
                _ => true,
            };
            assert!(same || read.check(&trust).is_err(), "{read:?}");
        }
    }
    let file = ImageFile { path: "checkpoints/4/graph.json".into(), length: 100 };
    attack(&[
        PeerMessage::Hello { version: 1 },
        PeerMessage::Offer { transfer: 1, key: key(), checkpoint: 4, files: vec![file] },
        PeerMessage::Want { transfer: 1, paths: vec!["packs/0.tar".into()] },
        PeerMessage::Commit { key: key(), record: record() },
        PeerMessage::RelayPaused {
            to: key(),
            side: side(),
            checkpoint: 4,
            offset: 7,
            ended: false,
        },
        PeerMessage::Tree(Box::new(call)),
        PeerMessage::Tree(Box::new(mark)),
    ]);
}

#[test]
fn commands_and_answers() {
    attack(&[
        Ask::Run(Box::new(RunRequest {
            name: Some("job".into()),
            launch: launch(),
            settings: JobSettings::default(),
            detach: false,
        })),
        Ask::Restart(Box::new(RestartRequest {
            job: "latest".into(),
            checkpoint: Some(4),
            force: true,
            settings: Some(JobSettings::default()),
            window: None,
            detach: false,
        })),
        Ask::Leave { node: Some(node("node2")) },
        Ask::Token { uses: 3, valid_s: 600 },
    ]);
    attack(&[
        Answer::Committed { record: record() },
        Answer::Ended { status: ExitKind::Exited(3), checkpoint: Some(4) },
        Answer::Failed { reason: "no".into(), status: 125 },
    ]);
}

#[test]
fn greetings_and_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let token = Token {
        addresses: vec!["10.0.0.1:7070".into()],
        authority: Authority::open(folder.path()).unwrap().fingerprint(),
        secret: Secret::claimed("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    };
    let valid = token.to_string();
    assert_eq!(valid.parse::<Token>().unwrap(), token);
    for seed in 0..4 * seeds() {
        let bytes = mutate(valid.as_bytes(), &mut Random(seed));
        if let Ok(read) = String::from_utf8_lossy(&bytes).parse::<Token>() {
            assert!(!read.addresses.is_empty());
        }
    }
    attack(&[token]);
    let name = "node1".to_owned();
    attack(&[
        Greeting::Member { version: 1 },
        Greeting::Join { version: 1, secret: "AAAA".to_owned(), name },
    ]);
    attack(&[
        Reply::Welcome,
        Reply::Joined { certificate: "-----".to_owned(), authority: "-----".to_owned() },
    ]);
}
