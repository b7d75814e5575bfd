//! The agents: the real nodes, in a process of their own, to which orders go and from which answers come as lines of JSON.

use super::common::{image_facts, profile};
use super::prompt::Machines;
use super::{PROCESSES, connection, node};
use ckpt_node::Event;
use protocol::agent::InstanceId;
use protocol::cluster::agent::{FromAgent, NodeProfile, ToAgent};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What an agent is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
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
pub type Line = (u64, usize, Order);

/// What agents say, by their numbers.
pub type Said = Vec<(usize, FromAgent)>;

/// The agents, in a process of their own.
pub struct Agents {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Agents {
    pub fn start(count: usize) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["agents", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(answers)) = pipes else { unreachable!("both were asked for") };
        Ok(Self { process, orders, answers: BufReader::new(answers) })
    }

    pub fn order(&mut self, line: &Line) -> Result<Said, Box<dyn Error>> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.orders.write_all(&text)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }

    pub fn end(self) -> Result<(), Box<dyn Error>> {
        let Self { mut process, orders, .. } = self;
        drop(orders);
        match process.wait()? {
            status if status.success() => Ok(()),
            status => Err(format!("run the agents: {status}").into()),
        }
    }
}

/// Performs orders until there are none.
pub fn be_agents(count: usize) -> Result<(), Box<dyn Error>> {
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
