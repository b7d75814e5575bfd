//! What it costs that jobs' traffic is encrypted: the same two nodes, by a port that stays as it is and by one that does
//! not, in turn.

use std::time::Duration;

use super::figure::{Figure, Sense, Series};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::suite::Stage;
use crate::job::Failure;

const LIMIT: Duration = Duration::from_secs(30);
/// NFS's, which agents leave as it is; and any other one.
const CLEAR: &str = "2049";
const ENCRYPTED: &str = "5000";
/// Messages for one median.
const MESSAGES: &str = "3000";
/// The least part of what goes through unencrypted that is to go through.
const THROUGHPUT_GOAL: f64 = 0.1;
/// What a message there and back may take at most, in times of an unencrypted one.
const LATENCY_GOAL: f64 = 20.0;

/// Measures so often.
///
/// # Errors
/// Where a program fails.
pub fn measure(stage: &Stage, rounds: usize, seconds: u32) -> Result<Vec<Figure>, Failure> {
    let ckptd = stage.cluster_of(Setup { encrypting: [1, 2].into(), ..Setup::new(2) })?;
    let mut server = ckptd.node(1).spawn(&["wire", "serve", CLEAR, ENCRYPTED], &[])?;
    server.wait_for_output("serving", LIMIT)?;
    let mut samples: [Vec<f64>; 6] = Default::default();
    let seconds = seconds.to_string();
    for _ in 0..rounds {
        for (place, port) in [(0, CLEAR), (1, ENCRYPTED)] {
            let host = ckptd.node(1).address();
            samples[place].push(wire(&ckptd, &["flood", &host, port, &seconds])?);
            for (kind, protocol) in [(2, "tcp"), (4, "udp")] {
                let ask = ["ask", protocol, &host, port, MESSAGES, "64", "x"];
                samples[kind + place].push(wire(&ckptd, &ask)?);
            }
        }
    }
    let [clear, encrypted, tcp, tcp_encrypted, udp, udp_encrypted] = samples;
    let throughput = [
        Series::new("one connection of TCP, encrypted", "MB/s", encrypted),
        Series::new("not encrypted", "MB/s", clear),
    ];
    let times = |what, encrypted, clear| {
        [Series::new(what, "us", encrypted), Series::new("not encrypted", "us", clear)]
    };
    let figure = |key, title, [own, limit]: [Series; 2], goal| {
        let ratio = own.median / limit.median;
        Figure::new(key, title, own, Some(limit), ratio, goal)
    };
    Ok(vec![
        figure(
            "traffic-throughput",
            "one connection of TCP, encrypted",
            throughput,
            (Sense::AtLeast, THROUGHPUT_GOAL),
        ),
        figure(
            "traffic-tcp",
            "64 bytes there and back by TCP, encrypted",
            times("there and back", tcp_encrypted, tcp),
            (Sense::AtMost, LATENCY_GOAL),
        ),
        figure(
            "traffic-udp",
            "64 bytes there and back by UDP, encrypted",
            times("there and back", udp_encrypted, udp),
            (Sense::AtMost, LATENCY_GOAL),
        ),
    ])
}

fn wire(ckptd: &Ckptd, words: &[&str]) -> Result<f64, Failure> {
    let said = ckptd.node(2).must_run(&[&["wire"], words].concat())?;
    said.trim().parse().map_err(|_| Failure(format!("wire {words:?} said {said:?}")))
}
