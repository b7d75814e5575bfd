//! Somebody dies at each numbered step of a checkpoint, a move and a restart; the job must come to its right
//! end.

use std::path::PathBuf;
use std::time::Duration;

use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::{failure, until};
use crate::job::Failure;

/// What is under way when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A checkpoint.
    Checkpoint,
    /// The processes of another node, that was lost, are moved.
    Move,
    /// `ckptd restart`.
    Restart,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The machine of the agent that has come to the step.
    Node,
    /// That agent alone; it is started again.
    Agent,
    /// The coordinator; it is started again.
    Coordinator,
    /// The machine's link, for longer than the grace.
    Link,
    /// The machine's link, for less.
    ShortCut,
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is under way.
    pub phase: Phase,
    /// The step, as the `fault::point` of ckpt-engine names it.
    pub step: &'static str,
    /// Who dies.
    pub victim: Victim,
}

/// The steps of a checkpoint, in their order.
const CHECKPOINT: [&str; 10] = [
    "freeze", "quiesce", "snapshot", "resume", "write", "seal", "copy", "copied", "commit",
    "marked",
];
/// The steps of a rollback.
const MOVE: [&str; 7] = ["kill", "prepare", "fetched", "rewire", "rewired", "restored", "go"];
/// The steps of a restart: nothing runs that would be killed.
const RESTART: [&str; 6] = ["prepare", "fetched", "rewire", "rewired", "restored", "go"];
const VICTIMS: [Victim; 5] =
    [Victim::Node, Victim::Agent, Victim::Coordinator, Victim::Link, Victim::ShortCut];

/// A sample that the whole suite runs.
pub const CASES: &[Case] = &[
    Case {
        name: "fault-checkpoint",
        about: "the node dies while its image is copied in a checkpoint",
        run: |stage| run(stage, Fault::of(Phase::Checkpoint, "copy", Victim::Node)),
    },
    Case {
        name: "fault-move",
        about: "a second node dies while the processes of a first are restored",
        run: |stage| run(stage, Fault::of(Phase::Move, "rewired", Victim::Node)),
    },
    Case {
        name: "fault-restart",
        about: "the coordinator dies in the middle of a restart",
        run: |stage| run(stage, Fault::of(Phase::Restart, "restored", Victim::Coordinator)),
    },
    Case {
        name: "fault-standing",
        about: "an agent is killed while a job in a PID namespace stands until its image is written: the job goes on",
        run: standing,
    },
];

impl Fault {
    fn of(phase: Phase, step: &'static str, victim: Victim) -> Fault {
        Fault { phase, step, victim }
    }

    /// What it is called: phase-step-victim.
    pub fn name(&self) -> String {
        format!("{:?}-{}-{:?}", self.phase, self.step, self.victim).to_lowercase()
    }

    /// Whether it is for certain that the job is rolled back.
    fn loses_node(&self) -> bool {
        matches!(self.victim, Victim::Node | Victim::Link)
    }
}

