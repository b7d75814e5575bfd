//! `ckptd slurm run`, in allocations of a real Slurm, by a user without rights.

use std::fs;
use std::time::Duration;

use super::open_mpi::{ANSWER, END};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::slurm::{Slurm, USER};
use crate::cluster::until;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "slurm-plain",
        about: "Slurm: a job of Open MPI in an allocation of three nodes comes to its end; nothing is left",
        run: plain,
    },
    Case {
        name: "slurm-node-lost",
        about: "Slurm: a node of the allocation fails, its ranks go on on the others",
        run: node_lost,
    },
];

/// Six ranks, which go on until they are told to end.
fn script(stage: &Stage, slurm: &Slurm) -> Result<String, Failure> {
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --no-kill --output=out.%j --error=err.%j
ckptd slurm run --interval 1 -v mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 \\
    {queens} 13 --ballast 16 --chat 40 --until {END}
echo \"status $?\"
"
    );
    slurm.cluster().share_script("job.sh", &text)
}

/// A job of sbatch's.
struct Batch<'s> {
    slurm: &'s Slurm,
    number: String,
}

impl<'s> Batch<'s> {
    fn submit(slurm: &'s Slurm, script: &str) -> Result<Self, Failure> {
        let mut submitted = slurm.begin(0, &["sbatch", "--parsable", script])?;
        let status = submitted.wait(JOB_LIMIT)?;
        let number = submitted.output().trim().to_owned();
        check(status == 0, || format!("sbatch: {}", submitted.errors()))?;
        Ok(Self { slurm, number })
    }

    fn file(&self, kind: &str) -> String {
        let path = self.slurm.cluster().folder().join("shared").join(USER);
        fs::read_to_string(path.join(format!("{kind}.{}", self.number))).unwrap_or_default()
    }

    fn wait_for(&self, kind: &str, text: &str, limit: Duration) -> Result<(), Failure> {
        let seen = until(&format!("{kind} of the job has {text:?}"), limit, || {
            Ok(self.file(kind).contains(text).then_some(()))
        });
        seen.map_err(|failure| self.explain(&failure))
    }

    fn explain(&self, failure: &Failure) -> Failure {
        let (out, err) = (self.file("out"), self.file("err"));
        self.slurm.explain(&Failure(format!("{failure}\n--- out\n{out}\n--- err\n{err}")))
    }

    /// Waits until the ranks work on all nodes, and for two checkpoints after that.
    fn wait_for_checkpoints(&self) -> Result<(), Failure> {
        self.wait_for("out", "rank 5 of 6 on node3", LIMIT)?;
        let mut first = None;
        let seen = until("two more checkpoints are committed", LIMIT, || {
            let Some(newest) = self.newest_checkpoint()? else { return Ok(None) };
            let first = *first.get_or_insert(newest);
            Ok((newest >= first + 2).then_some(()))
        });
        seen.map_err(|failure| self.explain(&failure))
    }

    /// As the command tells it on the first node.
    fn newest_checkpoint(&self) -> Result<Option<u64>, Failure> {
        let ask = format!("ckptd --dir /tmp/ckptd-slurm-{}-* status --json", self.number);
        let mut asked = self.slurm.begin(1, &["sh", "-c", &ask])?;
        if asked.wait(LIMIT)? != 0 {
            return Ok(None);
        }
        let status: serde_json::Value = serde_json::from_str(&asked.output()).unwrap_or_default();
        let job = if status.is_array() { &status[0] } else { &status };
        let numbers = job["checkpoints"].as_array().into_iter().flatten();
        Ok(numbers.filter_map(|checkpoint| checkpoint["checkpoint"].as_u64()).max())
    }

    /// Tells the ranks to end; the answer must be right.
    fn finish(&self) -> Result<(), Failure> {
        self.slurm.cluster().share_script("end", "")?;
        self.wait_for("out", "status ", JOB_LIMIT)?;
        let out = self.file("out");
        let right = out.lines().any(|line| line == ANSWER) && out.contains("status 0");
        check(right, || self.explain(&Failure("the job did not come to its end".into())).0)
    }
}

fn plain(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &script(stage, &slurm)?)?;
    job.wait_for_checkpoints()?;
    job.finish()?;
    for number in 1..=3 {
        let left = slurm.run(number, &["sh", "-c", "ls -d /tmp/ckptd-*; pgrep -l ckptd"])?;
        check(left.stdout.is_empty(), || format!("node{number} has {}", left.stdout))?;
    }
    Ok(())
}

fn node_lost(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let job = Batch::submit(&slurm, &script(stage, &slurm)?)?;
    job.wait_for_checkpoints()?;
    slurm.cluster().node(3).kill()?;
    job.wait_for("err", "node3", JOB_LIMIT)?;
    job.finish()
}
