//! What copies of images cost whatever else is sent over the same network: messages there and back between two nodes, alone
//! and while the images of a job are copied from one to the other without a pause.

use std::time::{Duration, Instant};

use super::figure::{Figure, Sense, Series};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::suite::Stage;
use crate::cluster::until;
use crate::job::Failure;

const LIMIT: Duration = Duration::from_secs(60);
const PORT: &str = "2049";
/// What leaves a node, with the queue that Linux gives most network cards.
const RATE: &str = "200mbit";
/// Messages for one mean, and the length of each.
const MESSAGES: u32 = 1500;
const BYTES: u32 = 65536;
/// What a message may take beside copies, in times of one alone.
const GOAL: f64 = 1.05;
/// All memory is new in each checkpoint, and can't be compressed.
const JOB: &str = "import os, time\nwhile True:\n data = os.urandom(96 << 20)\n time.sleep(2)";

/// Measures so often.
///
/// # Errors
/// Where a program fails.
pub fn measure(stage: &Stage, rounds: usize) -> Result<Figure, Failure> {
    let ckptd = stage.cluster_of(Setup::new(2))?;
    for number in [1, 2] {
        let node = ckptd.node(number);
        let shape = ["tbf", "rate", RATE, "burst", "64k", "latency", "50ms"];
        let root = ["tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:"];
        node.must_run(&[&root[..], &shape].concat())?;
        node.must_run(&["tc", "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo_fast"])?;
    }
    let mut server = ckptd.node(2).spawn(&["wire", "serve", PORT], &[])?;
    server.wait_for_output("serving", LIMIT)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(ask(&ckptd)?);
        let run = ["ckptd", "run", "--interval", "1", "--name", "churn", "--"];
        let mut job = ckptd.node(1).spawn(&[&run[..], &["python3", "-c", JOB]].concat(), &[])?;
        let copying = until("images are copied", LIMIT, || {
            let status = ckptd.ckptd(1, &["status", "churn", "--json"])?.stdout;
            Ok(status.contains("\"checkpoint\": 2").then_some(()))
        });
        copying.map_err(|failure| ckptd.explain(&job.explain(&failure)))?;
        beside.push(ask(&ckptd)?);
        ckptd.ckptd(1, &["stop", "churn"])?;
        job.wait(LIMIT)?;
        ckptd.ckptd(1, &["rm", "churn"])?;
    }
    let own = Series::new("there and back beside copies", "us", beside);
    let limit = Series::new("alone", "us", alone);
    let ratio = own.median / limit.median;
    let title = "64 KiB there and back by TCP, beside copies";
    Ok(Figure::new("copies-beside", title, own, Some(limit), ratio, (Sense::AtMost, GOAL)))
}

/// Microseconds of one there and back: the mean, since copies come in spells.
fn ask(ckptd: &Ckptd) -> Result<f64, Failure> {
    let host = ckptd.node(2).address();
    let [count, bytes] = [MESSAGES, BYTES].map(|number| number.to_string());
    let since = Instant::now();
    ckptd.node(1).must_run(&["wire", "ask", "tcp", &host, PORT, &count, &bytes, "x"])?;
    Ok(since.elapsed().as_secs_f64() * 1e6 / f64::from(MESSAGES))
}
