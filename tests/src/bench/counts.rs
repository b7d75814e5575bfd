//! How long a job stands still that has many threads, processes or descriptors, beside what the kernel takes to stop it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::figure::{Figure, Sense, Series};
use super::subject::{Setting, Subject, failure};
use crate::job::Failure;

/// How long all may take to stop.
const LIMIT: Duration = Duration::from_secs(30);
/// A checkpoint may stop a job for so many times what stopping it takes.
const GOAL: f64 = 3.0;
/// Besides, it may take so long for each descriptor, in ms.
const A_DESCRIPTOR: f64 = 0.001;
/// Descriptors of the job that has many.
const DESCRIPTORS: u32 = 10_000;

/// A job with many of something.
struct Many {
    key: &'static str,
    title: &'static str,
    arguments: [&'static str; 2],
    descriptors: u32,
}

/// All of them.
const ALL: [Many; 3] = [
    Many {
        key: "pause-threads",
        title: "pause, one process of 2,000 threads",
        arguments: ["--threads", "2000"],
        descriptors: 0,
    },
    Many {
        key: "pause-processes",
        title: "pause, 200 processes",
        arguments: ["--processes", "200"],
        descriptors: 0,
    },
    Many {
        key: "pause-descriptors",
        title: "pause, one process with 10,000 descriptors",
        arguments: ["--descriptors", "10000"],
        descriptors: DESCRIPTORS,
    },
];

/// The pauses.
///
/// # Errors
/// When a job fails.
pub(super) fn measure(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    ALL.iter().map(|many| measure_one(setting, many)).collect()
}

fn measure_one(setting: &Setting, many: &Many) -> Result<Figure, Failure> {
    let mut subject = Subject::start(setting, many.key, &many.arguments)?;
    // The first checkpoint of an agent finds nothing in its caches.
    subject.checkpoint()?;
    let (mut pauses, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        stops.push(stop_all(&subject)? + f64::from(many.descriptors) * A_DESCRIPTOR / GOAL);
        pauses.push(subject.checkpoint()?.0);
    }
    subject.job.kill()?;
    let pause = Series::new("pause", "ms", pauses);
    let stop = Series::new("SIGSTOP until all stand, SIGCONT", "ms", stops);
    let ratio = pause.median / stop.median;
    Ok(Figure::new(many.key, many.title, pause, Some(stop), ratio, (Sense::AtMost, GOAL)))
}

/// Stops the job, waits until all its threads stand, and lets it go on: how long that took, ms.
fn stop_all(subject: &Subject) -> Result<f64, Failure> {
    let processes = subject.job.processes();
    let signal = |signal| -> Result<(), Failure> {
        processes.iter().try_for_each(|pid| kill(Pid::from_raw(*pid), signal)).map_err(failure)
    };
    let began = Instant::now();
    signal(Signal::SIGSTOP)?;
    for pid in &processes {
        while !stands(*pid)? {
            if began.elapsed() > LIMIT {
                return Err(Failure(format!("process {pid} does not stop")));
            }
        }
    }
    signal(Signal::SIGCONT)?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Whether all threads of a process are stopped.
fn stands(pid: i32) -> Result<bool, Failure> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(failure)? {
        let stat = thread.map_err(failure)?.path().join("stat");
        let stat = std::fs::read_to_string(stat).map_err(failure)?;
        if stat.rsplit(')').next().map(str::trim_start).and_then(|rest| rest.chars().next())
            != Some('T')
        {
            return Ok(false);
        }
    }
    Ok(true)
}
