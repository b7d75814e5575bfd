//! What commands tell of a job's images, and to whom.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use super::open_mpi::end;
use super::stage::{JOB_LIMIT, LIMIT, Stage};
use super::{Case, check};
use crate::cluster::ckptd::Ckptd;
use crate::cluster::{Output, failure};
use crate::job::Failure;

pub(super) const CASES: &[Case] = &[Case {
    name: "images-of-users",
    about: "a user whose images lie in root's agents' folders verifies and inspects his own job's, and nobody else's",
    run: of_users,
}];

/// Nobody, and another one whom nodes know.
const OWNER: &str = "65534";
const OTHER: &str = "1";
const SCRIPT: &str =
    "echo started; until [ -e /mnt/shared/end ]; do sleep 0.2; done; echo all done";

fn as_user(uid: &str) -> Vec<&str> {
    let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
    [&user[..], &["env", "-C", "/", "HOME=/tmp"]].concat()
}

fn say(ckptd: &Ckptd, number: usize, uid: &str, words: &[&str]) -> Result<Output, Failure> {
    ckptd.node(number).run(&[&as_user(uid)[..], &["ckptd"], words].concat(), &[])
}

/// Packs in a node's copies of images.
fn packs(ckptd: &Ckptd, number: usize) -> Vec<PathBuf> {
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
fn wound(path: &PathBuf) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(failure("open a pack"))?;
    let middle = file.metadata().map_err(failure("look at a pack"))?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).map_err(failure("read a pack"))?;
    file.write_all_at(&[!byte[0]], middle).map_err(failure("write a pack"))
}

fn of_users(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.cluster(3)?;
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
