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

/// A shell that has read the script of completions, with the words of a line as its arguments: prints what may stand for the last.
const SHELL: &str = r#"
set -u
PATH=$(dirname "$CKPTD"):$PATH
source <(ckptd completions bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
_clap_complete_ckptd ckptd "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// A shell offers the names of jobs, options and programs.
pub fn completions(stage: &Stage) -> Result<(), Failure> {
    stage.output(&["run", "--name", "fold", "true"], "")?.expect(0)?;
    stage.output(&["run", "--name", "tide", "true"], "")?.expect(0)?;
    for (line, offered) in [
        (&["restart", ""][..], &["fold", "tide", "latest", "--checkpoint"][..]),
        (&["restart", "fo"], &["fold"]),
        (&["rm", "fold", "ti"], &["tide"]),
        (&["slurm", "r"], &["run"]),
        (&["run", "--int"], &["--interval"]),
        (&["run", "tru"], &["true", "truncate"]),
        (&["restart", "no-such-job"], &[]),
    ] {
        let mut asked = stage.alone(&[&["bash", "-c", SHELL, "bash", "ckptd"], line].concat());
        let usual = stage.command(&[]);
        asked.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = own(asked.env("CKPTD", stage.ckptd()).output())?;
        let found = String::from_utf8_lossy(&done.stdout).into_owned();
        let found: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
        let all = offered.iter().all(|wanted| found.contains(wanted));
        let is_right = if offered.len() == 1 { found == offered } else { all };
        let is_right = is_right && found.is_empty() == offered.is_empty();
        expect(is_right && done.stderr.is_empty(), || format!("{line:?}: {found:?}, {done:?}"))?;
    }
    Ok(())
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
