//! What the coordinator's state machine costs with many agents: time and memory by the number of agents, each
//! with an instance of ten processes. No I/O: agents that answer at once are simulated here.
//!
//! `scale AGENTS star|tree` prints JSON: each number in a process of its own, so that memory is its own.

use coordinator::Time;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEvent, ClusterMachine, ClusterSettings, SeededSecrets,
};
use protocol::agent::{AgentCommand, AgentEvent, ImageSummary, InstanceId};
use protocol::cluster::agent::{
    FromAgent, InstanceReport, JobUser, NodeProfile, ShellCall, ToAgent, Vitals,
};
use protocol::cluster::client::{Answer, Ask, RunRequest};
use protocol::cluster::image::{ImageFacts, ProcessFacts, Requirements, Unit};
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::cluster::tree::{TreeAnswer, TreeSum};
use protocol::cluster::{InstanceKey, NodeName, VERSION};
use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

#[path = "../tests/common/job.rs"]
mod job;

/// Processes of each agent's instance.
const PROCESSES: i32 = 10;
/// Checkpoints that are measured, after one that is not.
const ROUNDS: usize = 3;
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
    let [agents, way @ ("star" | "tree")] =
        words.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return Err("start: usage is scale AGENTS star|tree".into());
    };
    let agents = agents.parse().map_err(|_| format!("take {agents:?} for a number"))?;
    println!("{}", measure(agents, way)?);
    Ok(())
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

struct World {
    machine: ClusterMachine,
    nanos: u64,
    events: VecDeque<ClusterEvent>,
    spent: Duration,
    messages: u64,
    log_bytes: u64,
    committed: u64,
    job: Option<InstanceKey>,
}

fn node(number: usize) -> NodeName {
    // Of the names that this makes, all are good.
    format!("node{number}").parse().unwrap_or_else(|_| unreachable!())
}

fn user() -> JobUser {
    JobUser { uid: 1000, name: "user".to_owned() }
}

fn client() -> ClientId {
    ClientId { node: None, connection: 0, number: 1 }
}

fn profile(number: usize) -> NodeProfile {
    let address = std::net::SocketAddr::from((
        std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(number).unwrap_or(0)),
        7000,
    ));
    NodeProfile {
        address,
        wire: address,
        addresses: vec![address.ip()],
        slots: 16,
        cores: 16,
        capacity: None,
        speed: Some(1.0),
        speed_all: None,
        speed_given: false,
        architecture: "x86_64".to_owned(),
        page_size: 4096,
        vdso: "0".repeat(64),
        features: Vec::new(),
        memory_top: 0,
        memory: 1 << 34,
        kernel: "6.12".to_owned(),
        owner: None,
        takes: protocol::cluster::agent::Takes::default(),
        allow_root: true,
        started_ms: 1,
    }
}

fn facts(root: bool) -> ImageFacts {
    let pids = 2..2 + PROCESSES;
    ImageFacts {
        root: root.then_some(2),
        processes: pids
            .clone()
            .map(|pid| ProcessFacts {
                pid,
                parent: if pid == 2 { 1 } else { 2 },
                name: "rank".to_owned(),
                threads: 2,
                bytes: 64 << 20,
            })
            .collect(),
        units: pids
            .map(|pid| Unit { pids: vec![pid], bytes: 64 << 20, load: 1, because: String::new() })
            .collect(),
        requirements: Requirements { vdso: "0".repeat(64), ..job::requirements() },
        at_stake: Vec::new(),
        digest: String::new(),
        efforts: None,
    }
}

impl World {
    fn now(&self) -> Time {
        Time { nanos: self.nanos, unix_ms: 1_700_000_000_000 + self.nanos / 1_000_000 }
    }

    fn says(&mut self, number: usize, message: FromAgent) {
        let (node, connection) = (node(number), number as u64 + 1);
        self.events.push_back(ClusterEvent::Agent { node, connection, message, body: Vec::new() });
    }

    /// As the server does it: a step, then a look at when the next one is wanted.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(event) = self.events.pop_front() {
            self.nanos += 1000;
            let now = self.now();
            let began = cpu_time();
            let actions = self.machine.step(now, event);
            let deadline = self.machine.deadline();
            self.spent += cpu_time().saturating_sub(began);
            std::hint::black_box(deadline);
            for action in actions {
                self.act(action)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, action: ClusterAction) -> Result<(), Box<dyn Error>> {
        match action {
            ClusterAction::Send { node, message, .. } => {
                self.messages += 1;
                let number: usize =
                    node.to_string().trim_start_matches("node").parse().unwrap_or(0);
                self.handle(number, message);
            }
            ClusterAction::Append { number, entry } => {
                self.log_bytes += serde_json::to_vec(&entry)?.len() as u64;
                self.events.push_back(ClusterEvent::Recorded { number });
            }
            ClusterAction::Answer { answer: Answer::Committed { .. }, .. } => self.committed += 1,
            ClusterAction::Answer { answer: Answer::Failed { reason, .. }, .. } => {
                return Err(format!("have it done: {reason}").into());
            }
            _ => {}
        }
        Ok(())
    }

