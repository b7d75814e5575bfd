//! What the coordinator's state machine costs with many agents: time and memory by the number of agents, each with an
//! instance of ten processes. The agents are the real nodes, behind drivers that do all at once.
//!
//! `scale AGENTS star|tree` prints JSON: each number in a process of its own, so that memory is its own. The agents are in
//! another one, `scale agents AGENTS`.

use coordinator::cluster::{ClusterMachine, ClusterSettings, SeededSecrets};
use protocol::cluster::NodeName;
use protocol::cluster::client::{Ask, RunRequest};
use protocol::cluster::settings::{Interval, JobSettings};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use agents::{Agents, Order, be_agents};
use common::launch_spec;
use world::World;

mod agents;
#[path = "../../tests/common/mod.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod common;
#[path = "../../tests/common/prompt.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod prompt;
mod world;

/// Processes of each agent's instance.
const PROCESSES: i32 = 10;
/// Checkpoints that are measured, after one that is not.
const ROUNDS: usize = 3;
/// Agents that join a cluster with a job, one after the other.
const NEWCOMERS: usize = 32;
/// Machines that are lost at once, of a cluster of ten times as many or more.
const LOST: usize = 100;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: failed to {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |word: &str| -> Result<usize, String> {
        word.parse().map_err(|_| format!("take {word:?} for a number"))
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["agents", agents] => be_agents(number(agents)?),
        [agents, way @ ("star" | "tree")] => {
            println!("{}", measure(number(agents)?, way)?);
            Ok(())
        }
        _ => Err("start: usage is scale AGENTS star|tree".into()),
    }
}

/// What this thread has run for: what others run beside it does not count (clock_gettime(2)).
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Resident memory, in bytes (proc_pid_statm(5)).
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

/// The most that was resident, in bytes (proc_pid_status(5)).
fn most_resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

fn node(number: usize) -> NodeName {
    // Of the names that this makes, all are good.
    format!("node{number}").parse().unwrap_or_else(|_| unreachable!())
}

fn connection(number: usize) -> u64 {
    number as u64 + 1
}

fn measure(agents: usize, way: &str) -> Result<serde_json::Value, Box<dyn Error>> {
    let before = resident();
    let tree_above = if way == "tree" { 8 } else { u32::MAX };
    let settings = ClusterSettings { tree_above, ..ClusterSettings::default() };
    let machine = ClusterMachine::new(settings, SeededSecrets::new([7; 32]));
    let mut world = World::new(machine, Agents::start(agents + NEWCOMERS)?);
    for number in 0..agents {
        world.connect(number)?;
    }
    let joining = world.spent;
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let request = RunRequest {
        name: None,
        launch: launch_spec("rank"),
        settings,
        detach: true,
        anywhere: false,
    };
    world.ask(Ask::Run(Box::new(request)))?;
    let root = world.job.clone().ok_or("start the job: nothing was launched")?;
    for number in 1..agents {
        world.order(0, Order::Call(root.clone(), node(number)))?;
        world.settle()?;
    }
    let launching = world.spent - joining;
    let mut samples = Vec::new();
    for round in 0..=ROUNDS {
        (world.spent, world.messages, world.log_bytes) = (Duration::ZERO, 0, 0);
        world.ask(Ask::Checkpoint { job: root.job.clone() })?;
        if world.committed != round as u64 + 1 {
            return Err("take a checkpoint: it was not committed".into());
        }
        if round > 0 {
            samples.push(world.spent.as_secs_f64() * 1000.0);
        }
    }
    samples.sort_by(f64::total_cmp);
    let (messages, log_bytes) = (world.messages, world.log_bytes);
    world.spent = Duration::ZERO;
    world.beat()?;
    let beating = world.spent;
    let memory = (resident() - before).max(0.0);
    world.spent = Duration::ZERO;
    for number in agents..agents + NEWCOMERS {
        world.connect(number)?;
    }
    let newcomers = world.spent;
    let loss = world.lose(&[agents - 1])?;
    let losses =
        if agents < 10 * LOST { None } else { Some(world.lose(&world.dispensable(LOST, agents))?) };
    world.agents.end()?;
    Ok(serde_json::json!({
        "agents": agents,
        "way": way,
        "processes": agents * PROCESSES.unsigned_abs() as usize,
        "join_ms": joining.as_secs_f64() * 1000.0,
        "launch_ms": launching.as_secs_f64() * 1000.0,
        "checkpoint_ms": samples[samples.len() / 2],
        "messages": messages,
        "log_bytes": log_bytes,
        "heartbeat_us": beating.as_secs_f64() * 1e6 / agents as f64,
        "newcomer_us": newcomers.as_secs_f64() * 1e6 / NEWCOMERS as f64,
        "loss_ms": loss.as_secs_f64() * 1000.0,
        "losses_ms": losses.map(|losses| losses.as_secs_f64() * 1000.0),
        "memory_bytes": memory,
        "peak_bytes": (most_resident() - before).max(0.0),
    }))
}
