//! Jobs of this machine alone that nobody stays with (`--detach`).

use std::fs;

use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, own, until};

/// Says where it is and what it has inherited, until it is let go.
const SCRIPT: &str = "echo begun; [ -z \"$CKPTD_DETACHED\" ] || echo marked; echo bad >&2; read line || echo nothing; \
                      until [ -e go ]; do sleep 0.05; done; echo done; exit 7";

/// The shell is back once the job runs; its output is in its log, and other commands reach it. So it is after a restart.
pub fn here(stage: &Stage) -> Result<(), Failure> {
    let run = ["run", "--detach", "--interval", "0", "--name", JOB, "--", "sh", "-c", SCRIPT];
    let begun = stage.output(&run, "words for somebody else\n")?.expect(0)?;
    expect(begun.out == format!("{JOB}\n") && begun.err.is_empty(), || format!("{begun:?}"))?;
    until("the job has written", || log(stage) == "begun\nbad\nnothing\n")?;
    let twice = stage.output(&run, "")?.expect(125)?;
    expect(twice.out.is_empty() && twice.err.contains(JOB), || format!("{twice:?}"))?;
    stage.checkpoint()?;
    stage.output(&["stop", JOB], "")?.expect(0)?;
    let restart = ["restart", "--detach", JOB];
    let again = stage.output(&restart, "")?.expect(0)?;
    expect(again.out == format!("{JOB}\n"), || format!("{again:?}"))?;
    own(fs::write(stage.home.join("go"), ""))?;
    until("its end is in the log", || {
        log(stage).ends_with("done\n[ckptd: ended with status 7]\n")
    })?;
    stage.expect_gone()
}

fn log(stage: &Stage) -> String {
    stage.output(&["logs", JOB], "").map(|told| told.out).unwrap_or_default()
}

/// What is wrong is told by who is called, and no job is left.
pub fn wrong(stage: &Stage) -> Result<(), Failure> {
    let absent = ["run", "--detach", "--name", JOB, "--", "/no/such/program"];
    let told = stage.output(&absent, "")?.expect(127)?;
    expect(told.out.is_empty() && told.err.contains("/no/such/program"), || format!("{told:?}"))?;
    let output =
        ["run", "--detach", "--output", "/no/such/folder/file", "--name", JOB, "--", "true"];
    let told = stage.output(&output, "")?.expect(125)?;
    expect(told.out.is_empty() && told.err.contains("/no/such/folder"), || format!("{told:?}"))?;
    stage.output(&["status", JOB], "")?.expect(125).map(drop)
}
