//! Programs that run already when ckptd comes to them.

use ckptd_tests::account::Account;
use ckptd_tests::job::Failure;
use nix::sys::signal::Signal;

use super::stage::{JOB, Running, Stage, expect, own, until};
use super::terminals::Terminal;

/// Answers each line; ends with status 6. A child looks on.
const ECHO: &str = "sleep 1000 & while read line; do echo got $line; done; kill $!; exit 6";

fn echo(stage: &Stage) -> Result<Running, Failure> {
    let mut echo = Running::start(stage.alone(&["sh", "-c", ECHO]))?;
    echo.say("one\n")?;
    echo.wait_for("got one")?;
    Ok(echo)
}

/// Kills the program with its child.
fn kill(stage: &Stage, echo: Running) -> Result<(), Failure> {
    echo.kill()?;
    let sleep = stage.find("sleep").ok_or_else(|| Failure("no child".into()))?;
    let sleep = nix::unistd::Pid::from_raw(sleep);
    nix::sys::signal::kill(sleep, Signal::SIGKILL).map_err(|e| Failure(format!("kill: {e}")))
}

/// It goes on after its end, three times, with the streams of each restart; not while it lives.
pub fn restarted(stage: &Stage) -> Result<(), Failure> {
    let mut echo = echo(stage)?;
    let ckptd = stage.adopt(echo.child.id())?;
    stage.checkpoint()?;
    echo.say("two\n")?;
    echo.wait_for("got two")?;
    stage.checkpoint()?;
    ckptd.kill()?;
    echo.say("three\n")?;
    echo.wait_for("got three")?;
    let early = stage.output(&["restart", JOB], "")?.expect(125)?;
    let (pid, said) = (echo.child.id(), "the job still runs: process ");
    expect(early.err.contains(&format!("{said}{pid}, which was adopted,")), || {
        format!("{early:?}")
    })?;
    expect(early.err.lines().count() == 1, || format!("{early:?}"))?;
    kill(stage, echo)?;
    stage.expect_gone()?;
    for generation in 1..=3 {
        let mut again = stage.restart(&[])?;
        again.say(&format!("again {generation}\n"))?;
        again.wait_for(&format!("got again {generation}"))?;
        if generation == 3 {
            again.finish()?.expect(6)?;
            break;
        }
        stage.checkpoint()?;
        again.kill()?;
        stage.expect_gone()?;
    }
    stage.expect_gone()
}

/// Ctrl-C leaves it to itself, with the resume line.
pub fn left(stage: &Stage) -> Result<(), Failure> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let echo = echo(stage)?;
        let ckptd = stage.adopt(echo.child.id())?;
        stage.checkpoint()?;
        ckptd.signal(signal)?;
        let ended = ckptd.finish()?.expect(0)?;
        let said = [format!("job {JOB} runs on"), format!("ckptd restart {JOB}")];
        expect(said.iter().all(|said| ended.err.contains(said)), || format!("{ended:?}"))?;
        let ended = echo.finish()?.expect(6)?;
        expect(ended.out == "got one\n" && ended.err.is_empty(), || format!("{ended:?}"))?;
        stage.expect_gone()?;
        stage.output(&["rm", JOB], "")?.expect(0)?;
    }
    Ok(())
}

/// Its status is that of the command, if the kernel tells it.
pub fn ended(stage: &Stage) -> Result<(), Failure> {
    for (script, code) in [("exit 42", 42), ("kill -9 $$", 137), ("exit 0", 0)] {
        let script = format!("echo ready; read line; {script}");
        let mut program = Running::start(stage.alone(&["sh", "-c", &script]))?;
        program.wait_for("ready")?;
        let ckptd = stage.adopt(program.child.id())?;
        stage.checkpoint()?;
        program.say("go\n")?;
        // Its parent waits for it only after ckptd has ended: until then every kernel tells.
        ckptd.finish()?.expect(code)?;
        program.finish()?;
        let state = stage.json(&["status", JOB])?;
        expect(state["state"] == "ended", || format!("{state}"))?;
        stage.output(&["rm", JOB], "")?.expect(0)?;
    }
    Ok(())
}

