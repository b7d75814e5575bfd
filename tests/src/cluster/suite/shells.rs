//! Remote shells: jobs that count on nodes on which nothing of them runs yet, and parts of a job in which nobody lives
//! but a remote shell.

use std::path::Path;

use super::Case;
use super::open_mpi::end;
use super::stage::{JOB_LIMIT, LIMIT, Stage, start};
use crate::job::Failure;

const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-x86-64.so.2"];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "shell-to-lost",
        about: "a node is lost before the job has started anything there: it begins elsewhere",
        run: to_lost,
    },
    Case {
        name: "shells-spread",
        about: "remote shells are spread over nodes, alone, and end; one more node is lost",
        run: spread,
    },
    Case {
        name: "shells-end",
        about: "remote programs end while images are written: no checkpoint waits for them in vain",
        run: ends,
    },
    Case {
        name: "careless-end",
        about: "a program that ends with 0 when it loses its daemon, as prterun does: the daemon's machine is lost, its \
                connections closed, and the job goes on to its answer",
        run: careless,
    },
    Case {
        name: "cpu-baseline",
        about: "the C library is held to a common set of processor features, on all nodes; a node is lost",
        run: baseline,
    },
];

fn to_lost(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let script = "echo started; until [ -e /mnt/shared/end ]; do sleep 0.1; done; \
                  exec ckptd rsh node3 echo it began";
    let mut job = start(&ckptd, "late", &[], &["bash", "-c", script])?;
    ckptd.kill_node(3)?;
    // It is not declared gone yet.
    end(&ckptd)?;
    job.must_end_with("it began", JOB_LIMIT)
}

fn ends(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let script = "for ms in 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95; do \
                  ckptd rsh node2 sleep 0.1$ms; done; echo all have ended; \
                  until [ -e /mnt/shared/end ]; do sleep 0.1; done";
    let mut job = ckptd.run(0, "ends", &["--interval", "0.1"], &["bash", "-c", script])?;
    job.wait_for_output("all have ended", JOB_LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("all have ended", JOB_LIMIT)
}

fn careless(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let command = ["careless", "launch", "node1", "7600", "node3", "1000", "10000"];
    let mut job = start(&ckptd, "careless", &[], &command)?;
    // Everything there is killed, and its kernel closes the connections.
    ckptd.kill_agent(3)?;
    ckptd.node(3).run(&["sh", "-c", "kill -KILL -1"], &[])?;
    job.wait_for_rollback(1, LIMIT)?;
    job.must_end_with("careless: right", JOB_LIMIT)
}

fn baseline(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    // The GNU C library tells for which levels it has found the processor good (ld.so(8)); others know no tunables.
    let Some(loader) = LOADERS.iter().find(|path| Path::new(path).exists()) else {
        println!("    skipped: no GNU C library for x86-64");
        return Ok(());
    };
    let levels = format!("{loader} --help | grep -c 'x86-64-v.*searched'");
    let script = format!(
        "echo here $({levels}); echo there $(ckptd rsh node2 {levels}); \
         until [ -e /mnt/shared/end ]; do sleep 0.1; done; echo still $({levels})"
    );
    let options = ["--interval", "1", "--cpu-baseline", "x86-64-v2"];
    let mut job = ckptd.run(0, "held", &options, &["bash", "-c", &script])?;
    job.wait_for_output("here 1", LIMIT)?;
    job.wait_for_output("there 1", LIMIT)?;
    job.wait_for_more_checkpoints(1, LIMIT)?;
    ckptd.kill_node(1)?;
    job.wait_for_rollback(1, LIMIT)?;
    end(&ckptd)?;
    job.must_end_with("still 1", JOB_LIMIT)
}

fn spread(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(4)?;
    let wait = "#!/bin/sh\nuntil [ -e /mnt/shared/end-$1 ]; do sleep 0.2; done\n";
    let wait = ckptd.cluster().share_script("wait-for-end", wait)?;
    let script = format!(
        "pids=; for n in 2 3 4; do ckptd rsh node$n {wait} $n & pids=\"$pids $!\"; done; \
         echo started; for pid in $pids; do wait $pid || exit 1; done; echo all have ended"
    );
    // From a node that stays; the job begins on node1.
    let mut job = ckptd.run(0, "shells", &["--interval", "1"], &["bash", "-c", &script])?;
    job.wait_for_output("started", LIMIT)?;
    job.wait_for("all shells run", LIMIT, |status| {
        (status.spread_of("wait-for-end").len() == 3).then_some(())
    })?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    for (rollbacks, node) in [(1, 1), (2, 2)] {
        ckptd.kill_node(node)?;
        job.wait_for_rollback(rollbacks, LIMIT)?;
        if node == 1 {
            // Where their shells were alone, nobody is left.
            ckptd.cluster().share_script("end-3", "")?;
            ckptd.cluster().share_script("end-4", "")?;
        }
        job.wait_for_more_checkpoints(2, LIMIT)?;
    }
    ckptd.cluster().share_script("end-2", "")?;
    job.must_end_with("all have ended", JOB_LIMIT)
}
