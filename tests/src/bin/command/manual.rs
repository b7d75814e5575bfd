//! Help of commands, and pages of the manual.

use std::process::Stdio;

use ckptd_tests::job::Failure;

use super::stage::{Stage, expect, own};
use super::terminals::Terminal;

/// Commands and topics are explained; what is neither is refused, with what was perhaps meant.
pub fn help(stage: &Stage) -> Result<(), Failure> {
    for (words, wanted) in [
        (&[][..], &["Commands:", "Topics", "troubleshooting"][..]),
        (&["run"], &["--interval", "Usage: ckptd run"]),
        (&["slurm", "run"], &["--spare"]),
        (&["slurm"], &["Usage: ckptd slurm", "sbatch"]),
        (&["limits"], &["LIMITS", "Refused at the checkpoint"]),
        (&["exit-status"], &["EXIT STATUS", "128+N"]),
    ] {
        let done = stage.output(&[&["help"], words].concat(), "")?.expect(0)?;
        let all = done.out.to_lowercase();
        let is_there = wanted.iter().all(|word| all.contains(&word.to_lowercase()));
        expect(is_there && done.err.is_empty(), || format!("help {words:?}: {done:?}"))?;
    }
    for (wrong, near) in [("troubleshoting", "'troubleshooting'"), ("statsu", "'status'")] {
        let done = stage.output(&["help", wrong], "")?.expect(2)?;
        let is_right = done.err.contains(near) && done.err.lines().count() == 1;
        expect(is_right && done.out.is_empty(), || format!("{done:?}"))?;
    }
    // Whoever reads no further is nobody to complain to.
    let mut command = stage.command(&["help", "cluster"]);
    let mut early = own(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())?;
    drop(early.stdout.take());
    let done = own(early.wait_with_output())?;
    expect(done.stderr.is_empty(), || format!("{done:?}"))
}

/// On a terminal a topic is shown by the pager.
pub fn pager(stage: &Stage) -> Result<(), Failure> {
    let ckptd = stage.ckptd().display().to_string();
    let heading = "What is not kept?";
    for (pager, wanted) in
        [("sed s/^/paged:/", "paged:"), ("cat", heading), ("/no/such/pager", heading)]
    {
        let pager = format!("PAGER={pager}");
        let mut terminal = Terminal::start_alone(stage, &["env", &pager, &ckptd, "help", "faq"])?;
        terminal.expect_status(0)?;
        terminal.screen.wait_for(wanted)?;
    }
    Ok(())
}
