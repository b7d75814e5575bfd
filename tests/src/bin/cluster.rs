//! The end-to-end tests of the cluster: nodes of namespaces, killed, cut off and brought back.

use std::collections::{BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ckptd_tests::cluster::demo;
use ckptd_tests::cluster::suite::{self, Case, Company, Stage};
use ckptd_tests::workspace::Workspace;
use clap::Parser;

/// Runs jobs on clusters of namespaces and takes nodes, links and daemons away from them.
#[derive(Parser)]
struct Options {
    /// Tests to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Run just this test; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Show a node's loss instead, step by step
    #[arg(long)]
    demo: bool,
    /// List the tests
    #[arg(long)]
    list: bool,
    /// Let somebody die at every numbered step of a checkpoint, a move and a restart instead; those that
    /// passed already with this executable are left out
    #[arg(long)]
    faults: bool,
    /// Let nodes leave, be lost and join at random instead, from this seed
    #[arg(long, value_name = "SEED")]
    history: Option<u64>,
    /// How long a history is, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Run each that often; of a history: so many seeds from this one on
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// So many histories, or faults, side by side, each on a cluster of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cluster: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut cases = suite::all();
    for name in &options.only {
        if !cases.iter().any(|case| case.name == name) {
            return Err(format!("there is no test {name}; --list lists them").into());
        }
    }
    cases.retain(|case| {
        let named = options.names.iter().any(|name| case.name.contains(name));
        let only = options.only.iter().any(|name| case.name == name);
        named || only || (options.names.is_empty() && options.only.is_empty())
    });
    if options.list {
        cases.iter().for_each(|case| println!("{}: {}", case.name, case.about));
        return Ok(true);
    }
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    if options.demo {
        demo::run(&stage)?;
        return Ok(true);
    }
    if let Some(first) = options.history {
        return Ok(histories(&stage, first, options));
    }
    if options.faults {
        return faults(&workspace, &stage, options);
    }
    let began = Instant::now();
    let all = cases.iter().flat_map(|case| std::iter::repeat_n(case, options.times));
    let score = Mutex::new(Score::default());
    for company in Company::ALL {
        let of_company = all.clone().filter(|case| suite::company(case.name) == company);
        let waiting = Mutex::new(of_company.collect::<VecDeque<_>>());
        std::thread::scope(|scope| {
            for _ in 0..company.lanes() {
                scope.spawn(|| lane(&waiting, &stage, &score));
            }
        });
    }
    let Score { passed, failed } = *held(&score);
    println!(
        "{passed} passed, {failed} failed; the cluster took {:.1} s",
        began.elapsed().as_secs_f64()
    );
    Ok(failed == 0)
}

/// Does each piece of work once, so many side by side; how many went wrong.
fn side_by_side<T: Send>(
    work: impl IntoIterator<Item = T>,
    lanes: u8,
    run: impl Fn(T) -> bool + Sync,
) -> usize {
    let work = Mutex::new(work.into_iter().collect::<VecDeque<T>>());
    let failed = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                loop {
                    let Some(next) = held(&work).pop_front() else { return };
                    if !run(next) {
                        *held(&failed) += 1;
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs histories from a seed on. One that fails does not keep the others from being run.
fn histories(stage: &Stage, first: u64, options: &Options) -> bool {
    let seeds = first..first + options.times as u64;
    let least = Duration::from_secs(options.seconds);
    let failed = side_by_side(seeds, options.lanes, |seed| {
        let outcome = suite::history::run(stage, seed, least);
        match &outcome {
            Ok(events) => println!("pass history {seed}: {events} events"),
            Err(failure) => println!("FAIL history {seed}: {failure}"),
        }
        outcome.is_ok()
    });
    println!("{} of {} histories ended right", options.times - failed, options.times);
    failed == 0
}

/// Runs all faults, going on where the run before was cut off.
fn faults(
    workspace: &Workspace,
    stage: &Stage,
    options: &Options,
) -> Result<bool, Box<dyn std::error::Error>> {
    let passed = Mutex::new(Passed::load(workspace)?);
    let names = &options.names;
    let mut all = suite::faults::all();
    all.retain(|fault| names.is_empty() || names.iter().any(|name| fault.name().contains(name)));
    let count = all.len();
    all.retain(|fault| !held(&passed).names.contains(&fault.name()));
    let failed = side_by_side(all, options.lanes, |fault| {
        let (name, started) = (fault.name(), Instant::now());
        let outcome = suite::faults::run(stage, fault);
        let took = started.elapsed().as_secs_f64();
        match &outcome {
            Ok(()) => println!("pass {name} ({took:.1} s)"),
            Err(failure) => println!("FAIL {name} ({took:.1} s): {failure}"),
        }
        if outcome.is_ok() {
            if let Err(error) = held(&passed).add(&name) {
                eprintln!("cluster: {name} will be run again: {error}");
            }
        }
        outcome.is_ok()
    });
    println!("{} of {count} faults survived", count - failed);
    Ok(failed == 0)
}

/// What has passed with one executable: a file of names below a line that says which it was.
struct Passed {
    file: PathBuf,
    names: BTreeSet<String>,
}

impl Passed {
    fn load(workspace: &Workspace) -> std::io::Result<Passed> {
        let executable = std::fs::metadata(&workspace.ckptd)?;
        let built =
            executable.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let head =
            format!("{} {} {}", workspace.ckptd.display(), executable.len(), built.as_nanos());
        // Through the command tree they are other tests.
        let name = match std::env::var_os("CKPTD_TREE_ABOVE") {
            Some(_) => "target/faults-tree.passed",
            None => "target/faults.passed",
        };
        let file = workspace.repository.join(name);
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let mut lines = known.lines();
        let names = match lines.next() {
            Some(first) if first == head => lines.map(str::to_owned).collect(),
            _ => {
                std::fs::write(&file, format!("{head}\n"))?;
                BTreeSet::new()
            }
        };
        Ok(Passed { file, names })
    }

    fn add(&mut self, name: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.file)?;
        writeln!(file, "{name}")?;
        self.names.insert(name.to_owned());
        Ok(())
    }
}

#[derive(Default)]
struct Score {
    passed: usize,
    failed: usize,
}

/// Runs cases until none is left.
fn lane(cases: &Mutex<VecDeque<&Case>>, stage: &Stage, score: &Mutex<Score>) {
    loop {
        let Some(case) = held(cases).pop_front() else { return };
        let started = Instant::now();
        let outcome = (case.run)(stage);
        let took = started.elapsed().as_secs_f64();
        let mut score = held(score);
        match outcome {
            Ok(()) => {
                score.passed += 1;
                println!("pass {} ({took:.1} s)", case.name);
            }
            Err(failure) => {
                score.failed += 1;
                println!("FAIL {} ({took:.1} s): {failure}", case.name);
            }
        }
    }
}

/// What a lane that panicked left behind still counts.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
