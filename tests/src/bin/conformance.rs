//! Runs the conformance programs under `ckptd`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use ckptd_tests::account::{Account, running_as_root};
use ckptd_tests::huge_pages::{HugeFolder, HugePages};
use ckptd_tests::programs::{self, Program};
use ckptd_tests::scenario::{Case, Mode, Outcome};
use ckptd_tests::unnamespaced::Numbers;
use ckptd_tests::{build, job, workspace::Workspace};
use clap::Parser;

/// Runs the conformance programs under ckptd: checkpoint and go on, kill and restart, three generations.
#[derive(Parser)]
struct Options {
    /// Programs to run: every one whose name contains one of these (all by default)
    names: Vec<String>,
    /// Modes to run (continue, restart and three by default)
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Whose jobs: root, user (both by default, when run as root)
    #[arg(long = "as")]
    account: Option<String>,
    /// Namespaces of the job's own, none, or none and new numbers at each restart
    #[arg(long, value_enum, default_value_t)]
    namespaces: Numbers,
    /// Programs side by side
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// By what all limits are multiplied, for a machine that is emulated
    #[arg(long, default_value_t = 1)]
    patience: u32,
    /// Programs that are built already, for a machine without a compiler; their sources are beside them
    #[arg(long, conflicts_with = "build")]
    programs: Option<PathBuf>,
    /// Build the programs into this folder, their sources beside them, and run nothing. The compiler is $CC, for
    /// another architecture `CC="... -static"`
    #[arg(long)]
    build: Option<PathBuf>,
    /// On a kernel that lacks something. Needs root; programs that look at what only PR_SET_MM can set run there if they are named
    #[arg(long, value_enum)]
    without: Option<Without>,
    /// List the programs and what each is about
    #[arg(long)]
    list: bool,
    /// Leave the folder of the run in place
    #[arg(long)]
    keep: bool,
}

/// Enough for all programs side by side.
const HUGE_PAGES: u32 = 128;

/// Programs that look at what only PR_SET_MM can set.
const OF_PR_SET_MM: &[&str] = &["cmdline", "container", "programgone"];

/// Programs of which only kcmp(2) tells what they have.
const OF_KCMP: &[&str] = &[
    "container",
    "memorysharers",
    "ownfiles",
    "sharedcwd",
    "sharedfiles",
    "sharedforeground",
    "sharedmemory",
    "sharedorphans",
    "signalmoved",
    "threaddirectories",
];

/// What the kernel lacks.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Without {
    /// PR_SET_MM_MAP
    Map,
    /// PR_SET_MM
    All,
    /// kcmp(2) and userfaultfd(2)
    Kcmp,
}

