//! Launchers that a script calls, which names no hosts.

use super::packaged::{self, OPEN_MPI_5, finish};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::job::ClusterJob;
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "scripted-run-times",
        about: "a script calls mpirun of each run time, which finds all nodes, and its own processes on one when it says so",
        run: run_times,
    },
    Case {
        name: "scripted-dvm",
        about: "a script starts the daemons of Open MPI 5 once (prte) and ranks in them by PMIx, as prun does; a node is lost",
        run: dvm,
    },
];

/// Has PMIx for tools, which no run time of the index has.
const DEBIAN_PYTHON: &str = "/usr/bin/python3";

/// `ckptd run SCRIPT`, with a run time in PATH. Machines have several addresses, and what comes from any of them is the job's.
fn start<'a>(
    ckptd: &'a Ckptd,
    name: &str,
    path: &str,
    text: &str,
) -> Result<ClusterJob<'a>, Failure> {
    let script = ckptd.cluster().share_script(&format!("{name}.sh"), text)?;
    let environment =
        [("PATH", path), ("PRTE_ALLOW_RUN_AS_ROOT", "1"), ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
    ckptd.run_in(0, name, &environment, &["--interval", "1", "--external", "fail"], &[&script])
}

fn run_times(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let allreduce = ckptd.cluster().share(&stage.script("allreduce.py"))?;
    for package in packaged::PACKAGES {
        let Some(path) = packaged::path(package) else { continue };
        // Open MPI counts the slots of a host that it is told, the others have no need to.
        let (alone, option, line) = match package {
            "openmpi" => ("--host node2:2", "--hostfile", "node2 slots=2"),
            _ => ("-hosts node2", "-f", "node2:2"),
        };
        let text = format!(
            "#!/bin/bash
mpirun -n 6 python {allreduce} 2 && echo first
mpirun {alone} -n 2 python {allreduce} 1 && echo second
echo {line} > $TMPDIR/own
mpirun {option} $TMPDIR/own -n 2 python {allreduce} 1 && echo third
"
        );
        let mut job = start(&ckptd, package, &path, &text)?;
        job.must_end_with("third", JOB_LIMIT)?;
        let output = job.output();
        let wanted = ["rank 5 of 6 on node3", "first", "second", "third"];
        let there = |rank: &str| output.matches(&format!("rank {rank} of 2 on node2")).count();
        let found = wanted.iter().all(|text| output.contains(text));
        check(found && there("0") == 2 && there("1") == 2, || {
            format!("{package} did not find the nodes:\n{output}")
        })?;
    }
    Ok(())
}

fn dvm(stage: &Stage) -> Result<(), Failure> {
    let Some(path) = packaged::path("openmpi") else { return Ok(()) };
    let has_pmix = std::process::Command::new(DEBIAN_PYTHON)
        .args(["-W", "ignore", "-c", "import pmix"])
        .output();
    if !has_pmix.is_ok_and(|done| done.status.success()) {
        println!("    skipped: no python3-pmix; tests/install installs it");
        return Ok(());
    }
    let ckptd = stage.cluster(3)?;
    let [allreduce, tool] =
        ["allreduce.py", "dvm.py"].map(|name| ckptd.cluster().share(&stage.script(name)));
    let (allreduce, tool, end) = (allreduce?, tool?, super::open_mpi::END);
    let text = format!(
        "#!/bin/bash
at=$(command -v prte)
export OPAL_PREFIX=${{at%/bin/*}}
export OMPI_MCA_mpi_yield_when_idle=1
export PRTE_PREFIX=$OPAL_PREFIX PMIX_PREFIX=$OPAL_PREFIX
prte --report-uri $TMPDIR/address > $TMPDIR/said &
until grep -q 'DVM ready' $TMPDIR/said; do sleep 0.1; done
{DEBIAN_PYTHON} {tool} $TMPDIR/address 6 python {allreduce} 1 && echo first &&
{DEBIAN_PYTHON} {tool} $TMPDIR/address 6 python {allreduce} {end}
status=$?
kill %1
wait
exit $status
"
    );
    let mut job = start(&ckptd, "dvm", &path, &text)?;
    job.wait_for_output("first", JOB_LIMIT)?;
    job.wait_for_output("rank 5 of 6 on node3", LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    ckptd.kill_node(3)?;
    job.wait_for_rollback(1, LIMIT)?;
    packaged::spread(&job, &OPEN_MPI_5)?;
    finish(&ckptd, &mut job)
}
