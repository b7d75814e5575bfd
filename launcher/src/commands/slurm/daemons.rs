//! The coordinator and the agents of an allocation.

use super::allocation::Allocation;
use super::ending::{self, OF_COORDINATOR, Process};
use super::guard::Guard;
use crate::INNER_CALL;
use crate::client::refusal::unexpected;
use crate::cluster::{Cluster, coordinator_folder};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::powers::{Powers, SpeaksFor};
use protocol::database::users::Account;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is done first.
const START_COORDINATOR: &str = "start a coordinator";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// A look that has taken longer was interrupted.
const MOST_A_LOOK: Duration = Duration::from_secs(2);
/// Variables of Slurm's that tell srun which allocation it is in, and where Slurm is. All others are left out: they are what a
/// script, a site or sbatch asks for the ranks of other steps (srun(1), INPUT ENVIRONMENT VARIABLES), such as
/// SLURM_CPUS_PER_TASK, SLURM_EXACT, SLURM_EXPORT_ENV or SRUN_CPUS_PER_TASK; agents are one a node, and take all of it.
const OF_THE_ALLOCATION: [&str; 7] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_JOBID",
    "SLURM_JWT",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_WORKING_CLUSTER",
    "SLURMD_NODENAME",
];
/// The same, by how they begin: also what a site's plugins have told the job.
const OF_ALLOCATIONS: [&str; 3] = ["SLURM_CONF", "SLURM_JOB_", "SLURM_SPANK_"];
/// How srun tells that a task has ended with a failure.
const AN_END: &str = "Exited with exit code";
/// How long the step of the agents has to say nothing more, once one has ended: srun may tell of an end before it passes on
/// what was said before that.
const SETTLES: Duration = Duration::from_millis(500);
/// And how long that is waited for.
const LONGEST_SETTLING: Duration = Duration::from_secs(3);
/// How long members may take to join with the token.
const TOKEN_VALID_S: u64 = 3600;
/// Of what the agents' step has said, so many lines are told.
const LINES: usize = 12;

/// A child, known by its start: once it was waited for, its number may be another's.
struct Daemon {
    child: Child,
    process: Process,
}

impl Daemon {
    fn of(child: Child) -> Self {
        let process = Process::of(child.id());
        Self { child, process }
    }

    /// Ends it in order by that signal, or after a while in any case.
    fn end(mut self, signal: Signal) {
        self.process.end(signal);
        let _ = self.child.wait();
    }
}

/// What runs for a job beside it.
pub struct Daemons {
    folder: PathBuf,
    coordinator: Daemon,
    /// srun, which ends with its agents.
    agents: Daemon,
    /// Ends both where this process is killed.
    _guard: Guard,
}

impl Daemons {
    /// Starts them.
    ///
    /// # Errors
    /// Where the coordinator does not come up, or there is no srun.
    pub fn start(
        allocation: &Allocation,
        spares: usize,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(|error| Failure::of("find ckptd", error))?;
        let unguarded = |error| Failure::of("start a guard", error);
        let mut guard = Guard::start(&own, folder, interrupts).map_err(unguarded)?;
        let mut coordinator = start_coordinator(&own, folder, interrupts)?;
        let agents = guard
            .coordinator_is(&coordinator.process)
            .map_err(unguarded)
            .and_then(|()| wait_for_coordinator(&mut coordinator, folder))
            .and_then(|()| token(folder, allocation.nodes.len()))
            .and_then(|token| start_agents(&own, folder, (allocation, spares), &token, interrupts));
        match agents {
            Ok(agents) => {
                let told = guard.agents_are(&agents.process).map_err(unguarded);
                let daemons =
                    Self { folder: folder.to_owned(), coordinator, agents, _guard: guard };
                told.map(|()| daemons)
            }
            Err(error) => {
                coordinator.end(OF_COORDINATOR);
                Err(error)
            }
        }
    }

