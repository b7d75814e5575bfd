//! Jobs of a cluster that are kept in a store between two runs, without Slurm.

use nix::sys::signal::Signal;

use super::images::{OWNER, as_user, say};
use super::open_mpi::{ANSWER, END, end};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::{Background, SHARED, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "kept-on-a-cluster",
    about: "a user's job is kept on a shared disk at a signal; on another node the same command goes on with it past a lost node, \
            and once it ends right nothing is kept",
    run: kept,
}];

/// A shared folder of the user's.
const STORE: &str = "/mnt/shared/kept";
const ARCHIVE: &str = "/mnt/shared/kept/queens.ckptd";

/// `ckptd run --store` with six ranks, which go on until they are told to end.
fn run(ckptd: &Ckptd, number: usize) -> Result<Background, Failure> {
    let run = ["ckptd", "run", "--store", STORE, "--store-every", "2", "--then-exit", "7"];
    let options = ["--name", "queens", "--interval", "1", "-v", "--"];
    let mpi = ["mpirun.openmpi", "-np", "6", "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let words = ["13", "--ballast", "16", "--chat", "40", "--until", END];
    let words = [&as_user(OWNER)[..], &run, &options, &mpi, &words].concat();
    ckptd.node(number).spawn(&words, &[])
}

/// An archive is written at a low priority, beside ranks that take all cores: it may take as long as a job.
fn wait_for_errors(job: &mut Background, text: &str) -> Result<(), Failure> {
    let seen = until(text, JOB_LIMIT, || match job.errors().contains(text) {
        true => Ok(Some(())),
        false => match job.ended()? {
            Some(status) => Err(Failure(format!("it ended with {status}"))),
            None => Ok(None),
        },
    });
    seen.map_err(|failure| job.explain(&failure))
}

/// Nothing of it is left in the cluster.
fn nothing_left(ckptd: &Ckptd) -> Result<(), Failure> {
    let jobs = say(ckptd, 2, OWNER, &["ls", "--json"])?;
    check(jobs.stdout.trim() == "[]", || format!("jobs are left: {jobs:?}"))
}

fn is_kept(ckptd: &Ckptd) -> Result<bool, Failure> {
    Ok(ckptd.node(1).run(&["test", "-e", ARCHIVE], &[])?.status == 0)
}

fn kept(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let owner = format!("{OWNER}:{OWNER}");
    ckptd.node(1).must_run(&["mkdir", "-p", STORE])?;
    ckptd.node(1).must_run(&["chown", &owner, STORE])?;
    let mut job = run(&ckptd, 1)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    wait_for_errors(&mut job, " is in the store")?;
    job.signal(Signal::SIGUSR1)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 7 && is_kept(&ckptd)?, || job.explain(&Failure(format!("{status}"))).0)?;
    let told = job.errors();
    let offered = told.contains(": the same command") && !told.contains("ckptd restart");
    check(offered, || format!("the way on is not told: {told}"))?;
    nothing_left(&ckptd)?;
    let mut job = run(&ckptd, 2)?;
    wait_for_errors(&mut job, &format!("kept in {SHARED}/kept/queens.ckptd"))?;
    wait_for_errors(&mut job, " is in the store")?;
    ckptd.kill_node(3)?;
    wait_for_errors(&mut job, "node3")?;
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0 && job.output().contains(ANSWER), || {
        ckptd.explain(&job.explain(&Failure(format!("status {status}")))).0
    })?;
    check(!is_kept(&ckptd)?, || "it is kept still".into())?;
    nothing_left(&ckptd)
}
