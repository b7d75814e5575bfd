//! Jobs that end while a checkpoint of them is being taken.

use std::fs;
use std::time::Duration;

use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::stage::{JOB, Running, Stage, expect, own, until};

const LOOP: &str = "echo ready; while [ ! -e go ]; do sleep 0.02; done; echo right";

/// The image is written when the job ends, and its commit is under way: it gets its mark.
pub fn before_the_mark(stage: &Stage) -> Result<(), Failure> {
    let faults = stage.home.join("faults");
    own(fs::create_dir(&faults).and_then(|()| stage.account.give(&faults)))?;
    let armed = faults.join("seal");
    own(fs::write(&armed, "").and_then(|()| stage.account.give(&armed)))?;
    let mut command =
        stage.command(&["run", "--interval", "0", "--name", JOB, "--", "sh", "-c", LOOP]);
    command.env("CKPTD_FAULT_DIR", &faults);
    let mut running = Running::start(command)?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    let asked = stage.start(&["checkpoint", JOB])?;
    let stands = faults.join("seal.reached");
    until("the image is written", || stands.exists())?;
    own(fs::write(stage.home.join("go"), ""))?;
    running.wait_for("right")?;
    until("the shell has ended", || !stage.runs("sh"))?;
    // The agent that stands shows nowhere that it has been told.
    std::thread::sleep(Duration::from_millis(100));
    own(fs::remove_file(&stands))?;
    let ended = running.finish()?.expect(0)?;
    expect(ended.err.is_empty(), || format!("{ended:?}"))?;
    asked.finish()?.expect(0)?;
    let verdicts = stage.json(&["verify", JOB])?;
    expect(verdicts[0]["verdict"] == "whole", || format!("{verdicts}"))
}

/// Nothing is said of a checkpoint that the job's end has cut short, and none is committed in part.
pub fn meanwhile(stage: &Stage) -> Result<(), Failure> {
    for run in 0..40 {
        let program = format!("sleep 0.{:03}", 45 + 2 * run);
        let name = format!("j{run}");
        let words = ["run", "--interval", "0.05", "--name", &name, "--", "sh", "-c", &program];
        let ended = stage.output(&words, "")?.expect(0)?;
        expect(ended.err.is_empty(), || format!("{ended:?}"))?;
        let verdicts = stage.output(&["verify", &name], "")?;
        let none = verdicts.err.contains("no checkpoint");
        expect(none || verdicts.status.success(), || format!("{verdicts:?}"))?;
    }
    Ok(())
}

/// A signal that tells of the machine's end: a last checkpoint, a status for the scheduler, and the job goes on from there.
/// Another signal is the job's.
pub fn checkpoint_on(stage: &Stage) -> Result<(), Failure> {
    let traps = "trap 'echo seen' USR2; n=0; echo ready; while [ ! -e go ]; do sleep 0.02; n=$((n+1)); done; \
                 [ $n -gt 0 ] && echo right";
    let options =
        ["--interval", "0", "--checkpoint-on", "USR1", "--then-exit", "75", "--name", JOB];
    let words = [&["run"], &options[..], &["--", "sh", "-c", traps]].concat();
    let mut running = Running::start(stage.command(&words))?;
    stage.until_up(&mut running)?;
    running.wait_for("ready")?;
    running.signal(Signal::SIGUSR2)?;
    running.wait_for("seen")?;
    running.signal(Signal::SIGUSR1)?;
    let ended = running.finish()?.expect(75)?;
    expect(ended.err.contains("a last checkpoint is taken"), || format!("{ended:?}"))?;
    expect(!stage.runs("sh"), || "the job runs on".to_owned())?;
    let restart = ["restart", JOB, "--checkpoint-on", "SIGUSR1"];
    let mut again = Running::start(stage.command(&restart))?;
    stage.until_up(&mut again)?;
    again.signal(Signal::SIGUSR1)?;
    again.finish()?.expect(85)?;
    own(fs::write(stage.home.join("go"), ""))?;
    let ended = stage.output(&["restart", JOB], "")?.expect(0)?;
    expect(ended.out == "right\n", || format!("{ended:?}"))?;
    let wrong = stage.output(&["run", "--checkpoint-on", "KILL", "true"], "")?.expect(2)?;
    expect(wrong.err.contains("SIGUSR1"), || format!("{wrong:?}"))?;
    stage.output(&["run", "--then-exit", "3", "true"], "")?.expect(2).map(drop)
}