impl Without {
    /// The words that ckptd is started with.
    fn words(self, workspace: &Workspace) -> Result<Vec<String>, build::BuildError> {
        let source = workspace.repository.join("tests/without/lacking.c");
        let program = workspace.programs.join("lacking");
        build::compile("cc", &["-O1", "-Wall", "-Werror"], &[&source], &program)?;
        let lacking = match self {
            Self::Map => "map",
            Self::All => "all",
            Self::Kcmp => "kcmp",
        };
        Ok(vec![program.display().to_string(), lacking.to_owned()])
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("programs");
    let folder = options.programs.clone().unwrap_or_else(own);
    let mut programs = programs::list(&folder)?;
    if !options.names.is_empty() {
        programs.retain(|p| options.names.iter().any(|name| p.name.contains(name)));
    }
    if matches!(options.without, Some(Without::Map | Without::All)) && options.names.is_empty() {
        programs.retain(|program| !OF_PR_SET_MM.contains(&program.name.as_str()));
    }
    if matches!(options.without, Some(Without::Kcmp)) && options.names.is_empty() {
        programs.retain(|program| !OF_KCMP.contains(&program.name.as_str()));
    }
    if options.list {
        for program in &programs {
            let kind = match (program.refused, program.optional) {
                (true, _) => " (must be refused)",
                (_, true) => " (optional)",
                _ => "",
            };
            println!("{}{kind}: {}", program.name, program.about);
        }
        return Ok(true);
    }
    if let Some(target) = &options.build {
        return build_for_later(&programs, &folder, target).map(|()| true);
    }
    job::be_patient(options.patience);
    let mut workspace = Workspace::new()?;
    let places = match &options.programs {
        // Where every account may execute them.
        Some(_) => programs
            .iter()
            .map(|program| workspace.keep(&program.source.with_extension("")))
            .collect::<Result<Vec<_>, _>>()?,
        None => build::all_of_conformance(&programs, &folder, |_| workspace.programs.clone())?,
    };
    let executables: BTreeMap<PathBuf, PathBuf> =
        programs.iter().map(|program| program.source.clone()).zip(places).collect();
    let without = options.without.map(|without| without.words(&workspace)).transpose()?;
    let wrapper = without.unwrap_or_default();
    let cases = cases(options, &programs, &executables, &wrapper)?;
    let started = Instant::now();
    let _lent = HugePages::lend(HUGE_PAGES);
    let _mounted = HugeFolder::mount();
    let failed = run_all(options, &cases, &workspace);
    println!("conformance took {:.1} s", started.elapsed().as_secs_f64());
    if options.keep || failed {
        workspace.root.disable_cleanup(true);
        println!("files are in {}", workspace.root.path().display());
    }
    Ok(!failed)
}

/// Puts executables and sources where `--programs` looks for them.
fn build_for_later(
    programs: &[Program],
    folder: &Path,
    target: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let refused = target.join("refused");
    std::fs::create_dir_all(&refused)?;
    let place =
        |program: &Program| if program.refused { refused.clone() } else { target.to_owned() };
    build::all_of_conformance(programs, folder, place)?;
    for program in programs {
        if let Some(name) = program.source.file_name() {
            std::fs::copy(&program.source, place(program).join(name))?;
        }
    }
    Ok(())
}

fn cases<'a>(
    options: &Options,
    programs: &'a [Program],
    executables: &'a BTreeMap<PathBuf, PathBuf>,
    wrapper: &'a [String],
) -> Result<Vec<Case<'a>>, String> {
    let accounts: Vec<Account> = match options.account.as_deref() {
        None => Account::available(),
        Some("user") => vec![Account::User],
        Some("root") if running_as_root() => vec![Account::Root],
        Some(other) => {
            return Err(format!("failed to run as {other}: root or user, and root only as root"));
        }
    };
    let modes = if options.mode.is_empty() {
        vec![Mode::Continue, Mode::Restart, Mode::Three]
    } else {
        options.mode.clone()
    };
    let mut cases = Vec::new();
    for program in programs {
        let executable = &executables[&program.source];
        for &account in &accounts {
            for (number, &mode) in modes.iter().enumerate() {
                let once = program.refused && number > 0 && mode != Mode::Plain;
                let others = match account {
                    Account::Root => program.user_only,
                    Account::User => program.root_only,
                };
                if !once && !others {
                    let numbers = options.namespaces;
                    cases.push(Case { program, executable, mode, account, wrapper, numbers });
                }
            }
        }
    }
    Ok(cases)
}

/// Whether a program keeps all cores busy by itself, or looks at clocks: several of these side by side
/// would measure each other.
fn runs_alone(case: &Case<'_>) -> bool {
    let name = case.program.name.as_str();
    name.starts_with("busy") || name == "clocks" || name.ends_with("sleeps")
}

/// Runs the cases, most of them several side by side; whether any failed.
fn run_all(options: &Options, cases: &[Case<'_>], workspace: &Workspace) -> bool {
    let counts = Mutex::new([0usize; 3]);
    let (alone, together): (Vec<_>, Vec<_>) = cases.iter().partition(|case| runs_alone(case));
    run_side_by_side(options.jobs.max(1), &together, workspace, &counts);
    run_side_by_side(1, &alone, workspace, &counts);
    let [passed, failed, skipped] = *lock(&counts);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    failed > 0
}

fn run_side_by_side(
    jobs: usize,
    cases: &[&Case<'_>],
    workspace: &Workspace,
    counts: &Mutex<[usize; 3]>,
) {
    let queue = Mutex::new(cases.iter());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let Some(case) = lock(&queue).next() else { return };
                    let started = Instant::now();
                    let outcome = case.run(&workspace.ckptd, workspace.root.path());
                    let took = started.elapsed().as_secs_f64();
                    let mut counts = lock(counts);
                    match outcome {
                        Outcome::Passed => {
                            counts[0] += 1;
                            println!("pass {} ({took:.2} s)", case.name());
                        }
                        Outcome::Failed(why) => {
                            counts[1] += 1;
                            println!("FAIL {} ({took:.2} s): {why}", case.name());
                        }
                        Outcome::Skipped(why) => {
                            counts[2] += 1;
                            println!("skip {}: {why}", case.name());
                        }
                    }
                }
            });
        }
    });
}

/// A lock that outlives a panic of another case: its counts are still right.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
