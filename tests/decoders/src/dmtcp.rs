//! DMTCP's messages, from whoever may connect to that port, and what the coordinator makes of a conversation of them.

use crate::random::Random;
use ckpt_dmtcp::machine::{Action, Command, Event, Identity, Machine, Peer, Settings};
use ckpt_dmtcp::wire::{HEADER, ImageName, Kind, Message, WorkerState};
use protocol::clock::Time;
use std::net::Ipv4Addr;

const SECOND: u64 = 1_000_000_000;
/// Connections that take turns.
const CONNECTIONS: u64 = 4;
/// Messages of a conversation, at most.
const MOST: usize = 64;

fn settings() -> Settings {
    Settings {
        identity: Identity { host: 1, time: 2, pid: 3, generation: 0 },
        own_address: Ipv4Addr::LOCALHOST,
        interval: 5,
        directory: "/ckpt".to_owned(),
        exit_on_last: false,
        kill_after: false,
        user: 0,
        patience: 15 * SECOND,
        departed_after: Some(5 * SECOND),
        stand_in: None,
    }
}

/// A stream of messages, by turns from one of a few connections. One whose message is none is closed, as by the port.
pub fn conversation(bytes: &[u8]) {
    let mut machine = Machine::new(settings());
    let mut open = [false; CONNECTIONS as usize];
    let mut rest = bytes;
    let mut nanos = SECOND;
    for index in 0..MOST {
        let Some((header, after)) = rest.split_first_chunk::<HEADER>() else { break };
        rest = after;
        nanos += SECOND / 2;
        let place = index % open.len();
        let connection = place as u64 + 1 + (index / 24) as u64 * CONNECTIONS;
        if index % 24 == 0 {
            open = [false; CONNECTIONS as usize];
        }
        let event = match Message::decode(header) {
            Err(_) if !open[place] => continue,
            Err(_) => {
                open[place] = false;
                Event::Closed { connection }
            }
            Ok((mut message, length)) => {
                let length = length.min(rest.len());
                message.payload = rest[..length].to_vec();
                rest = &rest[length..];
                let _ = ImageName::of(&message.payload);
                let _ = message.encode();
                match std::mem::replace(&mut open[place], true) {
                    true => Event::Message { connection, message },
                    false => {
                        let address = Ipv4Addr::new(10, 0, 0, connection as u8);
                        // Half of them are of this machine, of two users.
                        let owner = (connection % 2 == 0).then_some(1000 + connection as u32 % 4);
                        let remote = Peer { address, owner };
                        Event::Opened { connection, remote, message }
                    }
                }
            }
        };
        step(&mut machine, nanos, event);
        if index % 7 == 6 {
            step(&mut machine, nanos, Event::Clock);
        }
    }
    step(&mut machine, nanos, Event::Order(Command::Checkpoint));
    step(&mut machine, nanos + 60 * SECOND, Event::Clock);
}

/// Whatever is to be recorded is recorded at once.
fn step(machine: &mut Machine, nanos: u64, event: Event) {
    let now = Time { nanos, unix_ms: 1_700_000_000_000 + nanos / 1_000_000 };
    let mut actions = machine.step(now, event);
    for _ in 0..8 {
        let recorded: Vec<i32> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Commit(checkpoint) => Some(checkpoint.group.generation),
                _ => None,
            })
            .collect();
        if recorded.is_empty() {
            break;
        }
        actions = recorded
            .into_iter()
            .flat_map(|generation| machine.step(now, Event::Recorded { generation, failure: None }))
            .collect();
    }
}

/// Processes that join and say what comes to their minds.
pub fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let kinds: Vec<Kind> = (0..64).filter_map(Kind::of).collect();
    let mut seeds: Vec<Vec<u8>> =
        kinds.iter().map(|kind| message(*kind, random).encode()).collect();
    for _ in 0..32 {
        let mut bytes = Vec::new();
        for _ in 0..CONNECTIONS {
            bytes.extend(message(Kind::NewWorker, random).encode());
        }
        for _ in 0..random.below(MOST) {
            let kind = random.pick(&kinds).copied().unwrap_or(Kind::Null);
            bytes.extend(message(kind, random).encode());
        }
        seeds.push(bytes);
    }
    seeds
}

fn message(kind: Kind, random: &mut Random) -> Message {
    let mut message = Message::new(kind);
    message.from = Identity { host: 7, time: random.draw() % 4, pid: 5, generation: 0 };
    message.real_pid = random.below(5) as i32;
    message.state = WorkerState::Running;
    message.peers = random.below(5) as u32;
    message.command = random.below(12) as u32;
    message.store_code = random.below(9) as u32;
    message.interval = random.below(4) as i32 - 1;
    let names = ["DMT:SUSPEND", "DMT:CHECKPOINT", "DMT:RESUME", "Socket::Drain", ""];
    message.name = random.pick(&names).map_or(String::new(), |name| (*name).to_owned());
    let payloads: [&[u8]; 5] =
        [b"host1\0./program\0", b"/ckpt/a.dmtcp\0\0host1\0", b"key\0value\0", b"/dir\0", b""];
    message.payload = random.pick(&payloads).map_or(Vec::new(), |payload| payload.to_vec());
    (message.key_length, message.value_length) = (4, 6);
    message
}
