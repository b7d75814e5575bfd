//! What the coordinator's state machine costs with many agents: time and memory by the number of agents, each with an
//! instance of ten processes. The agents are the real nodes, behind drivers that do all at once.
//!
//! `scale AGENTS star|tree` prints JSON: each number in a process of its own, so that memory is its own. The agents are in
//! another one, `scale agents AGENTS`, to which orders go and from which answers come as lines of JSON.

use ckpt_node::Event;
use coordinator::Time;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEvent, ClusterMachine, ClusterSettings, SeededSecrets,
};
use protocol::agent::InstanceId;
use protocol::cluster::agent::{FromAgent, JobUser, NodeProfile, ToAgent};
use protocol::cluster::client::{Answer, Ask, RunRequest};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::cluster::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use common::{image_facts, launch_spec, profile};
use prompt::Machines;

#[path = "../tests/common/mod.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod common;
#[path = "../tests/common/prompt.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod prompt;

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

/// What an agent is to do.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// To connect.
    Connect,
    /// To hear the coordinator's word.
    Hear(Box<ToAgent>),
    /// To start a program on a node, for a process of this instance.
    Call(InstanceKey, NodeName),
    /// To send a heartbeat.
    Beat,
}

/// An order to the agent of that number, when the coordinator's clock shows that.
type Line = (u64, usize, Order);

/// What agents say, by their numbers.
type Said = Vec<(usize, FromAgent)>;

/// The agents, in a process of their own.
struct Agents {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Agents {
    fn start(count: usize) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["agents", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(answers)) = pipes else { unreachable!("both were asked for") };
        Ok(Self { process, orders, answers: BufReader::new(answers) })
    }

    fn order(&mut self, line: &Line) -> Result<Said, Box<dyn Error>> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.orders.write_all(&text)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }

    fn end(self) -> Result<(), Box<dyn Error>> {
        let Self { mut process, orders, .. } = self;
        drop(orders);
        match process.wait()? {
            status if status.success() => Ok(()),
            status => Err(format!("run the agents: {status}").into()),
        }
    }
}

/// Performs orders until there are none.
fn be_agents(count: usize) -> Result<(), Box<dyn Error>> {
    let mut machines = Machines::new(facts);
    (0..count).for_each(|number| machines.add(node(number), machine()));
    let mut calls = 0;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let (now, at, order): Line = serde_json::from_str(&line?)?;
        machines.now = now;
        let connection = connection(at);
        let said = match order {
            Order::Connect => {
                let host = Ipv4Addr::from(0x0a00_0000 + u32::try_from(at)?);
                machines.connect(at, connection, host.into())
            }
            Order::Hear(message) => {
                let (message, body) = (*message, Vec::new());
                machines.happens(at, Event::Coordinator { connection, message, body })
            }
            Order::Call(inside, to) => {
                calls += 1;
                machines.call(at, inside, calls, to)
            }
            Order::Beat => machines.happens(at, Event::Tick { address_lost: false, charge: None }),
        };
        let said: Said = said.into_iter().map(|(from, message, _)| (from, message)).collect();
        serde_json::to_writer(&mut answers, &said)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

struct World {
    machine: ClusterMachine,
    agents: Agents,
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

fn connection(number: usize) -> u64 {
    number as u64 + 1
}

fn user() -> JobUser {
    JobUser { uid: 1000, name: "user".to_owned() }
}

fn client() -> ClientId {
    ClientId { node: None, connection: 0, number: 1 }
}

fn vdso() -> String {
    "0".repeat(64)
}

fn machine() -> NodeProfile {
    NodeProfile { speed: Some(1.0), vdso: vdso(), memory: 1 << 34, ..profile(16) }
}

fn facts(key: &InstanceKey) -> ImageFacts {
    let pids: Vec<i32> = (2..2 + PROCESSES).collect();
    let mut facts = image_facts(&pids, key.instance == InstanceId(1), None);
    facts.requirements.vdso = vdso();
    for process in &mut facts.processes {
        (process.threads, process.bytes) = (2, 64 << 20);
    }
    facts.units.iter_mut().for_each(|unit| unit.bytes = 64 << 20);
    facts
}

impl World {
    fn new(machine: ClusterMachine, agents: Agents) -> Self {
        Self {
            machine,
            agents,
            nanos: 1,
            events: VecDeque::new(),
            spent: Duration::ZERO,
            messages: 0,
            log_bytes: 0,
            committed: 0,
            job: None,
        }
    }

    fn now(&self) -> Time {
        Time { nanos: self.nanos, unix_ms: 1_700_000_000_000 + self.nanos / 1_000_000 }
    }

    fn order(&mut self, number: usize, order: Order) -> Result<(), Box<dyn Error>> {
        for (from, message) in self.agents.order(&(self.nanos, number, order))? {
            let (node, connection) = (node(from), connection(from));
            let body = Vec::new();
            self.events.push_back(ClusterEvent::Agent { node, connection, message, body });
        }
        Ok(())
    }

    fn ask(&mut self, ask: Ask) -> Result<(), Box<dyn Error>> {
        self.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
        self.settle()
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
                if let ToAgent::Launch(order) = &message {
                    self.job = self.job.take().or_else(|| Some(order.key.clone()));
                }
                // Lists of all members at each of them are more than one machine's memory.
                if !matches!(message, ToAgent::Peers { .. } | ToAgent::PeersChanged { .. }) {
                    let number = node.as_str().trim_start_matches("node").parse()?;
                    self.order(number, Order::Hear(Box::new(message)))?;
                }
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
}

fn measure(agents: usize, way: &str) -> Result<serde_json::Value, Box<dyn Error>> {
    let before = resident();
    let tree_above = if way == "tree" { 8 } else { u32::MAX };
    let settings = ClusterSettings { tree_above, ..ClusterSettings::default() };
    let machine = ClusterMachine::new(settings, SeededSecrets::new([7; 32]));
    let mut world = World::new(machine, Agents::start(agents)?);
    for number in 0..agents {
        world.order(number, Order::Connect)?;
        world.settle()?;
    }
    let joining = world.spent;
    let settings =
        JobSettings { interval: Interval::Seconds(0.0), copies: 2, ..JobSettings::default() };
    let request = RunRequest { name: None, launch: launch_spec("rank"), settings, detach: true };
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
    for number in 0..agents {
        world.order(number, Order::Beat)?;
    }
    world.settle()?;
    let spent = world.spent;
    let memory = (resident() - before).max(0.0);
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
        "heartbeat_us": spent.as_secs_f64() * 1e6 / agents as f64,
        "memory_bytes": memory,
        "peak_bytes": (most_resident() - before).max(0.0),
    }))
}
