//! `ckptd slurm run`, in allocations of a real Slurm, by a user without rights.

use std::fs;
use std::time::Duration;

use super::open_mpi::{ANSWER, END};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check, packaged};
use crate::cluster::slurm::{Site, Slurm, USER};
use crate::cluster::{Background, until};
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
    Case {
        name: "slurm-run-times",
        about: "Slurm: Open MPI 5, MPICH 5 and Intel MPI start by ckptd, not by srun, on all nodes of an allocation",
        run: run_times,
    },
    Case {
        name: "slurm-groups",
        about: "in allocations of Slurm, each rank of Open MPI 5, MPICH 5 and Intel MPI has a daemon of its own (--group 1)",
        run: groups,
    },
    Case {
        name: "slurm-requeue",
        about: "Slurm: a job loses a node; told that its time is over, it is kept in a folder, put into the queue again, and \
                goes on from there on fewer nodes",
        run: requeue,
    },
    Case {
        name: "slurm-array",
        about: "Slurm: ten jobs of an array, side by side on the same nodes, do not get into each other's way",
        run: array,
    },
    Case {
        name: "slurm-array-kept",
        about: "Slurm: the task of an array whose number is the array's is kept and requeued, and no other task with it",
        run: array_kept,
    },
    Case {
        name: "slurm-site",
        about: "Slurm: names of nodes in capitals, --export=NONE, requests in the environment, a site that wants mpirun to use \
                srun, one task of four processors a node; what the script has set is there on all nodes",
        run: site,
    },
    Case {
        name: "slurm-wrong",
        about: "Slurm: no allocation, and agents that can't start on a node, are told in one line; nothing is left",
        run: wrong,
    },
];

/// Six ranks, which go on until they are told to end.
pub(super) fn script(stage: &Stage, slurm: &Slurm) -> Result<String, Failure> {
    script_then(stage, slurm, "")
}

/// The same, and what the script does afterwards.
pub(super) fn script_then(stage: &Stage, slurm: &Slurm, then: &str) -> Result<String, Failure> {
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --no-kill --output=out.%j --error=err.%j
ckptd slurm run --interval 1 -v mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 \\
    {queens} 13 --ballast 16 --chat 40 --until {END}
echo \"status $?\"
{then}"
    );
    slurm.cluster().share_script("job.sh", &text)
}

/// A job of sbatch's.
pub(super) struct Batch<'s> {
    slurm: &'s Slurm,
    pub(super) number: String,
}

impl<'s> Batch<'s> {
    pub(super) fn submit(slurm: &'s Slurm, script: &str) -> Result<Self, Failure> {
        Self::submit_with(slurm, &[], &[script])
    }

    /// The same, with settings in the environment, and options before the script.
    pub(super) fn submit_with(
        slurm: &'s Slurm,
        environment: &[&str],
        words: &[&str],
    ) -> Result<Self, Failure> {
        let command = [&["env"], environment, &["sbatch", "--parsable"], words].concat();
        let mut submitted = slurm.begin(0, &command)?;
        let status = submitted.wait(JOB_LIMIT)?;
        let number = submitted.output().trim().to_owned();
        check(status == 0, || format!("sbatch: {}", submitted.errors()))?;
        Ok(Self { slurm, number })
    }

    pub(super) fn file(&self, kind: &str) -> String {
        let path = self.slurm.cluster().folder().join("shared").join(USER);
        fs::read_to_string(path.join(format!("{kind}.{}", self.number))).unwrap_or_default()
    }

    pub(super) fn wait_for(&self, kind: &str, text: &str, limit: Duration) -> Result<(), Failure> {
        let seen = until(&format!("{kind} of the job has {text:?}"), limit, || {
            Ok(self.file(kind).contains(text).then_some(()))
        });
        seen.map_err(|failure| self.explain(&failure))
    }

    pub(super) fn explain(&self, failure: &Failure) -> Failure {
        let (out, err) = (self.file("out"), self.file("err"));
        let shown = self.slurm.run(0, &["scontrol", "show", "job", &self.number]);
        let shown = shown.map_or_else(|error| error.0, |shown| shown.stdout);
        let text = format!("{failure}\n--- out\n{out}\n--- err\n{err}\n--- job\n{shown}");
        self.slurm.explain(&Failure(text))
    }