    /// Waits until all nodes are members, or for a signal.
    ///
    /// # Errors
    /// Those that do not come, by name.
    pub fn wait_for_members(
        &mut self,
        allocation: &Allocation,
        limit: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<Option<u8>, Failure> {
        let what = "start an agent on each node of the allocation";
        // Slurm may suspend all of this: that time does not count.
        let (mut waited, mut looked) = (Duration::ZERO, Instant::now());
        loop {
            waited += looked.elapsed().min(MOST_A_LOOK);
            looked = Instant::now();
            if let Some(signal) = interrupts.came() {
                return Ok(Some(signal));
            }
            let there = ending::members(&self.folder, what)?;
            let names = allocation.members().into_iter();
            let mut missing: Vec<String> = names.filter(|name| !there.contains(name)).collect();
            if missing.is_empty() {
                return Ok(None);
            }
            let over =
                self.agents.child.try_wait().map_err(|error| Failure::of(what, error))?.is_some();
            let ended = ended_on(&self.agents_said());
            let cause = if over {
                "the agents' step has ended".to_owned()
            } else if !ended.is_empty() {
                // The others may be on their way.
                missing = ended;
                "its agent has ended".to_owned()
            } else if waited > limit {
                format!("it has not come within {} s", limit.as_secs())
            } else {
                std::thread::sleep(LOOK);
                continue;
            };
            self.settle();
            let said = self.agents_said();
            return Err(Failure::of(what, format!("{}: {cause}{said}", missing.join(", "))));
        }
    }

    /// Waits until the step of the agents has said all that it says of an end.
    fn settle(&self) {
        let path = log(&self.folder, "agents");
        let length = || std::fs::metadata(&path).map_or(0, |found| found.len());
        let (begin, mut since, mut seen) = (Instant::now(), Instant::now(), length());
        while since.elapsed() < SETTLES && begin.elapsed() < LONGEST_SETTLING {
            std::thread::sleep(LOOK);
            let now = length();
            if now != seen {
                (since, seen) = (Instant::now(), now);
            }
        }
    }

    /// The last lines of the agents' step, but those about what goes well.
    fn agents_said(&self) -> String {
        let text = std::fs::read_to_string(log(&self.folder, "agents")).unwrap_or_default();
        let tells = |line: &&str| !line.trim().is_empty() && !line.contains(" INFO ");
        let lines: Vec<&str> = text.lines().filter(tells).collect();
        let last = lines.len().saturating_sub(LINES);
        lines[last..].iter().map(|line| format!("\n  {line}")).collect()
    }

    /// The log of the agents.
    pub fn agents_log(&self) -> PathBuf {
        log(&self.folder, "agents")
    }

    /// What agents and coordinator have said of what went wrong.
    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(log(&self.folder, "coordinator")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        lines
            .map(|line| format!("  {line}\n"))
            .chain([self.agents_said(), "\n".to_owned()])
            .collect()
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        ending::end(&self.folder, &self.coordinator.process, Some(&self.agents.process));
        let _ = (self.agents.child.wait(), self.coordinator.child.wait());
    }
}

/// Nodes whose tasks have ended with a failure, as srun tells: `srun: error: NODE: task 1: Exited with exit code 125`.
fn ended_on(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.contains(AN_END));
    let nodes = lines.filter_map(|line| line.split_once("error: ")?.1.split_once(": task"));
    nodes.map(|(nodes, _)| nodes.to_owned()).collect()
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// At any free port: other jobs of the node have coordinators, too.
fn start_coordinator(
    own: &Path,
    folder: &Path,
    interrupts: &Interrupts,
) -> Result<Daemon, Failure> {
    let failed = |error: io::Error| Failure::of(START_COORDINATOR, error);
    let mut command = Command::new(own);
    command
        .arg("--dir")
        .arg(folder)
        .args(["coordinator", "--listen", "0.0.0.0:0"])
        .env(INNER_CALL, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log(folder, "coordinator")).map_err(failed)?)
        // What is typed is for the job.
        .process_group(0);
    // Slurm tells all that is in an allocation to end, and kills it a while later: until then it is needed.
    interrupts.spawn_without(Signal::SIGTERM, &mut command).map(Daemon::of).map_err(failed)
}

/// Its first line says that it listens.
fn wait_for_coordinator(coordinator: &mut Daemon, folder: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::of(START_COORDINATOR, error);
    let mut line = String::new();
    if let Some(output) = coordinator.child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    if line.contains("listens") {
        return Ok(());
    }
    // What it says of its end comes before that.
    coordinator.process.end(OF_COORDINATOR);
    let said = std::fs::read_to_string(log(folder, "coordinator")).unwrap_or_default();
    let said = said.lines().last().unwrap_or("it has ended");
    Err(failed(io::Error::other(said.trim().to_owned())))
}

