//! Whoever is on the path between two agents, and does not know the secret of a pair.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::agent::InstanceId;
use protocol::cluster::InstanceKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::handshake::{Nonces, Side, proof};
use super::tests::{LIMIT, Port, expect, order, ports};
use super::*;

const HELLO: usize = 1 + 64;
const ANSWER: usize = 64;
const PROOF: usize = 32;

/// Somebody waits for pair 1 at this port.
fn waiting(port: &Port) -> JoinHandle<Result<Vec<std::net::TcpStream>, RewireError>> {
    let wires = port.wires.clone();
    let plan = vec![order(test_pair(1), Role::Passive, b"passive's")];
    tokio::spawn(async move { wires.connect(plan, Instant::now() + LIMIT).await })
}

/// A connection over which this was said, once the port has answered it: it does so as soon as it waits for the pair.
async fn answered(port: &Port, hello: &[u8]) -> (TcpStream, [u8; ANSWER]) {
    let tries = async {
        loop {
            let mut stream = TcpStream::connect(port.address()).await.unwrap();
            stream.write_all(hello).await.unwrap();
            let mut answer = [0; ANSWER];
            if stream.read_exact(&mut answer).await.is_ok() {
                return (stream, answer);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, tries).await.expect("somebody waits for the pair")
}

fn hello(pair: &Pair, nonce: [u8; 32]) -> Vec<u8> {
    [&[MARK][..], &pair.name().0, &nonce].concat()
}

/// The port closes it, and has said nothing more: nothing of the job's least of all.
async fn refused(mut stream: TcpStream) {
    let mut said = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut said));
    // It may close with bytes unread, which the kernel reports as a reset.
    let _ = read.await.expect("the port closes it");
    assert_eq!(said, b"");
}

/// Whoever was refused has taken nobody's place.
async fn still_served(
    port: &Port,
    waiting: JoinHandle<Result<Vec<std::net::TcpStream>, RewireError>>,
) {
    let plan = vec![order(test_pair(1), Role::Active { to: port.address() }, b"active's")];
    let mut active = Wires::default().connect(plan, Instant::now() + LIMIT).await.unwrap();
    expect(&mut active[0], b"active's");
    expect(&mut waiting.await.unwrap().unwrap()[0], b"passive's");
}

#[tokio::test]
async fn a_proof_without_the_secret_or_for_the_other_side_is_refused() {
    let (here, _) = ports().await;
    let waiting = waiting(&here);
    let pair = test_pair(1);
    let forged = |side, key: &Pair, nonces: &Nonces| *proof(key, side, nonces).as_bytes();
    for attempt in 0..4 {
        let active = [attempt; 32];
        let (mut stream, answer) = answered(&here, &hello(&pair, active)).await;
        let (passive, proved) = answer.split_at(32);
        let nonces = Nonces { active, passive: passive.try_into().unwrap() };
        assert_eq!(proved, forged(Side::Passive, &pair, &nonces));
        let said: [u8; PROOF] = match attempt {
            0 => forged(Side::Active, &test_pair(2), &nonces),
            // What it was sent itself.
            1 => proved.try_into().unwrap(),
            // The right side's, of both nonces the other way round.
            2 => forged(
                Side::Active,
                &pair,
                &Nonces { active: nonces.passive, passive: nonces.active },
            ),
            _ => [0; PROOF],
        };
        stream.write_all(&said).await.unwrap();
        refused(stream).await;
    }
    still_served(&here, waiting).await;
}

#[tokio::test]
async fn a_nonce_sent_back_is_not_taken_for_the_other_sides() {
    let (here, _) = ports().await;
    let waiting = waiting(&here);
    // The proofs of two conversations, each begun with the other's nonce.
    let (mut one, first) = answered(&here, &hello(&test_pair(1), [7; 32])).await;
    let nonce: [u8; 32] = first[..32].try_into().unwrap();
    let (mut other, second) = answered(&here, &hello(&test_pair(1), nonce)).await;
    one.write_all(&second[32..]).await.unwrap();
    other.write_all(&first[32..]).await.unwrap();
    refused(one).await;
    refused(other).await;
    still_served(&here, waiting).await;
}