    /// Waits until the ranks work on all nodes, and for two checkpoints after that.
    pub(super) fn wait_for_checkpoints(&self) -> Result<(), Failure> {
        self.wait_for("out", "rank 5 of 6 on node3", JOB_LIMIT)?;
        let mut first = None;
        let seen = until("two more checkpoints are committed", JOB_LIMIT, || {
            let Some(newest) = self.newest_checkpoint()? else { return Ok(None) };
            let first = *first.get_or_insert(newest);
            Ok((newest >= first + 2).then_some(()))
        });
        seen.map_err(|failure| self.explain(&failure))
    }

    /// As the command tells it on the first node.
    fn newest_checkpoint(&self) -> Result<Option<u64>, Failure> {
        let mut asked = self.ask("status --json")?;
        if asked.wait(LIMIT)? != 0 {
            return Ok(None);
        }
        let status: serde_json::Value = serde_json::from_str(&asked.output()).unwrap_or_default();
        let job = if status.is_array() { &status[0] } else { &status };
        let numbers = job["checkpoints"].as_array().into_iter().flatten();
        Ok(numbers.filter_map(|checkpoint| checkpoint["checkpoint"].as_u64()).max())
    }

    /// A command of ckptd's on its first node, where its agent is.
    pub(super) fn ask(&self, command: &str) -> Result<Background, Failure> {
        let ask = format!("ckptd --dir /tmp/ckptd-slurm-{}-*/node1 {command}", self.number);
        self.slurm.begin(1, &["sh", "-c", &ask])
    }

    /// What Slurm does by itself with '--signal=B:USR1@SECONDS'.
    pub(super) fn tell_that_time_is_over(&self) -> Result<(), Failure> {
        let signal = ["scancel", "--signal=USR1", "--batch", &self.number];
        let told = self.slurm.run(0, &signal)?;
        check(told.status == 0, || format!("the job can't be told: {}", told.stderr))
    }

    /// It is put into the queue again, for two nodes and four tasks. (It asks for what it had the first time.)
    pub(super) fn requeue_on_two_nodes(&self) -> Result<(), Failure> {
        self.wait_for("err", "the job is kept in", JOB_LIMIT)?;
        self.wait_for_state(&["JobState=PENDING"])?;
        let id = format!("JobId={}", self.number);
        let less = ["scontrol", "update", &id, "NumTasks=4", "NumNodes=2"];
        // One that may have fewer nodes, too, may have begun on these by itself: where it is in the end, its test looks.
        self.slurm.run(0, &less).map(drop)
    }

    /// Has scontrol do something to it.
    pub(super) fn order(&self, what: &str) -> Result<(), Failure> {
        let done = self.slurm.run(0, &["scontrol", what, &self.number])?;
        check(done.status == 0, || format!("scontrol {what}: {}", done.stderr))
    }

    /// Waits until scontrol tells all of this about it.
    pub(super) fn wait_for_state(&self, parts: &[&str]) -> Result<(), Failure> {
        let show = ["scontrol", "--oneliner", "show", "job", &self.number];
        let seen = until(&format!("the job is {parts:?}"), JOB_LIMIT, || {
            let shown = self.slurm.run(0, &show)?.stdout;
            Ok(parts.iter().all(|part| shown.contains(part)).then_some(()))
        });
        seen.map_err(|failure| self.explain(&failure))
    }

    /// Tells the ranks to end.
    pub(super) fn end_ranks(&self) -> Result<(), Failure> {
        self.slurm.cluster().share_script("end", "").map(drop)
    }

    /// Tells the ranks of a job whose script ends with them to end: the answer must be right, and scontrol tell all of this.
    pub(super) fn complete(&self, parts: &[&str]) -> Result<(), Failure> {
        self.end_ranks()?;
        self.wait_for("out", ANSWER, JOB_LIMIT)?;
        self.wait_for_state(&[&["JobState=COMPLETED"], parts].concat())
    }

    /// Tells the ranks to end; the answer must be right.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.end_ranks()?;
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
    nothing_left(&slurm, 1..=3)
}

/// Lists processes of jobs, and ckptd's own.
pub(super) const PROCESSES: &str = "pgrep -l 'ckptd|orted|mpirun|nqueens'";

