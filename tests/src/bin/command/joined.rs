//! A machine that has joined a cluster, whose agent does not answer.

use std::fs;

use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, own};

/// A job that is meant for the cluster does not run on this machine alone, unless that is asked for.
pub fn without_its_agent(stage: &Stage) -> Result<(), Failure> {
    let identity = stage.home.join("state").join("identity");
    own(fs::create_dir_all(&identity))?;
    own(fs::write(identity.join("cert.pem"), "as an agent has left it"))?;
    for path in [identity.parent().unwrap_or(&identity), &identity, &identity.join("cert.pem")] {
        own(stage.account.give(path))?;
    }
    let run = ["run", "--name", JOB, "--interval", "0"];
    let refused = stage.output(&[&run[..], &["echo", "here"]].concat(), "")?.expect(125)?;
    let words = ["its agent does not answer", "systemctl start ckptd-agent", "--local"];
    expect(
        refused.out.is_empty()
            && refused.err.lines().count() == 1
            && words.iter().all(|word| refused.err.contains(word)),
        || format!("{refused:?}"),
    )?;
    let here = stage.output(&[&run[..], &["--local", "echo", "here"]].concat(), "")?.expect(0)?;
    expect(here.out == "here\n", || format!("{here:?}"))?;
    let wrong = stage.output(&["run", "--local", "--place", "a=1", "true"], "")?.expect(2)?;
    expect(wrong.err.contains("leave --local out"), || format!("{wrong:?}"))?;
    stage.output(&["run", "--local", "--detach", "true"], "")?.expect(0)?;
    // A machine that has joined none needs no option.
    own(fs::remove_dir_all(&identity))?;
    let alone = stage.output(&["run", "--interval", "0", "echo", "alone"], "")?.expect(0)?;
    expect(alone.out == "alone\n", || format!("{alone:?}"))
}
