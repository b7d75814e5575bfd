//! Real programs under `ckptd`, three generations each.

mod installed;
mod jobs;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ckptd_tests::account::{Account, running_as_root};
use ckptd_tests::huge_pages::HugePages;
use ckptd_tests::job::{Failure, Job};
use ckptd_tests::programs;
use ckptd_tests::scenario::{Case, Mode, Outcome};
use ckptd_tests::unnamespaced::Numbers;
use ckptd_tests::workspace::Workspace;
use ckptd_tests::{build, processes};
use clap::Parser;

use jobs::Real;

/// Checkpoint, kill, restart: that often.
const GENERATIONS: usize = 3;
/// Jobs go on until this file is in their working directory: no test depends on how fast the machine is.
const END: &str = "end";
/// How long a program may take to say that it has started, and to end.
const LIMIT: Duration = Duration::from_secs(90);
/// Time that the job runs between two checkpoints.
const BETWEEN: Duration = Duration::from_millis(700);

/// Runs Open MPI, MPICH, python, redis, nginx, memcached, sort, SQLite, PostgreSQL, make, a bash pipeline and static binaries under
/// ckptd, three generations each; node, Java, bubblewrap, PyTorch, LAMMPS, Quantum ESPRESSO, GROMACS, octave, R, Go, ffmpeg, GNU
/// parallel and vim in tmux where they are installed.
#[derive(Parser)]
struct Options {
    /// Programs to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Run each by itself instead, without ckptd's checkpoints
    #[arg(long)]
    plain: bool,
    /// Namespaces of the job's own, none, or none and new numbers at each restart
    #[arg(long, value_enum, default_value_t)]
    namespaces: Numbers,
    /// List them
    #[arg(long)]
    list: bool,
}