/// No process of a job, and no folder of ckptd's. (A job's own folder stays where it is not empty, as on any cluster: what the
/// run time had in it on a node that others came to.)
pub(super) fn nothing_left(
    slurm: &Slurm,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<(), Failure> {
    for number in numbers {
        let look = format!("ls -d /tmp/ckptd-slurm-*; {PROCESSES}");
        let left = slurm.run(number, &["sh", "-c", &look])?;
        check(left.stdout.is_empty(), || format!("node{number} has {}", left.stdout))?;
    }
    Ok(())
}

fn node_lost(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    // Another run follows in what is left of the allocation.
    let then = "until [ -e again ]; do sleep 0.2; done
ckptd slurm run mpirun.openmpi -np 4 --map-by node sh -c 'echo again on $(hostname)'
echo \"again: $?\"
";
    let job = Batch::submit(&slurm, &script_then(stage, &slurm, then)?)?;
    job.wait_for_checkpoints()?;
    slurm.cluster().node(3).kill()?;
    job.wait_for("err", "node3 is gone", JOB_LIMIT)?;
    job.finish()?;
    let down = until("Slurm knows that node3 is down", JOB_LIMIT, || {
        let told = slurm.run(0, &["scontrol", "--oneliner", "show", "node", "node3"])?.stdout;
        Ok(told.contains("State=DOWN").then_some(()))
    });
    down.map_err(|failure| job.explain(&failure))?;
    let go_on = slurm.cluster().folder().join("shared").join(USER).join("again");
    fs::write(go_on, "").map_err(|error| Failure(format!("let it go on: {error}")))?;
    job.wait_for("out", "again: 0", JOB_LIMIT)?;
    let (out, err) = (job.file("out"), job.file("err"));
    let right = (1..=2).all(|node| out.matches(&format!("again on node{node}\n")).count() == 2)
        && err.contains("node3: no longer in the allocation; nodes that are left: 2");
    check(right, || job.explain(&Failure("not as on two nodes".into())).0)?;
    nothing_left(&slurm, 1..=2)
}

fn run_times(stage: &Stage) -> Result<(), Failure> {
    each_run_time(stage, |mpirun| mpirun.to_owned())
}

fn groups(stage: &Stage) -> Result<(), Failure> {
    each_run_time(stage, |mpirun| format!("--group 1 {mpirun}"))
}

/// Six ranks of each run time on three nodes come to their right end: each in an allocation of its own, one after the other.
/// `command`: what is run, which calls mpirun as it is told.
pub(super) fn each_run_time(
    stage: &Stage,
    command: fn(mpirun: &str) -> String,
) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let allreduce = slurm.cluster().share(&stage.script("allreduce.py"))?;
    for package in packaged::PACKAGES {
        let Some(path) = packaged::path(package) else { continue };
        let command = command(&format!("mpirun -n 6 python {allreduce} 4"));
        let text = format!(
            "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --output=out.%j --error=err.%j
PATH={path}
ckptd slurm run --interval 1 {command}
echo \"status $?\"
"
        );
        let script = slurm.cluster().share_script("run-time.sh", &text)?;
        let job = Batch::submit(&slurm, &script)?;
        job.wait_for("out", "status ", JOB_LIMIT)?;
        let out = job.file("out");
        let wanted =
            ["rank 1 of 6 on node1", "rank 5 of 6 on node3", "allreduce: right\n", "status 0"];
        check(wanted.iter().all(|text| out.contains(text)), || {
            job.explain(&Failure(format!("{package} did not come to its end"))).0
        })?;
    }
    Ok(())
}

