//! What a short task of many costs: `ckptd farm run` beside `xargs -P`, and beside GNU parallel where that is installed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::figure::{Figure, Sense, Series};
use super::subject::Setting;

/// Tasks at a time.
const JOBS: &str = "2";
/// What a task may cost more than it does with xargs.
const OVERHEAD_MS: f64 = 2.0;
/// How many a second there are to be.
const A_SECOND: f64 = 500.0;

/// Runs so many tasks that do nothing, in turn with each program.
///
/// # Errors
/// Where a program fails.
pub fn measure(setting: &Setting, tasks: usize) -> Result<Vec<Figure>, Box<dyn std::error::Error>> {
    let folder = setting.folder.path();
    let file = folder.join("tasks");
    fs::write(&file, "true\n".repeat(tasks))?;
    let has_parallel =
        Command::new("parallel").arg("--version").stdout(Stdio::null()).status().is_ok();
    let (mut farm, mut xargs, mut parallel) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        farm.push(of_farm(&setting.ckptd, folder, &file)?);
        let words = ["-P", JOBS, "-I", "{}", "/bin/sh", "-c", "{}"];
        xargs.push(timed(Command::new("xargs").args(words).stdin(fs::File::open(&file)?))?);
        if has_parallel {
            let input = fs::File::open(&file)?;
            parallel.push(timed(Command::new("parallel").args(["--jobs", JOBS]).stdin(input))?);
        }
    }
    let rate = |what: &str, times: &[Duration]| {
        let samples = times.iter().map(|time| tasks as f64 / time.as_secs_f64()).collect();
        Series::new(what, "tasks/s", samples)
    };
    let (own, beside) = (rate("ckptd farm run", &farm), rate("xargs -P", &xargs));
    let overhead: Vec<f64> = farm
        .iter()
        .zip(&xargs)
        .map(|(own, other)| (own.as_secs_f64() - other.as_secs_f64()) * 1000.0 / tasks as f64)
        .collect();
    let overhead = Series::new("more than with xargs", "ms", overhead);
    let (rate_score, overhead_score) = (own.median, overhead.median);
    let goal = (Sense::AtLeast, A_SECOND);
    let title = format!("{tasks} tasks that do nothing, {JOBS} at a time");
    let mut figures = vec![
        Figure::new("farm-rate", title, own.clone(), Some(beside), rate_score, goal),
        Figure::new(
            "farm-overhead",
            "what a task costs",
            overhead,
            None,
            overhead_score,
            (Sense::AtMost, OVERHEAD_MS),
        ),
    ];
    if has_parallel {
        let other = rate("GNU parallel", &parallel);
        let ratio = own.median / other.median;
        let title = "beside GNU parallel";
        figures.push(Figure::new(
            "farm-parallel",
            title,
            own,
            Some(other),
            ratio,
            (Sense::AtLeast, 1.0),
        ));
    }
    Ok(figures)
}

/// Each time a run of its own, with all that belongs to it.
fn of_farm(
    ckptd: &Path,
    folder: &Path,
    file: &Path,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let state = folder.join("state");
    let mut command = Command::new(ckptd);
    command.args(["farm", "run", "--quiet", "--jobs", JOBS]).arg(file).env("CKPTD_DIR", &state);
    let took = timed(&mut command)?;
    fs::remove_dir_all(&state)?;
    Ok(took)
}

fn timed(command: &mut Command) -> Result<Duration, Box<dyn std::error::Error>> {
    let since = Instant::now();
    let status = command.status()?;
    let took = since.elapsed();
    match status.success() {
        true => Ok(took),
        false => Err(format!("{command:?} has ended with {status}").into()),
    }
}
