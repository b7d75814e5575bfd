//! A coordinator and an agent as somebody has them who tries a cluster: on terminals, beside each other on one machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ckptd_tests::job::Failure;

use super::stage::{Stage, expect, own, until};
use super::terminals::Terminal;

/// Both say what they do, run on, and end by Ctrl-C; an operator's commands find the coordinator though the agent beside it
/// speaks for no operator, and `status` tells what is to be known where there are no jobs.
pub fn beside_each_other(stage: &Stage) -> Result<(), Failure> {
    let mut coordinator = Terminal::start(stage, &["coordinator", "--listen", "127.0.0.1:0"])?;
    coordinator.screen.wait_for("coordinator listens at 127.0.0.1:")?;
    let token = stage.output(&["token", "--uses", "1"], "")?.expect(0)?;
    let file = stage.home.join("token");
    own(fs::write(&file, &token.out))?;
    own(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))?;
    own(stage.account.give(&file))?;
    let file = file.display().to_string();
    let join = ["agent", "--join-file", &file, "--name", "here", "--port", "0", "--slots", "1"];
    let mut agent = Terminal::start(stage, &[&join[..], &["--allow-root"]].concat())?;
    until("the agent is a member", || {
        stage.output(&["nodes"], "").is_ok_and(|nodes| nodes.out.contains("alive"))
    })
    .map_err(|failure| Failure(format!("{failure}; {:?}", agent.screen.text())))?;
    for daemon in [&coordinator, &agent] {
        let text = daemon.screen.text();
        expect(!text.contains("ansi") && !text.contains('\u{1b}'), || format!("{text:?}"))?;
    }

    stage.output(&["drain", "here", "--no-wait"], "")?.expect(0)?;
    expect(status(stage)? == "no jobs\ndrained     here\n", || "it is not told".into())?;
    stage.output(&["uncordon", "here"], "")?.expect(0)?;
    expect(status(stage)? == "no jobs\n", || "it is still told".into())?;

    agent.type_in("\x03")?;
    agent.expect_status(0)?;
    coordinator.type_in("\x03")?;
    coordinator.expect_status(0)?;
    // A job that is meant for the cluster does not run here without a word.
    let refused = stage.output(&["run", "--interval", "0", "true"], "")?.expect(125)?;
    expect(refused.err.contains("--local"), || format!("{refused:?}"))
}

/// What `status` tells, without what it has to say of this machine's disk.
fn status(stage: &Stage) -> Result<String, Failure> {
    let status = stage.output(&["status"], "")?.expect(0)?;
    let lines = status.out.lines().filter(|line| !line.starts_with("attention"));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}