fn wrong(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let mut outside = slurm.begin(0, &["ckptd", "slurm", "run", "true"])?;
    check(outside.wait(LIMIT)? == 125 && outside.errors().contains("allocation"), || {
        outside.explain(&Failure("outside of an allocation".into())).0
    })?;
    let mut by_srun = slurm.begin(0, &["ckptd", "slurm", "run", "srun", "true"])?;
    check(by_srun.wait(LIMIT)? == 2 && by_srun.errors().contains("use mpirun"), || {
        by_srun.explain(&Failure("ranks by srun".into())).0
    })?;
    let words = ["srun", "-N", "2", "-n", "2", "ckptd", "slurm", "run", "true"];
    let mut several = slurm.begin(0, &words)?;
    check(several.wait(LIMIT)? == 2 && several.errors().contains("each of its 2 tasks"), || {
        several.explain(&Failure("a job for each task of srun".into())).0
    })?;
    let fill = "mkdir /run/full && mount -t tmpfs -o size=8k,mode=1777 none /run/full && \
                head -c 1M /dev/zero > /run/full/full; true";
    slurm.cluster().node(1).must_run(&["sh", "-c", fill])?;
    // The script of sbatch is one task, also where it was submitted in a step of several.
    for (store, cause) in [("/proc", ""), ("/run/full", "No space left on device")] {
        let text = format!(
            "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --output=out.%j --error=err.%j
export SLURM_STEP_NUM_TASKS=4
ckptd slurm run --store {store} touch /mnt/shared/anna/began
echo \"status $?\"
"
        );
        let script = slurm.cluster().share_script("store.sh", &text)?;
        let job = Batch::submit(&slurm, &script)?;
        job.wait_for("out", "status ", JOB_LIMIT)?;
        let (out, err) = (job.file("out"), job.file("err"));
        let told = format!("keep jobs in {store}: ");
        check(out.contains("125") && err.contains(&told) && err.contains(cause), || {
            job.explain(&Failure("a folder that can't be written to".into())).0
        })?;
    }
    // Nobody can make a folder there; nobody can write to one.
    let full = "mount -t tmpfs -o size=8k,mode=1777 none /tmp; head -c 1M /dev/zero > /tmp/full";
    let broken = [
        ("mount -o remount,ro /tmp", "Read-only file system"),
        (&format!("mount -o remount,rw /tmp; {full}; true"), "No space left on device"),
    ];
    let text = "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --output=out.%j --error=err.%j
ckptd slurm run --wait 10s touch /mnt/shared/anna/began
echo \"status $?\"
";
    let script = slurm.cluster().share_script("wrong.sh", text)?;
    for (break_it, cause) in broken {
        slurm.cluster().node(2).must_run(&["sh", "-c", break_it])?;
        let job = Batch::submit(&slurm, &script)?;
        job.wait_for("out", "status ", JOB_LIMIT)?;
        let (out, err) = (job.file("out"), job.file("err"));
        let told = err.lines().next().unwrap_or_default();
        let right = out.contains("status 125")
            && told.contains("node2: its agent has ended")
            && err.contains(cause);
        let began = slurm.cluster().folder().join("shared").join(USER).join("began").exists();
        check(right && !began, || job.explain(&Failure("a node without /tmp".into())).0)?;
    }
    nothing_left(&slurm, [1, 3])
}

fn requeue(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let kept = format!("/mnt/shared/{USER}");
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=2-3 --ntasks-per-node=2 --no-kill --requeue --open-mode=append --output=out.%j --error=err.%j
exec ckptd slurm run --store {kept} --requeue --name queens --interval 1 -v bash -c '
    mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 {queens} 13 --ballast 16 --chat 40 --until {END} && sleep 3 &&
    mpirun.openmpi -np 6 --map-by node sh -c \"echo later on \\$(hostname)\"'
"
    );
    let script = slurm.cluster().share_script("requeue.sh", &text)?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for_checkpoints()?;
    slurm.cluster().node(3).kill()?;
    job.wait_for("err", "node3 is gone; moved", JOB_LIMIT)?;
    job.wait_for_checkpoints()?;
    job.tell_that_time_is_over()?;
    job.requeue_on_two_nodes()?;
    job.wait_for("err", "the job goes on from checkpoint", JOB_LIMIT)?;
    job.complete(&["ExitCode=0:0", "Restarts=1", "NodeList=node[1-2]"])?;
    // The second launcher has called the agents of the second allocation, also for a node that is not in it, of which
    // nothing was left.
    let out = job.file("out");
    check((1..=3).all(|node| out.contains(&format!("later on node{node}\n"))), || {
        job.explain(&Failure("the second mpirun did not run on all nodes".into())).0
    })?;
    nothing_kept(&slurm)
}

/// What the job went on from has gone when it has ended.
pub(super) fn nothing_kept(slurm: &Slurm) -> Result<(), Failure> {
    let home = slurm.cluster().folder().join("shared").join(USER);
    let entries = fs::read_dir(&home).map_err(|error| Failure(format!("read: {error}")))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> =
        names.filter(|name| name.contains("ckptd") && name != "queens.ckptd.lock").collect();
    check(left.is_empty(), || format!("what it went on from is there still: {left:?}"))
}

