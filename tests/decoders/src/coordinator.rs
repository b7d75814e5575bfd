//! The coordinator: its log, and the agents' and clients' messages as far as they get.

use crate::messages;
use crate::random::Random;
use crate::room;
use crate::sample::samples;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings, Now,
    SeededSecrets,
};
use coordinator::{Entry, Journal, log as job_log};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, JobUser};
use protocol::cluster::client::Ask;
use std::collections::BTreeMap;
use std::fs;

const SECOND: u64 = 1_000_000_000;

fn now(nanos: u64) -> Now {
    Now { nanos, unix_ms: 1_700_000_000_000 + nanos / 1_000_000 }
}

fn secrets() -> SeededSecrets {
    SeededSecrets::new([7; 32])
}

/// Reads a cluster's log and a job's, as files; and carries on from entries that are in no file, so that
/// a checksum doesn't hide what they say.
pub fn log(bytes: &[u8]) {
    let Ok(folder) = room() else { return };
    let path = folder.path().join("cluster.log");
    if fs::write(&path, bytes).is_ok() {
        let _ = job_log::read(&path, "a");
        if let Ok((_, entries)) = Journal::<ClusterEntry>::open(&path, opened()) {
            carry_on(entries);
        }
    }
    let entry = |line: &[u8]| serde_json::from_slice(line).ok();
    carry_on(bytes.split(|byte| *byte == b'\n').filter_map(entry).collect());
    let text = sealed(bytes.split(|byte| *byte == b'\n'));
    let _ = job_log::replay(&text, "a");
}

fn opened() -> ClusterEntry {
    ClusterEntry::Opened { format: 1 }
}

/// Lines with the checksums that they should have.
fn sealed<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let check = blake3::hash(line).to_hex();
        text.extend_from_slice(format!("{{\"check\":\"{}\",\"log\":", &check[..16]).as_bytes());
        text.extend_from_slice(line);
        text.extend_from_slice(b"}\n");
    }
    text
}

fn carry_on(entries: Vec<ClusterEntry>) {
    let settings = ClusterSettings::default();
    let lengths = BTreeMap::new();
    let recovered = ClusterMachine::recover(settings, secrets(), now(SECOND), entries, &lengths);
    if let Ok(mut machine) = recovered {
        let mut nanos = SECOND;
        for _ in 0..4 {
            nanos += 6 * SECOND;
            step(&mut machine, nanos, ClusterEvent::Clock);
        }
        step(&mut machine, nanos, asked(Ask::Jobs));
        step(&mut machine, nanos, asked(Ask::Nodes));
    }
}

/// Entries, as they are and with their checksums.
pub fn log_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut entries: Vec<String> =
        samples::<ClusterEntry>(random).iter().map(ToString::to_string).collect();
    let mut seeds: Vec<Vec<u8>> = entries.iter().map(|entry| entry.clone().into_bytes()).collect();
    entries.extend(samples::<Entry>(random).iter().map(ToString::to_string));
    for length in [2, 5, 12, 30] {
        let lines: Vec<&String> = (0..length).filter_map(|_| random.pick(&entries)).collect();
        seeds.push(sealed(lines.iter().map(|line| line.as_bytes())));
        seeds.push(lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect());
    }
    seeds
}

fn step(machine: &mut ClusterMachine, nanos: u64, event: ClusterEvent) {
    let mut actions = machine.step(now(nanos), event);
    // All of the log is durable at once.
    for _ in 0..64 {
        let numbers: Vec<u64> = actions
            .iter()
            .filter_map(|action| match action {
                ClusterAction::Append { number, .. } => Some(*number),
                _ => None,
            })
            .collect();
        if numbers.is_empty() {
            break;
        }
        actions.clear();
        for number in numbers {
            actions.extend(machine.step(now(nanos), ClusterEvent::Recorded { number }));
        }
    }
}

fn asked(ask: Ask) -> ClusterEvent {
    ClusterEvent::Asked {
        client: ClientId { node: None, connection: 0, number: 1 },
        user: JobUser { name: "root".into(), uid: 0 },
        ask,
    }
}

/// A line each: agents' messages, by turns from one of two nodes, and what clients ask.
pub fn machine(bytes: &[u8]) {
    let mut machine = ClusterMachine::new(ClusterSettings::default(), secrets());
    let mut nanos = SECOND;
    for (index, line) in bytes.split(|byte| *byte == b'\n').take(64).enumerate() {
        nanos += SECOND / 4;
        if let Ok(ask) = serde_json::from_slice::<Ask>(line) {
            if !matches!(ask, Ask::Token { .. }) {
                step(&mut machine, nanos, asked(ask));
            }
        } else if let Ok(message) = serde_json::from_slice::<FromAgent>(line) {
            let Ok(node) = ["a", "n1"][index % 2].parse::<NodeName>() else { return };
            let body = b"0123456789".to_vec();
            step(&mut machine, nanos, ClusterEvent::Agent { node, connection: 1, message, body });
        } else {
            nanos += 3 * SECOND;
            step(&mut machine, nanos, ClusterEvent::Clock);
        }
        let _ = machine.deadline();
    }
}

/// Conversations, each begun by both nodes' hellos.
pub fn machine_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let asks: Vec<String> = messages::asks(random).iter().map(ToString::to_string).collect();
    let all: Vec<String> = samples::<FromAgent>(random).iter().map(ToString::to_string).collect();
    let starts = |word: &str| {
        let start = format!("{{\"{word}\"");
        all.iter().filter(|line| line.starts_with(&start)).cloned().collect::<Vec<String>>()
    };
    let hellos = starts("hello");
    let runs: Vec<String> = asks.iter().filter(|line| line.contains("\"run\"")).cloned().collect();
    let mut seeds = Vec::new();
    for _ in 0..24 {
        let mut lines: Vec<&String> =
            [&hellos, &hellos, &runs].into_iter().filter_map(|list| random.pick(list)).collect();
        for _ in 0..random.below(24) {
            let list = if random.once_in(4) { &asks } else { &all };
            lines.extend(random.pick(list));
        }
        let text: Vec<&str> = lines.iter().map(|line| line.as_str()).collect();
        seeds.push(text.join("\n").into_bytes());
    }
    seeds
}