/// `ckptd stop` ends it, with a last checkpoint.
pub fn stopped(stage: &Stage) -> Result<(), Failure> {
    let echo = echo(stage)?;
    let ckptd = stage.adopt(echo.child.id())?;
    stage.output(&["stop", JOB, "--checkpoint"], "")?.expect(0)?;
    let ended = ckptd.finish()?.expect(143)?;
    expect(!ended.err.contains("without ckptd"), || format!("{ended:?}"))?;
    echo.finish()?;
    stage.expect_gone()?;
    let again = stage.restart(&[])?;
    let ended = again.finish()?.expect(6)?;
    expect(!ended.out.contains("got one"), || format!("{ended:?}"))
}

/// A program that an interactive shell has started: shell and terminal go on without it, and it on a new terminal.
pub fn on_a_terminal(stage: &Stage) -> Result<(), Failure> {
    let mut shell = Terminal::start_alone(stage, &["bash", "--norc", "--noprofile", "-i"])?;
    shell.type_in(
        "PS1='$ '; dash -c 'stty -echo; while read line; do echo got $line; done'; echo over\n",
    )?;
    until("the program is in the foreground", || stage.is_in_foreground("dash"))?;
    shell.type_in("one\n")?;
    shell.screen.wait_for("got one")?;
    let dash = stage.find("dash").ok_or_else(|| Failure("no dash".into()))?;
    let ckptd = stage.adopt(dash.unsigned_abs())?;
    stage.checkpoint()?;
    shell.type_in("two\n")?;
    shell.screen.wait_for("got two")?;
    stage.checkpoint()?;
    ckptd_tests::processes::kill(&[dash]);
    ckptd.finish()?.expect(137)?;
    shell.screen.wait_for("over")?;
    shell.type_in("stty echo; exit 5\n")?;
    own(shell.child.wait())?;
    let mut terminal = Terminal::start(stage, &["restart", JOB])?;
    terminal.up(stage)?;
    terminal.type_in("three\n")?;
    terminal.screen.wait_for("got three")?;
    terminal.type_in("\x04")?;
    terminal.expect_status(0)
}

/// Each with one line, and no job is left behind.
pub fn refused(stage: &Stage) -> Result<(), Failure> {
    let is_refused = |arguments: &[&str], reason: &str| {
        let refused = stage.output(arguments, "")?.expect(125)?;
        let line = format!("{refused:?}");
        let is_line = refused.err.starts_with("ckptd: failed to adopt process ");
        expect(is_line && refused.err.lines().count() == 1, || line.clone())?;
        expect(refused.err.contains(reason), || line.clone())
    };
    is_refused(&["adopt", "2147483647"], "there is no process")?;
    let own_shell = std::process::id().to_string();
    is_refused(&["adopt", &own_shell], "ckptd itself descends from process")?;
    if stage.account == Account::User {
        let program = Running::start(std::process::Command::new("cat"))?;
        let pid = program.child.id().to_string();
        if ckptd_tests::account::running_as_root() {
            is_refused(&["adopt", &pid], "acts for user 0; run this command as that user")?;
        }
        program.finish()?;
    }
    let script = "sleep 100 & exec strace -f -o /dev/null -p $!";
    if std::path::Path::new("/usr/bin/strace").exists() {
        let traced = Running::start(stage.alone(&["sh", "-c", script]))?;
        until("it is traced", || {
            stage.find("sleep").is_some_and(|pid| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
                status.is_ok_and(|status| !status.contains("TracerPid:\t0"))
            })
        })?;
        let pid = traced.child.id().to_string();
        is_refused(&["adopt", &pid], "is traced by process")?;
        traced.kill()?;
    }
    let jobs = stage.json(&["ls"])?;
    expect(jobs.as_array().is_some_and(Vec::is_empty), || format!("{jobs}"))
}

/// Whoever outlives its first process goes on, and is told of.
pub fn outlived(stage: &Stage) -> Result<(), Failure> {
    let echo = echo(stage)?;
    let ckptd = stage.adopt(echo.child.id())?;
    stage.checkpoint()?;
    echo.kill()?;
    let ended = ckptd.finish()?.expect(137)?;
    let said = "one process of job j goes on without ckptd";
    expect(ended.err.contains(said), || format!("{ended:?}"))?;
    let sleep = stage.find("sleep").ok_or_else(|| Failure("it has ended".into()))?;
    ckptd_tests::processes::kill(&[sleep]);
    stage.expect_gone()
}
