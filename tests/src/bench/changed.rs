//! What a checkpoint costs where little has changed: one job whose writes are watched, another whose memory is read whole,
//! side by side.

use super::figure::{Figure, Sense, Series};
use super::queens::own_cpu;
use super::subject::{Setting, Subject, pause_of, told_of};
use crate::job::Failure;

/// MiB of each process.
const MIB: usize = 512;
/// Of its pages so many are written between two checkpoints, anywhere.
const PERCENT: &str = "1";
/// Nanoseconds of a millisecond.
const MILLI: f64 = 1e6;

/// What one of both jobs has cost.
#[derive(Default)]
struct Costs {
    bytes: Vec<f64>,
    cpu: Vec<f64>,
    pauses: Vec<f64>,
    writes: Vec<f64>,
}

impl Costs {
    fn add(&mut self, subject: &mut Subject) -> Result<(), Failure> {
        self.writes.push(subject.measure("writes")? / MILLI);
        let launcher = subject.job.launcher_pid()?;
        let before = own_cpu(launcher);
        let number = subject.job.must_checkpoint()?;
        self.cpu.push((own_cpu(launcher) - before) * 1e3);
        self.pauses.push(pause_of(&subject.job, number)?);
        self.bytes
            .push(told_of(&subject.job, number, "/summary/stored_bytes")? / f64::from(1 << 20));
        Ok(())
    }
}

/// Bytes and CPU time of such a checkpoint, and what the first writes after it take.
///
/// # Errors
/// When a job fails.
pub(super) fn measure(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let mib = MIB.to_string();
    let arguments = ["--private", &mib, "--scatter", PERCENT];
    let off = [("CKPTD_TRACKING", "off")];
    let mut watched = Subject::start_with(setting, "watched", &arguments, &[])?;
    let mut whole = Subject::start_with(setting, "whole", &arguments, &off)?;
    let (mut few, mut all) = (Costs::default(), Costs::default());
    // The first one has all of it.
    watched.checkpoint()?;
    whole.checkpoint()?;
    for _ in 0..setting.rounds {
        all.add(&mut whole)?;
        few.add(&mut watched)?;
    }
    for subject in [&mut watched, &mut whole] {
        subject.job.kill()?;
        std::fs::remove_dir_all(subject.job.state()).map_err(super::subject::failure)?;
    }
    let bytes = Series::new("stored", "MiB", few.bytes);
    let size = Series::new("the process", "MiB", vec![MIB as f64]);
    let share = bytes.median / size.median;
    let cpu = Series::new("CPU time of ckptd", "ms", few.cpu);
    let cpu_of_all = Series::new("all of it read", "ms", all.cpu);
    let cpu_share = cpu.median / cpu_of_all.median;
    let pause = Series::new("pause", "ms", few.pauses);
    let unwatched_pause = Series::new("not watched", "ms", all.pauses);
    let pause_share = pause.median / unwatched_pause.median;
    let writes = Series::new("first writes after a checkpoint", "ms", few.writes);
    let unwatched = Series::new("not watched", "ms", all.writes);
    let writes_share = writes.median / unwatched.median;
    Ok(vec![
        Figure::new(
            "changed-bytes",
            "checkpoint of 512 MiB, 1 % of its pages written: bytes",
            bytes,
            Some(size),
            share,
            (Sense::AtMost, 0.02),
        ),
        Figure::new(
            "changed-cpu",
            "checkpoint of 512 MiB, 1 % of its pages written: CPU time",
            cpu,
            Some(cpu_of_all),
            cpu_share,
            (Sense::AtMost, 0.04),
        ),
        Figure::new(
            "changed-pause",
            "checkpoint of 512 MiB, 1 % of its pages written: pause",
            pause,
            Some(unwatched_pause),
            pause_share,
            (Sense::AtMost, 1.0),
        ),
        Figure::new(
            "first-writes",
            "first writes to pages after a checkpoint",
            writes,
            Some(unwatched),
            writes_share,
            (Sense::AtMost, 1.05),
        ),
    ])
}
