//! Measures ckptd, each figure beside the machine's own limit.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ckptd_tests::bench::figure::{Figure, heading};
use ckptd_tests::bench::host::{machine, now};
use ckptd_tests::bench::kept::Kept;
use ckptd_tests::bench::report::{self, Results};
use ckptd_tests::bench::subject::Setting;
use ckptd_tests::bench::{
    beside, chart, cluster, coordinator, engine, farm, moving, scale, splits, sweep, throttle,
    timeline, transports, weights, wires,
};
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
        /// Figures to measure: pause-large, durable, pause-small, pause-shared, changed-bytes,
        /// changed-cpu, first-writes, restart, between, cpu (all by default)
        figures: Vec<String>,
    },
    /// How freeze, pause, write and restart grow with the size of one job: a unit of the largest beside one of the smallest
    Scale {
        /// Smaller jobs, each once instead of three times
        #[arg(long)]
        quick: bool,
        /// Axes: processes, threads, descriptors, mappings, memory, connections (all by default)
        axes: Vec<String>,
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
    /// What goes from machine to machine in a second, and how long a message takes, encrypted by the agents and not
    Traffic {
        /// Medians of 3 instead of 7, and shorter
        #[arg(long)]
        quick: bool,
    },
    /// What it costs two ranks of each installed MPI that they can be separated: messages by TCP beside shared memory
    Transports {
        /// Medians of 3 instead of 7, and shorter
        #[arg(long)]
        quick: bool,
    },
    /// What a short task of many costs, beside xargs and GNU parallel
    Farm {
        /// 2,000 tasks instead of 20,000
        #[arg(long)]
        quick: bool,
    },
    /// N-Queens after the loss of a node: each way to place its processes, and ckptd's own plan, beside the ideal; on equal and
    /// on unequal nodes, with one that is throttled, and with ranks of unlike weights. A run that was cut off goes on where it was
    Nqueens {
        /// One run of each instead of three, and shorter jobs
        #[arg(long)]
        quick: bool,
        /// One scenario: equal, unequal, fast-lost, throttled, weights (all by default)
        #[arg(long)]
        only: Vec<String>,
        /// Begin anew, whatever was kept of a run that was cut off
        #[arg(long)]
        fresh: bool,
    },
    /// Total time over intervals between checkpoints, with and without a loss. A run that was cut off goes on where it was
    Intervals {
        /// Shorter jobs and intervals
        #[arg(long)]
        quick: bool,
        /// Begin anew, whatever was kept of a run that was cut off
        #[arg(long)]
        fresh: bool,
    },
    /// One page with all results of target/bench
    Report {
        /// Also copy results and pictures to tests/bench-results, where they are kept for good
        #[arg(long)]
        save: bool,
    },
    /// Time and memory of the coordinator's state machine, by the number of agents
    Coordinator {
        /// No more than 2,000 agents
        #[arg(long)]
        quick: bool,
        /// Numbers of agents (10, 100, 1000, 5000 and 10000 by default)
        agents: Vec<usize>,
    },
}

