//! ckptd on a cluster: a coordinator, an agent on each node, and what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::job::ClusterJob;
use super::{Background, Cluster, HOME, Node, Output, Spec, apps, until};
use crate::job::Failure;
use crate::unnamespaced::Numbers;

/// The coordinator's port.
const PORT: u16 = 7070;
/// The coordinator's port for DMTCP's programs.
pub const DMTCP_PORT: &str = "7779";
/// The folder of armed steps in a node's home.
const FAULTS: &str = "faults";
/// The folder of batteries in a node's home.
const POWER: &str = "power";
/// How long a coordinator or an agent may take to come up.
const UP_LIMIT: Duration = Duration::from_secs(60);

/// How ckptd is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The nodes.
    pub spec: Spec,
    /// Seconds from a node's last word to its being declared gone.
    pub grace: u32,
    /// Slots of each node.
    pub slots: u32,
    /// Nodes that offer others.
    pub slots_of: BTreeMap<usize, u32>,
    /// How many nodes have an agent, from node1 on.
    pub agents: usize,
    /// On more nodes than these a job's checkpoints go by the command tree; None: as usual. $CKPTD_TREE_ABOVE
    /// says it for all cases.
    pub tree_above: Option<u32>,
    /// The speed that all agents are told; None: each measures its own. What is tested is what follows from
    /// speeds, not how busy this machine is while they are measured.
    pub speed: Option<&'static str>,
    /// Where agents' jobs have their processes.
    pub numbers: Numbers,
    /// Whether agents can be made to stand at numbered steps.
    pub faults: bool,
    /// Whether the coordinator serves DMTCP's programs, too, at [`DMTCP_PORT`].
    pub dmtcp: bool,
    /// The port of the coordinator's page; None: there is none.
    pub http: Option<&'static str>,
    /// How images are encrypted; None: as usual.
    pub encryption: Option<&'static str>,
    /// The charge below which agents leave. Their batteries are folders in nodes' homes ([`Ckptd::battery`]).
    pub leave_below: Option<&'static str>,
    /// Agents and jobs are in the sandbox of Android's apps.
    pub apps: bool,
    /// What members may order.
    pub role: Role,
    /// The port of all agents; None: their default.
    pub port: Option<&'static str>,
    /// The nodes whose agents encrypt jobs' traffic.
    pub encrypting: BTreeSet<usize>,
}

/// What the token says with which members join.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// As 'ckptd token' makes it that is told nothing.
    Usual,
    /// Root of each machine is an operator.
    Operator,
}

impl Setup {
    /// `nodes` nodes of two slots, and a grace of 3 s.
    pub fn new(nodes: usize) -> Setup {
        Setup {
            spec: Spec::new(nodes),
            grace: 3,
            slots: 2,
            slots_of: BTreeMap::new(),
            agents: nodes,
            faults: false,
            dmtcp: false,
            http: None,
            encryption: None,
            leave_below: None,
            apps: false,
            role: Role::Usual,
            port: None,
            encrypting: BTreeSet::new(),
            tree_above: std::env::var("CKPTD_TREE_ABOVE").ok().and_then(|text| text.parse().ok()),
            speed: Some("1"),
            numbers: Numbers::of_environment(),
        }
    }
}

/// In bytes: some jobs' entries. Coordinators' logs are made shorter while they serve, as they are after months.
const LOG_SHORTENED_ABOVE: &str = "16000";

/// A cluster on which ckptd runs: the coordinator on node0 if there is one, else on node1; an agent on
/// every other node.
pub struct Ckptd {
    // The daemons go before their machines.
    coordinator: Mutex<Option<Background>>,
    /// The node that it is on.
    head: AtomicUsize,
    agents: Mutex<BTreeMap<usize, Background>>,
    /// The nodes whose daemons are another executable than `ckptd`.
    executables: Mutex<BTreeMap<usize, String>>,
    token: String,
    setup: Setup,
    cluster: Cluster,
}

impl Ckptd {
    /// Starts a cluster and ckptd on it; all members are there when it returns.
    ///
    /// # Errors
    /// When anything does not come up.
    pub fn start(ckptd: &Path, setup: Setup) -> Result<Ckptd, Failure> {
        let cluster = Cluster::start(&setup.spec)?;
        match setup.apps {
            true => apps::share(ckptd, &cluster, setup.agents)?,
            false => drop(cluster.share(ckptd)?),
        }
        let mut all = Ckptd {
            coordinator: Mutex::default(),
            head: AtomicUsize::new(usize::from(!setup.spec.head)),
            agents: Mutex::default(),
            executables: Mutex::default(),
            token: String::new(),
            setup,
            cluster,
        };
        all.start_coordinator()?;
        let numbers = 1..=all.setup.agents;
        let uses = numbers.clone().count().to_string();
        let role: &[&str] = match all.setup.role {
            Role::Usual => &[],
            Role::Operator => &["--role", "operator"],
        };
        all.token = all.new_token(&[&["--uses", uses.as_str()], role].concat())?;
        for number in numbers.clone() {
            all.start_agent(number)?;
        }
        all.wait_for_members(&numbers.collect::<Vec<_>>())?;
        Ok(all)
    }

