//! What commands tell of a job's images, and to whom.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use super::open_mpi::{END, end, finish};
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::{Ckptd, Role, Setup};
use crate::cluster::{Output, failure, until};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "images-of-users",
        about: "a user whose images lie in root's agents' folders verifies and inspects his own job's, and nobody else's",
        run: of_users,
    },
    Case {
        name: "rehearsal",
        about: "the restart of a job on two nodes is rehearsed beside it: both parts come back, the job notices nothing",
        run: rehearsal,
    },
    Case {
        name: "rehearsal-fails",
        about: "a rehearsal names the part whose restart would fail, and why; it is its user's, and put back files it has",
        run: rehearsal_fails,
    },
    Case {
        name: "rehearsal-lost",
        about: "an agent is killed while it rehearses: that is said, nothing of it is left, the job goes on",
        run: rehearsal_lost,
    },
    Case {
        name: "rehearsals-due",
        about: "with --rehearse a restart is rehearsed after each checkpoint, and what would fail is said once",
        run: rehearsals_due,
    },
];

/// Nobody, and another one whom nodes know.
pub(super) const OWNER: &str = "65534";
pub(super) const OTHER: &str = "1";
const SCRIPT: &str =
    "echo started; until [ -e /mnt/shared/end ]; do sleep 0.2; done; echo all done";

pub(super) fn as_user(uid: &str) -> Vec<&str> {
    let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
    [&user[..], &["env", "-C", "/", "HOME=/tmp"]].concat()
}

pub(super) fn say(
    ckptd: &Ckptd,
    number: usize,
    uid: &str,
    words: &[&str],
) -> Result<Output, Failure> {
    ckptd.node(number).run(&[&as_user(uid)[..], &["ckptd"], words].concat(), &[])
}

/// Packs in a node's copies of images.
pub(super) fn packs(ckptd: &Ckptd, number: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![ckptd.node(number).disk().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && folder.ends_with("packs") => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// Changes a byte in the middle of a file.
pub(super) fn wound(path: &PathBuf) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(failure("open a pack"))?;
    let middle = file.metadata().map_err(failure("look at a pack"))?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).map_err(failure("read a pack"))?;
    file.write_all_at(&[!byte[0]], middle).map_err(failure("write a pack"))
}

fn of_users(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { role: Role::Operator, ..Setup::new(3) })?;
    let run = ["ckptd", "run", "--name", "looked", "--interval", "0", "--", "sh", "-c", SCRIPT];
    let mut job = ckptd.node(1).spawn(&[&as_user(OWNER)[..], &run].concat(), &[])?;
    job.wait_for_output("started", LIMIT)?;
    let taken = say(&ckptd, 1, OWNER, &["checkpoint", "looked"])?;
    check(taken.status == 0, || format!("{taken:?}"))?;
    let status = say(&ckptd, 1, OWNER, &["status", "looked", "--json"])?;
    let status: Value =
        serde_json::from_str(&status.stdout).map_err(|e| Failure(format!("{e}: {status:?}")))?;
    let holders = status["checkpoints"][0]["images"][0]["holders"].clone();
    let holders: Vec<&str> =
        holders.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    check(holders.len() == 2, || format!("two copies: {status}"))?;
    let mut reader = None;
    for number in 1..=3 {
        let verified = say(&ckptd, number, OWNER, &["verify", "looked"])?;
        let inspected = say(&ckptd, number, OWNER, &["inspect", "looked"])?;
        let both = || format!("node{number}: {verified:?}, {inspected:?}");
        if holders.contains(&format!("node{number}").as_str()) {
            reader = Some(number);
            check(verified.status == 0 && verified.stdout.contains(": whole: "), both)?;
            check(inspected.status == 0 && inspected.stdout.contains("sleep"), both)?;
        } else {
            for said in [&verified, &inspected] {
                let words = ["none of its images is on this machine", holders[0], holders[1]];
                let told = words.iter().all(|word| said.stderr.contains(word));
                check(said.status == 125 && told, both)?;
            }
        }
        for what in ["verify", "inspect"] {
            let denied = say(&ckptd, number, OTHER, &[what, "looked"])?;
            let told = denied.stderr.contains("there is none of that name");
            let told = denied.status == 125 && told && denied.stdout.is_empty();
            check(told, || format!("node{number}: {denied:?}"))?;
        }
    }
    let reader = reader.ok_or_else(|| Failure("nobody had an image".into()))?;
    let json = say(&ckptd, reader, OWNER, &["inspect", "looked", "--json"])?;
    let value: Value =
        serde_json::from_str(&json.stdout).map_err(|e| Failure(format!("{e}: {json:?}")))?;
    let processes = value["instances"][0]["processes"].as_array().map_or(0, Vec::len);
    check(processes >= 1, || format!("processes: {json:?}"))?;
    let by_root = ckptd.ckptd(reader, &["inspect", "looked", "--json"])?;
    check(by_root.stdout == json.stdout, || format!("root is told otherwise: {by_root:?}"))?;
    for pack in packs(&ckptd, reader) {
        wound(&pack)?;
    }
    let damaged = say(&ckptd, reader, OWNER, &["verify", "looked"])?;
    let told = damaged.status != 0 && damaged.stdout.contains(": damaged: ");
    check(told, || format!("{damaged:?}"))?;
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0 && job.output().contains("all done"), || job.output())
}

