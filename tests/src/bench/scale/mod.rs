//! How costs grow with the size of one job: along each axis jobs of four sizes, side by side in one run. Per unit, the largest is
//! compared with the smallest: 1.0 is linear, less is what does not depend on the size.

mod room;
mod spans;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::figure::{Figure, Sense, Series, median};
use super::subject::{Setting, failure, pause_of};
use crate::account::Account;
use crate::job::{Failure, Job, be_patient};

/// Name of the program.
const NAME: &str = "scale";
/// Each size is so many parts of an axis's largest.
const PARTS: [u64; 4] = [8, 4, 2, 1];
/// How much more a unit may cost in the largest job than in the smallest.
const GOAL: f64 = 1.5;
/// Many times what small jobs may take.
const PATIENCE: u32 = 15;
/// How long a job may take until it is complete, or runs again.
const LIMIT: Duration = Duration::from_secs(180);
/// The timeline is written a moment after what it tells.
const GATHERED: Duration = Duration::from_millis(200);
/// Nanoseconds of a millisecond.
const MILLI: f64 = 1e6;

/// One direction in which a job grows.
#[derive(Debug)]
pub struct Axis {
    /// Its name, which the program knows, too.
    pub name: &'static str,
    /// What is counted.
    unit: &'static str,
    /// What the machine's own limit is.
    limit: &'static str,
    largest: u64,
    /// In the short form.
    quick: u64,
}

/// All of them.
pub const AXES: [Axis; 6] = [
    Axis {
        name: "processes",
        unit: "processes",
        limit: "fork, kill and wait",
        largest: 5000,
        quick: 400,
    },
    Axis {
        name: "threads",
        unit: "threads of one process",
        limit: "pthread_create",
        largest: 10_000,
        quick: 2000,
    },
    Axis {
        name: "descriptors",
        unit: "descriptors of one process",
        limit: "pipe, eventfd and open",
        largest: 100_000,
        quick: 16_000,
    },
    Axis {
        name: "mappings",
        unit: "mappings of one process",
        limit: "mprotect",
        largest: 100_000,
        quick: 16_000,
    },
    Axis {
        name: "memory",
        unit: "MiB of eight times as much address space",
        limit: "writing to each page",
        largest: 8192,
        quick: 512,
    },
    Axis {
        name: "connections",
        unit: "TCP connections within the job",
        limit: "connect and accept",
        largest: 10_000,
        quick: 1600,
    },
];

/// A job of one size, times in ms.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    size: u64,
    limit: f64,
    freeze: Vec<f64>,
    pause: Vec<f64>,
    write: Vec<f64>,
    restart: Vec<f64>,
}

/// One of the times of a point.
type Times = fn(&Point) -> &[f64];

/// The times that are compared.
const TIMES: [(&str, Times); 4] = [
    ("freeze", |point| &point.freeze),
    ("pause", |point| &point.pause),
    ("write", |point| &point.write),
    ("restart", |point| &point.restart),
];

/// What was measured along one axis, and what was too large for this machine.
#[derive(Debug, Serialize)]
pub struct Measured {
    axis: &'static str,
    unit: &'static str,
    points: Vec<Point>,
    notes: Vec<String>,
}

/// Measures one axis.
///
/// # Errors
/// When a job fails at any size.
pub fn measure(setting: &Setting, axis: &Axis) -> Result<Measured, Failure> {
    be_patient(PATIENCE);
    let wanted = if setting.quick { axis.quick } else { axis.largest };
    // Ends, and gives back what was changed for it, once all has been measured.
    let room = room::make(axis.name, wanted)?;
    let mut notes = Vec::new();
    if room.most < wanted {
        notes.push(format!("up to {} instead of {wanted}: {}", room.most, room.why));
    }
    let sizes = PARTS.map(|part| room.most / part);
    let points: Result<Vec<Point>, Failure> =
        sizes.iter().map(|size| point(setting, axis, *size)).collect();
    Ok(Measured { axis: axis.name, unit: axis.unit, points: points?, notes })
}

fn point(setting: &Setting, axis: &Axis, size: u64) -> Result<Point, Failure> {
    let program = setting.program(NAME)?;
    let name = format!("{}-{size}", axis.name);
    let home = setting.folder.path().join(&name);
    let (results, trace) = (home.join("results"), home.join("trace.json"));
    let mut job = Job::new(&setting.ckptd, Account::Root, &home, &name)?;
    let count = size.to_string();
    let words = [&*program.to_string_lossy(), &*results.to_string_lossy(), axis.name, &count];
    let options = ["--interval", "0", "--trace", &*trace.to_string_lossy()];
    job.run_with(&options, &words)?;
    wait(&mut job, &results, |word, _| word == "ready")?;
    let mut point = Point {
        size,
        limit: first(&results, "alone").map_or(f64::NAN, |nanos| nanos / MILLI),
        freeze: Vec::new(),
        pause: Vec::new(),
        write: Vec::new(),
        restart: Vec::new(),
    };
    for _ in 0..setting.rounds {
        let number = job.must_checkpoint()?;
        point.pause.push(pause_of(&job, number)?);
    }
    std::thread::sleep(GATHERED);
    let told = fs::read_to_string(&trace).map_err(failure)?;
    point.freeze = spans::lengths(&told, "freeze");
    point.write = spans::lengths(&told, "write");
    for _ in 0..setting.rounds {
        job.kill()?;
        let began = unix_ns()?;
        job.restart(&["--interval", "0"])?;
        let ran = wait(&mut job, &results, |word, at| word == "gap" && at > began)?;
        point.restart.push((ran - began) / MILLI);
    }
    job.kill()?;
    drop(job);
    fs::remove_dir_all(&home).map_err(failure)?;
    Ok(point)
}