    fn handle(&mut self, number: usize, message: ToAgent) {
        match message {
            ToAgent::Launch(order) => {
                if order.is_root {
                    self.job = Some(order.key.clone());
                }
                self.says(number, FromAgent::of(order.key, InstanceReport::Launched { root: 2 }));
            }
            ToAgent::Drain { key, checkpoint, .. } => {
                self.says(
                    number,
                    FromAgent::of(key, InstanceReport::Drained { checkpoint, offset: 0 }),
                );
            }
            ToAgent::Instance { key, command } => self.command(number, key, command),
            ToAgent::Tree(call) => {
                let count = call.places.iter().map(|place| place.instances.len()).sum::<usize>();
                let instances = u32::try_from(count).unwrap_or(0);
                let processes = instances * PROCESSES.unsigned_abs();
                let sum = TreeSum { instances, processes, threads: processes, pause_us: 1000 };
                let operation = call.order.operation;
                let answer = TreeAnswer { operation, failures: Vec::new(), sum };
                self.says(number, FromAgent::Tree(answer));
            }
            _ => {}
        }
    }

    fn command(&mut self, number: usize, key: InstanceKey, command: AgentCommand) {
        let processes = PROCESSES.unsigned_abs();
        let event = match command {
            AgentCommand::Freeze { checkpoint } => {
                AgentEvent::Frozen { checkpoint, processes, threads: 2 * processes }
            }
            AgentCommand::Quiesce { checkpoint } => AgentEvent::Quiesced { checkpoint },
            AgentCommand::Snapshot { checkpoint } => AgentEvent::SnapshotTaken { checkpoint },
            AgentCommand::Resume { checkpoint } => {
                AgentEvent::Resumed { checkpoint, pause_us: 1000 }
            }
            AgentCommand::Write { checkpoint } => {
                let facts = facts(key.instance == InstanceId(1));
                let holders = vec![node(number)];
                let image = FromAgent::of(
                    key.clone(),
                    InstanceReport::Image { checkpoint, facts, holders },
                );
                self.says(number, image);
                let summary = ImageSummary { processes, ..ImageSummary::default() };
                AgentEvent::Written { checkpoint, summary }
            }
            AgentCommand::Commit { checkpoint, .. } => AgentEvent::Committed { checkpoint },
            AgentCommand::Abandon { checkpoint } => AgentEvent::Abandoned { checkpoint },
            _ => return,
        };
        self.says(number, FromAgent::of(key, event));
    }
}

fn measure(agents: usize, way: &str) -> Result<serde_json::Value, Box<dyn Error>> {
    let before = resident();
    let tree_above = if way == "tree" { 8 } else { u32::MAX };
    let settings = ClusterSettings { tree_above, ..ClusterSettings::default() };
    let machine = ClusterMachine::new(settings, SeededSecrets::new([7; 32]));
    let mut world = World {
        machine,
        nanos: 1,
        events: VecDeque::new(),
        spent: Duration::ZERO,
        messages: 0,
        log_bytes: 0,
        committed: 0,
        job: None,
    };
    for number in 0..agents {
        let hello = FromAgent::Hello {
            version: VERSION,
            term: 1,
            followed: None,
            profile: profile(number),
            instances: Vec::new(),
            holdings: Vec::new(),
        };
        world.says(number, hello);
        world.settle()?;
    }
    let joining = world.spent;
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let request =
        RunRequest { name: None, launch: job::launch_spec("rank"), settings, detach: true };
    let ask = Ask::Run(Box::new(request));
    world.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
    world.settle()?;
    let root = world.job.clone().ok_or("start the job: nothing was launched")?;
    for number in 1..agents {
        let call = ShellCall { caller: root.clone(), node: node(0), call: number as u64 };
        let logical_node = node(number);
        world.says(0, FromAgent::Shell { call, logical_node, launch: job::launch_spec("rank") });
        world.settle()?;
    }
    let launching = world.spent - joining;
    let mut samples = Vec::new();
    for round in 0..=ROUNDS {
        (world.spent, world.messages, world.log_bytes) = (Duration::ZERO, 0, 0);
        let ask = Ask::Checkpoint { job: root.job.clone() };
        world.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
        world.settle()?;
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
    for number in 0..agents {
        let heartbeat = FromAgent::Heartbeat { sequence: 1, vitals: Vitals::default() };
        world.says(number, heartbeat);
    }
    world.settle()?;
    Ok(serde_json::json!({
        "agents": agents,
        "way": way,
        "processes": agents * PROCESSES.unsigned_abs() as usize,
        "join_ms": joining.as_secs_f64() * 1000.0,
        "launch_ms": launching.as_secs_f64() * 1000.0,
        "checkpoint_ms": samples[samples.len() / 2],
        "messages": messages,
        "log_bytes": log_bytes,
        "heartbeat_us": world.spent.as_secs_f64() * 1e6 / agents as f64,
        "memory_bytes": (resident() - before).max(0.0),
        "peak_bytes": (most_resident() - before).max(0.0),
    }))
}
