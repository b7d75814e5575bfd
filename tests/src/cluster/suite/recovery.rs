//! The coordinator's machine is lost, and another coordinator carries on from a copy of its log.

use std::time::Duration;

use super::open_mpi::{ANSWER, end, start};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Setup};
use crate::cluster::job::ClusterJob;
use crate::cluster::{SHARED, Spec, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "coordinator-lost",
        about: "the coordinator's machine is lost, another carries on; the lost one comes back and ends; a node \
                is lost after that",
        run: coordinator_lost,
    },
    Case {
        name: "coordinator-machine-killed",
        about: "the coordinator's machine, which has a part of the job, is killed; another carries on, and leave waits \
                for it",
        run: machine_killed,
    },
    Case {
        name: "coordinator-lost-at-end",
        about: "the job ends while the coordinator is away, then while its machine is lost: it has ended",
        run: ended_meanwhile,
    },
    Case {
        name: "output-meanwhile",
        about: "what a job writes while its launcher is cut off from the cluster is shown once, and in order",
        run: output_meanwhile,
    },
    Case {
        name: "copy-taken-back",
        about: "a node that is turned out has no copy of the coordinator's log and key any more",
        run: copy_taken_back,
    },
    Case {
        name: "standbys",
        about: "the cluster's key goes to no worker, then to a standby alone, which carries on; others are refused",
        run: standbys,
    },
];

/// `ckptd coordinator --recover` on a node, which must be refused with this word.
fn refused(ckptd: &Ckptd, number: usize, word: &str) -> Result<(), Failure> {
    let words = ["coordinator", "--listen", "127.0.0.1:0", "--recover"];
    let output = ckptd.ckptd(number, &words)?;
    check(output.status == 125 && output.stderr.contains(word), || {
        format!("status {}, said {:?} and not {word:?}", output.status, output.stderr)
    })
}

fn coordinator_lost(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    refused(&ckptd, 2, "still answers")?;
    let before = job.status()?.newest_checkpoint().unwrap_or(0);
    // Whatever it decided is at some agent; it has no disk that anybody can reach, and no clock that
    // anybody hears.
    ckptd.node(0).cut()?;
    let mut lost = ckptd.recover_coordinator(2)?;
    let explain = |failure: Failure| ckptd.explain(&lost_said(&failure, &lost));
    ckptd.wait_for_members(&[1, 2, 3]).map_err(explain)?;
    let status = job.status()?;
    check(status.newest_checkpoint() >= Some(before), || {
        format!("checkpoint {before} was lost: {}", status.text())
    })?;
    let rollbacks = status.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;
    job.wait_for_checkpoint(before + 2, LIMIT).map_err(explain)?;

    // The lost one's machine is there again.
    ckptd.node(0).heal()?;
    let status = until("the lost coordinator ends", LIMIT, || lost.ended())?;
    let said = lost.errors();
    check(status == 125 && said.contains("another coordinator carries on, of term 2"), || {
        format!("the lost coordinator ended with {status}, said {said:?}")
    })?;
    let again = ckptd.ckptd(0, &["coordinator"])?;
    check(again.status == 125 && again.stderr.contains("term 2"), || {
        format!("it begins again: {} {:?}", again.status, again.stderr)
    })?;

    // From now on the job is not only watched.
    job.launcher().kill();
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "queens"], &[])?;
    ckptd.kill_node(3)?;
    let back = until("the job is rolled back", LIMIT, || {
        Ok((job.status()?.completed_rollbacks() >= 1).then_some(()))
    });
    back.map_err(|failure| ckptd.explain(&failure))?;
    // Whether the launcher that is attached has been told of the new parts shows nowhere.
    std::thread::sleep(Duration::from_millis(200));
    end(&ckptd)?;
    let status = attached.wait(JOB_LIMIT).map_err(|failure| ckptd.explain(&failure))?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })?;
    // The copy has known when the job wrote that, too.
    let log = ckptd.ckptd(2, &["logs", "--time", "queens"])?;
    let line = log.stdout.lines().find(|line| line.contains("rank 0 of "));
    check(line.is_some_and(|line| line.contains("Z  out    ")), || format!("{log:?}"))
}

fn lost_said(failure: &Failure, lost: &crate::cluster::Background) -> Failure {
    lost.explain(failure)
}

