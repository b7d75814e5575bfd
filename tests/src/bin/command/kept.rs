//! Jobs that are kept in a store between two runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::archives::text;
use super::buckets::Bucket;
use super::stage::{JOB, Running, Stage, expect, own, until};

/// Counts until it is told to end: what it counts tells whether it went on.
const COUNT: &str = "n=0; echo ready; while [ ! -e go ]; do sleep 0.02; n=$((n+1)); done; \
                     [ -e low ] && [ $n -lt 30 ] && exit 9; echo right; [ ! -e fail ] || exit 3";
/// How long a command may take to end once it is told to.
const AT_ONCE: Duration = Duration::from_secs(8);
/// How soon a second run knows that the first one lives.
const KNOWN: Duration = Duration::from_secs(45);
/// How soon a run knows that the one before was killed.
const OVER: Duration = Duration::from_secs(150);
/// Where the tests' server of S3 has it.
const OBJECT: &str = "/kept/runs/j.ckptd";

fn words<'a>(store: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let first = ["run", "--interval", "0", "--name", JOB, "--store", store];
    [&first[..], options, &["--", "sh", "-c", COUNT]].concat()
}

/// Runs it until it is there; `begins`: what it says first then.
fn up(stage: &Stage, command: Command) -> Result<Running, Failure> {
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    Ok(running)
}

fn expect_no_jobs(stage: &Stage) -> Result<(), Failure> {
    let jobs = stage.json(&["ls"])?;
    expect(jobs.as_array().is_some_and(Vec::is_empty), || format!("{jobs}"))
}

/// Ends as soon as the job has been told to.
fn told(running: Running, signal: Signal, status: i32) -> Result<String, Failure> {
    let since = Instant::now();
    running.signal(signal)?;
    let ended = running.finish()?.expect(status)?;
    let took = since.elapsed();
    expect(took < AT_ONCE, || format!("told to end, it takes {took:?}: {ended:?}"))?;
    Ok(ended.err)
}

/// A last checkpoint goes to a folder, and the same command goes on from there; a run that was killed leaves what was put there
/// before.
pub fn in_a_folder(stage: &Stage) -> Result<(), Failure> {
    let folder = stage.home.join("kept");
    own(fs::create_dir(&folder).and_then(|()| stage.account.give(&folder)))?;
    let (store, archive) = (text(&folder), folder.join("j.ckptd"));
    let plain = words(&store, &[]);
    let running = up(stage, stage.command(&plain))?;
    running.wait_for("ready")?;
    std::thread::sleep(Duration::from_secs(1));
    let again = stage.output(&plain, "")?.expect(125)?;
    expect(again.err.contains("another job that is called j runs"), || format!("{again:?}"))?;
    let said = told(running, Signal::SIGUSR1, 85)?;
    expect(said.contains("the job is kept in") && archive.exists(), || said)?;
    expect_no_jobs(stage)?;
    // Put there while it runs; then all is killed.
    let every = words(&store, &["--store-every", "1", "-v", "--then-exit", "7"]);
    let running = up(stage, stage.command(&every))?;
    expect(running.text().1.contains("the job goes on from checkpoint 1"), || {
        format!("{:?}", running.text())
    })?;
    stage.checkpoint()?;
    until("it is in the store", || running.text().1.contains("checkpoint 2 is in the store"))?;
    running.kill()?;
    stage.expect_gone()?;
    // What the killed run has left is not touched.
    let mut running = Running::start(stage.command(&every))?;
    let here = "a job j is here already: this one is called j.2 here";
    until("it goes on", || running.text().1.contains("the job goes on from checkpoint 2"))?;
    expect(running.text().1.contains(here), || format!("{:?}", running.text()))?;
    until("it runs", || {
        stage.json(&["status", "j.2"]).is_ok_and(|status| status["live"].is_object())
    })?;
    told(running, Signal::SIGUSR1, 7)?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    expect_no_jobs(stage)?;
    // Its own end: with a failure it stays there, else not.
    own(fs::write(stage.home.join("fail"), ""))?;
    running = up(stage, stage.command(&plain))?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = running.finish()?.expect(3)?;
    expect(ended.out.contains("right") && archive.exists(), || format!("{ended:?}"))?;
    own(fs::remove_file(stage.home.join("fail")))?;
    own(fs::write(stage.home.join("low"), ""))?;
    stage.output(&plain, "")?.expect(0)?;
    expect(!archive.exists(), || "it is kept still".to_owned())?;
    expect_no_jobs(stage)?;
    refused(stage, &store)
}

/// The store goes away before the last checkpoint is to go there: it does so once the store is back. Until then a signal ends the
/// wait, and the job is here.
pub fn later(stage: &Stage) -> Result<(), Failure> {
    let (folder, away) = (stage.home.join("kept"), stage.home.join("away"));
    own(fs::create_dir(&folder).and_then(|()| stage.account.give(&folder)))?;
    let (store, archive) = (text(&folder), folder.join("j.ckptd"));
    let plain = words(&store, &[]);
    let waits = |running: &Running| -> Result<(), Failure> {
        own(fs::rename(&folder, &away))?;
        running.signal(Signal::SIGUSR1)?;
        until("it is tried again", || running.text().1.contains("it is tried again for "))
    };
    let running = up(stage, stage.command(&plain))?;
    running.wait_for("ready")?;
    waits(&running)?;
    own(fs::rename(&away, &folder))?;
    let ended = running.finish()?.expect(85)?;
    expect(ended.err.contains("the job is kept in") && archive.exists(), || format!("{ended:?}"))?;
    expect_no_jobs(stage)?;
    let running = up(stage, stage.command(&plain))?;
    waits(&running)?;
    let said = told(running, Signal::SIGTERM, 125)?;
    let is_told =
        said.contains("job j is here; resume with: ") && said.contains("failed to keep j");
    expect(is_told, || said)?;
    own(fs::rename(&away, &folder))?;
    expect(archive.exists(), || "what was kept before is gone".to_owned())?;
    let running = up(stage, stage.command(&["restart", JOB]))?;
    own(fs::write(stage.home.join("go"), ""))?;
    running.finish()?.expect(0)?;
    stage.output(&["rm", JOB], "")?.expect(0).map(drop)
}