/// Passes connections on, and keeps what goes each way over the first one that is answered.
#[derive(Clone, Default)]
struct Eavesdropper {
    to_passive: Arc<Mutex<Vec<u8>>>,
    to_active: Arc<Mutex<Vec<u8>>>,
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    kept: Arc<Mutex<Vec<u8>>>,
) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        kept.lock().unwrap().extend_from_slice(&bytes[..length]);
        if to.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
    // The other end may have gone.
    let _ = to.shutdown().await;
}

impl Eavesdropper {
    /// Where the active side connects to.
    async fn before(&self, to: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = self.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(to).await.unwrap();
                if kept.to_active.lock().unwrap().is_empty() {
                    kept.to_passive.lock().unwrap().clear();
                }
                let ((near_read, near_write), (far_read, far_write)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(pass(near_read, far_write, kept.to_passive.clone()));
                tokio::spawn(pass(far_read, near_write, kept.to_active.clone()));
            }
        });
        address
    }

    fn heard(&self) -> (Vec<u8>, Vec<u8>) {
        (self.to_passive.lock().unwrap().clone(), self.to_active.lock().unwrap().clone())
    }
}

/// All bytes of a connection that is made and works: to the passive side, and to the active one.
async fn recorded() -> (Vec<u8>, Vec<u8>) {
    let (here, _) = ports().await;
    let ear = Eavesdropper::default();
    let to = ear.before(here.address()).await;
    let waiting = waiting(&here);
    let plan = vec![order(test_pair(1), Role::Active { to }, b"active's")];
    let mut active = Wires::default().connect(plan, Instant::now() + LIMIT).await.unwrap();
    expect(&mut active[0], b"active's");
    expect(&mut waiting.await.unwrap().unwrap()[0], b"passive's");
    ear.heard()
}

#[tokio::test]
async fn nothing_of_a_secret_crosses_the_wire() {
    let (to_passive, to_active) = recorded().await;
    // What was heard is all: the marks, names, nonces and proofs, and both queues there and back.
    let queues = 8 + b"active's".len() + b"passive's".len();
    assert_eq!((to_passive.len(), to_active.len()), (HELLO + PROOF + queues, ANSWER + queues));
    let pair = test_pair(1);
    assert!(to_passive.starts_with(&hello(&pair, to_passive[33..65].try_into().unwrap())));
    for secret in [&[1; 32], pair.key()] {
        for heard in [&to_passive, &to_active] {
            // Not even a quarter of it.
            let quarters: Vec<&[u8]> = secret.chunks(8).collect();
            assert!(!heard.windows(8).any(|bytes| quarters.contains(&bytes)));
        }
    }
}

#[tokio::test]
async fn what_was_recorded_is_accepted_by_neither_side() {
    let (to_passive, to_active) = recorded().await;
    let (here, there) = ports().await;
    let waiting = waiting(&here);
    let (mut stream, answer) = answered(&here, &to_passive[..HELLO]).await;
    assert_ne!(answer, to_active[..ANSWER]);
    stream.write_all(&to_passive[HELLO..]).await.unwrap();
    refused(stream).await;
    still_served(&here, waiting).await;
    let replayed = false_port(move |_| to_active.clone()).await;
    assert_not_the_other_end(&there, replayed).await;
}

/// A port that says something to whatever greets it, and keeps what it hears after that.
struct FalsePort {
    address: SocketAddr,
    later: Arc<Mutex<Vec<u8>>>,
}

/// One that answers so.
async fn false_port(answer: impl Fn(&[u8; HELLO]) -> Vec<u8> + Send + 'static) -> FalsePort {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let later = Arc::new(Mutex::new(Vec::new()));
    let wrong = later.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut said = [0; HELLO];
            // One whose time was over has said less.
            if stream.read_exact(&mut said).await.is_err() {
                continue;
            }
            stream.write_all(&answer(&said)).await.unwrap();
            let mut rest = Vec::new();
            // Closed with bytes unread, it is reset.
            let _ = stream.read_to_end(&mut rest).await;
            wrong.lock().unwrap().extend_from_slice(&rest);
        }
    });
    FalsePort { address, later }
}

