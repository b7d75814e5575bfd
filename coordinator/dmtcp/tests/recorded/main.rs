//! Conversations of unmodified DMTCP programs with DMTCP's own coordinator, recorded, and held with ours: every
//! message of theirs must be understood, and every answer equal DMTCP's in each field that it defines.
//!
//! NN.client and NN.coordinator are the bytes of connection NN in each direction, ORDER tells when how many came.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use ckpt_dmtcp::address::seen_from_outside;
use ckpt_dmtcp::machine::{Action, Event, Identity, Machine, Notice, Peer, Settings};
use ckpt_dmtcp::wire::{Command, HEADER, Kind, Message};
use protocol::clock::Time;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Where the recorded programs were.
const OWN: Peer = Peer { address: Ipv4Addr::LOCALHOST, owner: Some(1000) };

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(name)
}

/// Of a connection: how many bytes and messages were delivered, and all messages, each with its end.
type Stream = (usize, usize, Vec<(usize, Message)>);

/// The messages in a stream of bytes, each with the offset at which it is complete.
fn messages(bytes: &[u8]) -> Vec<(usize, Message)> {
    let mut messages = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header: &[u8; HEADER] = bytes[at..at + HEADER].try_into().unwrap();
        let (mut message, length) = Message::decode(header).unwrap();
        at += HEADER;
        message.payload = bytes[at..at + length].to_vec();
        at += length;
        messages.push((at, message));
    }
    messages
}

struct Replay {
    machine: Machine,
    now: u64,
    answers: BTreeMap<u64, Vec<Message>>,
    commits: usize,
}

