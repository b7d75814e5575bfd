//! Jobs that end while a checkpoint of them is being taken.

use std::fs;
use std::time::Duration;

use ckptd_tests::job::Failure;

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