/// Everything on node1 is killed at once, the coordinator, an agent, mpirun and two ranks among it.
fn machine_killed(stage: &Stage) -> Result<(), Failure> {
    let spec = Spec { head: false, ..Spec::new(4) };
    let ckptd = stage.cluster_of(Setup { spec, ..Setup::new(4) })?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let before = job.status()?.newest_checkpoint().unwrap_or(0);
    ckptd.kill_node(1)?;
    job.launcher().kill();
    // With nobody to hear it: node4 has nothing of the job, node3 two ranks.
    let mut leaves = ckptd.node(3).spawn(&["ckptd", "leave"], &[])?;
    let mut lost = ckptd.recover_coordinator(2)?;
    lost.kill();
    let explain = |failure: Failure| ckptd.explain(&failure);
    let back = until("the job is rolled back", LIMIT, || {
        Ok((job.status()?.completed_rollbacks() >= 1).then_some(()))
    });
    back.map_err(explain)?;
    let newest = job.status()?.newest_checkpoint();
    check(newest >= Some(before), || format!("checkpoint {before} was lost: {newest:?} is left"))?;
    let status = leaves.wait(LIMIT).map_err(|failure| ckptd.explain(&leaves.explain(&failure)))?;
    check(status == 0, || leaves.explain(&Failure(format!("leave ended with {status}"))).0)?;
    let mut attached = ckptd.node(2).spawn(&["ckptd", "attach", "queens"], &[])?;
    end(&ckptd)?;
    let status = attached.wait(JOB_LIMIT).map_err(explain)?;
    let output = attached.output().replace("\r\n", "\n");
    check(status == 0 && output.lines().any(|line| line == ANSWER), || {
        attached.explain(&Failure(format!("attach ended with {status}"))).0
    })
}

/// Its grace is long enough for a job to end while nobody renews the lease.
fn ended_meanwhile(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { grace: 10, ..Setup::new(3) })?;
    for machine_is_lost in [false, true] {
        let mut job = start(&ckptd, &[], "nqueens")?;
        ckptd.kill_coordinator()?;
        if machine_is_lost {
            ckptd.node(0).kill()?;
        }
        end(&ckptd)?;
        until("mpirun has ended", LIMIT, || {
            let found = ckptd.node(1).run(&["pgrep", "-r", "R,S,D,t,T", "mpirun"], &[])?;
            Ok(found.stdout.trim().is_empty().then_some(()))
        })?;
        if machine_is_lost {
            ckptd.carry_on(2)?;
        } else {
            ckptd.start_coordinator()?;
        }
        job.must_end_with(ANSWER, JOB_LIMIT)?;
        let rollbacks = job.status()?.rollbacks()?;
        check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;
        let removed = ckptd.ckptd(2, &["rm", "queens"])?;
        check(removed.status == 0, || removed.stderr.clone())?;
        let _ = std::fs::remove_file(ckptd.cluster().folder().join("shared/end"));
    }
    Ok(())
}

/// A second and a half of the job's.
const LINES_MEANWHILE: usize = 75;

/// Numbers lines on both streams, and marks those of standard error.
const COUNTER: &str = r#"#!/bin/sh
echo started
n=0
while [ $n -lt 600 ] && [ ! -e /mnt/shared/end ]; do
    n=$((n + 1))
    echo "out $n"
    echo "err $n" >&2
    sleep 0.02
done
echo "last $n"
"#;

/// Waits until the launcher shows so many lines more.
fn more_output(job: &mut ClusterJob<'_>) -> Result<(), Failure> {
    let shown = job.output().lines().filter(|line| line.starts_with("out ")).count();
    job.wait_for_output(&format!("out {}", shown + LINES_MEANWHILE), LIMIT)
}

