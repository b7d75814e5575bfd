//! N-Queens under Open MPI: what checkpoints cost it, and what happens between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::figure::{Figure, Sense, Series, median};
use super::subject::{Setting, failure};
use crate::account::Account;
use crate::build;
use crate::job::{Failure, Job};

/// Board, and its answer.
const BOARD: (&str, &str) = ("13", "N=13: 73712 solutions");
/// Ranks.
const RANKS: &str = "2";
/// What `ckptd run` sets for Open MPI: plain runs get the same.
const SETTINGS: [(&str, &str); 4] = [
    ("OMPI_MCA_btl", "self,tcp"),
    ("PMIX_MCA_gds", "hash"),
    ("OMPI_MCA_mpi_preconnect_mpi", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];
/// Variables without which Open MPI refuses to run as root, and to run more ranks than cores.
const PERMISSIONS: [(&str, &str); 3] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

fn program(setting: &Setting) -> Result<PathBuf, Failure> {
    let program = setting.folder.path().join("nqueens");
    if !program.exists() {
        let source = setting.repository.join("tests/nqueens/nqueens.c");
        build::compile("mpicc.openmpi", &["-O2"], &[&source], &program).map_err(failure)?;
    }
    Ok(program)
}

/// CPU time, user and system, of all children that were waited for, and of theirs, s.
fn children_cpu() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(failure)?;
    let total = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(total as f64 / 1e6)
}

fn set(command: &mut Command) {
    command.envs(SETTINGS).envs(PERMISSIONS).stdin(Stdio::null());
}

fn mpirun(program: &Path) -> [String; 5] {
    let program = program.to_string_lossy().into_owned();
    ["mpirun.openmpi".into(), "-np".into(), RANKS.into(), program, BOARD.0.into()]
}

