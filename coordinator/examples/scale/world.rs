//! The coordinator's state machine, and what it is told and says.

use super::agents::{Agents, Order};
use super::{connection, cpu_time, node};
use coordinator::Time;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings,
};
use protocol::agent::InstanceId;
use protocol::cluster::agent::{FromAgent, InstanceReport, JobUser, ToAgent};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::time::Duration;

pub struct World {
    machine: ClusterMachine,
    pub agents: Agents,
    pub nanos: u64,
    events: VecDeque<ClusterEvent>,
    pub spent: Duration,
    pub messages: u64,
    pub log_bytes: u64,
    pub committed: u64,
    pub job: Option<InstanceKey>,
    /// The last epoch that began to run.
    pub epoch: u64,
    /// Agents that are connected.
    connected: BTreeSet<usize>,
    grace: u64,
    /// What the job's log was told last.
    told: String,
    /// Who holds the newest image of each instance.
    holders: BTreeMap<InstanceId, BTreeSet<NodeName>>,
}

fn user() -> JobUser {
    JobUser { uid: 1000, name: "user".to_owned() }
}

fn client() -> ClientId {
    ClientId { node: None, connection: 0, number: 1 }
}

impl World {
    pub fn new(machine: ClusterMachine, agents: Agents) -> Self {
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
            epoch: 0,
            connected: BTreeSet::new(),
            holders: BTreeMap::new(),
            told: String::new(),
            grace: ClusterSettings::default().grace,
        }
    }

    fn now(&self) -> Time {
        Time { nanos: self.nanos, unix_ms: 1_700_000_000_000 + self.nanos / 1_000_000 }
    }

    pub fn order(&mut self, number: usize, order: Order) -> Result<(), Box<dyn Error>> {
        for (from, message) in self.agents.order(&(self.nanos, number, order))? {
            let (node, connection) = (node(from), connection(from));
            let body = Vec::new();
            if let FromAgent::Instance { key, report: InstanceReport::Image { holders, .. } } =
                &message
            {
                self.holders.insert(key.instance, holders.iter().cloned().collect());
            }
            self.events.push_back(ClusterEvent::Agent { node, connection, message, body });
        }
        Ok(())
    }

    pub fn ask(&mut self, ask: Ask) -> Result<(), Box<dyn Error>> {
        self.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
        self.settle()
    }

    /// As the server does it: a step, then a look at when the next one is wanted.
    pub fn settle(&mut self) -> Result<(), Box<dyn Error>> {
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
            ClusterAction::Broadcast { message, except } => {
                let numbers = self.connected.clone();
                for number in numbers.into_iter().filter(|at| Some(node(*at)) != except) {
                    self.say(number, message.clone())?;
                }
            }
            ClusterAction::Send { node, message, .. } => {
                let number = node.as_str().trim_start_matches("node").parse()?;
                self.say(number, message)?;
            }
            ClusterAction::Append { number, entry } => {
                if let ClusterEntry::Running { epoch, .. } = &entry {
                    self.epoch = *epoch;
                }
                self.log_bytes += serde_json::to_vec(&entry)?.len() as u64;
                self.events.push_back(ClusterEvent::Recorded { number });
            }
            ClusterAction::Log { bytes, .. } => {
                self.told = String::from_utf8_lossy(&bytes).chars().take(400).collect();
            }
            ClusterAction::Answer { answer: Answer::Committed { .. }, .. } => self.committed += 1,
            ClusterAction::Answer { answer: Answer::Failed { reason, .. }, .. } => {
                return Err(format!("have it done: {reason}").into());
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, number: usize, mut message: ToAgent) -> Result<(), Box<dyn Error>> {
        self.messages += 1;
        if let ToAgent::Launch(order) = &message {
            self.job = self.job.take().or_else(|| Some(order.key.clone()));
        }
        // They do nothing with it, and it is as long as the cluster is large.
        match &mut message {
            ToAgent::Launch(order) => order.hosts = Default::default(),
            ToAgent::Prepare(order) => order.hosts = Default::default(),
            _ => {}
        }
        // Lists of all members at each of them are more than one machine's memory.
        if !matches!(message, ToAgent::Peers { .. } | ToAgent::PeersChanged { .. }) {
            self.order(number, Order::Hear(Box::new(message)))?;
        }
        Ok(())
    }

    /// An agent connects.
    pub fn connect(&mut self, number: usize) -> Result<(), Box<dyn Error>> {
        self.order(number, Order::Connect)?;
        self.settle()?;
        self.connected.insert(number);
        Ok(())
    }

    /// All that are connected send a heartbeat.
    pub fn beat(&mut self) -> Result<(), Box<dyn Error>> {
        for number in self.connected.clone() {
            self.order(number, Order::Beat)?;
        }
        self.settle()
    }

    /// So many that can be lost at once with no image lost, but not the first.
    pub fn dispensable(&self, count: usize, below: usize) -> Vec<usize> {
        let gone = (0..below).filter(|number| !self.connected.contains(number));
        let mut names: BTreeSet<NodeName> = gone.map(node).collect();
        let mut numbers = Vec::new();
        for number in self.connected.range(1..below).rev().copied() {
            if numbers.len() >= count {
                break;
            }
            names.insert(node(number));
            let own = node(number);
            let lost =
                |holders: &BTreeSet<NodeName>| holders.contains(&own) && holders.is_subset(&names);
            if self.holders.values().any(lost) {
                names.remove(&own);
            } else {
                numbers.push(number);
            }
        }
        numbers
    }

    /// Some machines are lost: what it costs from when they are declared gone until the job runs again.
    pub fn lose(&mut self, numbers: &[usize]) -> Result<Duration, Box<dyn Error>> {
        self.beat()?;
        for number in numbers {
            self.connected.remove(number);
            let (node, connection) = (node(*number), connection(*number));
            self.events.push_back(ClusterEvent::Disconnected { node, connection });
        }
        self.settle()?;
        for _ in 0..3 {
            self.nanos += self.grace / 10 * 3;
            self.beat()?;
        }
        let before = self.epoch;
        self.spent = Duration::ZERO;
        self.nanos += self.grace / 5;
        self.events.push_back(ClusterEvent::Clock);
        self.settle()?;
        match self.epoch > before {
            true => Ok(self.spent),
            false => Err(format!("lose {}: {}", numbers.len(), self.told).into()),
        }
    }
}
