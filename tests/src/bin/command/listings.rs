//! What is told of jobs, and what is refused while they run.

use ckptd_tests::job::Failure;
use serde_json::Value;

use super::stage::{JOB, Stage, expect, own, until};

const LOOP: &str = "echo ready; while [ ! -e go ]; do sleep 0.02; done; echo right";

fn one<'a>(list: &'a Value, what: &str) -> Result<&'a Value, Failure> {
    match list.as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one),
        _ => Err(Failure(format!("{what} is no list of one: {list}"))),
    }
}

/// status, ls, inspect and verify, of a job that runs and after it was killed.
pub fn json(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    let number = stage.checkpoint()?;
    let status = stage.json(&["status", JOB])?;
    expect(
        status["state"] == "running"
            && status["live"]["launcher_pid"] == running.child.id()
            && status["checkpoints"][0]["checkpoint"] == number,
        || format!("status: {status}"),
    )?;
    let listed = stage.json(&["ls"])?;
    expect(one(&listed, "ls")?["name"] == JOB, || format!("ls: {listed}"))?;
    let inside = stage.json(&["inspect", JOB])?;
    let graph = &inside["graph"];
    expect(
        inside["checkpoint"] == number
            && graph["processes"].as_array().is_some_and(|all| !all.is_empty())
            && graph["files"].as_array().is_some_and(|all| !all.is_empty()),
        || format!("inspect: {inside}"),
    )?;
    let verdicts = stage.json(&["verify", JOB])?;
    let verdict = one(&verdicts, "verify")?;
    expect(verdict["verdict"] == "whole" && verdict["chunks"].as_u64() > Some(0), || {
        format!("verify: {verdicts}")
    })?;
    running.kill()?;
    stage.expect_gone()?;
    let status = stage.json(&["status", JOB])?;
    expect(status["state"] == "interrupted" && status["live"].is_null(), || {
        format!("status of a killed job: {status}")
    })
}

/// stop --checkpoint takes a last one; restart goes on from it.
pub fn stop_with_checkpoint(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    let first = stage.checkpoint()?;
    let stopped = stage.output(&["stop", JOB, "--checkpoint"], "")?.expect(0)?;
    expect(stopped.err.contains(&format!("ckptd restart {JOB}")), || format!("{stopped:?}"))?;
    running.finish()?.expect(143)?;
    stage.expect_gone()?;
    let status = stage.json(&["status", JOB])?;
    let numbers = status["checkpoints"].as_array().map_or(0, Vec::len);
    expect(numbers == 2 && status["checkpoints"][0]["checkpoint"] == first, || {
        format!("{status}")
    })?;
    go_on(stage, &[])
}

fn go_on(stage: &Stage, arguments: &[&str]) -> Result<(), Failure> {
    let go = stage.home.join("go");
    let running = stage.restart(arguments)?;
    own(std::fs::write(&go, ""))?;
    let ended = running.finish()?.expect(0)?;
    own(std::fs::remove_file(&go))?;
    expect(ended.out == "right\n", || format!("{ended:?}"))?;
    stage.expect_gone()
}