    /// The machines.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The machines, to change how they end.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Node `number`.
    ///
    /// # Panics
    /// When the cluster was made without it.
    pub fn node(&self, number: usize) -> &Node {
        self.cluster.node(number)
    }

    /// The coordinator's machine.
    pub fn coordinator_node(&self) -> &Node {
        self.node(self.head.load(Ordering::Relaxed))
    }

    /// The coordinator's address and port.
    pub fn coordinator_address(&self) -> String {
        format!("{}:{PORT}", self.coordinator_node().address())
    }

    /// Starts the coordinator, for the first time or again, and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_coordinator(&self) -> Result<(), Failure> {
        let grace = self.setup.grace.to_string();
        *lock(&self.coordinator) = Some(self.begin_coordinator(&["--grace", &grace])?);
        Ok(())
    }

    /// Carries on for the coordinator on another node, from a copy of its log; the coordinator before
    /// is handed back, whatever has become of it.
    ///
    /// # Errors
    /// When it is refused, or does not answer.
    pub fn recover_coordinator(&self, number: usize) -> Result<Background, Failure> {
        let lost = lock(&self.coordinator).take().ok_or(Failure("no coordinator runs".into()))?;
        self.carry_on(number)?;
        Ok(lost)
    }

    /// Carries on on another node for a coordinator that was killed.
    ///
    /// # Errors
    /// When it is refused, or does not answer.
    pub fn carry_on(&self, number: usize) -> Result<(), Failure> {
        self.head.store(number, Ordering::Relaxed);
        *lock(&self.coordinator) = Some(self.begin_coordinator(&["--recover"])?);
        Ok(())
    }

    fn begin_coordinator(&self, options: &[&str]) -> Result<Background, Failure> {
        let address = self.coordinator_address();
        let own = self.coordinator_node().address();
        let network = format!("{own}/24");
        let executable = self.executable(self.head.load(Ordering::Relaxed));
        let mut words =
            [&[executable.as_str(), "coordinator", "--listen", &address], options].concat();
        words.extend(self.setup.encryption.into_iter().flat_map(|how| ["--encryption", how]));
        if self.setup.dmtcp {
            words.extend(["--dmtcp-port", DMTCP_PORT, "--dmtcp-listen", &own]);
            words.extend(["--dmtcp-allow", &network]);
        }
        words.extend(self.setup.http.into_iter().flat_map(|port| ["--http", port]));
        let tree = self.setup.tree_above.map(|nodes| nodes.to_string());
        let mut environment = vec![("CKPTD_LOG_SHORTENED_ABOVE", LOG_SHORTENED_ABOVE)];
        environment.extend(tree.iter().map(|nodes| ("CKPTD_TREE_ABOVE", nodes.as_str())));
        let mut running = self.coordinator_node().spawn(&words, &environment)?;
        let answers = until("the coordinator answers", UP_LIMIT, || {
            if let Some(status) = running.ended()? {
                return Err(Failure(format!("the coordinator ended with {status}")));
            }
            let asked = self.coordinator_node().run(&["ckptd", "nodes", "--json"], &[])?;
            Ok((asked.status == 0).then_some(()))
        });
        answers.map_err(|failure| running.explain(&failure))?;
        Ok(running)
    }

    /// Kills the coordinator with SIGKILL.
    ///
    /// # Errors
    /// When none runs.
    pub fn kill_coordinator(&self) -> Result<(), Failure> {
        let mut running =
            lock(&self.coordinator).take().ok_or(Failure("no coordinator runs".into()))?;
        running.kill();
        Ok(())
    }

    /// What the coordinator has written to standard error since it was last started.
    pub fn coordinator_errors(&self) -> String {
        lock(&self.coordinator).as_ref().map(Background::errors).unwrap_or_default()
    }

    /// A join token.
    ///
    /// # Errors
    /// When it is refused.
    pub fn new_token(&self, options: &[&str]) -> Result<String, Failure> {
        let text = self.coordinator_node().must_run(&[&["ckptd", "token"], options].concat())?;
        Ok(text.trim().to_owned())
    }

    /// Starts the agent of a node, for the first time or again.
    ///
    /// # Errors
    /// When the node is down.
    pub fn start_agent(&self, number: usize) -> Result<(), Failure> {
        let token = self.token.clone();
        let agent = self.join(number, &token, &self.node(number).name())?;
        lock(&self.agents).insert(number, agent);
        Ok(())
    }

    /// Runs `ckptd agent` on a node with any token and name; the harness does not count it among the
    /// members.
    ///
    /// # Errors
    /// When the node is down.
    pub fn join(&self, number: usize, token: &str, name: &str) -> Result<Background, Failure> {
        let slots = self.setup.slots_of.get(&number).unwrap_or(&self.setup.slots).to_string();
        let executable = self.executable(number);
        let mut words =
            vec![executable.as_str(), "agent", "--join", token, "--name", name, "--slots", &slots];
        words.extend(self.setup.speed.into_iter().flat_map(|speed| ["--speed", speed]));
        words.extend(self.setup.port.into_iter().flat_map(|port| ["--port", port]));
        if self.setup.encrypting.contains(&number) {
            words.push("--encrypt-job-traffic");
        }
        words.push("--allow-root");
        words.extend(self.setup.leave_below.into_iter().flat_map(|part| ["--leave-below", part]));
        let (faults, power) = (format!("{HOME}/{FAULTS}"), format!("{HOME}/{POWER}"));
        let mut environment = vec![("CKPTD_POWER_SUPPLY", power.as_str())];
        environment.extend(self.setup.numbers.environment());
        if self.setup.apps {
            environment.extend(apps::ENVIRONMENT);
        }
        // How agents find sockets, for a whole run of the suite: see the agent's sock_diag.
        let sockets = std::env::var("CKPTD_SOCKETS").ok();
        environment.extend(sockets.as_deref().map(|way| ("CKPTD_SOCKETS", way)));
        if self.setup.faults {
            environment.push(("CKPTD_FAULT_DIR", &faults));
        }
        self.node(number).spawn(&words, &environment)
    }

    /// From its next start on, a node's daemon is this executable.
    pub fn install(&self, number: usize, executable: &str) {
        lock(&self.executables).insert(number, executable.to_owned());
    }

    fn executable(&self, number: usize) -> String {
        lock(&self.executables).get(&number).cloned().unwrap_or_else(|| "ckptd".to_owned())
    }

    /// The folder on the outside in which steps of a node's agent are armed.
    pub fn faults(&self, number: usize) -> PathBuf {
        self.node(number).disk().join("home").join(FAULTS)
    }

    /// Gives a node a battery of that charge, in percent, and status ("Discharging", "Charging").
    ///
    /// # Errors
    /// When the disk is full.
    pub fn battery(&self, number: usize, percent: u8, status: &str) -> Result<(), Failure> {
        let folder = self.node(number).disk().join("home").join(POWER).join("battery");
        let failed = super::failure("write a battery");
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
        std::fs::create_dir_all(&folder)
            .and_then(|()| write("type", "Battery\n"))
            .and_then(|()| write("status", &format!("{status}\n")))
            .and_then(|()| write("capacity", &format!("{percent}\n")))
            .map_err(failed)
    }

    /// Kills the agent of a node with SIGKILL; its jobs' processes are left alone.
    ///
    /// # Errors
    /// When none runs.
    pub fn kill_agent(&self, number: usize) -> Result<(), Failure> {
        let agent = lock(&self.agents).remove(&number);
        agent.ok_or_else(|| Failure(format!("no agent runs on node{number}")))?.kill();
        Ok(())
    }

    /// Kills a node outright.
    ///
    /// # Errors
    /// When it is down.
    pub fn kill_node(&self, number: usize) -> Result<(), Failure> {
        lock(&self.agents).remove(&number);
        self.node(number).kill()
    }

    /// Whether the agent of a node runs still.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn agent_runs(&self, number: usize) -> Result<bool, Failure> {
        let mut agents = lock(&self.agents);
        agents.get_mut(&number).map_or(Ok(false), |agent| Ok(agent.ended()?.is_none()))
    }

    /// Sends an agent SIGTERM.
    ///
    /// # Errors
    /// When none runs.
    pub fn tell_agent_to_end(&self, number: usize) -> Result<(), Failure> {
        let agents = lock(&self.agents);
        let agent = agents.get(&number);
        agent
            .ok_or_else(|| Failure(format!("no agent runs on node{number}")))?
            .signal(Signal::SIGTERM)
    }

    /// What the agent of a node has written to standard error.
    pub fn agent_errors(&self, number: usize) -> String {
        lock(&self.agents).get(&number).map(Background::errors).unwrap_or_default()
    }

    /// Ends an agent in order, by SIGTERM.
    ///
    /// # Errors
    /// When none runs, or it does not end in time.
    pub fn end_agent(&self, number: usize, limit: Duration) -> Result<i32, Failure> {
        self.end_agent_by(number, Signal::SIGTERM, limit)
    }

    /// Ends an agent by a signal: its status.
    ///
    /// # Errors
    /// When none runs, or it does not end in time.
    pub fn end_agent_by(
        &self,
        number: usize,
        signal: Signal,
        limit: Duration,
    ) -> Result<i32, Failure> {
        let agent = lock(&self.agents).remove(&number);
        let mut agent = agent.ok_or_else(|| Failure(format!("no agent runs on node{number}")))?;
        agent.signal(signal)?;
        agent.wait(limit)
    }

    /// The members: name and state, as `ckptd nodes --json` tells them on the coordinator's machine.
    ///
    /// # Errors
    /// When the answer is none.
    pub fn members(&self) -> Result<BTreeMap<String, String>, Failure> {
        let text = self.coordinator_node().must_run(&["ckptd", "nodes", "--json"])?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|e| Failure(format!("nodes --json is no JSON: {e}\n{text}")))?;
        let members = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let word = |member: &Value, key: &str| member[key].as_str().unwrap_or("?").to_owned();
        Ok(members.iter().map(|m| (word(m, "name"), word(m, "state"))).collect())
    }

    /// Waits until these nodes are members and there.
    ///
    /// # Errors
    /// When one is not, in time; with what its agent said.
    pub fn wait_for_members(&self, numbers: &[usize]) -> Result<(), Failure> {
        let mut seen = BTreeMap::new();
        let all = until("all members are there", UP_LIMIT, || {
            // An agent on the coordinator's machine may not have found it yet.
            seen = self.members().unwrap_or_default();
            let is_there = |number: &usize| {
                seen.get(&self.node(*number).name()).is_some_and(|state| state == "alive")
            };
            Ok(numbers.iter().all(is_there).then_some(()))
        });
        all.map_err(|failure| self.explain(&Failure(format!("{failure}; members: {seen:?}"))))
    }

    /// Waits until a node is no member any more, or told to be gone.
    ///
    /// # Errors
    /// When it stays.
    pub fn wait_until_gone(&self, number: usize, limit: Duration) -> Result<(), Failure> {
        let name = self.node(number).name();
        until(&format!("{name} is declared gone"), limit, || {
            Ok((self.members()?.get(&name).is_none_or(|state| state == "gone")).then_some(()))
        })
    }

    /// Any other command of ckptd on a node, to its end.
    ///
    /// # Errors
    /// When the node is down or the command hangs.
    pub fn ckptd(&self, number: usize, arguments: &[&str]) -> Result<Output, Failure> {
        self.node(number).run(&[&["ckptd"], arguments].concat(), &[])
    }

    /// `ckptd run OPTIONS... --name NAME -- COMMAND...` on a node, in the background.
    ///
    /// # Errors
    /// When the node is down.
    pub fn run(
        &self,
        number: usize,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<ClusterJob<'_>, Failure> {
        self.run_in(number, name, &[], options, command)
    }

    /// The same, with variables of its environment.
    ///
    /// # Errors
    /// When the node is down.
    pub fn run_in(
        &self,
        number: usize,
        name: &str,
        environment: &[(&str, &str)],
        options: &[&str],
        command: &[&str],
    ) -> Result<ClusterJob<'_>, Failure> {
        let words = [&["ckptd", "run", "--name", name], options, &["--"], command].concat();
        let launcher = self.node(number).spawn(&words, environment)?;
        Ok(ClusterJob::new(self, name, launcher))
    }

    /// `ckptd restart NAME` on a node, in the background.
    ///
    /// # Errors
    /// When the node is down.
    pub fn restart(&self, number: usize, name: &str) -> Result<ClusterJob<'_>, Failure> {
        let launcher = self.node(number).spawn(&["ckptd", "restart", name], &[])?;
        Ok(ClusterJob::new(self, name, launcher))
    }

    /// A failure with what the coordinator and the agents said.
    pub fn explain(&self, failure: &Failure) -> Failure {
        let (coordinator, agents) = (lock(&self.coordinator), lock(&self.agents));
        let daemons = coordinator.iter().chain(agents.values());
        daemons.fold(Failure(failure.0.clone()), |so_far, daemon| daemon.explain(&so_far))
    }

    /// Where the daemons' and jobs' outputs are, on the outside.
    pub fn logs(&self) -> PathBuf {
        self.cluster.folder().join("logs")
    }
}

/// What a panic elsewhere has left is still true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