fn main() -> ExitCode {
    let outcome = match Options::parse().what {
        What::Engine { quick, figures } => run(quick, &figures),
        What::Scale { quick, axes } => run_scale(quick, &axes),
        What::Cluster { quick, moves } => run_cluster(quick, moves),
        What::Traffic { quick } => run_traffic(quick),
        What::Farm { quick } => run_farm(quick),
        What::Transports { quick } => run_transports(quick),
        What::Nqueens { quick, only, fresh } => run_nqueens(quick, &only, fresh),
        What::Intervals { quick, fresh } => run_intervals(quick, fresh),
        What::Report { save } => write_report(save),
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

/// What a benchmark of one machine needs, with a folder on a real disk.
fn setting(quick: bool, rounds: usize) -> Result<(Setting, PathBuf), Box<dyn std::error::Error>> {
    let (repository, target) = folders()?;
    let ckptd = std::env::var_os("CKPTD").map(PathBuf::from);
    let ckptd = ckptd.unwrap_or_else(|| repository.join("target/release/ckptd"));
    let ckptd = ckptd.canonicalize().map_err(|error| {
        format!("failed to find {}: {error}; tests/build builds it", ckptd.display())
    })?;
    // Not below a session directory, whose files would travel with the job.
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&target)?;
    Ok((Setting { ckptd, repository, folder, rounds, quick }, target))
}

fn run(quick: bool, wanted: &[String]) -> Result<bool, Box<dyn std::error::Error>> {
    let rounds = if quick { 3 } else { 5 };
    let (setting, target) = setting(quick, rounds)?;
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
    let json = serde_json::json!({
        "machine": machine(), "date": now(), "quick": quick, "figures": figures,
    });
    std::fs::write(target.join("engine.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    std::fs::write(target.join("engine.svg"), chart::draw("ckptd: the engine", &figures))?;
    println!("\nwritten to {}", target.join("engine.{json,svg}").display());
    Ok(complete)
}

fn run_scale(quick: bool, wanted: &[String]) -> Result<bool, Box<dyn std::error::Error>> {
    if let Some(unknown) = wanted.iter().find(|name| scale::AXES.iter().all(|a| a.name != **name)) {
        let known: Vec<&str> = scale::AXES.iter().map(|axis| axis.name).collect();
        return Err(format!("there is no axis {unknown:?}; there are {}", known.join(", ")).into());
    }
    let rounds = if quick { 1 } else { 3 };
    let (setting, target) = setting(quick, rounds)?;
    println!("medians of {rounds}, beside each how it has grown for a unit; {}\n", machine());
    let (mut figures, mut measured, mut complete) = (Vec::new(), Vec::new(), true);
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    for axis in scale::AXES.iter().filter(|axis| is_wanted(axis.name)) {
        match scale::measure(&setting, axis) {
            Ok(found) => {
                println!("{}", found.table());
                figures.extend(found.figures(axis));
                measured.push(found);
            }
            Err(error) => {
                complete = false;
                eprintln!("bench: failed to measure {}: {error}", axis.name);
            }
        }
    }
    verdicts(&figures);
    let json = serde_json::json!({
        "machine": machine(), "date": now(), "quick": quick, "figures": figures, "axes": measured,
    });
    std::fs::write(target.join("scale.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    let title = "ckptd: a unit of the largest job beside one of the smallest";
    std::fs::write(target.join("scale.svg"), chart::draw(title, &figures))?;
    println!("\nwritten to {}", target.join("scale.{json,svg}").display());
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
        "machine": machine(), "date": now(), "quick": quick, "figures": measured.figures, "losses": measured.losses,
    });
    std::fs::write(target.join("cluster.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    let title = "ckptd: a node of three is lost, 6 ranks of Open MPI with 64 MiB each";
    std::fs::write(target.join("cluster.svg"), timeline::draw(title, &measured.losses))?;
    println!("\nwritten to {}", target.join("cluster.{json,svg}").display());
    Ok(true)
}

fn run_transports(quick: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let rounds = if quick { 3 } else { 7 };
    let (setting, target) = setting(quick, rounds)?;
    println!("medians of {rounds}; {}\n", machine());
    let figures = transports::measure(&setting)?;
    verdicts(&figures);
    let json = serde_json::json!({
        "machine": machine(), "date": now(), "quick": quick, "figures": figures,
    });
    std::fs::write(target.join("transports.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    println!("\nwritten to {}", target.join("transports.json").display());
    Ok(true)
}

fn run_traffic(quick: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let (_, target) = folders()?;
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    let (rounds, seconds) = if quick { (3, 2) } else { (7, 5) };
    println!("medians of {rounds}; {}\n", machine());
    let mut figures = wires::measure(&stage, rounds, seconds)?;
    figures.push(beside::measure(&stage, rounds)?);
    verdicts(&figures);
    let json = serde_json::json!({
        "machine": machine(), "date": now(), "quick": quick, "figures": figures,
    });
    std::fs::write(target.join("traffic.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    println!("\nwritten to {}", target.join("traffic.json").display());
    Ok(true)
}

fn run_farm(quick: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let (setting, target) = setting(quick, 3)?;
    println!("medians of {}; {}\n", setting.rounds, machine());
    let figures = farm::measure(&setting, if quick { 2_000 } else { 20_000 })?;
    verdicts(&figures);
    let json = serde_json::json!({
        "machine": machine(), "date": now(), "quick": quick, "figures": figures,
    });
    std::fs::write(target.join("farm.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    println!("\nwritten to {}", target.join("farm.json").display());
    Ok(true)
}

/// The repository, and the folder of all results.
fn folders() -> Result<(PathBuf, PathBuf), Box<dyn std::error::Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let target = repository.join("target/bench");
    std::fs::create_dir_all(&target)?;
    Ok((repository, target))
}

/// A goal that is missed is told, and is no failure of the benchmark.
fn verdicts(figures: &[Figure]) {
    print!("{}", heading());
    figures.iter().for_each(|figure| print!("{}", figure.text()));
}

fn run_nqueens(
    quick: bool,
    only: &[String],
    fresh: bool,
) -> Result<bool, Box<dyn std::error::Error>> {
    let names = splits::SCENARIOS.iter().map(|scenario| scenario.name);
    let known: Vec<&str> = names.chain([throttle::NAME, weights::NAME]).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(
            format!("there is no scenario {unknown:?}; there are {}", known.join(", ")).into()
        );
    }
    // The short form is to end within five minutes.
    let wanted = |name: &str| match only.is_empty() {
        true => !(quick && name == weights::NAME),
        false => only.iter().any(|one| one == name),
    };
    let (_, target) = folders()?;
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    let Results { splits: mut kept, throttle: mut throttled, weights: mut weighted, .. } =
        Results::read(&target);
    let scenarios: Vec<&str> =
        splits::SCENARIOS.iter().map(|one| one.name).filter(|name| wanted(name)).collect();
    println!("{}; what is measured is kept in {}\n", machine(), target.display());
    let pending = match scenarios.is_empty() {
        true => Vec::new(),
        false => kept.begin(&stage.ckptd, &machine(), quick, &scenarios, fresh)?,
    };
    for scenario in splits::SCENARIOS.iter().filter(|one| pending.iter().any(|p| p == one.name)) {
        splits::measure(&stage, scenario, quick, &mut kept)?;
    }
    if wanted(throttle::NAME) {
        throttled.begin(&stage.ckptd, &machine(), quick, &[throttle::NAME], fresh)?;
        throttle::measure(&stage, quick, &mut throttled)?;
    }
    if wanted(weights::NAME) {
        weighted.begin(&stage.ckptd, &machine(), quick, &[weights::NAME], fresh)?;
        weights::measure(&stage, quick, &mut weighted)?;
    }
    let mut figures = Vec::new();
    for name in &scenarios {
        let Some(part) = kept.parts().get(*name) else { continue };
        println!("{}", splits::table(name, &part.data));
        figures.extend(part.data.figures(name));
    }
    if let Some(part) = throttled.parts().get(throttle::NAME).filter(|_| wanted(throttle::NAME)) {
        figures.extend(part.data.figures());
    }
    if let Some(part) = weighted.parts().get(weights::NAME).filter(|_| wanted(weights::NAME)) {
        figures.extend(part.data.figures());
    }
    draw_queens(&Results::read(&target), &target)?;
    verdicts(&figures);
    println!("\nwritten to {}", target.join("nqueens*.{json,svg}").display());
    Ok(true)
}

/// The pictures of what there is of N-Queens.
fn draw_queens(results: &Results, target: &Path) -> Result<(), Box<dyn std::error::Error>> {
    splits::write_pictures(&results.splits, target)?;
    if let Some(part) = results.throttle.parts().get(throttle::NAME) {
        let svg = throttle::draw(&part.data, &part.origin);
        std::fs::write(target.join("nqueens-throttled.svg"), svg)?;
    }
    if let Some(part) = results.weights.parts().get(weights::NAME) {
        let svg = weights::draw(&part.data, &part.origin);
        std::fs::write(target.join("nqueens-weights.svg"), svg)?;
    }
    Ok(())
}

fn run_intervals(quick: bool, fresh: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let (_, target) = folders()?;
    let workspace = Workspace::new()?;
    let stage = Stage::new(&workspace)?;
    let mut kept: Kept<sweep::Measured> = Results::read(&target).sweep;
    kept.begin(&stage.ckptd, &machine(), quick, &[sweep::NAME], fresh)?;
    sweep::measure(&stage, quick, &mut kept)?;
    let Some(part) = kept.parts().get(sweep::NAME) else { return Ok(false) };
    println!("{}", part.data.table());
    std::fs::write(target.join("intervals.svg"), sweep::draw(&part.data, &part.origin))?;
    verdicts(&part.data.figures());
    println!("\nwritten to {}", target.join("intervals.{json,svg}").display());
    Ok(true)
}

fn write_report(save: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let (repository, target) = folders()?;
    let Some(page) = report::page(&target)? else {
        return Err(format!("there are no results in {}: tests/bench", target.display()).into());
    };
    let path = target.join("report.html");
    std::fs::write(&path, page)?;
    // Of benchmarks that were cut off there are none yet.
    draw_queens(&Results::read(&target), &target)?;
    println!("written to {}", path.display());
    if save {
        let folder = repository.join("tests/bench-results");
        let saved = report::save(&target, &folder)?;
        println!("copied to {}: {}", folder.display(), saved.join(", "));
    }
    Ok(true)
}

fn run_coordinator(quick: bool, agents: Vec<usize>) -> Result<bool, Box<dyn std::error::Error>> {
    let (repository, target) = folders()?;
    let agents = match agents.as_slice() {
        [] if quick => vec![10, 100, 1000, 2000],
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
    let figures = coordinator::growth(&scales);
    verdicts(&figures);
    Ok(figures.iter().all(|figure| figure.reached))
}