/// Enough for one program after the other.
const HUGE_PAGES: u32 = 256;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("realprograms: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut workspace = Workspace::new()?;
    let mut reals = jobs::suite(&workspace)?;
    reals.extend(installed::jobs(&workspace));
    reals.retain(|r| options.names.is_empty() || options.names.iter().any(|n| r.name.contains(n)));
    if options.list {
        reals.iter().for_each(|real| println!("{}", real.name));
        return Ok(true);
    }
    // MPICH takes them where there are some.
    let _lent = HugePages::lend(HUGE_PAGES);
    let (mut passed, mut failed, mut named) = (0, 0, 0);
    for account in Account::available() {
        for real in &reals {
            if let Some(missing) = real.needs.iter().find(|program| !is_installed(program)) {
                println!("skip {} {}: there is no {missing} here", real.name, account.name());
                continue;
            }
            let started = Instant::now();
            let outcome = generations(real, account, &workspace, options.plain, options.namespaces);
            let took = started.elapsed().as_secs_f64();
            let name = format!("{} {}", real.name, account.name());
            match outcome {
                Ok(()) => {
                    passed += 1;
                    println!("pass {name} ({took:.1} s)");
                }
                Err(failure) if real.named => {
                    named += 1;
                    println!("does not work yet: {name} ({took:.1} s): {failure}");
                }
                Err(failure) => {
                    failed += 1;
                    println!("FAIL {name} ({took:.1} s): {failure}");
                }
            }
        }
        for (name, outcome) in static_binaries(options, account, &workspace)? {
            match outcome {
                Outcome::Passed => {
                    passed += 1;
                    println!("pass {name}");
                }
                Outcome::Skipped(why) => println!("skip {name}: {why}"),
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("FAIL {name}: {why}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {named} known not to work");
    workspace.root.disable_cleanup(failed > 0);
    Ok(failed == 0)
}

/// Whether a program is in the path, or a file where its whole path says.
fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

fn generations(
    real: &Real,
    account: Account,
    workspace: &Workspace,
    plain: bool,
    numbers: Numbers,
) -> Result<(), Failure> {
    let name = format!("{}.{}", real.name, account.name());
    let home = workspace.root.path().join(&name);
    let mut job = Job::new(&workspace.ckptd, account, &home, &name)?;
    if running_as_root() {
        // Programs side by side ask for the same ports, and a restarted one waits for its own.
        job.wrap(&["unshare", "--net", "sh", "-c", OWN_NETWORK, "sh"]);
    }
    let given = |folder: &Path| {
        let made = std::fs::create_dir_all(folder).and_then(|()| account.give(folder));
        made.map_err(|e| Failure(format!("failed to give {} away: {e}", folder.display())))
    };
    given(&home)?;
    let mut options = vec!["--interval", real.interval];
    if let Some(folder) = real.session {
        given(&home.join(folder))?;
        options.extend(["--session", folder]);
    }
    let mut environment = real.environment.clone();
    environment.push(("OMPI_ALLOW_RUN_AS_ROOT", "1"));
    environment.push(("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"));
    if plain {
        end(&home)?;
        return by_itself(real, account, &home, &environment);
    }
    environment.extend_from_slice(numbers.environment());
    for (variable, value) in environment {
        job.set(variable, value);
    }
    let command: Vec<&str> = real.command.iter().map(String::as_str).collect();
    job.run_with(&options, &command)?;
    let deadline = Instant::now() + LIMIT;
    while !job.output().contains(real.started) {
        if job.ended()?.is_some() || Instant::now() > deadline {
            return Err(Failure(format!("never under way\n{}", job.dump())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    job.clear_environment();
    for generation in 1..=GENERATIONS {
        std::thread::sleep(BETWEEN);
        let told = |f: Failure| Failure(format!("generation {generation}: {f}"));
        job.must_checkpoint().map_err(told)?;
        job.kill().map_err(told)?;
        job.restart(&[]).map_err(told)?;
        job.wait_until_up().map_err(told)?;
    }
    end(&home)?;
    job.must_succeed(LIMIT)?;
    if !job.output().lines().any(|line| line.trim_end() == real.answer) {
        return Err(Failure(format!("no line \"{}\"\n{}", real.answer, job.dump())));
    }
    Ok(())
}

/// A network of its own, with an interface that is not loopback's, which Open MPI leaves alone.
const OWN_NETWORK: &str = r#"
    PATH=$PATH:/usr/sbin:/sbin
    ip link add outer type veth peer name inner && ip address add 10.77.0.1/24 dev inner &&
    ip link set outer up && ip link set inner up && ip link set lo up && exec "$@"
"#;

/// Lets a job of MPI come to its end.
fn end(home: &Path) -> Result<(), Failure> {
    std::fs::write(home.join(END), "").map_err(|e| Failure(format!("failed to write {END}: {e}")))
}

fn by_itself(
    real: &Real,
    account: Account,
    home: &Path,
    environment: &[(&str, &str)],
) -> Result<(), Failure> {
    let mut command = account.command(Path::new(&real.command[0]), home);
    command.args(&real.command[1..]).envs(environment.iter().copied());
    command.env(processes::MARK, home);
    let output = command.output().map_err(|e| Failure(format!("failed to run it: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.lines().any(|line| line == real.answer) {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("{}: {text}{errors}", output.status)));
    }
    Ok(())
}

/// Programs of the conformance suite linked statically, with glibc and with musl.
fn static_binaries(
    options: &Options,
    account: Account,
    workspace: &Workspace,
) -> Result<Vec<(String, Outcome)>, Box<dyn std::error::Error>> {
    let sources = workspace.sources();
    let mut outcomes = Vec::new();
    for program in programs::list(&sources)? {
        if !["busythreads", "pipe", "tcp4"].contains(&program.name.as_str()) {
            continue;
        }
        for (compiler, library) in [("cc", "glibc"), ("musl-gcc", "musl")] {
            let name = format!("static-{library}-{}", program.name);
            if !options.names.is_empty() && !options.names.iter().any(|n| name.contains(n)) {
                continue;
            }
            let executable = workspace.programs.join(&name);
            let include = format!("-I{}", sources.display());
            let flags = ["-std=gnu11", "-O1", "-static", "-pthread", &include];
            let inputs = [program.source.as_path(), &sources.join("conform.c")];
            build::compile(compiler, &flags, &inputs, &executable)?;
            let mode = if options.plain { Mode::Plain } else { Mode::Three };
            let named = programs::Program { name: name.clone(), ..program.clone() };
            let (wrapper, numbers): (&[String], _) = (&[], options.namespaces);
            let (program, executable) = (&named, executable.as_path());
            let case = Case { program, executable, mode, account, wrapper, numbers };
            outcomes.push((case.name(), case.run(&workspace.ckptd, workspace.root.path())));
        }
    }
    Ok(outcomes)
}