/// Runs it by itself; rounds and seconds that it tells, and CPU seconds.
fn plain(program: &Path, limit: &[&str]) -> Result<(u64, f64, f64), Failure> {
    let words = mpirun(program);
    let before = children_cpu()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(limit);
    set(&mut command);
    let output = command.output().map_err(failure)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains(BOARD.1) {
        return Err(Failure(format!("mpirun failed: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let cpu = children_cpu()? - before;
    let told = text.lines().find(|line| line.contains(" rounds, "));
    let mut words = told.unwrap_or_default().split_ascii_whitespace();
    let rounds = words.next().and_then(|word| word.parse().ok());
    let seconds = words.nth(1).and_then(|word| word.parse().ok());
    match (rounds, seconds) {
        (Some(rounds), Some(seconds)) => Ok((rounds, seconds, cpu)),
        _ => Err(Failure(format!("odd output {text:?}"))),
    }
}

/// What one run under ckptd took.
struct Kept {
    /// CPU seconds of everything, ckptd's own included.
    cpu: f64,
    /// CPU seconds of the launcher with its coordinator and agent.
    own: f64,
    checkpoints: usize,
}

fn kept(setting: &Setting, program: &Path, rounds: &str, interval: &str) -> Result<Kept, Failure> {
    let state = setting.folder.path().join("cpu-state");
    let before = children_cpu()?;
    let mut command = Command::new(&setting.ckptd);
    command.arg("run").arg("--dir").arg(&state).args(["--interval", interval, "--"]);
    command.args(mpirun(program)).args(["--rounds", rounds]).env_remove("CKPTD_DIR");
    set(&mut command);
    let output = setting.folder.path().join("cpu-output");
    let file = || fs::File::create(&output).map_err(failure);
    let mut child = command.stdout(file()?).spawn().map_err(failure)?;
    let pid = i32::try_from(child.id()).map_err(failure)?;
    let mut own = 0.0;
    let status = loop {
        own = f64::max(own, own_cpu(pid));
        if let Some(status) = child.try_wait().map_err(failure)? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let cpu = children_cpu()? - before;
    let text = fs::read_to_string(&output).unwrap_or_default();
    if !status.success() || !text.contains(BOARD.1) {
        return Err(Failure(format!("the job under ckptd ended with {status}: {text}")));
    }
    let listing = Command::new(&setting.ckptd)
        .args(["status", "latest", "--json", "--dir"])
        .arg(&state)
        .output()
        .map_err(failure)?;
    let status: serde_json::Value = serde_json::from_slice(&listing.stdout).map_err(failure)?;
    let newest = status["checkpoints"].as_array().and_then(|all| all.last().cloned());
    let checkpoints = newest.and_then(|newest| newest["checkpoint"].as_u64()).unwrap_or(0);
    fs::remove_dir_all(&state).map_err(failure)?;
    Ok(Kept { cpu, own, checkpoints: checkpoints as usize })
}

/// CPU seconds of a process and of its threads that have ended; 0 once it is gone.
pub(super) fn own_cpu(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    // USER_HZ is 100 on every Linux that Rust knows.
    ticks.sum::<f64>() / 100.0
}

/// CPU time with checkpoints against without.
pub fn cpu(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let program = program(setting)?;
    let interval = if setting.quick { 5.0 } else { 30.0 };
    // Two checkpoints and a half.
    let wanted = interval * 2.5;
    let (rounds, seconds, _) = plain(&program, &["--least", "3"])?;
    let rounds = (rounds as f64 * wanted / seconds).ceil().to_string();
    let (mut plains, mut keeps) = (Vec::new(), Vec::new());
    let (mut own, mut checkpoints): (f64, usize) = (0.0, 0);
    for _ in 0..setting.rounds {
        plains.push(plain(&program, &["--rounds", &rounds])?.2);
        let kept = kept(setting, &program, &rounds, &interval.to_string())?;
        keeps.push(kept.cpu);
        own = own.max(kept.own);
        checkpoints = checkpoints.max(kept.checkpoints);
    }
    // Each run beside the one before it: what others do to the machine's caches and clock changes more from minute to minute
    // than checkpoints cost.
    let pairs: Vec<f64> = keeps.iter().zip(&plains).map(|(kept, plain)| kept / plain).collect();
    let extra = (median(&pairs) - 1.0) * 100.0;
    let measured = Series::new("CPU time with checkpoints", "s", keeps);
    let limit = Series::new("CPU time without", "s", plains);
    let mut figure = Figure::new(
        "cpu",
        format!("N-Queens, checkpoint every {interval} s (% more CPU)"),
        measured,
        Some(limit),
        extra,
        (Sense::AtMost, 1.0),
    );
    figure.notes.push(format!(
        "of it at most {own:.2} s were ckptd's own, for {checkpoints} checkpoints a run"
    ));
    let told: Vec<String> = pairs.iter().map(|pair| format!("{pair:.3}")).collect();
    figure.notes.push(format!("with over without, run by run: {}", told.join(", ")));
    if checkpoints == 0 {
        return Err(Failure("no checkpoint was taken".into()));
    }
    Ok(vec![figure])
}

/// What /proc tells of one process.
#[derive(Debug, Clone, Copy, Default)]
struct Activity {
    switches: u64,
    cpu_ns: u64,
}

fn activity(pid: i32) -> Activity {
    let mut total = Activity::default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        total.switches += read("status")
            .lines()
            .filter(|line| line.contains("ctxt_switches:"))
            .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>();
        let schedstat = read("schedstat");
        let ran = schedstat.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        total.cpu_ns += ran.unwrap_or(0);
    }
    total
}

/// Looks at a job for a while that takes no checkpoint.
pub fn between(setting: &Setting) -> Result<Vec<Figure>, Failure> {
    let program = program(setting)?;
    let home = setting.folder.path().join("between");
    let mut job = Job::new(&setting.ckptd, Account::Root, &home, "between")?;
    for (name, value) in PERMISSIONS {
        job.set(name, value);
    }
    let mut command: Vec<String> = mpirun(&program).into();
    command.extend(["--least".into(), "60".into()]);
    job.run(&command.iter().map(String::as_str).collect::<Vec<_>>())?;
    let ranks = wait_for_ranks(&job)?;
    // One checkpoint first: nothing of it may stay behind.
    job.must_checkpoint()?;
    std::thread::sleep(Duration::from_secs(1));
    let mut notes = Vec::new();
    for pid in &ranks {
        notes.extend(intrusions(*pid, &setting.ckptd));
    }
    let ours = ours(&job, &setting.ckptd);
    let look = || ours.iter().map(|pid| (*pid, activity(*pid))).collect::<BTreeMap<_, _>>();
    let seconds = if setting.quick { 3 } else { 10 };
    let (mut switches, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        let before = look();
        std::thread::sleep(Duration::from_secs(seconds));
        let after = look();
        let sum = |all: &BTreeMap<i32, Activity>, of: fn(&Activity) -> u64| {
            all.values().map(of).sum::<u64>()
        };
        let of = |of| sum(&after, of).saturating_sub(sum(&before, of)) as f64 / seconds as f64;
        switches.push(of(|activity| activity.switches));
        cpu.push(of(|activity| activity.cpu_ns) / 1e6);
    }
    job.kill()?;
    let cpu = Series::new("CPU time", "ms/s", cpu);
    notes.push(format!(
        "{} processes of ckptd's used {:.3} ms of CPU time a second",
        ours.len(),
        cpu.median
    ));
    let switches = Series::new("context switches of ckptd a second", "1/s", switches);
    let intruded = notes.len() > 1;
    let score = if intruded { f64::INFINITY } else { switches.median };
    let title = "between checkpoints (context switches a second)";
    let mut figure = Figure::new("between", title, switches, None, score, (Sense::AtMost, 0.0));
    if !intruded {
        notes.push("ranks: no tracer, no seccomp filter, nothing preloaded or mapped".into());
    }
    figure.notes = notes;
    Ok(vec![figure])
}

fn wait_for_ranks(job: &Job) -> Result<Vec<i32>, Failure> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !job.output().contains("rank 0 of") {
        if Instant::now() > deadline {
            return Err(Failure(format!("the ranks never came up\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_rank = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "nqueens\n")
    };
    Ok(job.processes().into_iter().filter(is_rank).collect())
}

/// Traces of ckptd in a rank.
fn intrusions(pid: i32, ckptd: &Path) -> Vec<String> {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let text = |file: &str| String::from_utf8_lossy(&read(file)).into_owned();
    let mut found = Vec::new();
    for line in text("status").lines() {
        if let Some((name @ ("TracerPid" | "Seccomp" | "Seccomp_filters"), value)) =
            line.split_once(":")
        {
            if value.trim() != "0" {
                found.push(format!("rank {pid} has {name} {}", value.trim()));
            }
        }
    }
    if text("environ").split('\0').any(|variable| variable.starts_with("LD_PRELOAD=")) {
        found.push(format!("rank {pid} has LD_PRELOAD"));
    }
    if text("maps").lines().any(|line| line.ends_with(&*ckptd.to_string_lossy())) {
        found.push(format!("rank {pid} has ckptd mapped"));
    }
    found
}

/// The launcher, and all executions of ckptd below it.
fn ours(job: &Job, ckptd: &Path) -> Vec<i32> {
    let is_ours =
        |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == ckptd);
    let Some(launcher) = job.processes().into_iter().find(is_ours) else { return Vec::new() };
    // The init has an environment of its own, without the mark: found by its parent.
    let mut found = vec![launcher];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|word| word.parse().ok());
            found.extend(children.filter(is_ours));
        }
    }
    found
}