impl Replay {
    fn feed(&mut self, event: Event) {
        let now = Time { nanos: self.now, unix_ms: self.now / 1_000_000 };
        for action in self.machine.step(now, event) {
            match action {
                Action::Send { to, message } => {
                    for connection in to {
                        self.answers.entry(connection).or_default().push(message.clone());
                    }
                }
                Action::Commit(checkpoint) => {
                    self.commits += 1;
                    assert_eq!(checkpoint.images.len(), 2);
                    let generation = checkpoint.group.generation;
                    self.feed(Event::Recorded { generation, failure: None });
                }
                Action::Notice(Notice::Warning(text)) => panic!("{text}"),
                Action::Notice(Notice::Failed { reason, .. }) => panic!("{reason}"),
                Action::Notice(_) | Action::Close { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Holds the conversation; what ours answered on each connection, and how many checkpoints there were.
fn replay(name: &str) -> (BTreeMap<u64, Vec<Message>>, usize) {
    let machine = Machine::new(Settings {
        identity: Identity { host: 1, time: 2, pid: 3, generation: 0 },
        own_address: Ipv4Addr::LOCALHOST,
        interval: 0,
        directory: "/ckpt".into(),
        exit_on_last: false,
        kill_after: false,
        user: 0,
        patience: 60_000_000_000,
        departed_after: None,
        stand_in: None,
    });
    let mut replay = Replay { machine, now: 0, answers: BTreeMap::new(), commits: 0 };
    let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
    let order = fs::read_to_string(folder(name).join("ORDER")).unwrap();
    for line in order.lines() {
        let mut words = line.split_whitespace();
        let seconds: f64 = words.next().unwrap().parse().unwrap();
        let (number, side) = words.next().unwrap().split_once('.').unwrap();
        let count: usize = words.next().unwrap().parse().unwrap();
        if side != "client" {
            continue;
        }
        replay.now = (seconds * 1e9) as u64 + 1;
        let connection: u64 = number.parse().unwrap();
        let (came, told, messages) = streams.entry(connection).or_insert_with(|| {
            let bytes = fs::read(folder(name).join(format!("{number}.client"))).unwrap();
            (0, 0, messages(&bytes))
        });
        *came += count;
        while let Some((_, message)) = messages.get(*told).filter(|(end, _)| end <= came) {
            let message = message.clone();
            let event = if *told == 0 {
                Event::Opened { connection, remote: OWN, message }
            } else {
                Event::Message { connection, message }
            };
            *told += 1;
            replay.feed(event);
        }
    }
    for (connection, (_, told, messages)) in &streams {
        assert_eq!(*told, messages.len(), "connection {connection} was not read to its end");
    }
    for connection in streams.keys() {
        replay.feed(Event::Closed { connection: *connection });
    }
    (replay.answers, replay.commits)
}

fn compare(ours: &Message, theirs: &Message, context: &str) {
    assert_eq!(ours.kind, theirs.kind, "{context}");
    match theirs.kind {
        Kind::Accept => {
            assert_eq!(ours.virtual_pid, theirs.virtual_pid, "{context}");
            assert_eq!(ours.address, theirs.address, "{context}");
            // To who is forked during a checkpoint DMTCP tells none.
            assert_eq!(ours.time_stamp == 0, theirs.time_stamp == 0, "{context}");
            if theirs.virtual_pid != -1 {
                assert_eq!(ours.group, theirs.group, "{context}");
            }
        }
        Kind::DoCheckpoint | Kind::BarrierReleased | Kind::Kill => {
            assert_eq!(ours.group, theirs.group, "{context}");
            assert_eq!(ours.peers, theirs.peers, "{context}");
            assert_eq!(ours.exit_after, theirs.exit_after, "{context}");
            assert_eq!(ours.payload, theirs.payload, "{context}");
        }
        Kind::StoreResponse => {
            assert_eq!(ours.store_code, theirs.store_code, "{context}");
            assert_eq!(ours.value_length, theirs.value_length, "{context}");
            if ours.payload != theirs.payload {
                // A listener at 0.0.0.0 is published at its machine's address.
                let text = |payload: &[u8]| {
                    String::from_utf8(payload.strip_suffix(b"\0").unwrap().to_vec()).unwrap()
                };
                let replaced =
                    seen_from_outside(&text(&theirs.payload), Ipv4Addr::LOCALHOST).unwrap();
                assert_eq!(text(&ours.payload), replaced, "{context}");
            }
        }
        Kind::UserResult => {
            assert_eq!(ours.command, theirs.command, "{context}");
            assert_eq!(ours.command_status, theirs.command_status, "{context}");
            match Command::of(theirs.command).unwrap() {
                Command::Status => {
                    assert_eq!(ours.peers, theirs.peers, "{context}");
                    assert_eq!(ours.is_running, theirs.is_running, "{context}");
                    assert_eq!(ours.interval, theirs.interval, "{context}");
                }
                Command::Interval => assert_eq!(ours.interval, theirs.interval, "{context}"),
                Command::BlockingCheckpoint => assert_eq!(ours.peers, theirs.peers, "{context}"),
                Command::List => {
                    let lines = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
                    assert_eq!(lines(&ours.payload), lines(&theirs.payload), "{context}");
                }
                _ => {}
            }
        }
        other => panic!("{context}: a coordinator sends no {other:?}"),
    }
}

fn check(name: &str) {
    let (ours, commits) = replay(name);
    assert_eq!(commits, 1, "{name}");
    let mut compared = 0;
    for number in 1.. {
        let path = folder(name).join(format!("{number:02}.coordinator"));
        let Ok(bytes) = fs::read(path) else { break };
        let theirs = messages(&bytes);
        let ours = ours.get(&number).map(Vec::as_slice).unwrap_or_default();
        for (index, (_, theirs)) in theirs.iter().enumerate() {
            let context = format!("{name}, connection {number}, message {index}");
            let ours = ours.get(index).unwrap_or_else(|| panic!("{context} is missing"));
            compare(ours, theirs, &context);
            compared += 1;
        }
        assert_eq!(ours.len(), theirs.len(), "{name}, connection {number}");
    }
    assert!(compared > 25, "{compared} messages were compared");
}

#[test]
fn a_recorded_launch_and_checkpoint_are_answered_as_dmtcp_does() {
    check("launch-checkpoint-kill");
}

#[test]
fn a_recorded_restart_is_answered_as_dmtcp_does() {
    check("restart-checkpoint-kill");
}
