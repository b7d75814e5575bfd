//! Measures ckptd, each figure beside the machine's own limit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ckptd_tests::bench::figure::heading;
use ckptd_tests::bench::subject::Setting;
use ckptd_tests::bench::{chart, engine};
use clap::{Parser, Subcommand};

/// Measures ckptd beside what the machine itself can do.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Pause, image, restart, and what a job pays for its checkpoints
    Engine {
        /// Medians of 3 instead of 5, and shorter jobs
        #[arg(long)]
        quick: bool,
        /// Figures to measure: pause-large, durable, pause-small, pause-shared, restart, between, cpu (all
        /// by default)
        figures: Vec<String>,
    },
}

fn main() -> ExitCode {
    let What::Engine { quick, figures } = Options::parse().what;
    match run(quick, &figures) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(quick: bool, wanted: &[String]) -> Result<bool, Box<dyn std::error::Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let target = repository.join("target/bench");
    std::fs::create_dir_all(&target)?;
    let ckptd = std::env::var_os("CKPTD").map(PathBuf::from);
    let ckptd = ckptd.unwrap_or_else(|| repository.join("target/release/ckptd"));
    let ckptd = ckptd.canonicalize().map_err(|error| {
        format!("failed to find {}: {error}; tests/build builds it", ckptd.display())
    })?;
    // On a real disk, and not below a session directory, whose files would travel with the job.
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&target)?;
    let rounds = if quick { 3 } else { 5 };
    let setting = Setting { ckptd, repository, folder, rounds, quick };
    let is_wanted = |keys: &[&str]| {
        wanted.is_empty() || wanted.iter().any(|name| keys.contains(&name.as_str()))
    };
    println!("medians of {rounds}; {}\n", machine());
    print!("{}", heading());
    let mut figures = Vec::new();
    let mut complete = true;
    for measurement in engine::ALL.iter().filter(|all| is_wanted(all.keys)) {
        match (measurement.run)(&setting) {
            Ok(found) => {
                found.iter().for_each(|figure| print!("{}", figure.text()));
                figures.extend(found);
            }
            Err(error) => {
                complete = false;
                eprintln!("bench: failed to measure {}: {error}", measurement.keys.join(", "));
            }
        }
    }
    let json = serde_json::json!({ "machine": machine(), "quick": quick, "figures": figures });
    std::fs::write(target.join("engine.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    std::fs::write(target.join("engine.svg"), chart::draw("ckptd: the engine", &figures))?;
    println!("\nwritten to {}", target.join("engine.{json,svg}").display());
    Ok(complete)
}

/// Processor, cores and kernel.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}