async fn assert_not_the_other_end(port: &Port, false_port: FalsePort) {
    let to = false_port.address;
    let mut span = Duration::from_millis(500);
    let error = loop {
        let plan = vec![order(test_pair(1), Role::Active { to }, b"the job's bytes")];
        let error = port.connect(plan, Instant::now() + span).await.unwrap_err().to_string();
        // A machine that is busy with other things may not come to it.
        if !error.contains("no time for an attempt") || span > LIMIT {
            break error;
        }
        span *= 2;
    };
    assert!(error.contains("not the connection's other end"), "{error}");
    // Neither a proof nor anything of the job's.
    assert_eq!(*false_port.later.lock().unwrap(), b"");
}

#[tokio::test]
async fn a_false_port_that_does_not_know_the_secret_is_no_peer() {
    let (here, _) = ports().await;
    let nonces =
        |said: &[u8; HELLO]| Nonces { active: said[33..].try_into().unwrap(), passive: [3; 32] };
    let saying = |nonces: &Nonces, pair: &Pair, side| {
        [&nonces.passive[..], proof(pair, side, nonces).as_bytes()].concat()
    };
    let reflecting = false_port(|said| said[1..].to_vec()).await;
    let guessing =
        false_port(move |said| saying(&nonces(said), &test_pair(2), Side::Passive)).await;
    let swapped = false_port(move |said| saying(&nonces(said), &test_pair(1), Side::Active)).await;
    for port in [reflecting, guessing, swapped] {
        assert_not_the_other_end(&here, port).await;
    }
    // And it would have been one with the right proof.
    let plan = vec![order(
        test_pair(1),
        Role::Active {
            to: false_port_that_knows(move |said| {
                saying(&nonces(said), &test_pair(1), Side::Passive)
            })
            .await,
        },
        b"",
    )];
    here.connect(plan, Instant::now() + LIMIT).await.unwrap();
}

/// Serves one connection, as the other end does.
async fn false_port_that_knows(
    answer: impl Fn(&[u8; HELLO]) -> Vec<u8> + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = [0; HELLO];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&answer(&said)).await.unwrap();
        stream.read_exact(&mut [0; PROOF + 8]).await.unwrap();
        stream.write_all(&0_u64.to_le_bytes()).await.unwrap();
        stream
    });
    address
}

#[tokio::test]
async fn whoever_stops_midway_is_closed_and_keeps_nobody_out() {
    let (here, _) = ports().await;
    let waiting = waiting(&here);
    let pair = test_pair(1);
    let whole = hello(&pair, [1; 32]);
    // Those who go.
    for length in [1, 32, 33, HELLO - 1] {
        let mut stream = TcpStream::connect(here.address()).await.unwrap();
        stream.write_all(&whole[..length]).await.unwrap();
        stream.shutdown().await.unwrap();
        refused(stream).await;
    }
    let (mut short, _) = answered(&here, &whole).await;
    short.write_all(&[0; PROOF - 1]).await.unwrap();
    short.shutdown().await.unwrap();
    refused(short).await;
    // Those who stay, and say nothing more.
    let mut begun = TcpStream::connect(here.address()).await.unwrap();
    begun.write_all(&whole[..40]).await.unwrap();
    let (unproved, _) = answered(&here, &whole).await;
    still_served(&here, waiting).await;
    refused(begun).await;
    refused(unproved).await;
}

#[test]
fn another_job_and_another_epoch_are_another_pair() {
    let secret = Secret::new([1; 32]);
    let key = |job: &str, epoch, instance| InstanceKey {
        job: job.into(),
        epoch,
        instance: InstanceId(instance),
    };
    let pair = |job, epoch, instance| Pair::new(&secret, &key(job, epoch, instance));
    let one = pair("job", 1, 0);
    let same = pair("job", 1, 1);
    assert!(one.name() == same.name() && one.key() == same.key(), "both ends derive the same");
    for other in [pair("other", 1, 0), pair("job", 2, 0), test_pair(2)] {
        assert!(one.name() != other.name() && one.key() != other.key());
    }
    assert_ne!(&one.name().0, one.key());
    assert_eq!(format!("{one:?}{secret:?}"), "Pair(..)Secret(..)");
}