/// What makes no sense while a job runs, or has ended, or is not there, is refused in one line.
pub fn refusals(stage: &Stage) -> Result<(), Failure> {
    let refused = |arguments: &[&str], words: &str| -> Result<(), Failure> {
        let ended = stage.output(arguments, "")?.expect(125)?;
        let right = ended.err.starts_with("ckptd: failed to ")
            && ended.err.lines().count() == 1
            && ended.err.contains(words);
        expect(right, || format!("{arguments:?} is not refused with {words:?}: {ended:?}"))
    };
    refused(&["restart", "nosuch"], "nosuch")?;
    // As a shell would end.
    for (program, status) in [("nosuch", 127), ("./nosuch", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let ended = stage.output(&["run", program], "")?.expect(status)?;
        expect(ended.err.lines().count() == 1, || format!("{program}: {ended:?}"))?;
    }
    refused(&["checkpoint", "latest"], "latest")?;
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    refused(&["restart", JOB], "running")?;
    refused(&["rm", JOB], "running")?;
    refused(&["run", "--name", JOB, "true"], JOB)?;
    running.kill()?;
    stage.expect_gone()?;
    refused(&["checkpoint", JOB], "not running")?;
    refused(&["stop", JOB], "not running")?;
    refused(&["restart", JOB, "--checkpoint", "77"], "77")?;
    go_on(stage, &[])?;
    // Its work is done.
    refused(&["restart", JOB], "--checkpoint 1")?;
    go_on(stage, &["--force"])?;
    stage.output(&["rm", JOB], "")?.expect(0)?;
    refused(&["status", JOB], JOB)
}

/// Of all jobs, those are forgotten that have ended by themselves; those that were stopped, or run, stay.
pub fn rm_ended(stage: &Stage) -> Result<(), Failure> {
    let run = |name: &str, script: &str, code: i32| {
        stage.output(&["run", "--name", name, "--", "sh", "-c", script], "")?.expect(code)
    };
    run("done", "true", 0)?;
    run("failed", "exit 3", 3)?;
    // As by the kernel, for its memory.
    run("killed", "kill -9 $$", 128 + 9)?;
    let stopped = stage.run(&["sleep", "1000"])?;
    until("the job answers", || stage.is_up())?;
    stage.output(&["stop", "--checkpoint", JOB], "")?.expect(0)?;
    stopped.finish()?;
    for wrong in [&["rm", "--ended", JOB][..], &["rm", "--older", "7d"], &["rm"]] {
        stage.output(wrong, "")?.expect(2)?;
    }
    let none = stage.output(&["rm", "--ended", "--older", "1h"], "")?.expect(0)?;
    expect(none.out.is_empty(), || format!("{none:?}"))?;
    let gone = stage.output(&["rm", "--ended"], "")?.expect(0)?;
    expect(gone.out == "done\nfailed\n" && gone.err.is_empty(), || format!("{gone:?}"))?;
    let left = stage.output(&["ls", "--json"], "")?.expect(0)?;
    let left: Vec<Value> =
        serde_json::from_str(&left.out).map_err(|error| Failure(error.to_string()))?;
    let names: Vec<&str> = left.iter().filter_map(|job| job["name"].as_str()).collect();
    expect(names == ["killed", JOB], || format!("{left:?}"))?;
    stage.expect_gone()
}

/// Whoever kills the launcher kills the job, whatever its processes do about signals and sessions.
pub fn launcher_killed(stage: &Stage) -> Result<(), Failure> {
    let script = "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; sleep 100 & sleep 100' & \
                  (sleep 100 &) ; echo ready; sleep 100";
    let running = stage.run(&["sh", "-c", script])?;
    running.wait_for("ready")?;
    running.kill()?;
    stage.expect_gone()
}

/// A page about a job that runs, and about one that has ended.
pub fn report(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", LOOP])?;
    running.wait_for("ready")?;
    stage.checkpoint()?;
    let to = stage.home.join("page.html").display().to_string();
    let told = stage.output(&["report", JOB, &to], "")?.expect(0)?;
    let page = own(std::fs::read_to_string(&to))?;
    let is_whole = |page: &str| {
        page.starts_with("<!DOCTYPE html>")
            && page.ends_with("</html>\n")
            && page.contains("<circle class=\"checkpoint\"")
    };
    expect(told.out.trim() == to && is_whole(&page), || format!("{told:?}: {page}"))?;
    own(std::fs::write(stage.home.join("go"), ""))?;
    running.finish()?.expect(0)?;
    let page = stage.output(&["report", JOB, "-"], "")?.expect(0)?;
    expect(is_whole(&page.out), || format!("after its end: {page:?}"))?;
    let nowhere = stage.home.join("no/page.html").display().to_string();
    let refused = stage.output(&["report", JOB, &nowhere], "")?.expect(125)?;
    expect(refused.err.lines().count() == 1, || format!("{refused:?}"))
}