fn refused(stage: &Stage, store: &str) -> Result<(), Failure> {
    let nameless = stage.output(&["run", "--store", store, "true"], "")?.expect(2)?;
    expect(nameless.err.contains("--name"), || format!("{nameless:?}"))?;
    let detached = words(store, &["--detach"]);
    stage.output(&detached, "")?.expect(2)?;
    let failing = ["run", "--name", JOB, "--store", store, "--", "./absent"];
    let ended = stage.output(&failing, "")?.expect(127)?;
    expect(ended.err.lines().count() == 1, || format!("{ended:?}"))?;
    expect(!Path::new(store).join("j.ckptd").exists(), || "nothing is kept".to_owned())
}

/// Two runs of one name in S3: the second is told so while the first lives, and goes on once that was killed. Signals end what
/// waits for the server.
pub fn in_s3(stage: &Stage) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start()? else { return Ok(()) };
    let store = "s3://kept/runs";
    let every = words(store, &["--store-every", "1", "-v"]);
    let first = up(stage, bucket.command(stage, &every))?;
    first.wait_for("ready")?;
    stage.checkpoint()?;
    until("it is in the store", || first.text().1.contains("checkpoint 1 is in the store"))?;
    let other = text(&stage.home.join("other"));
    let elsewhere = [&every[..5], &["--dir", &other], &every[5..]].concat();
    let since = Instant::now();
    let second = bucket.output(stage, &elsewhere)?.expect(125)?;
    let took = since.elapsed();
    let is_told = second.err.contains("another job of that name runs on");
    expect(is_told && took < KNOWN, || format!("after {took:?}: {second:?}"))?;
    let said = told(first, Signal::SIGUSR1, 85)?;
    expect(said.contains("the job is kept in s3://kept/runs/j.ckptd"), || said)?;
    bucket.expect(1, 0)?;
    brought(stage, &bucket)?;
    stuck(stage, &bucket)?;
    if matches!(stage.account, Account::Root) {
        killed(stage, &bucket)?;
    }
    Ok(())
}

/// A signal while the job is on its way here: the store stays as it is.
fn brought(stage: &Stage, bucket: &Bucket) -> Result<(), Failure> {
    let before = bucket.ask("GET", OBJECT, b"")?;
    let plain = words("s3://kept/runs", &[]);
    for (signal, status) in [(Signal::SIGUSR1, 85), (Signal::SIGTERM, 143)] {
        bucket.network().stall_with("GET /kept/runs/j.ckptd HTTP");
        let running = Running::start(bucket.command(stage, &plain))?;
        until("the network stalls", || bucket.network().is_stalled())?;
        std::thread::sleep(Duration::from_millis(300));
        told(running, signal, status)?;
        bucket.network().heal();
        expect(bucket.ask("GET", OBJECT, b"")? == before, || "the store is changed".to_owned())?;
        expect_no_jobs(stage)?;
        // Its claim could not be taken back over that network.
        unclaim(bucket)?;
    }
    Ok(())
}

/// Does away with a claim, if there is one.
fn unclaim(bucket: &Bucket) -> Result<(), Failure> {
    bucket.ask("DELETE", &format!("{OBJECT}.ckptd-run"), b"").map(drop)
}

/// A server that goes silent when the last checkpoint is to go there holds nobody up who is told to end.
fn stuck(stage: &Stage, bucket: &Bucket) -> Result<(), Failure> {
    let running = up(stage, bucket.command(stage, &words("s3://kept/runs", &[])))?;
    bucket.network().stall_with("POST /kept/runs/j.ckptd?uploads");
    running.signal(Signal::SIGUSR1)?;
    until("the network stalls", || bucket.network().is_stalled())?;
    std::thread::sleep(Duration::from_millis(300));
    let said = told(running, Signal::SIGTERM, 125)?;
    bucket.network().heal();
    expect(said.contains("the export ended with 143"), || said)?;
    unclaim(bucket)?;
    // The job is here still.
    stage.output(&["rm", JOB], "")?.expect(0).map(drop)
}

/// A run that was killed: its claim ends with the time for which it is good.
fn killed(stage: &Stage, bucket: &Bucket) -> Result<(), Failure> {
    let plain = words("s3://kept/runs", &[]);
    let running = up(stage, bucket.command(stage, &plain))?;
    running.kill()?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    let since = Instant::now();
    let again = Running::start(bucket.command(stage, &plain))?;
    while !again.text().1.contains("the job goes on from checkpoint") {
        expect(since.elapsed() < OVER, || format!("it never goes on: {:?}", again.text()))?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = again.text().1;
    expect(said.contains("has not ended in order: it may run still"), || said)?;
    until("it runs", || stage.is_up())?;
    own(fs::write(stage.home.join("go"), ""))?;
    again.finish()?.expect(0)?;
    bucket.expect(0, 0)
}