/// Inits on a node, of instances and of rehearsals.
fn inits(ckptd: &Ckptd, number: usize) -> Result<usize, Failure> {
    let listed = ckptd.node(number).must_run(&["ps", "-eo", "args"])?;
    Ok(listed.lines().filter(|line| line.starts_with("ckptd-init")).count())
}

fn rehearsal(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let mpi = ["mpirun.openmpi", "-np", "4", "--mca", "mpi_yield_when_idle", "1", "nqueens"];
    let words = ["13", "--ballast", "16", "--chat", "40", "--until", END];
    let command = [&mpi[..], &words].concat();
    let mut job = ckptd.run(1, "queens", &["--interval", "0"], &command)?;
    job.wait_for_output("rank 3 of 4 on node2", LIMIT)?;
    let checkpoint = job.checkpoint()?;
    let before = [inits(&ckptd, 1)?, inits(&ckptd, 2)?];
    for number in [1, 2] {
        let said = ckptd.ckptd(number, &["verify", "queens", "--rehearse"])?;
        let lines: Vec<&str> = said.stdout.lines().collect();
        let of = |node: &str| {
            let start = format!("checkpoint {checkpoint}, instance ");
            let end = format!(" on {node}: restorable: ");
            lines.iter().any(|line| line.starts_with(&start) && line.contains(&end))
        };
        let both = lines.len() == 2 && of("node1") && of("node2");
        // Nor is anything warned of.
        check(said.status == 0 && both && said.stderr.is_empty(), || format!("{said:?}"))?;
    }
    check(before == [inits(&ckptd, 1)?, inits(&ckptd, 2)?], || "inits are left".into())?;
    // Connections between the nodes are the job's still: it can be checkpointed, and comes to its end.
    let next = job.checkpoint()?;
    check(next > checkpoint, || format!("{next} after {checkpoint}"))?;
    let rollbacks = job.status()?.rollbacks()?;
    check(rollbacks.is_empty(), || format!("the job was rolled back: {rollbacks:?}"))?;
    finish(&ckptd, &mut job)
}

/// Opens a small and a large file, here and on another node.
const READER: &str = "exec 8</srv/small 9</srv/large; echo started; ckptd rsh node2 'exec 9</srv/large; \
                      echo started too; until [ -e /mnt/shared/end ]; do sleep 0.2; done'; echo all done";

fn rehearsal_fails(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    for number in [1, 2] {
        // One that travels with the image, and one that is too large for that.
        let make = "mkdir -p /srv && mount -t tmpfs srv /srv && echo small > /srv/small && \
                    truncate -s 300M /srv/large && chown -R 65534 /srv && chmod 755 /srv";
        ckptd.node(number).must_run(&["sh", "-c", make])?;
    }
    let run = ["ckptd", "run", "--name", "reader", "--interval", "0", "--", "sh", "-c", READER];
    let mut job = ckptd.node(1).spawn(&[&as_user(OWNER)[..], &run].concat(), &[])?;
    job.wait_for_output("started too", LIMIT)?;
    let taken = say(&ckptd, 1, OWNER, &["checkpoint", "reader"])?;
    check(taken.status == 0, || format!("{taken:?}"))?;
    let rehearse = ["verify", "reader", "--rehearse"];
    let denied = say(&ckptd, 1, OTHER, &rehearse)?;
    let told = denied.status == 125 && denied.stderr.contains("there is none of that name");
    check(told && denied.stdout.is_empty(), || format!("{denied:?}"))?;
    // A restart would put it back; a rehearsal does not.
    ckptd.node(1).must_run(&["rm", "/srv/small"])?;
    let said = say(&ckptd, 2, OWNER, &rehearse)?;
    let whole = said.status == 0 && said.stdout.matches(": restorable: ").count() == 2;
    check(whole, || format!("{said:?}"))?;
    let left = ckptd.node(1).must_run(&["ls", "/srv"])?;
    check(left == "large\n", || format!("in /srv: {left:?}"))?;
    ckptd.node(2).must_run(&["rm", "/srv/large"])?;
    let said = say(&ckptd, 1, OWNER, &rehearse)?;
    let line =
        |node: &str| said.stdout.lines().find(|line| line.contains(&format!(" on {node}: ")));
    let goes = line("node1").is_some_and(|line| line.contains(": restorable: "));
    let fails = line("node2")
        .is_some_and(|line| ["failed: ", "/srv/large"].iter().all(|words| line.contains(words)));
    check(said.status != 0 && goes && fails, || format!("{said:?}"))?;
    let json = say(&ckptd, 1, OWNER, &[&rehearse[..], &["--json"]].concat())?;
    let value: Value =
        serde_json::from_str(&json.stdout).map_err(|e| Failure(format!("{e}: {json:?}")))?;
    let failed = value.as_array().into_iter().flatten().filter(|part| part["verdict"] == "failed");
    let nodes: Vec<&str> = failed.filter_map(|part| part["node"].as_str()).collect();
    check(nodes == ["node2"], || format!("{json:?}"))?;
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0 && job.output().contains("all done"), || job.output())
}