/// All of them are this user's: each speaks for him alone, and may order what he may, such as to take an archive of another
/// cluster.
fn token(folder: &Path, uses: usize) -> Result<String, Failure> {
    let what = "make a join token";
    let uses = u32::try_from(uses).map_err(|error| Failure::of(what, error))?;
    let cluster = Cluster::of_coordinator(&coordinator_folder(folder))?;
    let user = Account::of_uid(Uid::effective().as_raw());
    let user = user.ok_or_else(|| Failure::of(what, "this user has no name"))?;
    let speaks_for = SpeaksFor::Only(std::iter::once(user.name).collect());
    let powers = Powers { speaks_for, operates: true };
    let ask = Ask::Token { uses, valid_s: TOKEN_VALID_S, powers };
    match cluster.ask(what, &ask)? {
        Answer::Token { token } => Ok(token),
        other => Err(unexpected(what, &other)),
    }
}

/// One on each node, in a step that shares the nodes with others and outlives the loss of one. The token comes by its standard
/// input, which srun hands to all.
fn start_agents(
    own: &Path,
    folder: &Path,
    (allocation, spares): (&Allocation, usize),
    token: &str,
    interrupts: &Interrupts,
) -> Result<Daemon, Failure> {
    let failed = |error: io::Error| Failure::of("start agents by srun", error);
    let count = allocation.nodes.len().to_string();
    let slots: Vec<String> = allocation.nodes.iter().map(|node| node.slots.to_string()).collect();
    let log = File::create(log(folder, "agents")).map_err(failed)?;
    let mut srun = Command::new("srun");
    for (variable, _) in std::env::vars_os().filter(|(name, _)| is_of_other_steps(name)) {
        srun.env_remove(variable);
    }
    srun.args([
        "--export=ALL",
        "--overlap",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mem=0",
    ])
    .args(["--mpi=none", "--ntasks-per-node=1", "--job-name=ckptd"])
    .args(["--cpu-bind=none", "--mem-bind=none"])
    .args(["--nodes", &count, "--ntasks", &count])
    .arg(own)
    .arg("--dir")
    .arg(folder)
    .env(INNER_CALL, "1")
    .args(["slurm", "agent", "--slots", &slots.join(","), "--spare", &spares.to_string()])
    .stdin(Stdio::piped())
    .stdout(log.try_clone().map_err(failed)?)
    .stderr(log)
    .process_group(0);
    let mut agents = interrupts.spawn(&mut srun).map(Daemon::of).map_err(failed)?;
    let written = match agents.child.stdin.take() {
        Some(mut input) => input.write_all(format!("{token}\n").as_bytes()),
        None => Ok(()),
    };
    if let Err(error) = written {
        agents.end(Signal::SIGTERM);
        return Err(failed(error));
    }
    Ok(agents)
}

/// Whether a variable tells srun what somebody asks for, other than the allocation.
fn is_of_other_steps(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_slurms = ["SLURM_", "SLURMD_", "SRUN_"].iter().any(|prefix| name.starts_with(prefix));
    is_slurms
        && !OF_THE_ALLOCATION.contains(&name)
        && !OF_ALLOCATIONS.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::{ended_on, is_of_other_steps};

    #[test]
    fn agents_take_the_allocation_and_no_requests() {
        for kept in
            ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_CONF_SERVER", "PATH"]
        {
            assert!(!is_of_other_steps(kept.as_ref()), "{kept}");
        }
        for left_out in
            ["SLURM_EXPORT_ENV", "SLURM_EXACT", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK"]
        {
            assert!(is_of_other_steps(left_out.as_ref()), "{left_out}");
        }
    }

    #[test]
    fn srun_tells_where_a_task_has_failed() {
        let said = "\n  ckptd: failed\n  srun: error: node2: task 1: Exited with exit code 125\n  srun: error: \
                    node[4-5]: tasks 3-4: Exited with exit code 1";
        assert_eq!(ended_on(said), ["node2", "node[4-5]"]);
        assert!(ended_on("srun: error: something else").is_empty());
    }
}