fn array(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --array=1-10 --nodes=3 --ntasks-per-node=1 --output=out.%a --error=err.%a
ckptd slurm run --interval 1 mpirun.openmpi -np 3 --mca mpi_yield_when_idle 1 {queens} 11 --chat 40 --least 2
echo \"status $?\"
"
    );
    let script = slurm.cluster().share_script("array.sh", &text)?;
    let first = Batch::submit(&slurm, &script)?;
    for number in 1..=10 {
        let job = Batch { slurm: &slurm, number: number.to_string() };
        job.wait_for("out", "status ", JOB_LIMIT)?;
        let out = job.file("out");
        check(out.contains("N=11: 2680 solutions") && out.contains("status 0"), || {
            job.explain(&Failure(format!("task {number} of job {} failed", first.number))).0
        })?;
    }
    Ok(())
}

fn array_kept(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --array=1-3 --nodes=3 --ntasks-per-node=1 --requeue --open-mode=append --output=out.%a --error=err.%a
exec ckptd slurm run --store /mnt/shared/{USER} --requeue --interval 1 -v \\
    mpirun.openmpi -np 3 --mca mpi_yield_when_idle 1 {queens} 13 --chat 40 --until {END}
"
    );
    let script = slurm.cluster().share_script("array-kept.sh", &text)?;
    let array = Batch::submit(&slurm, &script)?;
    let task = |number: usize| Batch { slurm: &slurm, number: number.to_string() };
    for number in 1..=3 {
        task(number).wait_for("err", "checkpoint 2", JOB_LIMIT)?;
    }
    // Each task has a number of its own but one, which has the array's.
    let listed = slurm.run(0, &["squeue", "--noheader", "--array", "-o", "%i %A"])?.stdout;
    let words = |line: &str| {
        line.split_once(' ').map(|(id, number)| (id.trim().to_owned(), number.trim().to_owned()))
    };
    let found = listed.lines().filter_map(words).find(|(_, number)| *number == array.number);
    let (id, _) =
        found.ok_or_else(|| Failure(format!("no task has the array's number:\n{listed}")))?;
    let index: usize = id.rsplit('_').next().and_then(|text| text.parse().ok()).unwrap_or_default();
    let signal = ["scancel", "--signal=USR1", "--batch", &id];
    check(slurm.run(0, &signal)?.status == 0, || format!("{id} can't be told"))?;
    task(index).wait_for("err", "the job goes on from checkpoint", JOB_LIMIT)?;
    slurm.cluster().share_script("end", "")?;
    for number in 1..=3 {
        let job = Batch { slurm: &slurm, number: format!("{}_{number}", array.number) };
        let restarts = format!("Restarts={}", u32::from(number == index));
        job.wait_for_state(&["JobState=COMPLETED", "ExitCode=0:0", &restarts])?;
        let out = task(number).file("out");
        check(out.contains(ANSWER), || job.explain(&Failure(format!("task {number}: {out}"))).0)?;
    }
    Ok(())
}

fn site(stage: &Stage) -> Result<(), Failure> {
    let in_capitals = Site { prefix: "Node-", ..Site::default() };
    let Some(slurm) = Slurm::start_at(&in_capitals, &stage.ckptd, 3)? else { return Ok(()) };
    let path = std::env::var("PATH").unwrap_or_default();
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=1 --cpus-per-task=4 --export=NONE --output=out.%j --error=err.%j
export PATH={path}:/mnt/shared FROM_SCRIPT=hello OMP_NUM_THREADS=4
export SRUN_CPUS_PER_TASK=1 SLURM_EXACT=1 OMPI_MCA_plm=slurm
what='echo \"$FROM_SCRIPT $OMP_NUM_THREADS in rank $OMPI_COMM_WORLD_RANK on $(hostname)\"'
ckptd slurm run mpirun.openmpi -n 3 sh -c \"$what\"
echo \"status $?\"
ckptd slurm run bash -c \"mpirun.openmpi -n 3 sh -c '$what in a script'\"
echo \"later status $?\"
"
    );
    let script = slurm.cluster().share_script("site.sh", &text)?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for("out", "later status ", JOB_LIMIT)?;
    let out = job.file("out");
    let right = (0..3).all(|rank| {
        let line = format!("hello 4 in rank {rank} on node-{}", rank + 1);
        out.contains(&format!("{line}\n")) && out.contains(&format!("{line} in a script\n"))
    });
    check(right && out.contains("\nstatus 0\n") && out.contains("later status 0"), || {
        job.explain(&Failure("the ranks are not where they were to be".into())).0
    })?;
    nothing_left(&slurm, 1..=3)
}
