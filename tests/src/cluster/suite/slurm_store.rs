//! Where jobs of Slurm's are kept: every n-th checkpoint, and S3.

use std::fs;
use std::path::Path;

use super::open_mpi::END;
use super::slurm::{Batch, nothing_kept};
use super::stage::{JOB_LIMIT, Stage};
use super::{Case, check};
use crate::cluster::s3::S3;
use crate::cluster::slurm::{Slurm, USER};
use crate::job::Failure;

/// A key pair of age for tests.
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const PUBLIC: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "slurm-store-every",
        about: "Slurm: all nodes of an allocation are killed at once; the next one goes on from the newest checkpoint that was \
                put into the store while the job ran",
        run: every,
    },
    Case {
        name: "slurm-store-fails",
        about: "Slurm: the store fails at the last checkpoint, which goes there once it is back; where it \
                stays away, nothing is requeued; a job that begins anew says so",
        run: fails,
    },
    Case {
        name: "slurm-store-s3",
        about: "Slurm: a job is kept in S3, and goes on from there; wrong credentials and buckets are told before it begins",
        run: s3,
    },
];

/// Six ranks, which go on until they are told to end.
fn script(
    stage: &Stage,
    slurm: &Slurm,
    environment: &str,
    options: &str,
) -> Result<String, Failure> {
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --no-requeue --output=out.%j --error=err.%j
{environment}
exec ckptd slurm run --name queens --interval 1 -v {options} \\
    mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 {queens} 13 --ballast 16 --chat 40 --until {END}
"
    );
    slurm.cluster().share_script("store.sh", &text)
}

/// Numbers of checkpoints that it says are in the store.
fn stored(job: &Batch<'_>) -> Vec<u64> {
    let errors = job.file("err");
    let lines = errors.lines().filter_map(|line| line.strip_prefix("ckptd: checkpoint "));
    let lines = lines.filter_map(|line| line.split_once(" is in the store"));
    lines.filter_map(|(number, _)| number.parse().ok()).collect()
}

/// From which checkpoint it goes on.
fn resumed(job: &Batch<'_>) -> Result<u64, Failure> {
    job.wait_for("err", "the job goes on from checkpoint", JOB_LIMIT)?;
    let errors = job.file("err");
    let number = errors
        .split_once("goes on from checkpoint ")
        .and_then(|(_, rest)| rest.split_once(',').and_then(|(number, _)| number.parse().ok()));
    number.ok_or_else(|| job.explain(&Failure("it does not say from which".to_owned())))
}

fn wait_until_stored(job: &Batch<'_>, least: usize) -> Result<(), Failure> {
    let what = format!("{least} checkpoints are in the store");
    let seen =
        crate::cluster::until(&what, JOB_LIMIT, || Ok((stored(job).len() >= least).then_some(())));
    seen.map_err(|failure| job.explain(&failure))
}

