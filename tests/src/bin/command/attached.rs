//! `ckptd attach`, to a job that runs on this machine alone.

use std::io::Read;
use std::process::Stdio;

use ckptd_tests::job::Failure;

use super::stage::{JOB, Stage, expect, own, until};
use super::terminals::{Terminal, is_stopped, run};

/// Writes to both streams until it is to end, with status 6.
const TICKS: &str = "n=0; while [ ! -e end ]; do n=$((n+1)); echo tick $n; echo err $n >&2; \
                     sleep 0.02; done; echo over; exit 6";

/// Two commands see what the job writes, each stream as the job's, and hear of a launcher that is killed; over three
/// generations.
pub fn output(stage: &Stage) -> Result<(), Failure> {
    let mut running = stage.run(&["sh", "-c", TICKS])?;
    for _ in 1..=3 {
        let attached = [stage.start(&["attach", JOB])?, stage.start(&["attach", JOB])?];
        for one in &attached {
            one.wait_for("tick ")?;
            until("errors come", || one.text().1.contains("err "))?;
            expect(!one.text().0.contains("err "), || format!("{:?}", one.text()))?;
        }
        stage.checkpoint()?;
        running.kill()?;
        for one in attached {
            let ended = one.finish()?.expect(125)?;
            expect(ended.err.contains("its launcher ended"), || format!("{ended:?}"))?;
        }
        running = stage.restart(&[])?;
    }
    let attached = stage.start(&["attach", JOB])?;
    attached.wait_for("tick ")?;
    own(std::fs::write(stage.home.join("end"), ""))?;
    let (ran, seen) = (running.finish()?.expect(6)?, attached.finish()?.expect(6)?);
    expect(ran.out.ends_with("over\n") && seen.out.ends_with("over\n"), || {
        format!("{ran:?}, {seen:?}")
    })?;
    let late = stage.output(&["attach", JOB], "")?.expect(6)?;
    expect(late.out.is_empty() && late.err.contains("has ended"), || format!("{late:?}"))?;
    stage.expect_gone()
}

/// A log can be read while the job runs, followed to its end, and read after that; over three generations.
pub fn logs(stage: &Stage) -> Result<(), Failure> {
    let mut running = stage.run(&["sh", "-c", TICKS])?;
    for _ in 1..=3 {
        let followed = stage.start(&["logs", "--follow", JOB])?;
        followed.wait_for("tick ")?;
        stage.checkpoint()?;
        let now = stage.output(&["logs", JOB], "")?.expect(0)?;
        expect(now.out.contains("tick 1\n") && now.out.contains("err 1\n"), || format!("{now:?}"))?;
        running.kill()?;
        followed.finish()?.expect(0)?;
        running = stage.restart(&[])?;
    }
    let followed = stage.start(&["logs", "-f", JOB])?;
    followed.wait_for("tick ")?;
    own(std::fs::write(stage.home.join("end"), ""))?;
    running.finish()?.expect(6)?;
    let followed = followed.finish()?.expect(0)?;
    let late = stage.output(&["logs", JOB], "")?.expect(0)?;
    let log = own(std::fs::read_to_string(stage.log()?))?;
    expect(late.out == log && followed.out == log && log.contains("\nover\n"), || {
        format!("{log:?}, {late:?}, {followed:?}")
    })?;
    stage.expect_gone()
}

/// A reader of an attached command that goes away ends that command, and not the job.
pub fn early_reader(stage: &Stage) -> Result<(), Failure> {
    let running = stage.run(&["sh", "-c", TICKS])?;
    let mut command = stage.command(&["attach", JOB]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = own(command.spawn())?;
    if let Some(mut out) = child.stdout.take() {
        own(out.read_exact(&mut [0; 2]))?;
    }
    let mut status = None;
    until("the command ends when nobody reads", || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    })?;
    expect(status.and_then(|s| s.code()) == Some(141), || format!("{status:?}"))?;
    expect(stage.is_up(), || format!("the job has ended: {:?}", running.text()))?;
    own(std::fs::write(stage.home.join("end"), ""))?;
    running.finish()?.expect(6)?;
    stage.expect_gone()
}

