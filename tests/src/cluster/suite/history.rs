//! A long random history: nodes leave, are lost and join while Open MPI computes; the answer must be right.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::open_mpi::{ANSWER, end};
use super::stage::{LIMIT, Stage};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::failure;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

/// Nodes; the coordinator and the launcher are on another one, that stays.
const NODES: usize = 6;
/// Never fewer are there.
const FEWEST: usize = 2;
/// How long anything may take until the job has come to another checkpoint: everything is slow on a full machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long the ranks may take to their end.
const END_LIMIT: Duration = Duration::from_secs(300);
/// The longest pause between two events, ms.
const LONGEST_PAUSE: u64 = 8000;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    /// A node is killed outright.
    Loss(usize),
    /// A link is cut for longer than the grace, then healed.
    Cut(usize),
    /// `ckptd leave`.
    Leave(usize),
    /// A node joins, for the first time or again.
    Join(usize),
}

/// One of these nodes; None where there is none.
fn one_of(set: &BTreeSet<usize>, chance: &mut Rng) -> Option<usize> {
    chance.choice(set).copied()
}

/// Who is there.
struct Members {
    there: BTreeSet<usize>,
    away: BTreeSet<usize>,
}

impl Members {
    fn next(&self, chance: &mut Rng) -> Option<Happening> {
        let may_go = self.there.len() > FEWEST;
        let kind = chance.u8(..6);
        let going = if may_go { one_of(&self.there, chance) } else { None };
        let coming = one_of(&self.away, chance);
        match (kind, going, coming) {
            (0 | 1, Some(node), _) => Some(Happening::Loss(node)),
            (2, Some(node), _) => Some(Happening::Cut(node)),
            (3, Some(node), _) => Some(Happening::Leave(node)),
            (_, _, Some(node)) => Some(Happening::Join(node)),
            (_, Some(node), None) => Some(Happening::Loss(node)),
            (_, None, None) => None,
        }
    }
}

/// Runs one history; how many events it had.
///
/// # Errors
/// When the job does not come to its right end, or nothing happens any more.
pub fn run(stage: &Stage, seed: u64, least: Duration) -> Result<u32, Failure> {
    let ckptd = stage.cluster_of(Setup::new(NODES))?;
    let ranks = (NODES * 2).to_string();
    let mpi = ["mpirun.openmpi", "-np", &ranks, "--mca", "mpi_yield_when_idle", "1"];
    // Between two messages the ranks rest, so that several histories can run beside each other.
    let work = ["nqueens", "13", "--ballast", "4", "--chat", "60", "--rest", "200"];
    let files = ["--until", "/mnt/shared/end", "--pulse", "/mnt/shared/pulse"];
    let program = [&mpi[..], &work, &files].concat();
    ckptd.cluster().share_script("pulse", "")?;
    let pulse = Pulse(ckptd.cluster().folder().join("shared/pulse"));
    let mut job = ckptd.run(0, "history", &["--interval", "2"], &program)?;
    job.wait_for_checkpoint(1, PATIENCE)?;
    let mut chance = Rng::with_seed(seed);
    let mut members = Members { there: (1..=NODES).collect(), away: BTreeSet::new() };
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < least {
        let Some(happening) = members.next(&mut chance) else { break };
        number += 1;
        println!("history {seed}: {:6.1} s  {happening:?}", began.elapsed().as_secs_f64());
        let done = happen(&ckptd, happening, &mut members).and_then(|()| settled(&mut job, &pulse));
        done.map_err(|failure| {
            let text = format!("seed {seed}, event {number}, {happening:?}: {failure}");
            job.explain(&Failure(text))
        })?;
        std::thread::sleep(Duration::from_millis(chance.u64(..LONGEST_PAUSE)));
    }
    end(&ckptd)?;
    job.must_end_with(ANSWER, END_LIMIT)?;
    Ok(number)
}

fn happen(ckptd: &Ckptd, happening: Happening, members: &mut Members) -> Result<(), Failure> {
    match happening {
        Happening::Loss(node) => {
            ckptd.kill_node(node)?;
            ckptd.wait_until_gone(node, LIMIT)?;
            members.there.remove(&node);
            members.away.insert(node);
        }
        Happening::Cut(node) => {
            ckptd.node(node).cut()?;
            ckptd.wait_until_gone(node, LIMIT)?;
            ckptd.node(node).heal()?;
            ckptd.wait_for_members(&[node])?;
        }
        Happening::Leave(node) => {
            let name = ckptd.node(node).name();
            let mut leave = ckptd.node(0).spawn(&["ckptd", "leave", &name], &[])?;
            let status = leave.wait(PATIENCE)?;
            if status != 0 {
                return Err(Failure(format!("leave: {}", leave.errors())));
            }
            ckptd.kill_node(node)?;
            members.there.remove(&node);
            members.away.insert(node);
        }
        Happening::Join(node) => {
            ckptd.node(node).power_on()?;
            ckptd.start_agent(node)?;
            ckptd.wait_for_members(&[node])?;
            members.away.remove(&node);
            members.there.insert(node);
        }
    }
    Ok(())
}

/// How many messages rank 0 has taken, as a file's time of modification.
struct Pulse(PathBuf);

impl Pulse {
    fn read(&self) -> Result<u64, Failure> {
        let found = std::fs::metadata(&self.0).map_err(failure("look at the pulse"))?;
        u64::try_from(found.mtime()).map_err(failure("read the pulse"))
    }
}

/// Waits until the job runs and has committed two more checkpoints: every image is in as many places as it should
/// be again. And until each rank has spoken to the next one: a job that hangs can be checkpointed, too.
fn settled(job: &mut ClusterJob<'_>, pulse: &Pulse) -> Result<(), Failure> {
    let newest = job.status()?.newest_checkpoint().unwrap_or(0);
    job.wait_for("the job runs and has come further", PATIENCE, |status| {
        let further = status.newest_checkpoint().is_some_and(|found| found >= newest + 2);
        (status.state() == "running" && further).then_some(())
    })?;
    // What one rank lacks holds its neighbour back with the next message, and so on around the ring.
    let wanted = NODES as u64 * 2 + 1;
    let (mut least, deadline) = (pulse.read()?, Instant::now() + PATIENCE);
    loop {
        let found = pulse.read()?;
        // It is smaller again after a rollback.
        least = least.min(found);
        if found >= least + wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            let text = format!("the ranks took {} messages in {PATIENCE:?}", found - least);
            return Err(Failure(text));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
