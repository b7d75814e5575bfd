//! How the daemons of an allocation end: by whoever has started them, or by the guard in its place.

use crate::cluster::{Cluster, coordinator_folder};
use crate::failure::Failure;
use ckpt_engine::proc::{is_ended, start_time};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::cluster::client::{Answer, Ask};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long daemons may take to end.
const ENDING: Duration = Duration::from_secs(15);
/// What ends the coordinator, to which SIGTERM never comes.
pub const OF_COORDINATOR: Signal = Signal::SIGINT;

/// A process, whether it is a child or not. Another one that gets its number later is none of it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    started: Option<u64>,
}

impl Process {
    /// The one that has this number now.
    pub fn of(pid: u32) -> Self {
        // No process has a number above (proc_sys_kernel(5): pid_max).
        let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
        Self { pid, started: started(pid) }
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended; whoever has started it may not know yet.
    fn has_ended(&self) -> bool {
        self.started.is_none() || started(self.pid) != self.started
    }

    /// Ends it in order by that signal, or after a while in any case.
    pub fn end(&self, signal: Signal) {
        let until = Instant::now() + ENDING;
        let mut signal = Some(signal);
        while !self.has_ended() {
            if let Some(signal) = signal.take() {
                let _ = kill(self.pid, signal);
            }
            if Instant::now() > until {
                let _ = kill(self.pid, Signal::SIGKILL);
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// When a process was started, in the kernel's own measure; `None`: it has ended.
fn started(pid: Pid) -> Option<u64> {
    start_time(pid.as_raw()).filter(|_| !is_ended(pid.as_raw()))
}

/// Ends daemons, agents first: each removes what it has on its node. They are asked to leave, since srun kills outright
/// what it is told to end.
pub fn end(folder: &Path, coordinator: &Process, agents: Option<&Process>) {
    let until = Instant::now() + ENDING;
    if let Some(agents) = agents {
        // Some may still be on their way here.
        while !agents.has_ended() && Instant::now() < until {
            if let_leave(folder, until).is_none() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        agents.end(Signal::SIGTERM);
    }
    coordinator.end(OF_COORDINATOR);
}

/// Jobs go first: who leaves would have their images copied to others. `None`: the coordinator does not answer.
fn let_leave(folder: &Path, until: Instant) -> Option<()> {
    let cluster = Cluster::of_coordinator(&coordinator_folder(folder)).ok()?;
    let jobs = listed_until(&cluster, &Ask::Jobs, until)?;
    for job in jobs.as_array().into_iter().flatten() {
        let Some(job) = job.get("id").and_then(Value::as_str) else { continue };
        let job = job.to_owned();
        ask_until(&cluster, &Ask::Stop { job: job.clone(), checkpoint: false }, until);
        ask_until(&cluster, &Ask::Remove { job }, until);
    }
    let members = alive(&listed_until(&cluster, &Ask::Nodes, until)?);
    std::thread::scope(|scope| {
        for node in members.iter().filter_map(|name| name.parse().ok()) {
            let (cluster, ask) = (&cluster, Ask::Leave { node: Some(node) });
            scope.spawn(move || ask_until(cluster, &ask, until));
        }
    });
    Some(())
}

fn listed_until(cluster: &Cluster, ask: &Ask, until: Instant) -> Option<Value> {
    match answer_until(cluster, ask, until) {
        Some(Answer::Listing { value }) => Some(value),
        _ => None,
    }
}

/// Asks for something and waits for the answer, whatever it is: what has not been done then ends with the step.
fn ask_until(cluster: &Cluster, ask: &Ask, until: Instant) {
    let _ = answer_until(cluster, ask, until);
}

fn answer_until(cluster: &Cluster, ask: &Ask, until: Instant) -> Option<Answer> {
    let mut link = cluster.open(ask).ok()?;
    link.next_within(until.saturating_duration_since(Instant::now())).ok()?
}

/// The names of members that are there.
pub fn members(folder: &Path, what: &str) -> Result<BTreeSet<String>, Failure> {
    let cluster = Cluster::of_coordinator(&coordinator_folder(folder))?;
    Ok(alive(&cluster.listing(what, &Ask::Nodes)?))
}

fn alive(nodes: &Value) -> BTreeSet<String> {
    let alive = |node: &Value| {
        let state = node.get("state").and_then(Value::as_str);
        let is_alive = matches!(state, Some("alive" | "draining" | "drained"));
        node.get("name").and_then(Value::as_str).filter(|_| is_alive).map(str::to_owned)
    };
    nodes.as_array().into_iter().flatten().filter_map(alive).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_start() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id());
        assert!(!process.has_ended());
        let later = Process { started: Some(1), ..Process::of(child.id()) };
        later.end(Signal::SIGKILL);
        assert!(!process.has_ended(), "another one of that number was ended");
        process.end(Signal::SIGTERM);
        assert!(process.has_ended(), "it is known before it is waited for");
        child.wait().unwrap();
        assert!(Process::of(child.id()).has_ended());
    }
}