/// Both terminals of a job type into it and show it, before and after a restart; Ctrl-C on the second one ends it.
pub fn terminals(stage: &Stage) -> Result<(), Failure> {
    let mut first = Terminal::start(stage, &run(&["cat"]))?;
    for generation in 1..=3 {
        first.up(stage)?;
        let mut second = Terminal::start(stage, &["attach", JOB])?;
        until("the second terminal is raw", || second.is_raw())?;
        // The echo, and what the job writes: the second line comes after both of the first.
        first.type_in(&format!("first{generation}\n"))?;
        first.screen.wait_for(&format!("first{generation}\r\nfirst{generation}\r\n"))?;
        second.type_in(&format!("second{generation}\n"))?;
        first.screen.wait_for(&format!("second{generation}\r\nsecond{generation}\r\n"))?;
        second.screen.wait_for(&format!("second{generation}\r\nsecond{generation}\r\n"))?;
        stage.checkpoint()?;
        if generation == 3 {
            second.type_in("\x03")?;
            second.expect_status(130)?;
            break;
        }
        first.kill()?;
        second.expect_status(125)?;
        first = Terminal::start(stage, &["restart", JOB])?;
    }
    first.expect_status(130)?;
    first.screen.wait_for(&format!("ckptd restart {JOB}"))?;
    stage.expect_gone()
}

/// What is typed for a job that reads a pipe does not reach it, and that is said.
pub fn without_a_terminal(stage: &Stage) -> Result<(), Failure> {
    let mut running = stage.run(&["sh", "-c", "read line; echo got $line"])?;
    let mut attached = Terminal::start(stage, &["attach", JOB])?;
    let said = || attached.screen.text().contains("it reads its input where it was started");
    let mut keyboard = own(attached.keyboard.try_clone())?;
    until("it is said", || {
        // Before it is attached, nobody reads.
        std::io::Write::write_all(&mut keyboard, b"typed\n").is_ok() && said()
    })?;
    running.say("piped\n")?;
    running.wait_for("got piped")?;
    attached.expect_status(0)?;
    running.finish()?.expect(0)?;
    stage.expect_gone()
}

/// Who has been attached at a terminal leaves the job running by a key, and Ctrl-C asks before it ends a job that has no
/// terminal of its own.
pub fn keys(stage: &Stage) -> Result<(), Failure> {
    let mut first = Terminal::start(stage, &run(&["cat"]))?;
    first.up(stage)?;
    let mut second = Terminal::start(stage, &["attach", JOB])?;
    second.screen.wait_for("to leave it running: Ctrl-\\ d\r\n")?;
    until("the second terminal is raw", || second.is_raw())?;
    second.type_in("left\n\x1cd")?;
    second.expect_status(0)?;
    second.screen.wait_for("runs on; to see it: ckptd attach")?;
    first.screen.wait_for("left\r\nleft\r\n")?;
    first.type_in("\x03")?;
    first.expect_status(130)?;
    stage.output(&["rm", JOB], "")?.expect(0)?;

    let running = stage.run(&["sh", "-c", TICKS])?;
    let mut attached = Terminal::start(stage, &["attach", JOB])?;
    attached.screen.wait_for("to leave it running: Ctrl-\\ d and Enter")?;
    attached.type_in("\x03")?;
    attached.screen.wait_for("Ctrl-C again ends the job")?;
    attached.type_in("\x1c\n")?;
    attached.screen.wait_for("again sends the job SIGQUIT")?;
    attached.type_in("\x1cd\n")?;
    attached.expect_status(0)?;
    // However fast the keys come one after the other.
    for _ in 0..20 {
        let mut attached = Terminal::start(stage, &["attach", JOB])?;
        attached.screen.wait_for("to leave it running")?;
        attached.type_in("\x1cd\n")?;
        attached.expect_status(0)?;
    }
    expect(stage.is_up(), || format!("the job has ended: {:?}", running.text()))?;
    let mut attached = Terminal::start(stage, &["attach", JOB])?;
    attached.screen.wait_for("to leave it running")?;
    attached.type_in("\x03")?;
    attached.screen.wait_for("Ctrl-C again ends the job")?;
    attached.type_in("\x03")?;
    attached.expect_status(130)?;
    running.finish()?.expect(130)?;
    stage.expect_gone()
}

/// A job that its user has stopped is not woken by one who wants to see it.
pub fn stopped(stage: &Stage) -> Result<(), Failure> {
    let mut terminal = Terminal::start(stage, &run(&["sh", "-c", TICKS]))?;
    terminal.screen.wait_for("tick 3")?;
    terminal.up(stage)?;
    let launcher = terminal.child.id();
    terminal.type_in("\x1a")?;
    until("ckptd is stopped", || is_stopped(launcher))?;
    let refused = stage.output(&["attach", JOB], "")?.expect(125)?;
    expect(refused.err.contains("it is stopped"), || format!("{refused:?}"))?;
    expect(is_stopped(launcher), || "it was woken".into())?;
    stage.output(&["stop", JOB], "")?.expect(0)?;
    terminal.expect_status(143)?;
    stage.expect_gone()
}
