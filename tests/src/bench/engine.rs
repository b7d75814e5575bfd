//! The figures of the engine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::changed;
use super::counts;
use super::figure::{Figure, Sense, Series};
use super::limits;
use super::queens;
use super::subject::{Setting, Subject, failure};
use crate::job::Failure;

/// MiB of the large process.
const LARGE: usize = 1024;
/// MiB that two processes share.
const SHARED: usize = 256;
/// Nanoseconds of a millisecond.
const MILLI: f64 = 1e6;

/// A figure or two that are measured together.
pub struct Measurement {
    /// Names of the figures.
    pub keys: &'static [&'static str],
    /// Measures them.
    pub run: fn(&Setting) -> Result<Vec<Figure>, Failure>,
}

/// All of them, in the order of the table.
pub const ALL: &[Measurement] = &[
    Measurement { keys: &["pause-large", "durable"], run: large },
    Measurement { keys: &["pause-small"], run: small },
    Measurement { keys: &["pause-shared"], run: shared },
    Measurement {
        keys: &["pause-threads", "pause-processes", "pause-descriptors"],
        run: counts::measure,
    },
    Measurement {
        keys: &["changed-bytes", "changed-cpu", "changed-pause", "first-writes"],
        run: changed::measure,
    },
    Measurement { keys: &["restart", "restart-first", "restart-filled"], run: restart },
    Measurement { keys: &["between"], run: queens::between },
    Measurement { keys: &["cpu"], run: queens::cpu },
];

fn large(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let mib = LARGE.to_string();
    let mut subject = Subject::start(setting, "large", &["--private", &mib])?;
    let source = setting.folder.path().join("random");
    std::fs::write(&source, limits::random(LARGE)?).map_err(failure)?;
    let (mut forks, mut pauses, mut images, mut copies) = (vec![], vec![], vec![], vec![]);
    for _ in 0..setting.rounds {
        forks.push(subject.measure("fork")? / MILLI);
        settle();
        let (pause, took) = subject.checkpoint()?;
        pauses.push(pause);
        images.push(took);
        settle();
        copies.push(limits::dd(setting, &source)?);
    }
    subject.job.kill()?;
    std::fs::remove_file(source).map_err(failure)?;
    std::fs::remove_dir_all(subject.job.state()).map_err(failure)?;

    let pause = Series::new("pause", "ms", pauses);
    let fork = Series::new("fork() of it", "ms", forks);
    let ratio = pause.median / fork.median;
    let pause = Figure::new(
        "pause-large",
        "pause, 1 GiB process, 4 KiB pages",
        pause,
        Some(fork),
        ratio,
        (Sense::AtMost, 1.5),
    );
    let image = Series::new("checkpoint, begun to committed", "ms", images);
    let copy = Series::new("dd conv=fsync", "ms", copies);
    let ratio = copy.median / image.median;
    let durable = Figure::new(
        "durable",
        "image of 1 GiB of random data durable",
        image,
        Some(copy),
        ratio,
        (Sense::AtLeast, 0.7),
    );
    Ok(vec![pause, durable])
}

/// Lets the disk finish what earlier steps have left to it.
fn settle() {
    nix::unistd::sync();
}

fn small(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let subject = Subject::start(setting, "small", &["--threads", "4"])?;
    // The first checkpoint of an agent finds nothing in its caches.
    subject.checkpoint()?;
    let mut pauses = Vec::new();
    for _ in 0..setting.rounds * 3 {
        std::thread::sleep(Duration::from_millis(100));
        pauses.push(subject.checkpoint()?.0);
    }
    let pause = Series::new("pause", "ms", pauses);
    let score = pause.median;
    Ok(vec![Figure::new(
        "pause-small",
        "pause, small process with 4 threads (ms)",
        pause,
        None,
        score,
        (Sense::AtMost, 5.0),
    )])
}

fn shared(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let mib = SHARED.to_string();
    let mut subject = Subject::start(setting, "shared", &["--shared", &mib])?;
    let (mut copies, mut pauses) = (Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        copies.push(subject.measure("copy")? / MILLI);
        settle();
        pauses.push(subject.checkpoint()?.0);
    }
    let pause = Series::new("pause", "ms", pauses);
    let copy = Series::new("memcpy into fresh memory", "ms", copies);
    let ratio = pause.median / copy.median;
    Ok(vec![Figure::new(
        "pause-shared",
        "pause, 256 MiB shared by two processes",
        pause,
        Some(copy),
        ratio,
        (Sense::AtMost, 0.75),
    )])
}

fn restart(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let mib = LARGE.to_string();
    let mut subject = Subject::start(setting, "restart", &["--private", &mib, "--watch"])?;
    subject.checkpoint()?;
    subject.job.kill()?;
    settle();
    let bytes = limits::random(LARGE)?;
    let (mut writes, mut restarts, mut firsts, mut fills) = (vec![], vec![], vec![], vec![]);
    for _ in 0..setting.rounds {
        writes.push(limits::write_to_fresh_process(setting, &bytes)?);
        restarts.push(restart_once(&mut subject, "advance")?.0);
        let (first, filled) = restart_once(&mut subject, "demand")?;
        firsts.push(first);
        fills.push(filled);
    }
    let restart = Series::new("restart until its first instruction", "ms", restarts);
    let write = Series::new("process_vm_writev of it", "ms", writes);
    let first = Series::new("restart until its first instruction", "ms", firsts);
    let filled = Series::new("restart until all pages are there", "ms", fills);
    let ratio = restart.median / write.median;
    let filled_ratio = filled.median / restart.median;
    let score = first.median;
    let in_advance = restart.clone();
    Ok(vec![
        Figure::new(
            "restart",
            "restart of 1 GiB, filled before running",
            restart,
            Some(write),
            ratio,
            (Sense::AtMost, 1.3),
        ),
        Figure::new(
            "restart-first",
            "restart of 1 GiB on demand to the first instruction (ms)",
            first,
            None,
            score,
            (Sense::AtMost, 50.0),
        ),
        Figure::new(
            "restart-filled",
            "restart of 1 GiB on demand until filled, beside in advance",
            filled,
            Some(in_advance),
            filled_ratio,
            (Sense::AtMost, 1.3),
        ),
    ])
}

/// Restarts it with its pages in advance or on demand: how long until its first instruction and until it has them all, ms.
fn restart_once(subject: &mut Subject, pages: &str) -> Result<(f64, f64), Failure> {
    subject.job.set("CKPTD_PAGES", pages);
    let began = unix_ns()?;
    subject.job.restart(&["--interval", "0"])?;
    let ran = loop {
        let told: f64 = subject.next("gap")?.parse().map_err(failure)?;
        if told > began {
            break told;
        }
    };
    let pid = subject.pid()?;
    let filled = loop {
        let now = unix_ns()?;
        if resident_mib(pid)? >= LARGE {
            break now;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    subject.job.kill()?;
    Ok(((ran - began) / MILLI, (filled - began) / MILLI))
}

/// MiB that a process has in memory.
fn resident_mib(pid: i32) -> Result<usize, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(failure)?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    Ok(kib.ok_or_else(|| failure("odd /proc/PID/status"))? / 1024)
}

fn unix_ns() -> Result<f64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(failure)?;
    Ok(since.as_nanos() as f64)
}