fn unix_ns() -> Result<f64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(failure)?;
    Ok(since.as_nanos() as f64)
}

/// The words and numbers that the program has told.
fn told(results: &Path) -> Vec<(String, f64)> {
    let text = fs::read_to_string(results).unwrap_or_default();
    let line = |line: &str| {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        (word.to_owned(), number.parse().unwrap_or(f64::NAN))
    };
    text.lines().map(line).collect()
}

fn first(results: &Path, wanted: &str) -> Option<f64> {
    told(results).into_iter().find(|(word, _)| word == wanted).map(|(_, number)| number)
}

/// Waits for what the program tells; its number.
fn wait(job: &mut Job, results: &Path, wanted: impl Fn(&str, f64) -> bool) -> Result<f64, Failure> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some((_, number)) = told(results).into_iter().find(|(word, at)| wanted(word, *at)) {
            return Ok(number);
        }
        if let Some(status) = job.ended()? {
            return Err(Failure(format!("ckptd ended early: {status}\n{}", job.dump())));
        }
        if Instant::now() > deadline {
            return Err(Failure(format!("the program tells nothing\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Measured {
    /// How much more a unit costs at a point than in the smallest job.
    fn growth(&self, point: &Point, times: Times) -> f64 {
        let Some(smallest) = self.points.first() else { return f64::NAN };
        let each = |point: &Point| median(times(point)) / point.size as f64;
        each(point) / each(smallest)
    }

    /// Of a time that grows as a power of the size, the exponent.
    fn exponent(&self, times: Times) -> f64 {
        let (Some(smallest), Some(largest)) = (self.points.first(), self.points.last()) else {
            return f64::NAN;
        };
        let ratio = largest.size as f64 / smallest.size as f64;
        1.0 + self.growth(largest, times).ln() / ratio.ln()
    }

    /// All sizes, line by line: each time, and beside it how it has grown for a unit.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:>9} {:<28} {:>12}", "", self.unit, "the machine");
        TIMES.iter().for_each(|(name, _)| text += &format!(" {name:>18}"));
        text.push('\n');
        for point in &self.points {
            text += &format!("{:>9} {:<28} {:>9.0} ms", point.size, self.axis, point.limit);
            for (_, times) in TIMES {
                let (time, growth) = (median(times(point)), self.growth(point, times));
                text += &format!(" {time:>8.0} ms {growth:>6.2}");
            }
            text.push('\n');
        }
        text += &format!("{:>9} {:<28} {:>12}", "", "grows with the power of", "");
        for (_, times) in TIMES {
            text += &format!(" {:>18.2}", self.exponent(times));
        }
        text.push('\n');
        self.notes.iter().for_each(|note| text += &format!("    {note}\n"));
        text
    }

    /// What the largest job costs, and whether a unit of it costs as much as in the smallest.
    #[must_use]
    pub fn figures(&self, axis: &Axis) -> Vec<Figure> {
        let Some(largest) = self.points.last() else { return Vec::new() };
        let figure = |(name, times): &(&'static str, Times)| {
            let title = format!("{name}, {} {}", largest.size, self.axis);
            let measured = Series::new(*name, "ms", times(largest).to_vec());
            let limit = Series::new(axis.limit, "ms", vec![largest.limit]);
            let growth = self.growth(largest, *times);
            Figure::new(axis.name, title, measured, Some(limit), growth, (Sense::AtMost, GOAL))
        };
        TIMES.iter().map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: u64, time: f64) -> Point {
        let times = vec![time];
        Point {
            size,
            limit: 1.0,
            freeze: times.clone(),
            pause: times.clone(),
            write: times.clone(),
            restart: times,
        }
    }

    #[test]
    fn a_unit_of_the_largest_is_compared_with_one_of_the_smallest() {
        let points = vec![point(10, 5.0), point(80, 80.0)];
        let measured = Measured { axis: "a", unit: "u", points, notes: vec!["n".into()] };
        assert!((measured.growth(&measured.points[1], TIMES[1].1) - 2.0).abs() < 1e-9);
        let exponent = measured.exponent(TIMES[1].1);
        assert!((exponent - 4.0 / 3.0).abs() < 1e-9, "80 / 5 = 8^(4/3): {exponent}");
        let figures = measured.figures(&AXES[0]);
        assert!(figures.len() == TIMES.len() && figures.iter().all(|figure| !figure.reached));
        assert!(measured.table().contains("80 ms   2.00") && measured.table().contains("1.33"));
    }

    #[test]
    fn sizes_are_whole() {
        for axis in &AXES {
            assert!(axis.quick % PARTS[0] == 0 && axis.largest % PARTS[0] == 0, "{}", axis.name);
        }
    }
}
