//! Measures ckptd, each figure beside the machine's own limit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ckptd_tests::bench::figure::heading;
use ckptd_tests::bench::subject::Setting;
use ckptd_tests::bench::{chart, cluster, coordinator, engine, moving, timeline};
use ckptd_tests::cluster::suite::Stage;
use ckptd_tests::workspace::Workspace;
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
    /// What the loss of a node costs, phase by phase, on a cluster of three; what an announced departure costs
    /// beside it, and whether a newcomer brings what was predicted
    Cluster {
        /// Two losses instead of five
        #[arg(long)]
        quick: bool,
        /// Only departures and newcomers
        #[arg(long)]
        moves: bool,
    },
    /// Time and memory of the coordinator's state machine, by the number of agents
    Coordinator {
        /// No more than 1,000 agents
        #[arg(long)]
        quick: bool,
        /// Numbers of agents (10, 100, 1000 and 10000 by default)
        agents: Vec<usize>,
    },
}

fn main() -> ExitCode {
    let outcome = match Options::parse().what {
        What::Engine { quick, figures } => run(quick, &figures),
        What::Cluster { quick, moves } => run_cluster(quick, moves),
        What::Coordinator { quick, agents } => run_coordinator(quick, agents),
    };
    match outcome {
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

fn run_cluster(quick: bool, moves: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let target = repository.join("target/bench");
    std::fs::create_dir_all(&target)?;
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    let rounds = if quick { 2 } else { 5 };
    println!("medians of {rounds} losses; {}\n", machine());
    if moves {
        let figures = moving::measure(&stage, rounds)?;
        print!("{}", heading());
        figures.iter().for_each(|figure| print!("{}", figure.text()));
        return Ok(true);
    }
    let mut measured = cluster::measure(&stage, rounds)?;
    measured.figures.extend(moving::measure(&stage, rounds)?);
    print!("{}", heading());
    measured.figures.iter().for_each(|figure| print!("{}", figure.text()));
    println!(
        "\nms since the node was declared gone (detected after, planned, images, restored, running, progress):"
    );
    for loss in &measured.losses {
        let ends: Vec<String> =
            loss.phases.iter().map(|phase| format!("{:.0}", phase.to)).collect();
        println!("    {:>6.0} | {}", loss.detected, ends.join(" "));
    }
    let json = serde_json::json!({
        "machine": machine(), "quick": quick, "figures": measured.figures, "losses": measured.losses,
    });
    std::fs::write(target.join("cluster.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    let title = "ckptd: a node of three is lost, 6 ranks of Open MPI with 64 MiB each";
    std::fs::write(target.join("cluster.svg"), timeline::draw(title, &measured.losses))?;
    println!("\nwritten to {}", target.join("cluster.{json,svg}").display());
    Ok(true)
}

fn run_coordinator(quick: bool, agents: Vec<usize>) -> Result<bool, Box<dyn std::error::Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let target = repository.join("target/bench");
    std::fs::create_dir_all(&target)?;
    let agents = match agents.as_slice() {
        [] if quick => coordinator::USUAL[..3].to_vec(),
        [] => coordinator::USUAL.to_vec(),
        _ => agents,
    };
    println!("medians of 3; {}\n", machine());
    print!("{}", coordinator::heading());
    let program = repository.join("target/release/examples/scale");
    let scales = coordinator::measure(&program, &agents, |scale| print!("{}", scale.text()))?;
    let json = serde_json::json!({ "machine": machine(), "quick": quick, "scales": scales });
    std::fs::write(target.join("coordinator.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    let svg = coordinator::draw("ckptd: the coordinator", &scales);
    std::fs::write(target.join("coordinator.svg"), svg)?;
    println!("\nwritten to {}", target.join("coordinator.{json,svg}").display());
    Ok(true)
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