/// All of them.
pub fn all() -> Vec<Fault> {
    let phases: [(Phase, &[&'static str]); 3] =
        [(Phase::Checkpoint, &CHECKPOINT), (Phase::Move, &MOVE), (Phase::Restart, &RESTART)];
    let mut all = Vec::new();
    for (phase, steps) in phases {
        for step in steps {
            all.extend(VICTIMS.map(|victim| Fault::of(phase, step, victim)));
        }
    }
    all
}

/// The node at which somebody comes to the step.
const AT: usize = 3;
/// The node that is lost to begin a move.
const FIRST: usize = 4;
const PORT: &str = "7700";
const ANSWER: &str = "the ring: right";
/// Rounds of the ring and their least length, microseconds: 6 s.
const ROUNDS: [&str; 2] = ["600", "10000"];

/// Runs one.
///
/// # Errors
/// When the job does not come to its right end.
pub fn run(stage: &Stage, fault: Fault) -> Result<(), Failure> {
    let nodes = if fault.phase == Phase::Move { FIRST } else { AT };
    let mut setup = Setup::new(nodes);
    setup.faults = true;
    let ckptd = stage.cluster_of(setup)?;
    let names: Vec<String> = (1..=nodes).map(|number| format!("node{number}")).collect();
    let [rounds, pace] = ROUNDS;
    let script = format!(
        "pids=; for n in {}; do ckptd rsh node$((n + 1)) ring $n {PORT} {rounds} {pace} {} & \
         pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit 1; done; echo {ANSWER}",
        (0..nodes).map(|n| n.to_string()).collect::<Vec<_>>().join(" "),
        names.join(" ")
    );
    // In a move two nodes may be lost: three have each image.
    let copies = if fault.phase == Phase::Move { "3" } else { "2" };
    let mut job = start(&ckptd, "ring", &["--copies", copies], &["bash", "-c", &script])?;
    if fault.phase == Phase::Restart {
        let stopped = ckptd.ckptd(2, &["stop", "ring", "--checkpoint"])?;
        check(stopped.status == 0, || format!("stop: {}", stopped.stderr))?;
        job.wait(LIMIT)?;
    }
    let point = Point::arm(&ckptd, fault.step)?;
    match fault.phase {
        Phase::Checkpoint => {}
        Phase::Move => {
            // As a machine without power, that tells nobody: else its neighbour's program ends at once, and nothing is
            // left there to be killed.
            ckptd.node(FIRST).cut()?;
            ckptd.kill_node(FIRST)?;
        }
        Phase::Restart => job = ckptd.restart(1, "ring")?,
    }
    point.wait_until_reached().map_err(|failure| job.explain(&failure))?;
    strike(&ckptd, fault, point)?;
    let expected = usize::from(fault.phase == Phase::Move) + usize::from(fault.loses_node());
    if fault.phase == Phase::Checkpoint && fault.loses_node() {
        job.wait_for_rollback(expected, LIMIT)?;
    }
    if fault.victim == Victim::Link {
        ckptd.wait_until_gone(AT, LIMIT).map_err(|failure| job.explain(&failure))?;
        ckptd.node(AT).heal()?;
    }
    job.must_end_with(ANSWER, JOB_LIMIT)
}

/// Counts for some ten seconds in a PID namespace of its own, and answers.
const COUNTING: &str = "echo started; n=0; while [ $n -lt 400 ]; do n=$((n + 1)); sleep 0.02; done; \
                        echo counted to $n as $$";

fn standing(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { faults: true, ..Setup::new(AT) })?;
    let inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork"];
    let command = [&inside[..], &["sh", "-c", COUNTING]].concat();
    let mut job = ckptd.run(AT, "inner", &["--interval", "1"], &command)?;
    job.wait_for_output("started", LIMIT)?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    let point = Point::arm(&ckptd, "write")?;
    point.wait_until_reached().map_err(|failure| job.explain(&failure))?;
    strike(&ckptd, Fault::of(Phase::Checkpoint, "write", Victim::Agent), point)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("it was rolled back: {rollbacks:?}"))?;
    job.must_end_with("counted to 400 as 1", JOB_LIMIT)
}

/// Lets it happen, and what stands at the step go on.
fn strike(ckptd: &Ckptd, fault: Fault, point: Point) -> Result<(), Failure> {
    match fault.victim {
        Victim::Node => ckptd.kill_node(AT),
        Victim::Agent => {
            ckptd.kill_agent(AT)?;
            point.free()?;
            ckptd.start_agent(AT)
        }
        Victim::Coordinator => {
            ckptd.kill_coordinator()?;
            point.free()?;
            ckptd.start_coordinator()
        }
        Victim::Link => {
            ckptd.node(AT).cut()?;
            point.free()
        }
        Victim::ShortCut => {
            ckptd.node(AT).cut()?;
            point.free()?;
            std::thread::sleep(Duration::from_millis(1200));
            ckptd.node(AT).heal()
        }
    }
}

/// A step that is armed on [`AT`].
struct Point {
    armed: PathBuf,
    reached: PathBuf,
}

impl Point {
    fn arm(ckptd: &Ckptd, step: &str) -> Result<Point, Failure> {
        let folder = ckptd.faults(AT);
        std::fs::create_dir_all(&folder).map_err(failure("make the folder of faults"))?;
        let point =
            Point { armed: folder.join(step), reached: folder.join(format!("{step}.reached")) };
        std::fs::write(&point.armed, "").map_err(failure("arm a fault"))?;
        Ok(point)
    }

    fn wait_until_reached(&self) -> Result<(), Failure> {
        let what = format!("node{AT} comes to {}", self.armed.display());
        until(&what, LIMIT, || Ok(self.reached.exists().then_some(())))
    }

    fn free(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.reached).map_err(failure("free who stands at a fault"))
    }
}
