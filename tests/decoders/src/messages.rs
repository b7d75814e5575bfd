//! The messages of a cluster, and those between a command and what runs a job.

use crate::random::Random;
use crate::sample::{samples, samples_with};
use bytes::BytesMut;
use ckpt_engine::split::standin;
use protocol::agent::CommitRecord;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, ToAgent};
use protocol::cluster::client::{Answer, Ask, MAX_ANSWER, MAX_ASK, RestartRequest, RunRequest};
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::succession::{FromSuccessor, ToSuccessor};
use protocol::control;
use protocol::frame::{decode, encode};
use protocol::launch::{LaunchSpec, RestoreSpec};
use protocol::transport::{self, Greeting, MAX_BODY, MAX_HEADER, Reply, Taken, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that come over a TLS connection of the cluster: whole frames, one after the other.
pub fn frames(bytes: &[u8]) {
    conversation::<Greeting>(bytes, 64 * 1024, 0);
    conversation::<Reply>(bytes, 64 * 1024, 0);
    conversation::<ToAgent>(bytes, MAX_HEADER, MAX_BODY);
    conversation::<FromAgent>(bytes, MAX_HEADER, MAX_BODY);
    conversation::<PeerMessage>(bytes, MAX_HEADER, MAX_BODY);
    conversation::<FromSuccessor>(bytes, MAX_HEADER, MAX_BODY);
    conversation::<ToSuccessor>(bytes, MAX_HEADER, MAX_BODY);
}

fn conversation<R: DeserializeOwned + Serialize>(bytes: &[u8], max_header: usize, max_body: usize) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Taken::Message(message, body)) =
        transport::take::<R>(&mut buffer, max_header, max_body)
    {
        assert!(body.len() <= max_body);
        // What is understood can be said again.
        let again = transport::encode(&message, &body).map(|frame| BytesMut::from(&frame[..]));
        if let Ok(mut again) = again {
            assert!(transport::take::<R>(&mut again, MAX_HEADER, MAX_BODY).is_ok());
            assert!(again.is_empty());
        }
    }
}

/// Frames of every message.
pub fn frame_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut values = samples::<Greeting>(random);
    values.extend(samples::<Reply>(random));
    values.extend(samples::<ToAgent>(random));
    values.extend(samples::<FromAgent>(random));
    values.extend(samples::<PeerMessage>(random));
    values.extend(samples::<FromSuccessor>(random));
    values.extend(samples::<ToSuccessor>(random));
    let body = [b'x'; 40];
    let framed = |value: &serde_json::Value| {
        let body = if random.once_in(2) { &body[..] } else { &[] };
        transport::encode(value, body).ok().map(|frame| frame.to_vec())
    };
    values.iter().filter_map(framed).collect()
}

/// Lines on Unix sockets, and what inits are told.
pub fn lines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines() {
        said::<Ask>(line, MAX_ASK);
        said::<Answer>(line, MAX_ANSWER);
        said::<control::LiveStatus>(line, MAX_ANSWER);
        said::<LaunchSpec>(line, MAX_ASK);
        said::<RestoreSpec>(line, MAX_ASK);
    }
}

fn said<R: DeserializeOwned + Serialize>(line: &str, limit: usize) {
    if let Ok(message) = decode::<R>(line, limit) {
        if let Ok(again) = encode(&message, limit) {
            assert!(decode::<R>(&again, limit).is_ok());
        }
    }
}

/// What clients say.
pub fn asks(random: &mut Random) -> Vec<serde_json::Value> {
    let run = samples::<RunRequest>(random).pop().unwrap_or_default();
    let restart = samples::<RestartRequest>(random).pop().unwrap_or_default();
    samples_with::<Ask>(&[("run", run), ("restart", restart)], random)
}

fn answers(random: &mut Random) -> Vec<serde_json::Value> {
    let record = samples::<CommitRecord>(random).pop().unwrap_or_default();
    let fields = [("committed", serde_json::json!({ "record": record }))];
    samples_with::<Answer>(&fields, random)
}

/// Lines of every message.
pub fn line_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut values = asks(random);
    values.extend(answers(random));
    values.extend(samples::<control::LiveStatus>(random));
    values.extend(samples::<LaunchSpec>(random));
    values.extend(samples::<RestoreSpec>(random));
    values.iter().map(|value| format!("{value}\n").into_bytes()).collect()
}

/// What is no JSON: tokens, names, secrets, and what goes over a stand-in's link.
pub fn words(bytes: &[u8]) {
    if let Some(message) = standin::Message::decode(bytes) {
        assert_eq!(standin::Message::decode(&message.encode()), Some(message));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
    if let Ok(name) = text.parse::<NodeName>() {
        assert_eq!(name.to_string(), text);
    }
    let _ = ckpt_agent::rewire::Secret::from_hex(text);
}

/// One of each.
pub fn word_seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = samples::<Token>(random)
        .into_iter()
        .filter_map(|value| serde_json::from_value::<Token>(value).ok())
        .map(|token| token.to_string().into_bytes())
        .collect();
    seeds.push(b"node-1".to_vec());
    seeds.push("0123456789abcdef".repeat(4).into_bytes());
    let messages = [
        standin::Message::Signal { signal: 15, value: Some(7) },
        standin::Message::Ended { status: 256 },
        standin::Message::Orphaned,
    ];
    seeds.extend(messages.map(|message| message.encode().to_vec()));
    seeds
}
