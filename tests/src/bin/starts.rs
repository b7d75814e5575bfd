//! A checkpoint at every so many milliseconds of an Open MPI job's start, until its ranks work: each is
//! committed, the job is killed and restarted, and its answer is right.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::build;
use ckptd_tests::cluster::suite::{Stage, lose_at, restart_at};
use ckptd_tests::job::{Checkpoint, Failure, Job};
use ckptd_tests::workspace::Workspace;
use clap::Parser;

/// N-Queens: board and known count.
const QUEENS: (&str, &str) = ("11", "N=11: 2680 solutions");
/// How long a job may take to its end.
const LIMIT: Duration = Duration::from_secs(60);
/// A checkpoint of a job that starts may be put off that long.
const PUT_OFF: Duration = Duration::from_secs(20);
/// Answers of `ckptd checkpoint` that say: not now.
const NOT_YET: [&str; 5] =
    ["no job", "none of that name", "is not running", "not complete yet", "try again"];
/// Times of a sample, ms.
const SAMPLE: [u64; 4] = [0, 60, 140, 260];

/// Checkpoints an Open MPI job at every moment of its start.
#[derive(Parser)]
struct Options {
    /// Every STEP ms, from FROM on, until the ranks work: without it, a sample
    #[arg(long)]
    all: bool,
    /// On a cluster of three nodes instead of one machine
    #[arg(long)]
    cluster: bool,
    /// The first moment, ms after the start
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Milliseconds between two moments
    #[arg(long, default_value_t = 20)]
    step: u64,
    /// No moment after this, ms after the start
    #[arg(long, default_value_t = 10_000)]
    to: u64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("starts: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut workspace = Workspace::new()?;
    let step = usize::try_from(options.step.max(1))?;
    let moments: Vec<u64> = match options.all {
        true => (options.from..=options.to).step_by(step).collect(),
        false => SAMPLE.to_vec(),
    };
    let failed = if options.cluster {
        let stage = Stage::new(&workspace)?;
        let ckptd = stage.cluster(3)?;
        let restarted = sweep("cluster, restarted", &moments, |after| restart_at(&ckptd, after));
        drop(ckptd);
        let lost =
            sweep("cluster, a node lost", &moments, |after| lose_at(&stage.cluster(3)?, after));
        restarted + lost
    } else {
        let program = workspace.programs.join("nqueens");
        let source = workspace.repository.join("tests/nqueens/nqueens.c");
        build::compile("mpicc.openmpi", &["-O2"], &[&source], &program)?;
        Account::available()
            .into_iter()
            .map(|account| {
                sweep(account.name(), &moments, |after| {
                    one_machine(&workspace, account, &program, after)
                })
            })
            .sum()
    };
    workspace.root.disable_cleanup(failed > 0);
    Ok(failed == 0)
}

/// Goes through the moments until the ranks work; how many failed.
fn sweep(
    name: &str,
    moments: &[u64],
    mut at: impl FnMut(Duration) -> Result<bool, Failure>,
) -> usize {
    let (mut failed, mut done) = (0, 0);
    for after in moments {
        done += 1;
        match at(Duration::from_millis(*after)) {
            Ok(false) => {}
            Ok(true) => break,
            Err(failure) => {
                failed += 1;
                println!("FAIL {name}, {after} ms after the start: {failure}");
            }
        }
    }
    println!("{name}: {} of {done} moments passed", done - failed);
    failed
}

/// One start. Whether the ranks worked already at the checkpoint.
fn one_machine(
    workspace: &Workspace,
    account: Account,
    program: &Path,
    after: Duration,
) -> Result<bool, Failure> {
    let name = format!("start-{}-{}", account.name(), after.as_millis());
    let home = workspace.root.path().join(&name);
    let mut job = Job::new(&workspace.ckptd, account, &home, &name)?;
    account.give(&home).map_err(|e| Failure(format!("failed to give {name} away: {e}")))?;
    job.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    job.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let (program, end) = (program.display().to_string(), home.join("end"));
    let until = end.display().to_string();
    let queens = [QUEENS.0, "--ballast", "1", "--chat", "40", "--until", &until];
    let mpi = ["mpirun.openmpi", "--oversubscribe", "-np", "3", &program];
    let begun = Instant::now();
    job.run(&[&mpi[..], &queens].concat())?;
    std::thread::sleep(after.saturating_sub(begun.elapsed()));
    let worked = job.output().contains("rank ");
    while let Checkpoint::Refused(line) = job.checkpoint()? {
        let put_off = NOT_YET.iter().any(|words| line.contains(words));
        if !put_off || begun.elapsed() > after + PUT_OFF {
            return Err(Failure(format!("the checkpoint was refused: {line}\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    job.kill()?;
    job.clear_environment();
    job.restart(&[])?;
    fs::write(&end, "").map_err(|e| Failure(format!("failed to write {until}: {e}")))?;
    job.must_succeed(LIMIT)?;
    if job.output().lines().any(|line| line.trim_end() == QUEENS.1) {
        return Ok(worked);
    }
    Err(Failure(format!("no line \"{}\"\n{}", QUEENS.1, job.dump())))
}