/// Two parts of a job.
const PARTS: &str = "ckptd rsh node2 'echo started; until [ -e /mnt/shared/end ]; do sleep 0.2; done'; echo all done";

fn rehearsal_lost(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster_of(Setup { faults: true, ..Setup::new(2) })?;
    let mut job = ckptd.run(1, "parts", &["--interval", "0"], &["bash", "-c", PARTS])?;
    job.wait_for_output("started", LIMIT)?;
    job.checkpoint()?;
    let before = inits(&ckptd, 2)?;
    let armed = ckptd.faults(2).join("rehearsed");
    fs::create_dir_all(ckptd.faults(2)).map_err(failure("make a folder for faults"))?;
    fs::write(&armed, "").map_err(failure("arm a fault"))?;
    let mut asking = ckptd.node(1).spawn(&["ckptd", "verify", "parts", "--rehearse"], &[])?;
    let reached = armed.with_extension("reached");
    until("node2 rehearses", LIMIT, || Ok(reached.exists().then_some(())))
        .map_err(|failure| asking.explain(&failure))?;
    check(inits(&ckptd, 2)? > before, || "no init rehearses".into())?;
    ckptd.kill_agent(2)?;
    let status = asking.wait(LIMIT)?;
    let output = asking.output();
    let told = [" on node1: restorable: ", " on node2: unknown: the connection to node2 was lost"];
    let told = told.iter().all(|words| output.contains(words));
    check(status == 125 && told, || format!("status {status}: {output}"))?;
    until("nothing is left of it", LIMIT, || Ok((inits(&ckptd, 2)? == before).then_some(())))?;
    ckptd.start_agent(2)?;
    ckptd.wait_for_members(&[1, 2])?;
    end(&ckptd)?;
    job.must_end_with("all done", JOB_LIMIT)
}

/// Waits until the rehearsal of a checkpoint, which was due, has come to that.
fn await_due(ckptd: &Ckptd, checkpoint: u64, verdict: &str) -> Result<(), Failure> {
    let mut last = String::new();
    let seen = until(&format!("checkpoint {checkpoint} is rehearsed: {verdict}"), LIMIT, || {
        last = say(ckptd, 1, OWNER, &["status", "due", "--json"])?.stdout;
        let status: Value = serde_json::from_str(&last).unwrap_or_default();
        let newest = &status["live"]["rehearsal"];
        let is_it = newest["checkpoint"] == checkpoint;
        Ok((is_it && newest["outcome"][verdict] != Value::Null).then_some(()))
    });
    seen.map_err(|failure| Failure(format!("{failure}\n{last}")))
}

fn rehearsals_due(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(2)?;
    let make = "mkdir -p /srv && mount -t tmpfs srv /srv && truncate -s 300M /srv/large";
    ckptd.node(1).must_run(&["sh", "-c", make])?;
    let script = format!("exec 9</srv/large; {SCRIPT}");
    let options = ["--name", "due", "--interval", "0", "--rehearse", "1"];
    let run = [&["ckptd", "run"], &options[..], &["--", "sh", "-c", &script]].concat();
    let mut job = ckptd.node(1).spawn(&[&as_user(OWNER)[..], &run].concat(), &[])?;
    job.wait_for_output("started", LIMIT)?;
    for (number, verdict) in (1..).zip(["restorable", "failed", "failed"]) {
        if verdict == "failed" {
            // The job has it open; its user could not open it again.
            ckptd.node(1).must_run(&["chmod", "600", "/srv/large"])?;
        }
        let taken = say(&ckptd, 1, OWNER, &["checkpoint", "due"])?;
        check(taken.stdout.trim() == number.to_string(), || format!("{taken:?}"))?;
        await_due(&ckptd, number, verdict)?;
    }
    let shown = say(&ckptd, 2, OWNER, &["status", "due"])?;
    check(shown.stdout.contains("checkpoint 3 would fail: "), || format!("{shown:?}"))?;
    end(&ckptd)?;
    let status = job.wait(JOB_LIMIT)?;
    check(status == 0 && job.output().contains("all done"), || job.output())?;
    let errors = job.errors();
    let told = errors.matches("but a restart from it would fail: ").count();
    check(told == 1 && errors.contains("/srv/large"), || format!("told {told} times:\n{errors}"))
}
