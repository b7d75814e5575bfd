//! What it costs two ranks on one machine that they can be separated: messages by what ckptd sets, beside the run time's own
//! choice, which is shared memory, in turn.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::figure::{Figure, Sense, Series};
use super::subject::Setting;
use crate::cluster::PATH;
use crate::job::Failure;
use crate::run_times;

/// What is measured, as the script calls it; in words; and how many times as long it may take.
const KINDS: [(&str, &str, f64); 3] = [
    ("small", "8 bytes one way", 15.0),
    ("large", "64 KiB one way", 5.0),
    ("step", "1 ms of work, 8 KiB exchanged", 1.15),
];

/// A run time that is installed.
struct RunTime {
    key: &'static str,
    name: &'static str,
    launcher: &'static str,
    path: String,
}

impl RunTime {
    fn all() -> Vec<Self> {
        let packaged = [
            ("openmpi5", "Open MPI 5", "openmpi"),
            ("mpich5", "MPICH 5", "mpich"),
            ("intelmpi", "Intel MPI", "impi-rt"),
        ];
        let packaged = packaged.into_iter().filter_map(|(key, name, package)| {
            Some(Self { key, name, launcher: "mpirun", path: run_times::path(package)? })
        });
        let launcher = "/usr/bin/mpirun.openmpi";
        let debian = Self { key: "openmpi4", name: "Open MPI 4", launcher, path: PATH.to_owned() };
        let debian = Path::new(launcher).exists().then_some(debian);
        debian.into_iter().chain(packaged).collect()
    }
}

/// Measures so often.
///
/// # Errors
/// Where a program fails.
pub fn measure(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for run_time in RunTime::all() {
        let told = told(setting, &run_time)?;
        let mut own: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut limit = own.clone();
        for _ in 0..setting.rounds {
            for (samples, settings) in [(&mut limit, &Vec::new()), (&mut own, &told)] {
                for (name, taken) in messages(setting, &run_time, settings)? {
                    samples.entry(name).or_default().push(taken);
                }
            }
        }
        for (kind, what, goal) in KINDS {
            let series = |samples: &BTreeMap<String, Vec<f64>>, what: &str| {
                Series::new(what, "us", samples.get(kind).cloned().unwrap_or_default())
            };
            let own = series(&own, what);
            let limit = series(&limit, "as the run time chooses");
            let ratio = own.median / limit.median;
            let title = format!("{}: {what}", run_time.name);
            let goal = (Sense::AtMost, goal);
            figures.push(Figure::new(run_time.key, title, own, Some(limit), ratio, goal));
        }
    }
    Ok(figures)
}

/// What ckptd sets for it on a cluster, as it tells itself.
fn told(setting: &Setting, run_time: &RunTime) -> Result<Vec<(String, String)>, Failure> {
    let mut doctor = Command::new(&setting.ckptd);
    doctor.args(["doctor", "--mpi", run_time.launcher, "--json"]);
    let said = output(doctor.env("PATH", &run_time.path))?;
    let said: serde_json::Value = serde_json::from_str(&said)
        .map_err(|error| Failure(format!("doctor --mpi said {said:?}: {error}")))?;
    let settings = said["settings"].as_object().into_iter().flatten();
    let settings =
        settings.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Ok(settings.collect())
}

/// Microseconds by name.
fn messages(
    setting: &Setting,
    run_time: &RunTime,
    settings: &[(String, String)],
) -> Result<Vec<(String, f64)>, Failure> {
    let script = setting.repository.join("tests/real/pingpong.py");
    let rounds = if setting.quick { "300" } else { "2000" };
    let mut mpirun = Command::new(run_time.launcher);
    mpirun.args(["-n", "2", "python3"]).arg(script).arg(rounds).env("PATH", &run_time.path);
    // As root, in a container, and where there are fewer cores than it would have.
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        mpirun.env(name, "1");
    }
    mpirun.envs(settings.iter().cloned());
    let said = output(&mut mpirun)?;
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let taken: Vec<(String, f64)> =
        lines.filter_map(|(name, taken)| Some((name.to_owned(), taken.parse().ok()?))).collect();
    match taken.len() == KINDS.len() {
        true => Ok(taken),
        false => Err(Failure(format!("{} said {said:?}", run_time.name))),
    }
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let ran = command.output().map_err(|error| Failure(format!("run {command:?}: {error}")))?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => Err(Failure(format!(
            "{command:?} ended with {}: {}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr)
        ))),
    }
}