fn every(stage: &Stage) -> Result<(), Failure> {
    let Some(mut slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let home = slurm.cluster().folder().join("shared").join(USER);
    let written = fs::write(home.join("key"), SECRET);
    written.map_err(|error| Failure(format!("write a key: {error}")))?;
    let options = format!(
        "--store /mnt/shared/{USER} --store-every 2 --recipient {PUBLIC} --identity /mnt/shared/{USER}/key"
    );
    let script = script(stage, &slurm, "", &options)?;
    let before = {
        let job = Batch::submit(&slurm, &script)?;
        job.wait_for_checkpoints()?;
        wait_until_stored(&job, 2)?;
        for number in [1, 2, 3] {
            slurm.cluster().node(number).kill()?;
        }
        let newest = stored(&job).into_iter().max();
        newest.ok_or_else(|| job.explain(&Failure("nothing is in the store".to_owned())))?
    };
    let archive = fs::read(home.join("queens.ckptd")).unwrap_or_default();
    check(archive.starts_with(b"age-encryption.org/v1\n"), || "it is in clear".to_owned())?;
    let draft = home.join(".queens.ckptd.draft-Ab01yZ");
    let made = fs::create_dir_all(&draft).and_then(|()| fs::write(draft.join("archive"), "half"));
    made.and_then(|()| std::os::unix::fs::chown(&draft, Some(4001), Some(4001)))
        .map_err(|error| Failure(format!("make a draft: {error}")))?;
    for number in [1, 2, 3] {
        slurm.revive(number)?;
    }
    let job = Batch::submit(&slurm, &script)?;
    let number = resumed(&job)?;
    // One more may have come there before the nodes were gone.
    check(number >= before, || {
        job.explain(&Failure(format!("it goes on from {number}, {before} was there"))).0
    })?;
    job.complete(&[])?;
    nothing_kept(&slurm)
}

/// The job's time is over, and its store has gone away.
fn goes_away(job: &Batch<'_>, (folder, away): (&Path, &Path)) -> Result<(), Failure> {
    let told = || job.file("err").matches("it is tried again for ").count();
    let before = told();
    renamed(folder, away)?;
    job.tell_that_time_is_over()?;
    let again = crate::cluster::until("it is tried again", JOB_LIMIT, || {
        Ok((told() > before).then_some(()))
    });
    again.map_err(|failure| job.explain(&failure))
}

fn renamed(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::rename(from, to).map_err(|error| Failure(format!("rename the store: {error}")))
}

fn fails(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let home = slurm.cluster().folder().join("shared").join(USER);
    let (folder, away) = (home.join("store"), home.join("away"));
    let made = fs::create_dir(&folder)
        .and_then(|()| std::os::unix::fs::chown(&folder, Some(4001), Some(4001)));
    made.map_err(|error| Failure(format!("make a store: {error}")))?;
    let queens = slurm.cluster().share(stage.program("nqueens")?)?;
    let text = format!(
        "#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=2 --requeue --open-mode=append --output=out.%j --error=err.%j
exec ckptd slurm run --store /mnt/shared/{USER}/store --requeue --name queens --interval 1 -v \\
    mpirun.openmpi -np 6 --mca mpi_yield_when_idle 1 {queens} 13 --ballast 16 --chat 40 --until {END}
"
    );
    let script = slurm.cluster().share_script("fails.sh", &text)?;
    let job = Batch::submit(&slurm, &script)?;
    job.wait_for_checkpoints()?;
    goes_away(&job, (&folder, &away))?;
    renamed(&away, &folder)?;
    resumed(&job)?;
    job.wait_for_state(&["JobState=RUNNING", "Restarts=1"])?;
    job.wait_for_checkpoints()?;
    goes_away(&job, (&folder, &away))?;
    let end = slurm.run(0, &["scancel", "--signal=TERM", "--batch", &job.number])?;
    check(end.status == 0, || end.stderr.clone())?;
    job.wait_for_state(&["JobState=FAILED", "Restarts=1"])?;
    let told = job.file("err");
    check(told.contains("is not put into the queue again"), || {
        job.explain(&Failure("nobody tells that it is not requeued".to_owned())).0
    })?;
    renamed(&away, &folder)?;
    let removed = fs::remove_file(folder.join("queens.ckptd"));
    removed.map_err(|error| Failure(format!("remove what was kept before: {error}")))?;
    job.order("requeue")?;
    job.wait_for("err", "the job begins anew, though it has run before", JOB_LIMIT)?;
    job.complete(&["ExitCode=0:0"])?;
    let left = fs::read_dir(&folder).map_err(|error| Failure(format!("read: {error}")))?;
    let names = left.flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name != "queens.ckptd.lock").collect();
    check(left.is_empty(), || format!("left in the store: {left:?}"))
}

/// Told in one line, before the job begins.
fn refused(slurm: &Slurm, script: &str, words: &str) -> Result<(), Failure> {
    let job = Batch::submit(slurm, script)?;
    job.wait_for("err", words, JOB_LIMIT)?;
    let (out, err) = (job.file("out"), job.file("err"));
    check(err.lines().count() == 1 && out.is_empty(), || {
        job.explain(&Failure(format!("not told in one line: {words}"))).0
    })
}

fn s3(stage: &Stage) -> Result<(), Failure> {
    let Some(slurm) = Slurm::start(&stage.ckptd, 3)? else { return Ok(()) };
    let Some(s3) = S3::start(slurm.cluster())? else { return Ok(()) };
    let of = |environment: &str, options| script(stage, &slurm, environment, options);
    let absent = of(&s3.exports(), "--store s3://absent/runs")?;
    refused(&slurm, &absent, "keep jobs in s3://absent/runs: there is no bucket absent")?;
    let wrong = of(&s3.exports_with("wrong"), "--store s3://kept/runs")?;
    refused(&slurm, &wrong, "S3 refuses the credentials")?;
    let right = of(&s3.exports(), "--store s3://kept/runs --store-every 2")?;
    let job = Batch::submit(&slurm, &right)?;
    job.wait_for_checkpoints()?;
    wait_until_stored(&job, 1)?;
    // The job does not wait for a server that does not answer.
    s3.pause(true)?;
    let there = stored(&job).len();
    job.wait_for("err", "does not go to the store: the one before is", JOB_LIMIT)?;
    s3.pause(false)?;
    wait_until_stored(&job, there + 1)?;
    job.tell_that_time_is_over()?;
    job.wait_for("err", "the job is kept in s3://kept/runs/queens.ckptd", JOB_LIMIT)?;
    // Its claim goes with the run.
    let alone = crate::cluster::until("the archive is alone there", JOB_LIMIT, || {
        Ok((s3.content()? == ["runs/queens.ckptd"]).then_some(()))
    });
    alone.map_err(|failure| job.explain(&failure))?;
    let before = stored(&job).into_iter().max().unwrap_or(u64::MAX);
    let again = Batch::submit(&slurm, &right)?;
    let number = resumed(&again)?;
    check(number > before, || {
        again.explain(&Failure(format!("it goes on from {number}, not from the last"))).0
    })?;
    again.complete(&[])?;
    let empty = crate::cluster::until("nothing is there", JOB_LIMIT, || {
        Ok(s3.content()?.is_empty().then_some(()))
    });
    empty.map_err(|failure| again.explain(&failure))?;
    let told = [&job, &again].map(|job| job.file("err")).concat();
    check(!told.contains(s3.secret()), || "the secret is told".to_owned())
}