fn output_meanwhile(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
    ckptd.cluster().share_script("counter", COUNTER)?;
    let counter = format!("{SHARED}/counter");
    // Its launcher is on a node that has nothing of the job.
    let mut job = ckptd.run(1, "counter", &["--interval", "1"], &[&counter])?;
    job.wait_for_output("out 20", LIMIT)?;
    // Its agent, then the coordinator, then both.
    ckptd.kill_agent(1)?;
    // What the job writes without an agent nobody sees before the next one is there.
    std::thread::sleep(Duration::from_millis(300));
    ckptd.start_agent(1)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    more_output(&mut job)?;
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    more_output(&mut job)?;
    ckptd.kill_agent(1)?;
    ckptd.kill_coordinator()?;
    ckptd.start_coordinator()?;
    ckptd.start_agent(1)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    more_output(&mut job)?;
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0, || job.explain(&Failure(format!("the job ended with {status}"))).0)?;
    let said = format!("{}{}", job.output(), job.errors());
    let numbers = |text: &str, word: &str| -> Vec<u64> {
        let number = |line: &str| line.trim_end().strip_prefix(word)?.trim().parse().ok();
        text.lines().filter_map(number).collect()
    };
    let last = numbers(&said, "last ").first().copied().unwrap_or(0);
    let all: Vec<u64> = (1..=last).collect();
    check(last > 20 && numbers(&job.output(), "out ") == all, || {
        job.explain(&Failure(format!("standard output is not 1 to {last}"))).0
    })?;
    // What a coordinator had in the log and not shown any more comes on standard output.
    let mut errors = numbers(&said, "err ");
    errors.sort_unstable();
    check(errors == all, || {
        job.explain(&Failure(format!("standard error is not 1 to {last}: {errors:?}"))).0
    })
}

fn copy_taken_back(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(4)?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let copy = ckptd.node(3).disk().join("home/ckptd/replica");
    let has_key = || copy.join("authority-key.pem").exists();
    until("node3 has a copy", LIMIT, || Ok(has_key().then_some(())))?;
    let removed = ckptd.ckptd(0, &["nodes", "--remove", "node3"])?;
    check(removed.status == 0 && removed.stderr.contains("remove its copy"), || {
        format!("nodes --remove: {} {:?}", removed.status, removed.stderr)
    })?;
    until("the copy is gone", LIMIT, || Ok((!copy.exists()).then_some(())))?;
    job.wait_for_rollback(1, LIMIT)?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    // Of one that is not there, it is said what can't be done.
    ckptd.kill_node(2)?;
    job.wait_for_rollback(2, LIMIT)?;
    let removed = ckptd.ckptd(0, &["nodes", "--remove", "node2"])?;
    check(removed.status == 0 && removed.stderr.contains("still on its disk"), || {
        format!("nodes --remove: {} {:?}", removed.status, removed.stderr)
    })?;
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)
}

fn standbys(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { agents: 1, ..Setup::new(3) })?;
    let _worker = ckptd.join(2, &ckptd.new_token(&["--role", "worker"])?, "node2")?;
    let _third = ckptd.join(3, &ckptd.new_token(&[])?, "node3")?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    let mut job = start(&ckptd, &[], "nqueens")?;
    let has = |number: usize, name: &str| {
        ckptd.node(number).disk().join("home/ckptd/replica").join(name).exists()
    };
    let with_key = |expected: [bool; 3]| {
        until("who has the log, and who the key", LIMIT, || {
            let logs = (1..=3).all(|number| has(number, "replica.json"));
            let keys = [1, 2, 3].map(|number| has(number, "authority-key.pem"));
            Ok((logs && keys == expected).then_some(()))
        })
    };
    with_key([true, false, true])?;
    let denied = ckptd.node(1).run(&["ckptd", "nodes", "--standby", "node1"], &[])?;
    check(denied.status == 125 && denied.stderr.contains("only an operator"), || {
        format!("a member made itself a standby: {denied:?}")
    })?;
    let named = ckptd.ckptd(0, &["nodes", "--standby", "node3"])?;
    check(named.status == 0 && named.stderr.contains("is a standby"), || format!("{named:?}"))?;
    with_key([false, false, true])?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    ckptd.kill_coordinator()?;
    ckptd.node(0).kill()?;
    refused(&ckptd, 1, "not the cluster's key")?;
    refused(&ckptd, 2, "not the cluster's key")?;
    ckptd.carry_on(3)?;
    ckptd.wait_for_members(&[1, 2, 3])?;
    job.wait_for_more_checkpoints(2, LIMIT)?;
    // It remembers who the standbys are.
    with_key_of_rest(&ckptd)?;
    end(&ckptd)?;
    job.must_end_with(ANSWER, JOB_LIMIT)
}

/// The standby that carries on has the key in its own folder now; nobody else gets it.
fn with_key_of_rest(ckptd: &Ckptd) -> Result<(), Failure> {
    until("the others have the log without the key", LIMIT, || {
        let folder = |number: usize| ckptd.node(number).disk().join("home/ckptd/replica");
        let logs = [1, 2].iter().all(|number| folder(*number).join("replica.json").exists());
        let key = [1, 2].iter().any(|number| folder(*number).join("authority-key.pem").exists());
        Ok((logs && !key).then_some(()))
    })
}
